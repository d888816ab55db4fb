package projection

import (
	"errors"
	"fmt"
	"time"

	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// Batch collects what folding facts gives besides rows of runs and resources.
type Batch struct {
	// Metrics are what is added to buckets.
	Metrics map[Key]Metrics
	Events  []notify.Event
}

func (b *Batch) count(k Key, m Metrics) {
	if b.Metrics == nil {
		b.Metrics = map[Key]Metrics{}
	}
	sum := b.Metrics[k]
	sum.Add(m)
	b.Metrics[k] = sum
}

// GapError tells that a fact is missing before one: facts have no gaps, so the
// store has lost one.
type GapError struct {
	Run        string
	Want, Have int64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("fact %d of run %s is missing: the next one is %d", e.Want, e.Run, e.Have)
}

// Fold folds the run's next fact. One that is folded already changes nothing.
func Fold(r *Run, res Resources, f events.Fact, b *Batch) error {
	if f.Number <= r.Folded {
		return nil
	}
	if f.Number != r.Folded+1 {
		return &GapError{Run: r.ID.String(), Want: r.Folded + 1, Have: f.Number}
	}
	p, err := f.Decode()
	var unknown *events.UnknownError
	switch {
	case errors.As(err, &unknown):
		// A newer process wrote it; nothing that this one shows depends on it.
		r.Folded = f.Number
		return nil
	case err != nil:
		return fmt.Errorf("fold fact %d of run %s: %w", f.Number, r.ID, err)
	}
	step := folding{r, res, f, b}
	step.run(p)
	step.resource(p)
	if err := step.raise(p); err != nil {
		return err
	}
	r.Folded = f.Number
	return nil
}

// folding is the folding of one fact.
type folding struct {
	r   *Run
	res Resources
	f   events.Fact
	b   *Batch
}

// run folds what concerns the run as a whole.
func (s folding) run(p events.Payload) {
	r, at := s.r, s.f.At
	switch p := p.(type) {
	case *events.RunScheduled:
		r.State = string(engine.StateScheduled)
	case *events.RunRequested:
		r.State = string(engine.StateRequested)
	case *events.RunStarted:
		s.working()
	case *events.RunResumed:
		r.State, r.Resumable = string(engine.StateRequested), false
		r.Error, r.ErrorClass, r.Hint, r.EndedAt = "", "", "", time.Time{}
		r.Memo.ActiveSince, r.Memo.Ended = at, nil
	case *events.AttemptStarted:
		s.working()
		r.Attempts++
		if r.Memo.Open == nil {
			r.Memo.Open = map[string]Open{}
		}
		r.Memo.Open[attemptKey(p.Slot, p.Generation)] = Open{At: at, Memory: p.MemoryBytes}
	case *events.AttemptUsed:
		r.Usage.add(Usage{CPU: p.CPUMillis})
		r.PeakBytes = max(r.PeakBytes, p.PeakBytes)
	case *events.AttemptHandedOver:
		s.endAttempt(attemptKey(p.Slot, p.Generation))
	case *events.AttemptInterrupted:
		r.Interruptions++
		s.endAttempt(attemptKey(p.Slot, p.Generation))
	case *events.AttemptFailed:
		r.Failures++
		s.endAttempts()
	case *events.RunPaused:
		r.State = string(engine.StatePaused)
		s.endAttempts()
	case *events.RunCompleted:
		s.end(engine.StateCompleted)
	case *events.RunFailed:
		r.Error, r.ErrorClass, r.Hint, r.Resumable = p.Error, p.Class, p.Hint, p.Resumable
		s.end(engine.StateFailed)
	case *events.RunCanceled:
		s.end(engine.StateCanceled)
	case *events.CheckpointSaved, *events.EpochCommitted, *events.SplitFinished, *events.PublishDone:
		r.ProgressedAt = later(r.ProgressedAt, at)
	}
	if r.Memo.Ended != nil {
		s.flush(Metrics{})
	}
}

// working notes that an attempt is at work.
func (s folding) working() {
	r := s.r
	r.State = string(engine.StateRunning)
	if r.StartedAt.IsZero() {
		r.StartedAt = s.f.At
	}
	if r.Memo.ActiveSince.IsZero() {
		r.Memo.ActiveSince = s.f.At
	}
	r.ProgressedAt = later(r.ProgressedAt, s.f.At)
	r.EndedAt, r.Memo.Ended = time.Time{}, nil
}

func attemptKey(slot int, generation int64) string { return fmt.Sprintf("%d/%d", slot, generation) }

func (s folding) endAttempt(key string) {
	open, ok := s.r.Memo.Open[key]
	if !ok {
		return
	}
	delete(s.r.Memo.Open, key)
	ms := max(s.f.At.Sub(open.At).Milliseconds(), 0)
	const mib = 1 << 20
	s.r.Usage.add(Usage{Compute: ms, Memory: ms * (open.Memory / mib)})
}

func (s folding) endAttempts() {
	for key := range s.r.Memo.Open {
		s.endAttempt(key)
	}
}

// end counts an ending of the run and of its resources.
func (s folding) end(state engine.RunState) {
	r, at := s.r, s.f.At
	s.endAttempts()
	r.State, r.EndedAt = string(state), at
	if state != engine.StateFailed {
		r.Error, r.ErrorClass, r.Hint, r.Resumable = "", "", "", false
	}
	since := r.Memo.ActiveSince
	if since.IsZero() {
		since = r.CreatedAt
	}
	r.Memo.ActiveSince = time.Time{}
	r.Memo.Ended = &Ending{Hour: at.UTC().Truncate(time.Hour), Status: string(state)}
	s.flush(endingOf(at.Sub(since)))
	for _, res := range s.res {
		s.endResource(res, since)
	}
}

// endingOf counts one ending.
func endingOf(took time.Duration) Metrics {
	took = max(took, 0)
	ms := took.Milliseconds()
	return Metrics{Runs: 1, Millis: ms, MinMillis: ms, MaxMillis: ms, Durations: map[int]int64{DurationClass(took): 1}}
}

// flush counts what the run did since it was last counted into the bucket of its
// last ending.
func (s folding) flush(m Metrics) {
	r := s.r
	did, used := r.Counts, r.Usage
	did.subtract(r.Memo.Counted)
	used.subtract(r.Memo.Used)
	m.Read, m.Written, m.SetAside, m.Bytes = did.Read, did.Applied, did.SetAside, did.Bytes
	m.Usage, m.PeakBytes = used, r.PeakBytes
	if m.Runs == 0 && did == (Counts{}) && used == (Usage{}) {
		return
	}
	r.Memo.Counted, r.Memo.Used = r.Counts, r.Usage
	s.b.count(s.key("", r.Memo.Ended.Status), m)
}

func (s folding) key(resource, status string) Key {
	r := s.r
	return Key{Hour: r.Memo.Ended.Hour, Pipeline: r.Pipeline, Source: r.Source, Sink: r.Sink, Resource: resource, Status: status}
}

// endResource counts a resource that did something since the run's ending before.
func (s folding) endResource(res *Resource, since time.Time) {
	did := res.Counts
	did.subtract(res.Counted)
	fresh := !res.EndedAt.IsZero() && !res.EndedAt.Before(since)
	if did == (Counts{}) && !fresh {
		return
	}
	m := Metrics{Runs: 1}
	status := s.r.State
	if res.State == "completed" || res.State == "failed" {
		status = res.State
	}
	if !res.EndedAt.IsZero() && !res.StartedAt.IsZero() {
		m = endingOf(res.EndedAt.Sub(res.StartedAt))
	}
	m.Read, m.Written, m.SetAside, m.Bytes = did.Read, did.Applied, did.SetAside, did.Bytes
	res.Counted, res.dirty = res.Counts, true
	s.b.count(s.key(res.Name, status), m)
}

func (c *Counts) subtract(o Counts) {
	c.Read -= o.Read
	c.Applied -= o.Applied
	c.Superseded -= o.Superseded
	c.Skipped -= o.Skipped
	c.SetAside -= o.SetAside
	c.Bytes -= o.Bytes
}

func (u *Usage) subtract(o Usage) {
	u.Compute -= o.Compute
	u.Memory -= o.Memory
	u.CPU -= o.CPU
	u.Moved -= o.Moved
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
