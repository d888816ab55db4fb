package projection

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/events"
)

// Waiting are facts of a run that no projection has confirmed.
type Waiting struct {
	RunRef
	// First and Last are their numbers; 0: there are none.
	First, Last int64
}

// Unconfirmed tells which facts wait for a projection.
type Unconfirmed interface {
	OfRun(ctx context.Context, r RunRef) (Waiting, error)
	// Since returns runs of which facts wait for longer than age.
	Since(ctx context.Context, age time.Duration, limit int) ([]Waiting, error)
	// Facts returns facts with a number above after, in order.
	Facts(ctx context.Context, r RunRef, after int64, limit int) ([]events.Fact, error)
}

// Told is a message that facts are there.
type Told struct {
	Organization uuid.UUID `json:"organization"`
	Run          uuid.UUID `json:"run"`
	// Through is the number of the last one.
	Through int64 `json:"through"`
	// Facts are the facts themselves, for whoever does not read them in the store;
	// none if they were too large for a message.
	Facts []events.Fact `json:"facts"`
}

// FactQueue carries facts to the projection of another process, in the order of
// each run. It may lose or repeat them.
type FactQueue interface {
	// SendFacts sends facts; again tells that they were lost, so that the repetition
	// is meant.
	SendFacts(ctx context.Context, t Told, again bool) error
}

const (
	factsPerMessage = 100
	// overdue is how long facts may wait before they are sent again: several times
	// what they take to be folded.
	overdue = 30 * time.Second
	// maxRemembered bounds what is known of runs whose facts were sent.
	maxRemembered = 1000
)

// Forwarder sends facts to projections elsewhere. It is also a task of the sweep,
// which sends again what was not confirmed.
type Forwarder struct {
	Facts Unconfirmed
	Queue FactQueue

	mu   sync.Mutex
	sent map[RunRef]int64
}

// Name names the task.
func (f *Forwarder) Name() string { return "facts" }

// Run implements the sweep's task. Facts are never dated.
func (f *Forwarder) Run(ctx context.Context) (time.Time, error) {
	waiting, err := f.Facts.Since(ctx, overdue, pendingRows)
	if err != nil {
		return time.Time{}, fmt.Errorf("find facts that wait: %w", err)
	}
	var errs []error
	for _, w := range waiting {
		errs = append(errs, f.send(ctx, w, true))
	}
	return time.Time{}, errors.Join(errs...)
}

// Forward sends the facts of a run that wait and were not sent before.
func (f *Forwarder) Forward(ctx context.Context, r RunRef) error {
	w, err := f.Facts.OfRun(ctx, r)
	if err != nil {
		return fmt.Errorf("find facts of run %s that wait: %w", r.Run, err)
	}
	f.mu.Lock()
	w.First = max(w.First, f.sent[r]+1)
	f.mu.Unlock()
	if w.Last < w.First {
		return nil
	}
	if err := f.send(ctx, w, false); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sent == nil || len(f.sent) >= maxRemembered {
		f.sent = map[RunRef]int64{}
	}
	f.sent[r] = max(f.sent[r], w.Last)
	return nil
}

func (f *Forwarder) send(ctx context.Context, w Waiting, again bool) error {
	for after := w.First - 1; after < w.Last; {
		facts, err := f.Facts.Facts(ctx, w.RunRef, after, factsPerMessage)
		if err != nil {
			return fmt.Errorf("read facts of run %s: %w", w.Run, err)
		}
		t := Told{Organization: w.Organization, Run: w.Run, Through: w.Last, Facts: facts}
		if len(facts) > 0 {
			t.Through = facts[len(facts)-1].Number
		}
		if err := f.Queue.SendFacts(ctx, t, again); err != nil {
			return fmt.Errorf("send facts of run %s: %w", w.Run, err)
		}
		after = t.Through
	}
	return nil
}
