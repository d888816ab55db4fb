package pgsink

import (
	"context"
	"fmt"

	"github.com/tranship-io/tranship/engine"
)

// findStaging lists the staging tables of the database that which accepts,
// whatever route and run they are of.
func (s *Session) findStaging(ctx context.Context, c *conn, which func(p place) bool) ([]place, error) {
	rows, err := c.Query(ctx, `SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind = 'r' AND c.relname ~ $1 ORDER BY 1, 2`, stagingForm.String())
	if err != nil {
		return nil, classify(err, "look for staging")
	}
	defer rows.Close()
	var found []place
	for rows.Next() {
		var p place
		if err := rows.Scan(&p.Schema, &p.Table); err != nil {
			return nil, classify(err, "look for staging")
		}
		if which(p) {
			found = append(found, p)
		}
	}
	return found, classify(rows.Err(), "look for staging")
}

// dropStaging drops the staging that which accepts, as long as the fence is as
// still says; who was overtaken meanwhile drops nothing of his heirs'.
func (s *Session) dropStaging(ctx context.Context, c *conn, t *engine.Target, which func(p place) bool, still func(f *fenceRow) bool) error {
	found, err := s.findStaging(ctx, c, which)
	if err != nil {
		return err
	}
	for _, p := range found {
		err := retryLocked(ctx, p.String(), func() error { return s.dropOne(ctx, c, t, p, still) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) dropOne(ctx context.Context, c *conn, t *engine.Target, p place, still func(f *fenceRow) bool) error {
	return inTx(ctx, c, ddlLock, func() error {
		k := keyOf(t)
		var f fenceRow
		err := f.scan(c.QueryRow(ctx, `SELECT `+fenceColumns+` FROM `+s.ledger.fence()+` WHERE `+fenceWhere+` FOR SHARE`, k.installation, k.route, k.resource))
		if err != nil {
			return classify(err, "drop staging %s", p)
		}
		if !still(&f) {
			return nil
		}
		_, err = c.Exec(ctx, "DROP TABLE IF EXISTS "+p.sql())
		return classify(err, "drop staging %s", p)
	})
}

// dropOthersStaging drops what other runs staged for the resource: those that
// are superseded and those that prepared and never began; and what a route
// without a fence staged for the same target: its installation was lost before
// it began, so nobody else would.
func (s *Session) dropOthersStaging(ctx context.Context, c *conn, t *engine.Target) error {
	err := s.dropStaging(ctx, c, t, func(p place) bool { return ofRoute(t, p.Table) && !ofRun(t, p.Table) },
		func(f *fenceRow) bool { return f.RunID == t.RunID && f.Ordinal == t.Ordinal })
	if err != nil {
		return err
	}
	if t.Resource == engine.StreamResource {
		return nil
	}
	d, err := s.detailOf(t)
	if err != nil {
		return err
	}
	strangers, err := s.findStaging(ctx, c, func(p place) bool {
		return p.Schema == d.Schema && !ofRoute(t, p.Table) && stagingFor(p.Table, d.Table)
	})
	if err != nil || len(strangers) == 0 {
		return err
	}
	began, err := s.routesThatBegan(ctx, c)
	if err != nil {
		return err
	}
	for _, p := range strangers {
		if began[routeOfStaging(p.Table)] {
			continue
		}
		// One that is being loaded, or of another role, is left alone.
		err := inTx(ctx, c, 0, func() error {
			_, err := c.Exec(ctx, "LOCK TABLE "+p.sql()+" IN ACCESS EXCLUSIVE MODE NOWAIT; DROP TABLE "+p.sql())
			return classify(err, "drop staging %s", p)
		})
		if err != nil && code(err) != codeLockTimeout && code(err) != codeNoRights && code(err) != codeNoTable {
			return err
		}
	}
	return nil
}

// routesThatBegan are the routes that have a fence here, as staging names them.
func (s *Session) routesThatBegan(ctx context.Context, c *conn) (map[string]bool, error) {
	rows, err := c.Query(ctx, `SELECT installation, route, resource FROM `+s.ledger.fence())
	if err != nil {
		return nil, classify(err, "read the fences")
	}
	defer rows.Close()
	began := map[string]bool{}
	for rows.Next() {
		var k key
		if err := rows.Scan(&k.installation, &k.route, &k.resource); err != nil {
			return nil, classify(err, "read the fences")
		}
		began[stagingRoute(k)] = true
	}
	return began, classify(rows.Err(), "read the fences")
}

func stagingLost(t *engine.Target, why string) error {
	return fmt.Errorf("%s: %w: %s", t.Resource, engine.ErrStagingLost, why)
}
