// Package memstate is an [engine.State] in memory for simulations: its clock
// and ids are injected, processes can be killed, and the whole State can be put
// back to an earlier copy or lost.
package memstate

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// Options configures a State in memory.
type Options struct {
	// Now is the State's clock, which decides about leases (P22); nil: time.Now.
	Now func() time.Time
	// NewID makes ids of installations, runs and facts; nil: random UUIDs,
	// version 7.
	NewID func() uuid.UUID
}

// Store is one process's handle of a State. Its methods may be called concurrently.
type Store struct{ m *machine }

var _ engine.State = (*Store)(nil)

// machine is what the processes share.
type machine struct {
	mu   sync.Mutex
	opt  Options
	data *data
	// locks are the operating system's: which process works on a route.
	locks map[routeKey]*Store
}

// New makes an empty State and returns the handle of a first process.
func New(opt Options) *Store {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.NewID == nil {
		opt.NewID = func() uuid.UUID { return uuid.Must(uuid.NewV7()) }
	}
	m := &machine{opt: opt, locks: map[routeKey]*Store{}}
	m.data = m.empty()
	return &Store{m: m}
}

// Process returns the handle of another process on the same State.
func (s *Store) Process() *Store { return &Store{m: s.m} }

// Kill ends the process as the kernel does: its locks are gone, nothing is
// written. The handle still works, as that of a zombie whose calls arrive late.
func (s *Store) Kill() {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	for key, holder := range s.m.locks {
		if holder == s {
			delete(s.m.locks, key)
		}
	}
}

// Snapshot returns a copy of all that the State remembers.
func (s *Store) Snapshot() any {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.m.data.clone()
}

// Restore puts the State back to what Snapshot returned: the operator restored
// an older copy. Processes and their locks stay.
func (s *Store) Restore(snapshot any) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.m.data = snapshot.(*data).clone()
}

// Lose empties the State: its file was deleted. The next process makes a new
// installation.
func (s *Store) Lose() {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.m.data = s.m.empty()
}

func (m *machine) empty() *data {
	return &data{installation: m.opt.NewID().String(), routes: map[routeKey]*routeRec{}}
}

// lock makes sure that this process holds the route; taken tells that it did
// not before, so that whoever has leases on it is dead.
func (s *Store) lock(key routeKey) (taken bool, err error) {
	switch holder := s.m.locks[key]; holder {
	case s:
		return false, nil
	case nil:
		s.m.locks[key] = s
		return true, nil
	}
	return false, engine.Permanentf("wait for that process or stop it", "pipeline %q: %w", key.pipeline, engine.ErrLocked)
}

// unlockIdle lets the route go if its run has ended and no slot of it is held.
func (s *Store) unlockIdle(r *runRec) {
	if r.run.State == engine.StateRunning {
		return
	}
	for _, sl := range r.slots {
		if sl.live(s.m.opt.Now()) {
			return
		}
	}
	if s.m.locks[r.route] == s {
		delete(s.m.locks, r.route)
	}
}

// fact makes a fact of the State's own.
func (m *machine) fact(run uuid.UUID, p events.Payload) (events.Fact, error) {
	f, err := events.New(run, m.opt.Now(), p)
	f.ID = m.opt.NewID()
	return f, err
}
