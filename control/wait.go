package control

import (
	"context"
	"time"
)

// SleepOrWake returns at an instant, when something comes from wake, or when the
// context ends. A zero instant never comes.
func SleepOrWake(ctx context.Context, c Clock, until time.Time, wake <-chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if until.IsZero() {
		select {
		case <-ctx.Done():
		case <-wake:
		}
		return
	}
	slept := make(chan struct{})
	go func() {
		defer close(slept)
		_ = c.Sleep(ctx, until) // it ends early only with the context
	}()
	select {
	case <-slept:
	case <-wake:
		cancel()
		<-slept
	}
}
