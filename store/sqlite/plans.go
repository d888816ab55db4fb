package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// LoadPlan implements [engine.PlanStore].
func (s *Store) LoadPlan(ctx context.Context, runID uuid.UUID) (*engine.RunPlan, error) {
	what := fmt.Sprintf("load plan of run %s", runID)
	var seq int64
	var planned bool
	err := s.read.QueryRowContext(ctx, `SELECT seq, planned FROM runs WHERE id = ?`, runID.String()).Scan(&seq, &planned)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, unknownRun(runID)
	}
	if err != nil || !planned {
		return nil, s.fail(what, err)
	}
	plan := &engine.RunPlan{}
	err = s.query(ctx, what, func(r scanner) error {
		var body []byte
		if err := r.Scan(&body); err != nil {
			return err
		}
		rp := new(engine.ResourcePlan)
		if err := json.Unmarshal(body, rp); err != nil {
			return engine.Bugf("%s: %w", what, err)
		}
		plan.Resources = append(plan.Resources, rp)
		return nil
	}, `SELECT plan FROM resources WHERE run = ? ORDER BY seq`, seq)
	if err != nil {
		return nil, err
	}
	return plan, nil
}

// SavePlan implements [engine.PlanStore].
func (s *Store) SavePlan(ctx context.Context, f engine.Fence, plan *engine.RunPlan, facts []events.Fact) error {
	return s.update(ctx, fmt.Sprintf("save plan of run %s", f.RunID), func(t *tx) error {
		r, err := t.fence(f)
		if err != nil {
			return err
		}
		if r.planned {
			return engine.Bugf("save plan of run %s: it has a plan already, and a plan is frozen", f.RunID)
		}
		for i, rp := range plan.Resources {
			if err := t.addResource(r.seq, i, rp, 0); err != nil {
				return err
			}
		}
		if _, err := t.exec(`UPDATE runs SET planned = 1 WHERE seq = ?`, r.seq); err != nil {
			return err
		}
		return t.addFacts(r.seq, f.RunID, facts)
	})
}

// addResource stores a resource's plan and its splits, whose claims go on after
// the given number.
func (t *tx) addResource(run int64, seq int, rp *engine.ResourcePlan, claim int64) error {
	name := rp.Selection.Resource
	body, err := json.Marshal(rp)
	if err != nil {
		return engine.Bugf("encode plan of %q: %w", name, err)
	}
	if _, err := t.exec(`INSERT INTO resources (run, seq, name, generation, plan) VALUES (?, ?, ?, ?, ?)`,
		run, seq, name, rp.Generation, body); err != nil {
		return fmt.Errorf("resource %q: %w", name, err)
	}
	add := func(n int, id string, kind engine.SplitKind) error {
		if _, err := t.exec(`INSERT INTO splits (run, id, resource, resource_seq, seq, kind, generation, claim)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)`, run, id, name, seq, n, string(kind), rp.Generation, claim); err != nil {
			return fmt.Errorf("split %q: %w", id, err)
		}
		return nil
	}
	var splits []engine.Split
	if rp.Source != nil {
		splits = rp.Source.Splits
	}
	for n, sp := range splits {
		if err := add(n, sp.ID, engine.SplitRead); err != nil {
			return err
		}
	}
	return add(len(splits), engine.PublishSplit(name), engine.SplitPublish)
}

// ReplaceResource implements [engine.PlanStore]. rp.Generation must be one more
// than that of the plan in its place; the same plan again changes nothing. The
// new splits' claims go on above all old ones, so that no old owner's number
// ever fits again, here or in the destination's ledger (P1, P2).
func (s *Store) ReplaceResource(ctx context.Context, f engine.Fence, rp *engine.ResourcePlan, facts []events.Fact) error {
	name := rp.Selection.Resource
	what := fmt.Sprintf("plan %q of run %s anew", name, f.RunID)
	return s.update(ctx, what, func(t *tx) error {
		r, err := t.fence(f)
		if err != nil {
			return err
		}
		var seq, generation int
		var plan []byte
		var claim int64
		var published bool
		err = t.row(`SELECT p.seq, p.generation, p.plan, max(s.claim), max(s.kind = 'publish' AND s.done)
			FROM resources p JOIN splits s ON s.run = p.run AND s.resource = p.name
			WHERE p.run = ? AND p.name = ? GROUP BY p.seq`, r.seq, name).Scan(&seq, &generation, &plan, &claim, &published)
		if errors.Is(err, sql.ErrNoRows) {
			return engine.Bugf("%s: its plan has no such resource", what)
		}
		if err != nil {
			return err
		}
		if rp.Generation == generation {
			if body, err := json.Marshal(rp); err == nil && bytes.Equal(body, plan) {
				return t.addFacts(r.seq, f.RunID, facts)
			}
		}
		if rp.Generation != generation+1 {
			return engine.Bugf("%s: generation %d can't follow %d", what, rp.Generation, generation)
		}
		if published {
			return engine.Bugf("%s: it is published", what)
		}
		for _, q := range []string{
			`DELETE FROM splits WHERE run = ? AND resource = ?`,
			`DELETE FROM artifacts WHERE run = ? AND resource = ?`,
			`DELETE FROM seen WHERE run = ? AND resource = ?`,
			`DELETE FROM resources WHERE run = ? AND name = ?`,
		} {
			if _, err := t.exec(q, r.seq, name); err != nil {
				return err
			}
		}
		if err := t.addResource(r.seq, seq, rp, claim); err != nil {
			return err
		}
		return t.addFacts(r.seq, f.RunID, facts)
	})
}
