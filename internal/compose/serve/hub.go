package serve

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
)

// hub wakes those who wait for new facts of a run.
type hub struct {
	mu      sync.Mutex
	waiting map[uuid.UUID]chan struct{}
}

func newHub() *hub { return &hub{waiting: map[uuid.UUID]chan struct{}{}} }

// again is how long a waiter trusts hints alone, which can be lost (P25).
const again = time.Second

// WaitFacts implements [runs.Waiter].
func (h *hub) WaitFacts(ctx context.Context, run uuid.UUID, until time.Time) {
	h.mu.Lock()
	c := h.waiting[run]
	if c == nil {
		c = make(chan struct{})
		h.waiting[run] = c
	}
	h.mu.Unlock()
	t := time.NewTimer(min(time.Until(until), again))
	defer t.Stop()
	select {
	case <-c:
	case <-t.C:
	case <-ctx.Done():
	}
}

// wake wakes the waiters of a run; uuid.Nil wakes all.
func (h *hub) wake(run uuid.UUID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, c := range h.waiting {
		if run == uuid.Nil || id == run {
			close(c)
			delete(h.waiting, id)
		}
	}
}
