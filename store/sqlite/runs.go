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

// openStates are the states in which a run may be resumed; a failed run only if
// it is resumable.
const openStates = `(state IN ('scheduled', 'requested', 'running', 'paused') OR state = 'failed' AND resumable)`

// StartRun implements [engine.RunStore]. It takes the route's process lock. The
// leases of a dead process are void once we have it; leases of this process
// that live still give ErrLocked. An unfinished run that somebody asked to
// cancel while nobody worked on it is canceled, not resumed.
func (s *Store) StartRun(ctx context.Context, req engine.StartRequest) (run engine.Run, resumed bool, err error) {
	what := fmt.Sprintf("start a run of pipeline %q", req.Route.Pipeline)
	err = s.updateRoute(ctx, what, req.Route, func(t *tx, taken bool) error {
		var err error
		if run, resumed, err = t.startRun(req, s.ownUUID, taken); err != nil {
			return err
		}
		return t.forgetOldRuns(req.Route, s.options.keepRuns)
	})
	if err != nil {
		return engine.Run{}, false, err
	}
	return run, resumed, nil
}

// unfinished is what StartRun needs to know of an open run.
type unfinished struct {
	seq         int64
	id, version string
	desired     engine.Desired
	ordinal     int64
	// leased: a worker of it has a lease that has not expired.
	leased bool
}

func (t *tx) startRun(req engine.StartRequest, own string, newProcess bool) (engine.Run, bool, error) {
	route := req.Route
	routeID, last, err := t.ensureRoute(&route, own)
	if err != nil {
		return engine.Run{}, false, err
	}
	var open []unfinished
	err = t.rows(func(r scanner) error {
		var u unfinished
		err := r.Scan(&u.seq, &u.id, &u.version, &u.desired, &u.ordinal, &u.leased)
		open = append(open, u)
		return err
	}, `SELECT seq, id, version, desired, ordinal,
			EXISTS (SELECT 1 FROM slots s WHERE s.run = seq AND s.holder <> '' AND s.expires > `+nowMillis+`)
		FROM runs WHERE route = ? AND `+openStates+` ORDER BY ordinal DESC`, routeID)
	if err != nil {
		return engine.Run{}, false, err
	}
	for _, u := range open {
		if u.leased && !newProcess {
			return engine.Run{}, false, engine.Permanentf("wait until it ends or stop it",
				"run %s of pipeline %q has live workers: %w", u.id, route.Pipeline, engine.ErrLocked)
		}
	}
	var resume *unfinished
	id, err := uuid.NewV7()
	if err != nil {
		return engine.Run{}, false, err
	}
	for i, u := range open {
		if err := t.voidLeases(u.seq); err != nil {
			return engine.Run{}, false, err
		}
		// Only the route's latest run can go on (P21).
		if i == 0 && !req.Restart && u.version == req.Version && u.desired != engine.DesiredCancel && u.ordinal >= last {
			resume = &open[i]
			continue
		}
		if err := t.supersede(u, id); err != nil {
			return engine.Run{}, false, err
		}
	}
	if resume != nil {
		if _, err := t.exec(`UPDATE runs SET state = 'running', resumable = 0, error = '', ended_at = NULL, desired = 'run',
			started_at = coalesce(started_at, ?2) WHERE seq = ?1`, resume.seq, time.Now().UnixMicro()); err != nil {
			return engine.Run{}, false, err
		}
		run, err := scanRun(t.row(runQuery+` WHERE r.seq = ?`, resume.seq))
		return run, true, err
	}
	ordinal := max(last, req.AtLeastOrdinal) + 1
	if err := t.raiseRoute(routeID, ordinal); err != nil {
		return engine.Run{}, false, err
	}
	var seq int64
	if err := t.row(`INSERT INTO runs (id, route, version, ordinal, state, created_at, started_at)
		VALUES (?1, ?2, ?3, ?4, 'running', ?5, ?5) RETURNING seq`,
		id.String(), routeID, req.Version, ordinal, time.Now().UnixMicro()).Scan(&seq); err != nil {
		return engine.Run{}, false, err
	}
	run, err := scanRun(t.row(runQuery+` WHERE r.seq = ?`, seq))
	return run, false, err
}

// voidLeases ends what earlier workers hold: their numbers are overtaken, those
// of slots given back too, and their splits are nobody's (invariant 2).
func (t *tx) voidLeases(run int64) error {
	if _, err := t.exec(`UPDATE slots SET generation = generation + 1, holder = '', expires = 0 WHERE run = ?`, run); err != nil {
		return err
	}
	_, err := t.exec(`UPDATE splits SET owner = NULL, owner_generation = NULL
		WHERE run = ? AND done = 0 AND owner IS NOT NULL`, run)
	return err
}

// supersede ends an unfinished run for good: failed and not resumable, or
// canceled if that was asked for while nobody worked on it.
func (t *tx) supersede(u unfinished, by uuid.UUID) error {
	runID, err := uuid.Parse(u.id)
	if err != nil {
		return err
	}
	if u.desired == engine.DesiredCancel {
		return t.end(u.seq, runID, engine.StateCanceled, "", events.RunCanceled{Reason: "asked for while no process worked on it"})
	}
	text := fmt.Sprintf("superseded by run %s", by)
	return t.end(u.seq, runID, engine.StateFailed, text, events.RunFailed{Class: string(engine.Permanent), Error: text})
}

// end moves a run that nobody works on to a final state, with its fact.
func (t *tx) end(run int64, runID uuid.UUID, state engine.RunState, text string, p events.Payload) error {
	if _, err := t.exec(`UPDATE runs SET state = ?, resumable = 0, error = CASE WHEN ?2 = '' THEN error ELSE ?2 END,
		ended_at = ?3 WHERE seq = ?4`, string(state), text, time.Now().UnixMicro(), run); err != nil {
		return err
	}
	f, err := events.New(runID, time.Now(), p)
	if err != nil {
		return err
	}
	return t.addFacts(run, runID, []events.Fact{f})
}

// forgetOldRuns deletes runs that are too old to be kept, with all they have.
func (t *tx) forgetOldRuns(r engine.Route, keep int) error {
	id, _, err := t.findRoute(&r)
	if err != nil {
		return err
	}
	_, err = t.exec(`DELETE FROM runs WHERE route = ?1 AND NOT `+openStates+` AND seq NOT IN
		(SELECT seq FROM runs WHERE route = ?1 ORDER BY ordinal DESC LIMIT ?2)`, id, keep)
	return err
}

// RaiseOrdinal implements [engine.RunStore]: the ordinal becomes greater than
// atLeast and than every ordinal of the route; it stays if it is that already.
func (s *Store) RaiseOrdinal(ctx context.Context, runID uuid.UUID, atLeast int64) (run engine.Run, err error) {
	err = s.update(ctx, fmt.Sprintf("raise ordinal of run %s", runID), func(t *tx) error {
		var seq, route, ordinal, last int64
		var planned bool
		var state engine.RunState
		err := t.row(`SELECT r.seq, r.route, r.ordinal, r.planned, r.state, o.last_ordinal
			FROM runs r JOIN routes o ON o.id = r.route WHERE r.id = ?`, runID.String()).
			Scan(&seq, &route, &ordinal, &planned, &state, &last)
		if errors.Is(err, sql.ErrNoRows) {
			return unknownRun(runID)
		}
		if err != nil {
			return err
		}
		if state != engine.StateRunning {
			return fmt.Errorf("it is %s: %w", state, &engine.StaleError{What: "generation", Subject: "run " + runID.String()})
		}
		if ordinal <= atLeast {
			if planned {
				return engine.Bugf("raise ordinal of run %s: its plan is frozen with ordinal %d", runID, ordinal)
			}
			ordinal = max(last, atLeast) + 1
			if err := t.raiseRoute(route, ordinal); err != nil {
				return err
			}
			if _, err := t.exec(`UPDATE runs SET ordinal = ? WHERE seq = ?`, ordinal, seq); err != nil {
				return err
			}
		}
		run, err = scanRun(t.row(runQuery+` WHERE r.seq = ?`, seq))
		return err
	})
	return run, err
}

// FinishRun implements [engine.RunStore]. It also frees the caller's slot, whose
// attempt is over with the run. Repeating it with the same state changes
// nothing. The route's process lock goes once no slot is held any more.
func (s *Store) FinishRun(ctx context.Context, f engine.Fence, end engine.RunEnd) error {
	return s.update(ctx, fmt.Sprintf("finish run %s", f.RunID), func(t *tx) error {
		r, err := t.fence(f)
		if err != nil {
			return err
		}
		switch end.State {
		case engine.StateCompleted, engine.StateFailed, engine.StateCanceled, engine.StatePaused:
		default:
			return engine.Bugf("finish run %s: %q is no end of a run", f.RunID, end.State)
		}
		if r.state != engine.StateRunning && r.state != end.State {
			return engine.Bugf("finish run %s as %s: it is %s", f.RunID, end.State, r.state)
		}
		if _, err := t.exec(`UPDATE runs SET state = ?, resumable = ?, error = ?, receipt = ?, ended_at = ? WHERE seq = ?`,
			string(end.State), end.Resumable && end.State == engine.StateFailed, end.Error, nullable(end.Receipt),
			time.Now().UnixMicro(), r.seq); err != nil {
			return err
		}
		if end.State == engine.StateCompleted {
			// Published rows are remembered with the cursor.
			if _, err := t.exec(`DELETE FROM seen WHERE run = ?`, r.seq); err != nil {
				return err
			}
		}
		if err := t.addFacts(r.seq, f.RunID, end.Facts); err != nil {
			return err
		}
		if err := t.freeSlot(r.seq, f); err != nil {
			return err
		}
		return s.unlockIdle(t, r)
	})
}

const runQuery = `SELECT r.id, o.installation, o.pipeline, o.source, o.sink, r.version, r.ordinal, r.state, r.resumable,
	r.error, r.created_at, r.started_at, r.ended_at, r.attempts, r.receipt FROM runs r JOIN routes o ON o.id = r.route`

func scanRun(row scanner) (engine.Run, error) {
	var r engine.Run
	var id string
	var created int64
	var started, ended sql.NullInt64
	var receipt []byte
	if err := row.Scan(&id, &r.Route.Installation, &r.Route.Pipeline, &r.Route.Source, &r.Route.Sink, &r.Version,
		&r.Ordinal, &r.State, &r.Resumable, &r.Error, &created, &started, &ended, &r.Attempts, &receipt); err != nil {
		return r, err
	}
	var err error
	if r.ID, err = uuid.Parse(id); err != nil {
		return r, err
	}
	r.CreatedAt, r.StartedAt, r.EndedAt, r.Receipt = time.UnixMicro(created).UTC(), micros(started), micros(ended), receipt
	return r, nil
}

func micros(n sql.NullInt64) time.Time {
	if !n.Valid {
		return time.Time{}
	}
	return time.UnixMicro(n.Int64).UTC()
}

// GetRun implements [engine.RunStore]; an unknown run is a permanent error.
func (s *Store) GetRun(ctx context.Context, runID uuid.UUID) (engine.Run, error) {
	run, err := scanRun(s.read.QueryRowContext(ctx, runQuery+` WHERE r.id = ?`, runID.String()))
	if errors.Is(err, sql.ErrNoRows) {
		return run, unknownRun(runID)
	}
	return run, s.fail(fmt.Sprintf("read run %s", runID), err)
}

// ListRuns implements [engine.RunStore]; a limit of 0 or less means all.
func (s *Store) ListRuns(ctx context.Context, pipeline string, limit int) ([]engine.Run, error) {
	if limit <= 0 {
		limit = -1
	}
	var runs []engine.Run
	err := s.query(ctx, "list runs", func(r scanner) error {
		run, err := scanRun(r)
		runs = append(runs, run)
		return err
	}, runQuery+` WHERE ?1 = '' OR o.pipeline = ?1 ORDER BY r.seq DESC LIMIT ?2`, pipeline, limit)
	return runs, err
}
