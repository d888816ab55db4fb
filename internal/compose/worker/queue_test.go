package worker_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/dispatch/dispatchtest"
	"github.com/tranship-io/tranship/internal/compose/worker"
)

// declining notes the commands that come and has nothing to do for them.
type declining struct {
	worker.Store
	mu   sync.Mutex
	came []dispatch.Command
}

func (d *declining) Accept(_ context.Context, c dispatch.Command, _ string, _ time.Duration) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.came = append(d.came, c)
	return false, nil
}

// TestPoolIsAQueue: the pool passes the suite of every queue of commands.
func TestPoolIsAQueue(t *testing.T) {
	t.Parallel()
	d := &declining{}
	p := worker.New(worker.Config{Store: d, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { p.Close(time.Second) })
	dispatchtest.TestQueue(t, p, func() []dispatch.Command {
		d.mu.Lock()
		defer d.mu.Unlock()
		return append([]dispatch.Command(nil), d.came...)
	})
}
