// Package timer does what falls due at known instants, and nothing in between:
// with nothing due there is no query and no wake-up (invariant 14). The instants
// live in the store; a process that dies or sleeps through one does it when it is
// next awake.
package timer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tranship-io/tranship/control"
)

// Source is a set of dated obligations.
type Source interface {
	// Next returns the earliest instant after the given one at which something is
	// due; the zero time if nothing is.
	Next(ctx context.Context, after time.Time) (time.Time, error)
	// Run does all that is due at the time now. After an error something that is
	// due is still undone.
	Run(ctx context.Context, now time.Time) error
}

const (
	firstRetry = time.Second
	maxRetry   = time.Minute
)

// Timer runs a source.
type Timer struct {
	// Name is for the log.
	Name   string
	Source Source
	Clock  control.Clock
	Log    *slog.Logger

	once sync.Once
	wake chan struct{}
}

// Nudge makes the timer look again: an instant may have been added, or the
// database is back. It never blocks.
func (t *Timer) Nudge() {
	t.init()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *Timer) init() { t.once.Do(func() { t.wake = make(chan struct{}, 1) }) }

// Run works until the context ends. What fails is tried again after 1 second,
// doubling to a minute, without holding up what falls due meanwhile.
func (t *Timer) Run(ctx context.Context) {
	t.init()
	retry := time.Duration(0)
	for ctx.Err() == nil {
		now := t.Clock.Now()
		err := t.Source.Run(ctx, now)
		next, nextErr := t.Source.Next(ctx, time.Time{})
		left := nextErr != nil || !next.IsZero() && !next.After(now)
		if left && nextErr == nil {
			// What failed, or is in another process's hands, is still due: look past it.
			next, nextErr = t.Source.Next(ctx, now)
		}
		if ctx.Err() != nil {
			return
		}
		err = errors.Join(err, nextErr)
		if err == nil && !left {
			retry = 0
			control.SleepOrWake(ctx, t.Clock, next, t.wake)
			continue
		}
		retry = min(max(2*retry, firstRetry), maxRetry)
		if err != nil {
			t.Log.ErrorContext(ctx, "timer", "name", t.Name, "error", err, "retry", retry)
		}
		if again := now.Add(retry); next.IsZero() || again.Before(next) {
			next = again
		}
		control.SleepOrWake(ctx, t.Clock, next, t.wake)
	}
}
