// Package worker executes attempts of runs in this process: each accepted offer is
// one call of runner.Run, bounded in time and memory, under a lease that other
// processes take over if this one dies (invariant 13).
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/control/sweep"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/runner"
)

// Store is what a worker needs of the control plane's truth.
type Store interface {
	dispatch.Offers
	// RunState is the engine's State for one run.
	RunState(organization, run uuid.UUID) engine.State
	Run(ctx context.Context, organization, id uuid.UUID) (runs.Run, error)
	Settle(ctx context.Context, r sweep.Ref, decide func(*runs.Run) runs.Change) error
	// GiveUp takes an accepted offer from its holder, who will not begin with it.
	GiveUp(ctx context.Context, c dispatch.Command, holder string) error
}

// Config says how a pool works.
type Config struct {
	Store Store
	// Ends makes the options of a run's attempt out of its pipeline: everything but
	// State, OneAttempt, Stop, Nudge, Holder, Progress and Log. learn is told the
	// secrets of the ends before they are used; nothing of the attempt tells them.
	Ends func(ctx context.Context, r runs.Run, organization uuid.UUID, learn func(secrets ...string)) (runner.Options, error)
	// Holder names this process in leases, unique among all.
	Holder string
	// Places is how many attempts live at once; 0 means 4.
	Places int
	// Lease is the lease time; 0 means 60 s. AttemptTime bounds an attempt whose
	// pipeline says nothing shorter; 0 means 5 min.
	Lease, AttemptTime time.Duration
	// Memory bounds an attempt whose pipeline says nothing, in bytes; 0 leaves it
	// to the engine's default. MaxMemory bounds every attempt; 0: nothing does.
	Memory, MaxMemory int64
	// Random is in [0, 1); nil means no jitter.
	Random func() float64
	// Freed is called when a place becomes free or an attempt left something to
	// dispatch; nil means nobody wants to know.
	Freed func()
	// Committed is called after each commit of an attempt, and must not block; nil
	// means nobody wants to know.
	Committed func()
	// Watch sees attempts begin and end; nil means nobody.
	Watch func(ctx context.Context, c dispatch.Command) (context.Context, func(Outcome))
	Log   *slog.Logger
}

// Outcome is how an attempt ended, for metrics and traces.
type Outcome struct {
	// What is completed, failed, paused, canceled, handed_over, retried or lost.
	What string
	Err  error
}

// Pool runs attempts.
type Pool struct {
	c Config
	// stop is closed when attempts have to hand over; hard is canceled when they
	// have to end at once.
	stop chan struct{}
	hard context.Context
	end  context.CancelFunc

	mu   sync.Mutex
	busy map[uuid.UUID]*attempt
	// places counts attempts that take a place.
	places  int
	closing bool
	wait    sync.WaitGroup
}

// New makes a pool; Close ends it.
func New(c Config) *Pool { return newPool(context.Background(), c) }

// newPool makes a pool whose attempts end with the context.
func newPool(ctx context.Context, c Config) *Pool {
	if c.Places <= 0 {
		c.Places = 4
	}
	if c.Lease <= 0 {
		c.Lease = time.Minute
	}
	if c.AttemptTime <= 0 {
		c.AttemptTime = 5 * time.Minute
	}
	if c.Freed == nil {
		c.Freed = func() {}
	}
	if c.Committed == nil {
		c.Committed = func() {}
	}
	if c.Random == nil {
		c.Random = func() float64 { return 0 }
	}
	if c.Watch == nil {
		c.Watch = func(ctx context.Context, _ dispatch.Command) (context.Context, func(Outcome)) {
			return ctx, func(Outcome) {}
		}
	}
	p := &Pool{c: c, stop: make(chan struct{}), busy: map[uuid.UUID]*attempt{}}
	p.hard, p.end = context.WithCancel(ctx)
	return p
}

// Execute executes one attempt in the caller's goroutine and returns how it ended:
// for processes that live for one. When stop is closed it hands over at its next
// safe position; when the context ends it ends at once, and its lease is taken over
// by others.
func Execute(ctx context.Context, stop <-chan struct{}, c Config, command dispatch.Command) Outcome {
	p := newPool(ctx, c)
	defer p.end()
	ended := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		select {
		case <-stop:
			close(p.stop)
		case <-ended:
		}
	})
	defer wait.Wait()
	defer close(ended)
	return (&attempt{pool: p, command: command, nudge: make(chan struct{}, 1)}).live()
}

// Free implements [dispatch.Compute].
func (p *Pool) Free() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return 0
	}
	return max(0, p.c.Places-p.places)
}

// Live is how many attempts live now.
func (p *Pool) Live() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.busy)
}

// Send implements [dispatch.CommandQueue]: the attempt begins at once.
func (p *Pool) Send(_ context.Context, c dispatch.Command) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return errors.New("the worker is stopping")
	}
	if p.busy[c.Run] != nil {
		// A command that was repeated does nothing.
		return nil
	}
	a := &attempt{pool: p, command: c, nudge: make(chan struct{}, 1)}
	p.busy[c.Run] = a
	if !c.Cancel {
		p.places++
	}
	p.wait.Go(func() {
		defer p.done(c)
		a.live()
	})
	return nil
}

func (p *Pool) done(c dispatch.Command) {
	p.mu.Lock()
	delete(p.busy, c.Run)
	if !c.Cancel {
		p.places--
	}
	p.mu.Unlock()
	p.c.Freed()
}

// Nudge makes an attempt ask at once what its run's owner wants (P22).
func (p *Pool) Nudge(run uuid.UUID) {
	p.mu.Lock()
	a := p.busy[run]
	p.mu.Unlock()
	if a == nil {
		return
	}
	select {
	case a.nudge <- struct{}{}:
	default:
	}
}

// Close lets every attempt hand over at its next safe position, for at most
// grace, then ends them; their leases are taken over by others.
func (p *Pool) Close(grace time.Duration) {
	p.mu.Lock()
	if !p.closing {
		p.closing = true
		close(p.stop)
	}
	p.mu.Unlock()
	ended := make(chan struct{})
	go func() { p.wait.Wait(); close(ended) }()
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
		p.end()
		<-ended
	}
	p.end()
}

// heartbeat is how often an offer is kept; leases are renewed as often by the engine.
func (c *Config) heartbeat() time.Duration { return min(4*time.Second, c.Lease/4) }

// errPanic is a defect that an attempt ran into.
func errPanic(v any, stack []byte) error {
	return engine.Bugf("the attempt panicked: %v\n%s", v, stack)
}

// failureOf turns an error into what the control plane decides by.
func failureOf(err error, resumable bool) runs.Failure {
	text := err.Error()
	var classified *engine.Error
	hint := engine.HintOf(err)
	if errors.As(err, &classified) && hint != "" {
		text = trimHint(text, hint)
	}
	return runs.Failure{Class: engine.ClassOf(err), Error: text, Hint: hint, Resumable: resumable}
}

// trimHint takes the hint off the end of a text, where errors print it.
func trimHint(text, hint string) string {
	suffix := fmt.Sprintf(" (%s)", hint)
	if len(text) > len(suffix) && text[len(text)-len(suffix):] == suffix {
		return text[:len(text)-len(suffix)]
	}
	return text
}
