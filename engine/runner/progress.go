package runner

import (
	"sync"
	"sync/atomic"
)

// Progress holds live counters of a run for whoever wants to show them. Its
// methods may be called at any time from any goroutine.
type Progress struct {
	mu        sync.Mutex
	resources []*ResourceProgress
}

// ResourceProgress counts one resource.
type ResourceProgress struct {
	Resource string
	// EstimatedRows and EstimatedBytes come from the plan; -1 means unknown.
	EstimatedRows, EstimatedBytes int64
	// Splits is the number of read splits, Attempted counts this process's work only.
	Splits int

	// Read counts rows read by this process, ReadBytes their size in flight;
	// Applied counts rows that are durable, earlier processes' included.
	Read, ReadBytes, Applied atomic.Int64
	// SplitsDone counts splits that are done, earlier processes' included.
	SplitsDone atomic.Int64
	// Published is true once the rows are visible.
	Published atomic.Bool
	// Failed is true once the resource can't go on in this process.
	Failed atomic.Bool
}

// Resources returns the resources in plan order; empty before planning is done.
func (p *Progress) Resources() []*ResourceProgress {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*ResourceProgress(nil), p.resources...)
}

func (p *Progress) reset(rs []*ResourceProgress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resources = rs
}

func (p *Progress) resource(name string) *ResourceProgress {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.resources {
		if r.Resource == name {
			return r
		}
	}
	r := &ResourceProgress{Resource: name, EstimatedRows: -1, EstimatedBytes: -1}
	p.resources = append(p.resources, r)
	return r
}
