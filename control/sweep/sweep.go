// Package sweep keeps promises that nobody else keeps any more: it takes over
// expired leases, offers the attempts of runs that nobody works on, lets due runs
// begin, and runs the tasks that other parts of the control plane register.
//
// Work is dated obligations, and the sweep is armed while there are any. Whoever
// makes work out of nothing arms it in the same transaction, under a lock that it
// shares with others who do; the sweep disarms under the same lock, alone, in a
// transaction that first looks whether there is any work (P23). So no work is
// ever committed unarmed, whoever crashes where, and an idle installation is left
// alone: no query is sent until somebody arms it.
package sweep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/runs"
)

// Ref names a run.
type Ref struct{ Organization, Run uuid.UUID }

// Found is what a look at the obligations of runs gives.
type Found struct {
	// Lost are runs with a slot whose lease is over; Idle open runs without lease
	// and offer; Due scheduled runs whose time has come.
	Lost, Idle, Due []Ref
	// Next is when the next obligation falls due, by the store's clock; zero:
	// there is none with a date. Now is that clock.
	Next, Now time.Time
}

// Store finds and keeps the obligations of runs.
type Store interface {
	// Look finds up to limit of each kind. It also makes offers whose command was
	// not accepted in time wait again.
	Look(ctx context.Context, limit int) (Found, error)
	// TakeOver frees the run's slots whose lease is over by raising their
	// generations, returns their splits, and applies what decide says, in one
	// transaction. Nothing happens if the leases live again.
	TakeOver(ctx context.Context, r Ref, decide func(*runs.Run, []runs.Lost) runs.Change) error
	// Settle locks the run and applies what decide says.
	Settle(ctx context.Context, r Ref, decide func(*runs.Run) runs.Change) error
	// Disarm disarms unless there is work of any kind; false: there is.
	Disarm(ctx context.Context) (bool, error)
}

// Switch turns on and off what wakes the sweep from outside of the database, such
// as a schedule of the platform. Both may be repeated.
type Switch interface {
	On(ctx context.Context) error
	Off(ctx context.Context) error
}

// Task is other work of the control plane that is done while the sweep is armed:
// relaying facts, deliveries, inspections.
type Task interface {
	Name() string
	// Run does what is due and returns when the next piece will be, by the
	// database's clock or the process's own; zero: whenever it is woken.
	Run(ctx context.Context) (next time.Time, err error)
}

// batch is how many runs of a kind one look finds; what is left is found by the
// next one, at once.
const batch = 100

// Sweeper sweeps.
type Sweeper struct {
	Store Store
	Log   *slog.Logger
}

// Sweep keeps what is due and returns when the next thing will be; zero: nothing
// is dated. One run's error does not keep it from the others.
func (s *Sweeper) Sweep(ctx context.Context) (next time.Duration, dated bool, err error) {
	for {
		f, err := s.Store.Look(ctx, batch)
		if err != nil {
			return 0, false, fmt.Errorf("look for obligations: %w", err)
		}
		var errs []error
		try := func(what string, r Ref, do func() error) {
			if err := do(); err != nil {
				errs = append(errs, fmt.Errorf("%s run %s: %w", what, r.Run, err))
			}
		}
		for _, r := range f.Lost {
			try("take over", r, func() error { return s.Store.TakeOver(ctx, r, runs.Interrupted) })
		}
		for _, r := range f.Idle {
			try("settle", r, func() error { return s.Store.Settle(ctx, r, runs.Idle) })
		}
		for _, r := range f.Due {
			try("begin", r, func() error { return s.Store.Settle(ctx, r, runs.Due) })
		}
		if n := len(f.Lost) + len(f.Idle) + len(f.Due); n > 0 {
			s.Log.InfoContext(ctx, "sweep", "lost", len(f.Lost), "idle", len(f.Idle), "due", len(f.Due), "errors", len(errs))
		}
		if err := errors.Join(errs...); err != nil {
			return 0, false, err
		}
		if max(len(f.Lost), len(f.Idle), len(f.Due)) < batch {
			if f.Next.IsZero() {
				return 0, false, nil
			}
			return f.Next.Sub(f.Now), true, nil
		}
	}
}

// Loop runs the sweep and the tasks while there is work, and nothing otherwise.
type Loop struct {
	Sweeper *Sweeper
	// Dispatch sends due attempts; called after each sweep.
	Dispatch func(ctx context.Context) error
	Tasks    []Task
	Clock    control.Clock
	// Every is the longest pause while there is work; 0 means 5 s (P25).
	Every time.Duration
	Log   *slog.Logger

	woken chan struct{}
}

// Init makes the loop ready for [Loop.Wake].
func (l *Loop) Init() *Loop {
	l.woken = make(chan struct{}, 1)
	if l.Every <= 0 {
		l.Every = 5 * time.Second
	}
	return l
}

// Wake lets the loop look at once. It never blocks; what is woken twice looks once.
func (l *Loop) Wake() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// Run works until the context ends. It begins with a look, as whoever comes up
// after a crash must.
func (l *Loop) Run(ctx context.Context) {
	for ctx.Err() == nil {
		pause, err := l.Round(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			l.Log.WarnContext(ctx, "sweep", "error", err)
			pause = l.Every
		}
		if pause == 0 {
			// Disarmed: only somebody who arms wakes us.
			select {
			case <-l.woken:
			case <-ctx.Done():
			}
			continue
		}
		control.SleepOrWake(ctx, l.Clock, l.Clock.Now().Add(pause), l.woken)
	}
}

// least keeps rounds apart when the next obligation is due at once.
const least = 20 * time.Millisecond

// Round does one round and returns the pause until the next; 0: it is disarmed, and
// whoever arms wakes it. For where something else paces the rounds than [Loop.Run].
func (l *Loop) Round(ctx context.Context) (time.Duration, error) {
	pause := l.Every
	sooner := func(d time.Duration) {
		pause = min(pause, max(d, least))
	}
	next, dated, err := l.Sweeper.Sweep(ctx)
	errs := []error{err}
	if dated {
		sooner(next)
	}
	if l.Dispatch != nil {
		errs = append(errs, l.Dispatch(ctx))
	}
	for _, t := range l.Tasks {
		next, err := t.Run(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t.Name(), err))
		}
		if !next.IsZero() {
			sooner(next.Sub(l.Clock.Now()))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	disarmed, err := l.Sweeper.Store.Disarm(ctx)
	if err != nil {
		return 0, fmt.Errorf("disarm: %w", err)
	}
	if disarmed {
		return 0, nil
	}
	return pause, nil
}
