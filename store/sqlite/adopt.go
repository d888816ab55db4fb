package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
)

// AdoptRoute implements [engine.RunStore]. Adopting the same again changes
// nothing; adopting a route that this state knows under another installation is
// a permanent error.
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
				if err := t.setCursor(id, ar.Resource, ar.Cursor, ar.Seen); err != nil {
					return err
				}
			}
			if ar.RunID == a.RunID && ar.Plan != nil {
				rest = append(rest, ar)
				pending = pending || !ar.Published
			}
		}
		if !pending {
			return nil
		}
		return t.adoptRun(id, version, a, rest)
	})
}

// adoptRun makes the destination's unpublished run ours, as one that failed and
// can be resumed, at the ledger's progress.
func (t *tx) adoptRun(route int64, version string, a engine.Adoption, resources []engine.AdoptedResource) error {
	runID, err := uuid.Parse(a.RunID)
	if err != nil {
		return engine.Bugf("adopt run %q: %w", a.RunID, err)
	}
	now := time.Now().UnixMicro()
	n, err := t.exec(`INSERT INTO runs (id, route, version, ordinal, state, resumable, error, created_at, started_at, ended_at, planned)
		VALUES (?1, ?2, ?3, ?4, 'failed', 1, 'interrupted; adopted from the destination', ?5, ?5, ?5, 1) ON CONFLICT DO NOTHING`,
		runID.String(), route, version, a.Ordinal, now)
	if err != nil || n == 0 {
		return err
	}
	var run int64
	if err := t.row(`SELECT seq FROM runs WHERE id = ?`, runID.String()).Scan(&run); err != nil {
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
