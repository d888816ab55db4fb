package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
)

// AdoptRoute implements [engine.RunStore]. It takes the route's process lock for
// itself. Adopting the same again changes nothing; adopting a route that this
// state knows under another installation is a permanent error. A resource that
// the user has reset stays reset, whatever the destination remembers of it.
func (s *Store) AdoptRoute(ctx context.Context, r engine.Route, version string, a engine.Adoption) error {
	return s.update(ctx, fmt.Sprintf("adopt pipeline %q", r.Pipeline), func(t *tx) error {
		r.Installation = a.Installation
		id, _, err := t.ensureRoute(&r, s.ownUUID)
		if err != nil {
			return err
		}
		if r.Installation != a.Installation {
			return engine.Permanentf("use the state file of that installation",
				"adopt pipeline %q: this state knows it as installation %s, the destination says %s", r.Pipeline, r.Installation, a.Installation)
		}
		if err := s.lockIdle(t, id, r); err != nil {
			return err
		}
		if err := t.raiseRoute(id, a.Ordinal); err != nil {
			return err
		}
		var rest []engine.AdoptedResource
		pending := false
		for _, ar := range a.Resources {
			if err := t.raiseRoute(id, ar.Ordinal); err != nil {
				return err
			}
			if len(ar.Cursor) > 0 {
				if err := t.adoptCursor(id, ar); err != nil {
					return err
				}
			}
			if ar.RunID == a.RunID && ar.Plan != nil {
				rest = append(rest, ar)
				pending = pending || !ar.Published
			}
		}
		if len(rest) == 0 {
			return nil
		}
		return t.adoptRun(id, version, a, rest, pending)
	})
}

// lockIdle locks a route of which no worker is alive, for this transaction.
func (s *Store) lockIdle(t *tx, id int64, r engine.Route) error {
	taken, err := s.lockRoute(t, r)
	if err != nil {
		return err
	}
	if taken {
		// Whoever had leases is dead.
		t.committed = append(t.committed, func() error { return s.unlockRoute(r) })
		return nil
	}
	var live bool
	err = t.row(`SELECT EXISTS (SELECT 1 FROM slots s JOIN runs r ON r.seq = s.run
		WHERE r.route = ? AND s.holder <> '' AND s.expires > `+nowMillis+`)`, id).Scan(&live)
	if err == nil && live {
		return engine.Permanentf("wait until it ends or stop it", "pipeline %q has live workers: %w", r.Pipeline, engine.ErrLocked)
	}
	return err
}

// adoptRun makes the destination's run ours, as one that failed and can be
// resumed, at the ledger's progress. A run that we have already, and that the
// destination has otherwise because one of the two was set back (P1, P3), is put
// there too; one that is published whole only if it is unfinished here.
func (t *tx) adoptRun(route int64, version string, a engine.Adoption, resources []engine.AdoptedResource, pending bool) error {
	runID, err := uuid.Parse(a.RunID)
	if err != nil {
		return engine.Bugf("adopt run %q: %w", a.RunID, err)
	}
	var run int64
	var open bool
	ordinal := a.Ordinal
	err = t.row(`SELECT seq, ordinal, `+openStates+` FROM runs WHERE id = ?`, runID.String()).Scan(&run, &ordinal, &open)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if !pending && !open {
		return nil
	}
	if err := t.supersedeOthers(route, run, runID); err != nil {
		return err
	}
	// Only the route's latest run can go on (P21).
	var last int64
	var taken bool
	if err := t.row(`SELECT last_ordinal, EXISTS (SELECT 1 FROM runs WHERE route = ?1 AND ordinal = ?2 AND seq <> ?3)
		FROM routes WHERE id = ?1`, route, ordinal, run).Scan(&last, &taken); err != nil {
		return err
	}
	if ordinal < last || taken {
		ordinal = last + 1
		if err := t.raiseRoute(route, ordinal); err != nil {
			return err
		}
	}
	// The run was planned before any reset that stands.
	if _, err := t.exec(`UPDATE cursors SET reset_ordinal = ?2 WHERE route = ?1 AND reset_ordinal BETWEEN 1 AND ?2`, route, ordinal); err != nil {
		return err
	}
	if run == 0 {
		if err := t.row(`INSERT INTO runs (id, route, version, ordinal, state, created_at, started_at)
			VALUES (?1, ?2, ?3, ?4, 'failed', ?5, ?5) RETURNING seq`,
			runID.String(), route, version, ordinal, time.Now().UnixMicro()).Scan(&run); err != nil {
			return err
		}
	}
	if err := t.voidLeases(run); err != nil {
		return err
	}
	for _, q := range []string{
		`DELETE FROM splits WHERE run = ?`, `DELETE FROM artifacts WHERE run = ?`, `DELETE FROM seen WHERE run = ?`, `DELETE FROM resources WHERE run = ?`,
	} {
		if _, err := t.exec(q, run); err != nil {
			return err
		}
	}
	if _, err := t.exec(`UPDATE runs SET ordinal = ?, state = 'failed', resumable = 1, planned = 1, desired = 'run',
		error = 'interrupted; adopted from the destination', ended_at = ? WHERE seq = ?`, ordinal, time.Now().UnixMicro(), run); err != nil {
		return err
	}
	for i, ar := range resources {
		if err := t.addResource(run, i, ar.Plan, 0); err != nil {
			return err
		}
		for _, e := range ar.Ledger {
			totals, err := json.Marshal(e.Totals)
			if err != nil {
				return engine.Bugf("adopt split %q: %w", e.Split, err)
			}
			if _, err := t.exec(`UPDATE splits SET claim = ?, epoch = ?, position = ?, done = ?, totals = ? WHERE run = ? AND id = ?`,
				e.Claim, e.Epoch, nullable(e.Position), e.Done, totals, run, e.Split); err != nil {
				return err
			}
		}
		if ar.Published {
			// Published means that every split is done, whatever rows the ledger kept.
			if _, err := t.exec(`UPDATE splits SET done = 1 WHERE run = ? AND resource = ?`, run, ar.Resource); err != nil {
				return err
			}
		}
	}
	return nil
}

// adoptCursor stores the cursor that the destination has.
func (t *tx) adoptCursor(route int64, ar engine.AdoptedResource) error {
	_, err := t.exec(`INSERT INTO cursors (route, resource, cursor, seen) VALUES (?, ?, ?, ?)
		ON CONFLICT (route, resource) DO UPDATE SET cursor = excluded.cursor, seen = excluded.seen WHERE reset_ordinal = 0`,
		route, ar.Resource, nullable(ar.Cursor), packIDs(ar.Seen))
	return err
}

// supersedeOthers ends the route's unfinished runs but one.
func (t *tx) supersedeOthers(route, but int64, by uuid.UUID) error {
	var open []unfinished
	err := t.rows(func(r scanner) error {
		var u unfinished
		err := r.Scan(&u.seq, &u.id, &u.version, &u.desired, &u.ordinal)
		open = append(open, u)
		return err
	}, `SELECT seq, id, version, desired, ordinal FROM runs WHERE route = ? AND seq <> ? AND `+openStates, route, but)
	if err != nil {
		return err
	}
	for _, u := range open {
		if err := t.voidLeases(u.seq); err != nil {
			return err
		}
		if err := t.supersede(u, by); err != nil {
			return err
		}
	}
	return nil
}
