package projection

import (
	"time"

	"github.com/tranship-io/tranship/events"
)

// resource folds what concerns a resource, and keeps the run's sums.
func (s folding) resource(p events.Payload) {
	at := s.f.At
	switch p := p.(type) {
	case *events.ResourcePlanned:
		res := s.res.get(p.Resource)
		res.Target, res.Read, res.Write, res.Splits = p.Target, p.Read, p.Write, p.Splits
	case *events.ResourceStarted:
		s.begin(s.res.get(p.Resource))
	case *events.EpochCommitted:
		res := s.res.get(p.Resource)
		s.begin(res)
		s.change(res, countsOf(p.Counts))
		s.r.Usage.Moved += p.Bytes
	case *events.SplitFinished:
		res := s.res.get(p.Resource)
		res.SplitsDone++
	case *events.ResourceCompleted:
		// The resource's own sums decide: epochs that another attempt wrote and did
		// not live to tell of are in them.
		res := s.res.get(p.Resource)
		change := countsOf(p.Counts)
		change.subtract(res.Counts)
		s.change(res, change)
		res.State, res.Error, res.EndedAt, res.SplitsDone = "completed", "", at, res.Splits
	case *events.ResourceFailed:
		res := s.res.get(p.Resource)
		res.State, res.Error, res.EndedAt = "failed", p.Error, at
	case *events.ResourceReset:
		res := s.res.get(p.Resource)
		change := Counts{}
		change.subtract(res.Counts)
		s.change(res, change)
		res.State, res.Error, res.SplitsDone, res.EndedAt = "running", "", 0, time.Time{}
	}
}

func (s folding) begin(res *Resource) {
	if res.StartedAt.IsZero() {
		res.StartedAt = s.f.At
	}
	if res.State != "completed" {
		res.State, res.Error, res.EndedAt = "running", "", time.Time{}
	}
}

func (s folding) change(res *Resource, by Counts) {
	res.Counts.add(by)
	s.r.Counts.add(by)
}

func countsOf(c events.Counts) Counts {
	return Counts{Read: c.Read, Applied: c.Applied, Superseded: c.Superseded, Skipped: c.Skipped, SetAside: c.SetAside, Bytes: c.Bytes}
}
