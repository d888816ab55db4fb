package runner

import (
	"context"
	"sync"
)

// budget bounds the bytes of one slot's batches in flight (invariant 11).
//
// What the reader has reserved but not handed over ("held") and what is on its
// way to the sink ("sent") both count. A reservation waits only while something
// is on its way, since only the sink's progress frees memory: a single row
// larger than the whole budget therefore passes alone instead of waiting for ever.
type budget struct {
	mu    sync.Mutex
	size  int64
	held  int64
	sent  int64
	freed chan struct{}
}

func newBudget(size int64) *budget {
	return &budget{size: size, freed: make(chan struct{})}
}

func (b *budget) reserve(ctx context.Context, n int64) error {
	for {
		b.mu.Lock()
		if b.held+b.sent+n <= b.size || b.sent == 0 {
			b.held += n
			b.mu.Unlock()
			return nil
		}
		freed := b.freed
		b.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// unreserve gives back bytes that were reserved and not handed over.
func (b *budget) unreserve(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
	b.wake()
}

// handOver moves bytes from the reader to the way to the sink.
func (b *budget) handOver(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
	b.sent += n
}

// release gives back bytes that the sink is done with.
func (b *budget) release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent -= n
	b.wake()
}

func (b *budget) wake() {
	close(b.freed)
	b.freed = make(chan struct{})
}
