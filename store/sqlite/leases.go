package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// Acquire implements [engine.LeaseStore]. A process that does not hold the
// route's lock yet takes it, and with it voids the leases of a dead one.
func (s *Store) Acquire(ctx context.Context, runID uuid.UUID, slot int, holder string, ttl time.Duration) (engine.Lease, error) {
	if holder == "" {
		return engine.Lease{}, engine.Bugf("take slot %d of run %s: a holder needs a name", slot, runID)
	}
	known, err := s.GetRun(ctx, runID)
	if err != nil {
		return engine.Lease{}, err
	}
	l := engine.Lease{Fence: engine.Fence{RunID: runID, Slot: slot}, Holder: holder}
	what := fmt.Sprintf("take slot %d of run %s", slot, runID)
	err = s.updateRoute(ctx, what, known.Route, func(t *tx, taken bool) error {
		var run int64
		var state engine.RunState
		err := t.row(`SELECT seq, state FROM runs WHERE id = ?`, runID.String()).Scan(&run, &state)
		if errors.Is(err, sql.ErrNoRows) {
			return unknownRun(runID)
		}
		if err != nil {
			return err
		}
		if state != engine.StateRunning {
			return engine.Permanentf("start the pipeline's run again", "%s: the run is %s", what, state)
		}
		if taken {
			if err := t.voidLeases(run); err != nil {
				return err
			}
		}
		return t.acquire(run, &l, ttl)
	})
	if err != nil {
		return engine.Lease{}, err
	}
	return l, nil
}

func (t *tx) acquire(run int64, l *engine.Lease, ttl time.Duration) error {
	err := t.row(`INSERT INTO slots (run, slot, generation, holder, expires) VALUES (?1, ?2, 1, ?3, `+nowMillis+` + ?4)
		ON CONFLICT DO UPDATE SET generation = generation + 1, holder = excluded.holder, expires = excluded.expires
		WHERE holder = '' OR expires <= `+nowMillis+` RETURNING generation`,
		run, l.Slot, l.Holder, ttl.Milliseconds()).Scan(&l.Generation)
	if errors.Is(err, sql.ErrNoRows) {
		return engine.Permanentf("wait until its holder ends", "take %s: %w", slotName(l.Fence), engine.ErrLocked)
	}
	if err != nil {
		return err
	}
	// What the slot's earlier holder had is nobody's now.
	if _, err := t.exec(`UPDATE splits SET owner = NULL, owner_generation = NULL WHERE run = ? AND owner = ? AND done = 0`, run, l.Slot); err != nil {
		return err
	}
	return t.row(`UPDATE runs SET attempts = attempts + 1 WHERE seq = ? RETURNING attempts`, run).Scan(&l.Attempt)
}

// Renew implements [engine.LeaseStore]. A lease that has expired but that
// nobody took over is renewed; one that was given back is lost.
func (s *Store) Renew(ctx context.Context, l engine.Lease, ttl time.Duration) (engine.Desired, error) {
	var d engine.Desired
	err := s.update(ctx, fmt.Sprintf("renew %s", slotName(l.Fence)), func(t *tx) error {
		r, err := t.fence(l.Fence)
		if err != nil {
			return err
		}
		n, err := t.exec(`UPDATE slots SET expires = `+nowMillis+` + ? WHERE run = ? AND slot = ? AND holder <> ''`,
			ttl.Milliseconds(), r.seq, l.Slot)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("the lease was given back: %w",
				&engine.StaleError{What: "generation", Subject: slotName(l.Fence), Ours: l.Generation, Have: l.Generation})
		}
		return t.row(`SELECT desired FROM runs WHERE seq = ?`, r.seq).Scan(&d)
	})
	return d, err
}

// EndAttempt implements [engine.LeaseStore]. Repeating it changes nothing. The
// slot's generation stays, so that its holder can still finish the run.
func (s *Store) EndAttempt(ctx context.Context, l engine.Lease, facts []events.Fact) error {
	return s.update(ctx, fmt.Sprintf("end attempt in %s", slotName(l.Fence)), func(t *tx) error {
		r, err := t.fence(l.Fence)
		if err != nil {
			return err
		}
		if err := t.freeSlot(r.seq, l.Fence); err != nil {
			return err
		}
		if err := t.addFacts(r.seq, l.RunID, facts); err != nil {
			return err
		}
		return s.unlockIdle(t, r)
	})
}

// freeSlot ends a lease and gives its splits back at their checkpoints.
func (t *tx) freeSlot(run int64, f engine.Fence) error {
	if _, err := t.exec(`UPDATE slots SET holder = '', expires = 0 WHERE run = ? AND slot = ?`, run, f.Slot); err != nil {
		return err
	}
	_, err := t.exec(`UPDATE splits SET owner = NULL, owner_generation = NULL
		WHERE run = ? AND owner = ? AND owner_generation = ? AND done = 0`, run, f.Slot, f.Generation)
	return err
}

// unlockIdle lets the route go, once this transaction is committed, if nobody
// needs the lock any more: the run has ended and no slot of it is held.
func (s *Store) unlockIdle(t *tx, f fenced) error {
	var busy bool
	err := t.row(`SELECT state = 'running' OR EXISTS
		(SELECT 1 FROM slots WHERE run = seq AND holder <> '' AND expires > `+nowMillis+`) FROM runs WHERE seq = ?`, f.seq).Scan(&busy)
	if err != nil || busy {
		return err
	}
	r, err := t.routeOf(f.route)
	if err != nil {
		return err
	}
	t.committed = append(t.committed, func() error { return s.unlockRoute(r) })
	return nil
}

// SetDesired implements [engine.LeaseStore]; it works from any process. A
// canceled paused or partial run, which nobody works on, is canceled at once.
// Asking twice changes nothing; a run that has ended for good can't be asked
// any more, which is a permanent error.
func (s *Store) SetDesired(ctx context.Context, runID uuid.UUID, d engine.Desired) error {
	return s.update(ctx, fmt.Sprintf("ask run %s to %s", runID, d), func(t *tx) error {
		var seq int64
		var state engine.RunState
		var resumable bool
		err := t.row(`SELECT seq, state, resumable FROM runs WHERE id = ?`, runID.String()).Scan(&seq, &state, &resumable)
		if errors.Is(err, sql.ErrNoRows) {
			return unknownRun(runID)
		}
		if err != nil {
			return err
		}
		resting := state == engine.StatePaused || state == engine.StateFailed && resumable
		ended := state == engine.StateCompleted || state == engine.StateCanceled || state == engine.StateFailed && !resumable
		switch {
		case state == engine.StateCanceled && d == engine.DesiredCancel:
			return nil
		case ended:
			return engine.Permanentf("", "ask run %s to %s: it is already %s", runID, d, state)
		case resting && d == engine.DesiredCancel:
			return t.end(seq, runID, engine.StateCanceled, "", events.RunCanceled{Reason: "asked for while no process worked on it"})
		}
		_, err = t.exec(`UPDATE runs SET desired = ? WHERE seq = ?`, string(d), seq)
		return err
	})
}
