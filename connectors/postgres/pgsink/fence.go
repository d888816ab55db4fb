package pgsink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/zeebo/xxh3"

	"github.com/tranship-io/tranship/engine"
)

// key is what fence and ledger rows of a resource are found by.
type key struct{ installation, route, resource string }

func keyOf(t *engine.Target) key {
	return key{t.Route.Installation, routeKey(t.Route), t.Resource}
}

// The conditions of a fence row ($1–$3), the ledger rows of a run ($1–$4) and
// one ledger row ($1–$5).
const (
	fenceWhere = "installation = $1 AND route = $2 AND resource = $3"
	runWhere   = fenceWhere + " AND run_id = $4"
	rowWhere   = runWhere + " AND split = $5"
)

// lockKey is an advisory lock's number for a subject.
func lockKey(parts ...string) int64 {
	return int64(xxh3.HashString(strings.Join(parts, "\x00")))
}

// lock is the number of the fence's advisory lock: epochs share it, the start of
// a run takes it alone (P2).
func (k key) lock() int64 { return lockKey("fence", k.installation, k.route, k.resource) }

// fenceRow is a fence row as it is found; the zero value if there is none.
type fenceRow struct {
	Ordinal          int64
	RunID            string
	FrozenRun        string
	FrozenGeneration int
	// Claimed is true once a split of the frozen plan was claimed: until then the
	// plan may never have been saved, and nothing is loaded.
	Claimed      bool
	PublishedRun string
}

const fenceColumns = "ordinal, run_id, frozen_run, frozen_generation, claimed, published_run"

func (f *fenceRow) scan(row pgx.Row) error {
	return row.Scan(&f.Ordinal, &f.RunID, &f.FrozenRun, &f.FrozenGeneration, &f.Claimed, &f.PublishedRun)
}

// begun tells whether splits of this very plan were claimed.
func (f *fenceRow) begun(t *engine.Target) bool {
	return f.Claimed && f.FrozenRun == t.RunID && f.FrozenGeneration == t.Generation
}

// stale tells that the fence, or the resource's plan, is another's by now.
func (f *fenceRow) stale(t *engine.Target) error {
	if f.RunID != t.RunID || f.Ordinal != t.Ordinal {
		return &engine.StaleError{What: "ordinal", Subject: t.Resource, Ours: t.Ordinal, Have: f.Ordinal}
	}
	if f.FrozenRun == t.RunID && f.FrozenGeneration > t.Generation {
		return &engine.StaleError{What: "generation", Subject: t.Resource, Ours: int64(t.Generation), Have: int64(f.FrozenGeneration)}
	}
	return nil
}

func (s *Session) readFence(ctx context.Context, c *conn, t *engine.Target) (fenceRow, error) {
	var f fenceRow
	k := keyOf(t)
	err := f.scan(c.QueryRow(ctx, `SELECT `+fenceColumns+` FROM `+s.ledger.fence()+` WHERE `+fenceWhere,
		k.installation, k.route, k.resource))
	if errors.Is(err, pgx.ErrNoRows) {
		return fenceRow{}, nil
	}
	return f, classify(err, "read the fence of %s", t.Resource)
}

// raiseLock bounds one wait of a raise; after it, sessions of older numbers that
// may hold the lock are ended (P5). raiseTries bounds the tries.
const (
	raiseLock  = time.Second
	raiseTries = 8
)

// BeginRun implements engine.Fencer.
func (s *Session) BeginRun(ctx context.Context, targets []*engine.Target) error {
	// One order for everybody, so that two runs that start don't deadlock.
	ordered := slices.SortedFunc(slices.Values(targets), func(a, b *engine.Target) int { return strings.Compare(a.Resource, b.Resource) })
	return s.with(ctx, "", func(c *conn) error {
		for _, t := range ordered {
			if err := s.beginResource(ctx, c, t); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Session) beginResource(ctx context.Context, c *conn, t *engine.Target) error {
	k := keyOf(t)
	_, err := c.Exec(ctx, `INSERT INTO `+s.ledger.fence()+` (installation, route, resource, pipeline, source, sink, target)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`,
		k.installation, k.route, k.resource, t.Route.Pipeline, t.Route.Source, t.Route.Sink, t.Name)
	if err != nil {
		return classify(err, "make the fence of %s", t.Resource)
	}
	older := func() ([]backend, error) { return s.backendsOfOtherRuns(ctx, c, t) }
	// P1: alone in a transaction; the exclusive advisory lock waits for epochs
	// that have passed their check and keeps new ones from overtaking it (P2).
	err = s.raise(ctx, c, t.Resource, older, func() error {
		if _, err := c.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", k.lock()); err != nil {
			return classify(err, "begin the run of %s", t.Resource)
		}
		if err := s.refuseStanding(ctx, c, t); err != nil {
			return err
		}
		tag, err := c.Exec(ctx, `UPDATE `+s.ledger.fence()+` SET ordinal = $4, run_id = $5, target = $6, updated_at = now()
			WHERE `+fenceWhere+` AND (ordinal < $4 OR ordinal = $4 AND run_id = $5)`,
			k.installation, k.route, k.resource, t.Ordinal, t.RunID, t.Name)
		if err != nil {
			return classify(err, "begin the run of %s", t.Resource)
		}
		if tag.RowsAffected() == 0 {
			f, err := s.readFence(ctx, c, t)
			if err != nil {
				return err
			}
			return &engine.StaleError{What: "ordinal", Subject: t.Resource, Ours: t.Ordinal, Have: f.Ordinal}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.clearOthers(ctx, c, t); err != nil {
		return err
	}
	return s.dropOthersStaging(ctx, c, t)
}

// clearOthers deletes the ledger rows of other runs, once the sessions that they
// name are ended. While it does, no later run can begin, whose rows these might be.
func (s *Session) clearOthers(ctx context.Context, c *conn, t *engine.Target) error {
	k := keyOf(t)
	return inTx(ctx, c, 0, func() error {
		var f fenceRow
		err := f.scan(c.QueryRow(ctx, `SELECT `+fenceColumns+` FROM `+s.ledger.fence()+` WHERE `+fenceWhere+` FOR SHARE`, k.installation, k.route, k.resource))
		if err != nil {
			return classify(err, "clear the ledger of earlier runs of %s", t.Resource)
		}
		if f.RunID != t.RunID || f.Ordinal != t.Ordinal {
			return &engine.StaleError{What: "ordinal", Subject: t.Resource, Ours: t.Ordinal, Have: f.Ordinal}
		}
		_, err = s.deleteRows(ctx, c, t, fenceWhere+" AND run_id <> $4")
		return err
	})
}

// refuseStanding refuses to supersede a run that has appended rows to the target
// and is neither published nor aborted: nobody would know of those rows (P21).
func (s *Session) refuseStanding(ctx context.Context, c *conn, t *engine.Target) error {
	k := keyOf(t)
	var run string
	err := c.QueryRow(ctx, `SELECT f.run_id FROM `+s.ledger.fence()+` f WHERE f.installation = $1 AND f.route = $2 AND f.resource = $3
			AND f.run_id <> $4 AND f.ordinal < $5 AND f.frozen_run = f.run_id AND f.published_run <> f.run_id
			AND f.plan->>'write' = 'append' AND NOT COALESCE((f.plan->'target'->>'staged')::boolean, false)
			AND EXISTS (SELECT FROM `+s.ledger.rows()+` l WHERE l.installation = f.installation AND l.route = f.route AND l.resource = f.resource
				AND l.run_id = f.run_id AND COALESCE((l.totals->>'rows_applied')::bigint, 0) > 0)`,
		k.installation, k.route, k.resource, t.RunID, t.Ordinal).Scan(&run)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return classify(err, "begin the run of %s", t.Resource)
	}
	return fmt.Errorf("begin run %s of %s: run %s: %w", t.RunID, t.Resource, run, engine.ErrUnfinished)
}

// raise runs a raise alone in a transaction. Sessions of older numbers are ended
// when it waits, and again after it, before anything is written (P5).
func (s *Session) raise(ctx context.Context, c *conn, subject string, older func() ([]backend, error), f func() error) error {
	for try := 1; ; try++ {
		victims, err := older()
		if err != nil {
			return err
		}
		err = inTx(ctx, c, raiseLock, f)
		if err != nil && (code(err) != codeLockTimeout || try == raiseTries) {
			return err
		}
		if err := s.terminate(ctx, c, subject, victims); err != nil {
			return err
		}
		if err == nil {
			return nil
		}
	}
}

// terminate ends sessions and waits until they are gone. Sessions of this
// process end by their own context.
func (s *Session) terminate(ctx context.Context, c *conn, subject string, victims []backend) error {
	const patience = 10 * time.Second
	deadline := time.Now().Add(patience)
	for _, v := range victims {
		if s.pool.owns(v) {
			continue
		}
		for {
			var alive bool
			// Both must match: the pid alone may be another's by now.
			err := c.QueryRow(ctx, `SELECT COALESCE(bool_or(pg_terminate_backend(pid) IS NOT NULL), false)
				FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2`, v.PID, v.Start).Scan(&alive)
			if err != nil {
				return classify(err, "end the session %d of an older claim on %s", v.PID, subject)
			}
			if !alive {
				break
			}
			if time.Now().After(deadline) {
				return engine.Retryablef("end the session %d of an older claim on %s: it is still there after %s", v.PID, subject, patience)
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

func (s *Session) backendsOfOtherRuns(ctx context.Context, c *conn, t *engine.Target) ([]backend, error) {
	k := keyOf(t)
	q := `SELECT backend_pid, backend_start FROM ` + s.ledger.rows() + ` WHERE ` + fenceWhere + ` AND run_id <> $4 AND backend_pid IS NOT NULL`
	q += ` UNION SELECT backend_pid, backend_start FROM ` + s.ledger.staged() + ` WHERE ` + fenceWhere + ` AND run_id <> $4 AND backend_pid IS NOT NULL`
	rows, err := c.Query(ctx, q, k.installation, k.route, k.resource, t.RunID)
	if err != nil {
		return nil, classify(err, "read sessions of earlier runs of %s", t.Resource)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[backend])
	return found, classify(err, "read sessions of earlier runs of %s", t.Resource)
}

// table is where the ledger rows of a target's splits are: beside unlogged
// staging for read splits, always logged for the publish (P7).
func (s *Session) table(t *engine.Target, d *detail, split string) string {
	if d.Unlogged && split != engine.PublishSplit(t.Resource) {
		return s.ledger.staged()
	}
	return s.ledger.rows()
}
