package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/store/internal/db"
)

var (
	_ engine.State = (*State)(nil)
	_ engine.State = (*RunState)(nil)
)

// State keeps the engine's state of one organization. That a worker lives is
// known by its lease alone (P22): a run whose workers died can be taken up by
// another process once their leases are over.
type State struct {
	db  *DB
	org uuid.UUID
}

// State returns the engine's state of an organization.
func (d *DB) State(organization uuid.UUID) *State { return &State{db: d, org: organization} }

// stateTx is a transaction of the engine's state.
type stateTx struct {
	Tx
	ctx context.Context
	q   *db.Queries
}

// update runs fn in a transaction. Contexts that end interrupt it.
func (s *State) update(ctx context.Context, what string, fn func(t *stateTx) error) error {
	return s.fail(what, s.db.Tx(ctx, s.org, func(ctx context.Context, tx Tx) error {
		return fn(&stateTx{Tx: tx, ctx: ctx, q: tx.Q()})
	}))
}

// alone runs fn, in which each statement is a transaction of its own and takes
// one round trip. A statement whose outcome is unknown is run again: those that
// write must be such that a repetition changes nothing (invariant 4).
func (s *State) alone(ctx context.Context, what string, fn func(q *db.Queries) error) error {
	return s.fail(what, s.db.again(ctx, s.db.app, func(conn *pgxpool.Conn) (bool, error) {
		return false, fn(db.New(Tx{&txState{conn: conn, role: roleApp, org: s.org, single: true}}))
	}))
}

// fail says what could not be done, and classifies it for the engine. Errors
// that carry their own meaning pass through.
func (s *State) fail(what string, err error) error {
	if err == nil {
		return nil
	}
	var classified *engine.Error
	var stale *engine.StaleError
	if errors.As(err, &classified) || errors.As(err, &stale) ||
		errors.Is(err, engine.ErrLocked) || errors.Is(err, engine.ErrSplitDone) {
		return err
	}
	var away *control.UnavailableError
	switch {
	case errors.As(err, &away):
		return engine.Retryablef("%s: %w", what, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", what, err)
	case code(err) == "42501", code(err) == "42P01":
		return engine.Permanentf("migrate the control plane's database with this version of the program", "%s: %w", what, err)
	case code(err) == "53100":
		return engine.Permanentf("free space on the database's disk; the run resumes", "%s: %w", what, err)
	case code(err) != "":
		return engine.Bugf("%s: %w", what, err)
	}
	return engine.Permanentf("", "%s: %w", what, err)
}

// Installation implements [engine.RunStore]: the organization's own.
func (s *State) Installation(ctx context.Context) (string, error) {
	var id uuid.UUID
	err := s.alone(ctx, "read the installation", func(q *db.Queries) (err error) {
		id, err = q.GetInstallation(ctx)
		return err
	})
	if err != nil {
		return "", err
	}
	return id.String(), nil
}

func none(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

func unknownRun(id uuid.UUID) error {
	return engine.Permanentf("list the runs that are kept", "there is no run %s", id)
}

func slotName(f engine.Fence) string {
	return fmt.Sprintf("slot %d of run %s", f.Slot, f.RunID)
}

// lockRun locks a run's row, which is the first lock of every write to a run but
// a lease's renewal.
func (t *stateTx) lockRun(id uuid.UUID) (db.Run, error) {
	r, err := t.q.LockRun(t.ctx, id)
	if none(err) {
		return r, unknownRun(id)
	}
	return r, err
}

// fence locks the run and checks that the caller still holds its slot
// (invariant 2).
func (t *stateTx) fence(f engine.Fence) (db.Run, error) {
	r, err := t.q.LockRun(t.ctx, f.RunID)
	if err != nil && !none(err) {
		return r, err
	}
	// A run that is not here (the database was set back) fences like a slot never taken.
	var have int64
	if err == nil {
		// A second statement sees what was committed while the first one waited.
		have, err = t.q.GetSlotGeneration(t.ctx, db.GetSlotGenerationParams{Run: f.RunID, Slot: int32(f.Slot)})
		if err != nil {
			return r, err
		}
	}
	if have == 0 || have != f.Generation {
		return r, &engine.StaleError{What: "generation", Subject: slotName(f), Ours: f.Generation, Have: have}
	}
	return r, nil
}
