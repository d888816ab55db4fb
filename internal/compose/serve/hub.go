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
	waiting map[uuid.UUID]*room
}

// room is where those wait who wait for the same run.
type room struct {
	guests int
	open   chan struct{}
}

func newHub() *hub { return &hub{waiting: map[uuid.UUID]*room{}} }

// again is how long a waiter trusts hints alone, which can be lost (P25).
const again = time.Second

// WaitFacts implements [runs.Waiter].
func (h *hub) WaitFacts(ctx context.Context, run uuid.UUID, until time.Time) {
	h.mu.Lock()
	r := h.waiting[run]
	if r == nil {
		r = &room{open: make(chan struct{})}
		h.waiting[run] = r
	}
	r.guests++
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if r.guests--; r.guests == 0 && h.waiting[run] == r {
			delete(h.waiting, run)
		}
	}()
	t := time.NewTimer(min(time.Until(until), again))
	defer t.Stop()
	select {
	case <-r.open:
	case <-t.C:
	case <-ctx.Done():
	}
}

// wake wakes the waiters of a run; uuid.Nil wakes all.
func (h *hub) wake(run uuid.UUID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, r := range h.waiting {
		if run == uuid.Nil || id == run {
			close(r.open)
			delete(h.waiting, id)
		}
	}
}
