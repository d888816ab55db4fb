package pgsink

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/engine"
)

// Abort implements engine.SinkSession.
func (s *Session) Abort(ctx context.Context, t *engine.Target) error {
	d, err := s.detailOf(t)
	if err != nil {
		return err
	}
	return s.with(ctx, "", func(c *conn) error {
		missing, err := s.missingLedger(ctx, c)
		if err != nil || len(missing) > 0 {
			return err
		}
		published := false
		var victims []backend
		if err := inTx(ctx, c, 0, func() error {
			published, victims, err = s.forget(ctx, c, t)
			return err
		}); err != nil || published {
			return err
		}
		// P5: they hold the staging that is dropped.
		if err := s.terminate(ctx, c, t.Resource, victims); err != nil {
			return err
		}
		return s.dropOwn(ctx, c, t, d)
	})
}

// dropOwn drops the target's own staging, which may have no fence yet.
func (s *Session) dropOwn(ctx context.Context, c *conn, t *engine.Target, d *detail) error {
	for _, p := range d.staged() {
		err := retryLocked(ctx, p.String(), func() error {
			return inTx(ctx, c, ddlLock, func() error {
				_, err := c.Exec(ctx, "DROP TABLE IF EXISTS "+p.sql())
				return classify(err, "drop staging of %s", t.Resource)
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// forget deletes an unpublished plan and its ledger rows, so that no epoch of it
// can commit any more.
func (s *Session) forget(ctx context.Context, c *conn, t *engine.Target) (published bool, victims []backend, err error) {
	k := keyOf(t)
	var f fenceRow
	err = f.scan(c.QueryRow(ctx, `SELECT `+fenceColumns+` FROM `+s.ledger.fence()+` WHERE `+fenceWhere+` FOR UPDATE`, k.installation, k.route, k.resource))
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil, nil
	}
	if err != nil {
		return false, nil, classify(err, "abort %s", t.Resource)
	}
	if f.PublishedRun == t.RunID {
		return true, nil, nil
	}
	victims, err = s.deleteRows(ctx, c, t, runWhere+" AND generation = $5", t.Generation)
	if err != nil {
		return false, nil, err
	}
	_, err = c.Exec(ctx, `UPDATE `+s.ledger.fence()+` SET frozen_run = '', claimed = false, plan = NULL, updated_at = now()
		WHERE `+fenceWhere+` AND frozen_run = $4 AND frozen_generation = $5`, k.installation, k.route, k.resource, t.RunID, t.Generation)
	return false, victims, classify(err, "abort %s", t.Resource)
}
