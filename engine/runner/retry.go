package runner

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/tranship-io/tranship/engine"
)

// try counts failures of one thing since it last made progress.
type try struct {
	set   Settings
	n     int
	since time.Time
	wait  *backoff.ExponentialBackOff
}

func newTry(set Settings) *try {
	w := backoff.NewExponentialBackOff()
	w.InitialInterval = 250 * time.Millisecond
	w.MaxInterval = 10 * time.Second
	w.RandomizationFactor = max(set.Jitter, 0)
	return &try{set: set, since: time.Now(), wait: w}
}

// next returns how long to wait before another try, and whether there is one:
// until both the time and the number of tries are used up.
func (t *try) next() (time.Duration, bool) {
	t.n++
	if t.n >= t.set.MinTries && time.Since(t.since) >= t.set.GiveUp {
		return 0, false
	}
	return t.wait.NextBackOff(), true
}

// retry calls f until it succeeds, fails otherwise than retryably, or is given up.
func (r *run) retry(ctx context.Context, what string, f func(context.Context) error) error {
	t := newTry(r.set)
	for {
		err := f(ctx)
		if err == nil || ctx.Err() != nil || engine.ClassOf(err) != engine.Retryable || isStale(err) {
			return err
		}
		wait, again := t.next()
		if !again {
			return err
		}
		r.Log.Warn("trying again", "what", what, "try", t.n, "in", wait.Round(time.Millisecond), "error", err)
		if err := sleepStop(ctx, wait, r.Stop); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error { return sleepStop(ctx, d, nil) }

// sleepStop waits; a closed stop ends the wait early without an error.
func sleepStop(ctx context.Context, d time.Duration, stop <-chan struct{}) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-stop:
		return errBoundary
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// news wakes slots that wait for others' work to end; nothing depends on it but time.
type news struct {
	mu sync.Mutex
	ch chan struct{}
}

func (n *news) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}

// tell wakes all who wait.
func (n *news) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
}

// wait waits that long, for news, or until the boundary is reached.
func (n *news) wait(ctx context.Context, d time.Duration, b *bounds) error {
	end, told := time.Now().Add(d), n.next()
	for {
		left := time.Until(end)
		if left <= 0 {
			return ctx.Err()
		}
		if _, stop := b.reached(); stop {
			return errBoundary
		}
		t := time.NewTimer(min(left, 200*time.Millisecond))
		select {
		case <-t.C:
		case <-told:
			t.Stop()
			return nil
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
	}
}

// sleepOrStop waits in small steps so that a stop or pause ends it soon.
func sleepOrStop(ctx context.Context, d time.Duration, b *bounds) error {
	end := time.Now().Add(d)
	for {
		if _, stop := b.reached(); stop {
			return errBoundary
		}
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		if err := sleep(ctx, min(left, 200*time.Millisecond)); err != nil {
			return err
		}
	}
}
