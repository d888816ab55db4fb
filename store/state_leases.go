package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
	"github.com/tranship-io/tranship/store/internal/db"
)

// Acquire implements [engine.LeaseStore]. It also ends the offer of the slot's
// attempt: that is a worker's now.
func (s *State) Acquire(ctx context.Context, runID uuid.UUID, slot int, holder string, ttl time.Duration) (engine.Lease, error) {
	if holder == "" {
		return engine.Lease{}, engine.Bugf("take slot %d of run %s: a holder needs a name", slot, runID)
	}
	l := engine.Lease{Fence: engine.Fence{RunID: runID, Slot: slot}, Holder: holder}
	what := fmt.Sprintf("take slot %d of run %s", slot, runID)
	err := s.update(ctx, what, func(t *stateTx) error {
		r, err := t.lockRun(runID)
		if err != nil {
			return err
		}
		if engine.RunState(r.State) != engine.StateRunning {
			return engine.Permanentf("start the pipeline's run again", "%s: the run is %s", what, r.State)
		}
		l.Generation, err = t.q.AcquireSlot(t.ctx, db.AcquireSlotParams{Run: runID, Slot: int32(slot), Holder: holder, Ttl: ttl.Seconds()})
		if none(err) {
			return engine.Permanentf("wait until its holder ends", "take %s: %w", slotName(l.Fence), engine.ErrLocked)
		}
		if err != nil {
			return err
		}
		// What the slot's earlier holder had is nobody's now.
		if err := t.q.ReturnSlotSplits(t.ctx, db.ReturnSlotSplitsParams{Run: runID, Owner: ref(int32(slot))}); err != nil {
			return err
		}
		if err := t.q.DeleteOffer(t.ctx, db.DeleteOfferParams{Run: runID, Slot: int32(slot)}); err != nil {
			return err
		}
		attempt, err := t.q.CountAttempt(t.ctx, runID)
		l.Attempt = int(attempt)
		return err
	})
	if err != nil {
		return engine.Lease{}, err
	}
	return l, nil
}

func ref[T any](v T) *T { return &v }

// Renew implements [engine.LeaseStore] in one round trip. A lease that has
// expired but that nobody took over is renewed; one that was given back is lost.
func (s *State) Renew(ctx context.Context, l engine.Lease, ttl time.Duration) (engine.Desired, error) {
	var d engine.Desired
	err := s.alone(ctx, "renew "+slotName(l.Fence), func(q *db.Queries) error {
		row, err := q.RenewLease(ctx, db.RenewLeaseParams{Run: l.RunID, Slot: int32(l.Slot), Generation: l.Generation, Ttl: ttl.Seconds()})
		if err != nil && !none(err) {
			return err
		}
		if !row.Held {
			return &engine.StaleError{What: "generation", Subject: slotName(l.Fence), Ours: l.Generation, Have: row.Generation}
		}
		d = engine.Desired(row.Desired)
		return nil
	})
	return d, err
}

// EndAttempt implements [engine.LeaseStore]. Repeating it changes nothing. The
// slot's generation stays, so that its holder can still finish the run.
func (s *State) EndAttempt(ctx context.Context, l engine.Lease, facts []events.Fact) error {
	return s.update(ctx, "end attempt in "+slotName(l.Fence), func(t *stateTx) error {
		if _, err := t.fence(l.Fence); err != nil {
			return err
		}
		if err := t.freeSlot(l.Fence); err != nil {
			return err
		}
		return t.AddFacts(t.ctx, l.RunID, facts...)
	})
}

// freeSlot ends a lease and gives its splits back at their checkpoints.
func (t *stateTx) freeSlot(f engine.Fence) error {
	if err := t.q.FreeSlot(t.ctx, db.FreeSlotParams{Run: f.RunID, Slot: int32(f.Slot)}); err != nil {
		return err
	}
	return t.q.ReturnSlotSplits(t.ctx, db.ReturnSlotSplitsParams{Run: f.RunID, Owner: ref(int32(f.Slot))})
}

// SetDesired implements [engine.LeaseStore]. A canceled paused or partial run,
// or one that did not begin, which nobody works on, is canceled at once. Asking
// twice changes nothing; a run that has ended for good can't be asked any more,
// which is a permanent error.
func (s *State) SetDesired(ctx context.Context, runID uuid.UUID, d engine.Desired) error {
	return s.update(ctx, fmt.Sprintf("ask run %s to %s", runID, d), func(t *stateTx) error {
		r, err := t.lockRun(runID)
		if err != nil {
			return err
		}
		resting, ended := false, false
		switch state := engine.RunState(r.State); state {
		case engine.StateScheduled, engine.StateRequested, engine.StatePaused:
			resting = true
		case engine.StateFailed:
			resting, ended = r.Resumable, !r.Resumable
		case engine.StateCanceled:
			if d == engine.DesiredCancel {
				return nil
			}
			ended = true
		case engine.StateCompleted:
			ended = true
		case engine.StateRunning:
		}
		switch {
		case ended:
			return engine.Permanentf("", "ask run %s to %s: it is already %s", runID, d, r.State)
		case resting && d == engine.DesiredCancel:
			return t.end(runID, engine.StateCanceled, "", "", events.RunCanceled{Reason: "asked for while no process worked on it"})
		}
		t.Hint(Hint{Kind: HintDesired, Organization: s.org, Object: runID})
		return t.q.SetRunDesired(t.ctx, db.SetRunDesiredParams{ID: runID, Desired: string(d)})
	})
}
