package serve

import (
	"context"
	"time"
)

// clock is the system's.
type clock struct{}

// Now implements [control.Clock].
func (clock) Now() time.Time { return time.Now() }

// Sleep implements [control.Clock].
func (clock) Sleep(ctx context.Context, until time.Time) error {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
