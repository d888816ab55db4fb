package pgsource

import "sync"

// buffers keeps the memory of batches that came back, for all reads of a session.
type buffers struct {
	mu   sync.Mutex
	free [][]byte
	keep int
}

// newBuffers keeps as many as the engine has in flight at once for so many slots:
// what comes back together is filled again, and the collector has nothing to do.
func newBuffers(slots int) *buffers { return &buffers{keep: inFlight * max(1, slots)} }

// get returns an empty buffer of at least n bytes.
func (b *buffers) get(n int) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := len(b.free) - 1; i >= 0; i-- {
		// One that is much too large would be held by a small batch.
		if buf := b.free[i]; cap(buf) >= n && cap(buf) <= 2*n {
			b.free = append(b.free[:i], b.free[i+1:]...)
			return buf[:0]
		}
	}
	return make([]byte, 0, n)
}

func (b *buffers) put(buf []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.free) >= b.keep {
		b.free = append(b.free[:0], b.free[1:]...)
	}
	if cap(buf) <= maxKeptBuffer {
		b.free = append(b.free, buf)
	}
}

// inFlight is how many batches of a split the engine has in flight.
const inFlight = 12

// maxKeptBuffer: the buffer of a giant row is not kept.
const maxKeptBuffer = 16 << 20
