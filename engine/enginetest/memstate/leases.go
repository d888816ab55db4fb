package memstate

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// Acquire implements [engine.LeaseStore].
func (s *Store) Acquire(ctx context.Context, runID uuid.UUID, slot int, holder string, ttl time.Duration) (engine.Lease, error) {
	if holder == "" {
		return engine.Lease{}, engine.Bugf("take slot %d of run %s: a holder needs a name", slot, runID)
	}
	if err := s.enter(ctx); err != nil {
		return engine.Lease{}, err
	}
	defer s.m.mu.Unlock()
	r := s.m.data.find(runID)
	if r == nil {
		return engine.Lease{}, unknownRun(runID)
	}
	taken, err := s.lock(r.route)
	if err != nil {
		return engine.Lease{}, err
	}
	if r.run.State != engine.StateRunning {
		if taken {
			delete(s.m.locks, r.route)
		}
		return engine.Lease{}, engine.Permanentf("start the pipeline's run again", "take slot %d of run %s: the run is %s", slot, runID, r.run.State)
	}
	if taken {
		r.voidLeases()
	}
	now, old := s.m.opt.Now(), r.slots[slot]
	f := engine.Fence{RunID: runID, Slot: slot, Generation: old.generation + 1}
	if old.live(now) {
		return engine.Lease{}, engine.Permanentf("wait until its holder ends", "take %s: %w", slotName(f), engine.ErrLocked)
	}
	r.slots[slot] = slotRec{generation: f.Generation, holder: holder, expires: now.Add(ttl)}
	for _, sp := range r.splits {
		sp.owned = sp.owned && sp.owner != slot
	}
	r.run.Attempts++
	return engine.Lease{Fence: f, Holder: holder, Attempt: r.run.Attempts}, nil
}

// Renew implements [engine.LeaseStore].
func (s *Store) Renew(ctx context.Context, l engine.Lease, ttl time.Duration) (engine.Desired, error) {
	if err := s.enter(ctx); err != nil {
		return "", err
	}
	defer s.m.mu.Unlock()
	r, err := s.fenced(l.Fence)
	if err != nil {
		return "", err
	}
	sl := r.slots[l.Slot]
	if sl.holder == "" {
		return "", &engine.StaleError{What: "generation", Subject: slotName(l.Fence), Ours: l.Generation, Have: l.Generation}
	}
	sl.expires = s.m.opt.Now().Add(ttl)
	r.slots[l.Slot] = sl
	return r.desired, nil
}

// EndAttempt implements [engine.LeaseStore].
func (s *Store) EndAttempt(ctx context.Context, l engine.Lease, facts []events.Fact) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.m.mu.Unlock()
	r, err := s.fenced(l.Fence)
	if err != nil {
		return err
	}
	if err := r.checkFacts(facts); err != nil {
		return err
	}
	r.freeSlot(l.Fence)
	r.addFacts(facts)
	s.unlockIdle(r)
	return nil
}

// SetDesired implements [engine.LeaseStore].
func (s *Store) SetDesired(ctx context.Context, runID uuid.UUID, d engine.Desired) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.m.mu.Unlock()
	r := s.m.data.find(runID)
	switch {
	case r == nil:
		return unknownRun(runID)
	case r.run.State == engine.StateCanceled && d == engine.DesiredCancel:
		return nil
	case !r.open():
		return engine.Permanentf("", "ask run %s to %s: it is already %s", runID, d, r.run.State)
	case r.run.State != engine.StateRunning && d == engine.DesiredCancel:
		return s.end(r, engine.StateCanceled, "", events.RunCanceled{Reason: "asked for while no process worked on it"})
	}
	r.desired = d
	return nil
}
