package projection

import (
	"time"

	"github.com/google/uuid"
)

// Counts are rows and bytes, as events.Counts has them.
type Counts struct {
	Read       int64 `json:"read,omitempty"`
	Applied    int64 `json:"applied,omitempty"`
	Superseded int64 `json:"superseded,omitempty"`
	Skipped    int64 `json:"skipped,omitempty"`
	SetAside   int64 `json:"set_aside,omitempty"`
	Bytes      int64 `json:"bytes,omitempty"`
}

func (c *Counts) add(o Counts) {
	c.Read += o.Read
	c.Applied += o.Applied
	c.Superseded += o.Superseded
	c.Skipped += o.Skipped
	c.SetAside += o.SetAside
	c.Bytes += o.Bytes
}

// Run is a run as the history shows it.
type Run struct {
	ID       uuid.UUID
	Pipeline uuid.UUID // uuid.Nil: not one of a stored pipeline
	// PipelineName, Route and Version are those of the run when it was asked for.
	PipelineName, Route, Version string
	// Source and Sink are the connectors of its ends; empty: not known.
	Source, Sink string
	Schedule     uuid.UUID
	CreatedAt    time.Time

	// Folded is the number of the last fact that is in this row, Muted that of the
	// last one whose events were raised before: after a rebuild they are not again.
	Folded, Muted int64

	State      string
	Resumable  bool
	Error      string
	ErrorClass string
	Hint       string

	StartedAt, EndedAt, ProgressedAt time.Time

	Attempts, Failures, Interruptions int
	// Counts are the sums over resources.
	Counts
	Usage
	// PeakBytes is the greatest memory of an attempt.
	PeakBytes int64

	// Memo is what folding goes on from.
	Memo Memo
}

// Usage is what a run used. Compute is the time of its attempts, Memory that time
// times their memory in MiB; both in milliseconds. Moved counts bytes as often as
// they were written.
type Usage struct {
	Compute int64 `json:"compute,omitempty"`
	Memory  int64 `json:"memory,omitempty"`
	CPU     int64 `json:"cpu,omitempty"`
	Moved   int64 `json:"moved,omitempty"`
}

func (u *Usage) add(o Usage) {
	u.Compute += o.Compute
	u.Memory += o.Memory
	u.CPU += o.CPU
	u.Moved += o.Moved
}

// Memo is the state of folding a run beyond what its row shows.
type Memo struct {
	// Open are attempts that have not ended, by slot and generation.
	Open map[string]Open `json:"open,omitempty"`
	// ActiveSince is when it last began to work.
	ActiveSince time.Time `json:"active_since,omitzero"`
	// Counted and Used are what earlier endings counted.
	Counted Counts `json:"counted,omitzero"`
	Used    Usage  `json:"used,omitzero"`
	// Ended is the last ending, to which belongs what is told after it.
	Ended *Ending `json:"ended,omitempty"`
}

// Open is an attempt that goes on.
type Open struct {
	At     time.Time `json:"at"`
	Memory int64     `json:"memory,omitempty"`
}

// Ending names the bucket of an ending.
type Ending struct {
	Hour   time.Time `json:"hour"`
	Status string    `json:"status"`
}

// Resource is a resource of a run.
type Resource struct {
	Name string
	// State is planned, running, completed or failed.
	State               string
	Target, Read, Write string
	Splits, SplitsDone  int
	Counts
	Error              string
	StartedAt, EndedAt time.Time
	// Counted is what earlier endings of the run counted.
	Counted Counts

	dirty bool
}

// Resources are a run's resources by name.
type Resources map[string]*Resource

// Dirty returns the resources that folding changed.
func (r Resources) Dirty() []*Resource {
	var out []*Resource
	for _, res := range r {
		if res.dirty {
			out = append(out, res)
		}
	}
	return out
}

func (r Resources) get(name string) *Resource {
	res, ok := r[name]
	if !ok {
		res = &Resource{Name: name, State: "planned"}
		r[name] = res
	}
	res.dirty = true
	return res
}

// Key is a bucket of metrics. Resource is empty for whole runs.
type Key struct {
	Hour         time.Time
	Pipeline     uuid.UUID
	Source, Sink string
	Resource     string
	Status       string
}

// Metrics are the sums of a bucket.
type Metrics struct {
	// Runs counts endings, of runs or of a resource in runs.
	Runs                    int64
	Read, Written, SetAside int64
	Bytes                   int64
	// Millis is the time from begin to ending, with its least and greatest value.
	Millis, MinMillis, MaxMillis int64
	Usage
	PeakBytes int64
	// Durations counts endings by class of duration; see [DurationClass].
	Durations map[int]int64
}

// Add adds a bucket to another.
func (m *Metrics) Add(o Metrics) {
	if o.Runs > 0 {
		if m.Runs == 0 || o.MinMillis < m.MinMillis {
			m.MinMillis = o.MinMillis
		}
		m.MaxMillis = max(m.MaxMillis, o.MaxMillis)
	}
	m.Runs += o.Runs
	m.Read += o.Read
	m.Written += o.Written
	m.SetAside += o.SetAside
	m.Bytes += o.Bytes
	m.Millis += o.Millis
	m.Usage.add(o.Usage)
	m.PeakBytes = max(m.PeakBytes, o.PeakBytes)
	for class, n := range o.Durations {
		if m.Durations == nil {
			m.Durations = map[int]int64{}
		}
		m.Durations[class] += n
	}
}
