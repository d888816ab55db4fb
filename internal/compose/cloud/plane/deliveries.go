package plane

import (
	"context"
	"maps"
	"time"

	"github.com/tranship-io/tranship/control/sweep"
	"github.com/tranship-io/tranship/store"
)

// Telling is the sweep's task that passes deliveries on: all that are due, and so
// also those that this invocation made.
func (p *Plane) Telling() sweep.Task { return telling{p} }

type telling struct{ p *Plane }

// Name names the task.
func (telling) Name() string { return "deliveries" }

// Run implements the sweep's task.
func (t telling) Run(ctx context.Context) (time.Time, error) {
	t.p.mu.Lock()
	maps.DeleteFunc(t.p.hints, func(h store.Hint, _ bool) bool { return h.Kind == store.HintDelivery })
	t.p.mu.Unlock()
	return t.p.Deliveries.Run(ctx)
}
