package notify

import (
	"context"
	"fmt"
	"time"

	"github.com/tranship-io/tranship/control"
)

// Queue carries deliveries to a [Deliverer] elsewhere. It may lose or repeat them:
// the ledger decides, and the sweep sends what is due again.
type Queue interface {
	// Enqueue sends references that arrive after the delay, which a queue may shorten
	// to what it can.
	Enqueue(ctx context.Context, after time.Duration, refs ...DeliveryRef) error
}

// Forwarder puts what is due into a queue. It is a task of the sweep, and whoever
// has made deliveries calls it at once.
type Forwarder struct {
	Ledger Ledger
	Queue  Queue
	Clock  control.Clock
}

// Name names the task.
func (f *Forwarder) Name() string { return "deliveries" }

// Run implements the sweep's task.
func (f *Forwarder) Run(ctx context.Context) (time.Time, error) {
	now := f.Clock.Now()
	refs, err := f.Ledger.DueDeliveries(ctx, now, batch)
	if err != nil {
		return time.Time{}, fmt.Errorf("find due deliveries: %w", err)
	}
	if len(refs) > 0 {
		if err := f.Queue.Enqueue(ctx, 0, refs...); err != nil {
			return time.Time{}, fmt.Errorf("enqueue %d deliveries: %w", len(refs), err)
		}
	}
	return f.Ledger.NextDelivery(ctx, now)
}

// Again puts a delivery into the queue for its next attempt, if that is not too far
// away for a queue; the sweep's alarm brings the others.
func (f *Forwarder) Again(ctx context.Context, r DeliveryRef, next time.Time) error {
	wait := next.Sub(f.Clock.Now())
	if next.IsZero() || wait > MaxDelay {
		return nil
	}
	// One that arrives too early is not due, and would be lost.
	return f.Queue.Enqueue(ctx, max(wait, 0)+time.Second, r)
}

// MaxDelay is how long a queue holds a delivery back at most.
const MaxDelay = 14 * time.Minute
