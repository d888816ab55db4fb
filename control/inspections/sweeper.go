package inspections

import (
	"context"
	"fmt"
	"time"

	"github.com/tranship-io/tranship/control"
)

const (
	// patience is how long a request may wait for its claim before it is asked for
	// again: a cold start and a database that wakes up take less.
	patience = 30 * time.Second
	// beginBatch bounds how many are asked for at once.
	beginBatch = 100
)

// Sweeper is the sweep's task where inspections are executed somewhere else: it ends
// what is lost, and asks again for what nobody began.
type Sweeper struct {
	Store   Store
	Starter Starter
	Clock   control.Clock
}

// Name names the task.
func (s *Sweeper) Name() string { return "inspections" }

// Run implements the sweep's task.
func (s *Sweeper) Run(ctx context.Context) (time.Time, error) {
	next, err := s.Store.SweepInspections(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("sweep inspections: %w", err)
	}
	waiting, err := s.Store.RequestedInspections(ctx, patience, beginBatch)
	if err != nil {
		return time.Time{}, fmt.Errorf("find inspections that nobody began: %w", err)
	}
	for _, r := range waiting {
		s.Starter.Begin(ctx, r)
	}
	if next == 0 {
		return time.Time{}, nil
	}
	return s.Clock.Now().Add(next), nil
}
