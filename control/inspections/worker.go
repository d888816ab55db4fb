package inspections

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/engine"
)

// Executor looks.
type Executor interface {
	// Inspect returns the result; an error if the look failed. It ends with the
	// context.
	Inspect(ctx context.Context, c Claimed) (any, error)
}

// Worker executes inspections of all organizations, each in a goroutine of its
// own. It is a task of the sweep, which is armed while an inspection is open (P23).
type Worker struct {
	Store    Store
	Executor Executor
	Clock    control.Clock
	// Most is how many looks run at once; 0 means 4.
	Most int
	// Lease and Limit replace those of the package; 0 leaves them.
	Lease, Limit time.Duration
	// Done, if not nil, is called after each look, so that the next is found at once.
	Done func()
	Log  *slog.Logger

	mu      sync.Mutex
	running int
	work    sync.WaitGroup
}

// Name names the task.
func (w *Worker) Name() string { return "inspections" }

// Run begins what is requested, as far as there is room, and ends what is lost. It
// returns when it has to look again; zero: when somebody wakes it. Looks go on
// behind it until the context ends; [Worker.Wait] waits for them.
func (w *Worker) Run(ctx context.Context) (time.Time, error) {
	next, err := w.Store.SweepInspections(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("sweep inspections: %w", err)
	}
	for w.take() {
		c, err := w.Store.ClaimInspection(ctx, w.lease())
		if err != nil || c == nil {
			w.give()
			if err != nil {
				return time.Time{}, fmt.Errorf("claim an inspection: %w", err)
			}
			break
		}
		w.work.Go(func() {
			w.look(ctx, *c, cmp.Or(w.Limit, Limit))
			w.give()
			if w.Done != nil {
				w.Done()
			}
		})
	}
	if next == 0 {
		return time.Time{}, nil
	}
	return w.Clock.Now().Add(next), nil
}

// LookFor executes one inspection, for at most so long, and returns when it is over;
// false: somebody else has it, or it is over already.
func (w *Worker) LookFor(ctx context.Context, r Ref, limit time.Duration) (bool, error) {
	c, err := w.Store.ClaimInspectionOf(ctx, r.Organization, r.ID, w.lease())
	if err != nil {
		return false, fmt.Errorf("claim inspection %s: %w", r.ID, err)
	}
	if c == nil {
		return false, nil
	}
	w.look(ctx, *c, limit)
	return true, nil
}

// Wait returns when no look runs any more.
func (w *Worker) Wait() { w.work.Wait() }

func (w *Worker) lease() time.Duration { return cmp.Or(w.Lease, Lease) }

// take takes a place for a look.
func (w *Worker) take() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running >= cmp.Or(w.Most, 4) {
		return false
	}
	w.running++
	return true
}

func (w *Worker) give() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
}

// look executes one inspection and stores its outcome.
func (w *Worker) look(ctx context.Context, c Claimed, limit time.Duration) {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		w.keep(bounded, cancel, c)
	}()
	result, err := w.inspect(bounded, c)
	late := bounded.Err() != nil && ctx.Err() == nil
	cancel()
	<-kept
	o := outcome(result, err)
	switch {
	case err != nil && ctx.Err() != nil:
		o = Outcome{Error: "the process that looked was stopped", Hint: "ask again"}
	case err != nil && late:
		o = Outcome{Error: "it took too long", Hint: "narrow it, or see whether the system answers"}
	}
	// A process that stops still says so.
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer stop()
	if err := w.Store.FinishInspection(end, c, o); err != nil {
		// The sweep ends it when its lease is over.
		w.Log.WarnContext(end, "finish an inspection", "inspection", c.ID, "organization", c.Organization, "error", err)
	}
}

// inspect keeps a connector's panic from ending the process.
func (w *Worker) inspect(ctx context.Context, c Claimed) (result any, err error) {
	defer func() {
		if v := recover(); v != nil {
			w.Log.ErrorContext(ctx, "an inspection panicked", "inspection", c.ID, "panic", v)
			err = engine.Bugf("the connector failed in a way that it should not")
		}
	}()
	return w.Executor.Inspect(ctx, c)
}

// keep renews the lease until the context ends, and ends it if the claim is lost.
func (w *Worker) keep(ctx context.Context, cancel context.CancelFunc, c Claimed) {
	t := time.NewTicker(w.lease() / 4)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		mine, err := w.Store.RenewInspection(ctx, c, w.lease())
		if err == nil && !mine {
			cancel()
			return
		}
	}
}

func outcome(result any, err error) Outcome {
	if err == nil {
		text, merr := json.Marshal(result)
		if merr == nil {
			return Outcome{Result: text}
		}
		err = engine.Bugf("write the result: %w", merr)
	}
	text := err.Error()
	var e *engine.Error
	if errors.As(err, &e) && e.Hint != "" {
		text = e.Err.Error()
	}
	return Outcome{Error: text, Hint: engine.HintOf(err)}
}
