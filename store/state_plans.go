package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
	"github.com/tranship-io/tranship/store/internal/db"
)

// LoadPlan implements [engine.PlanStore].
func (s *State) LoadPlan(ctx context.Context, runID uuid.UUID) (plan *engine.RunPlan, err error) {
	what := fmt.Sprintf("load the plan of run %s", runID)
	err = s.alone(ctx, what, func(q *db.Queries) error {
		plan = nil
		rows, err := q.LoadPlan(ctx, runID)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return unknownRun(runID)
		}
		if !rows[0].Planned {
			return nil
		}
		plan = &engine.RunPlan{}
		for _, r := range rows {
			if string(r.Plan) == "null" {
				continue // the one row of a plan without resources
			}
			rp := new(engine.ResourcePlan)
			if err := json.Unmarshal(r.Plan, rp); err != nil {
				return engine.Bugf("%s: %w", what, err)
			}
			plan.Resources = append(plan.Resources, rp)
		}
		return nil
	})
	return plan, err
}

// SavePlan implements [engine.PlanStore].
func (s *State) SavePlan(ctx context.Context, f engine.Fence, plan *engine.RunPlan, facts []events.Fact) error {
	return s.update(ctx, fmt.Sprintf("save the plan of run %s", f.RunID), func(t *stateTx) error {
		r, err := t.fence(f)
		if err != nil {
			return err
		}
		if r.Planned {
			return engine.Bugf("save the plan of run %s: it has a plan already, and a plan is frozen", f.RunID)
		}
		for i, rp := range plan.Resources {
			if err := t.addResource(f.RunID, int32(i), rp, 0); err != nil {
				return err
			}
		}
		if err := t.q.SetRunPlanned(t.ctx, f.RunID); err != nil {
			return err
		}
		return t.AddFacts(t.ctx, f.RunID, facts...)
	})
}

// addResource stores a resource's plan and its splits, whose claims go on after
// the given number.
func (t *stateTx) addResource(run uuid.UUID, seq int32, rp *engine.ResourcePlan, claim int64) error {
	name := rp.Selection.Resource
	body, err := json.Marshal(rp)
	if err != nil {
		return engine.Bugf("encode the plan of %q: %w", name, err)
	}
	if err := t.q.InsertResource(t.ctx, db.InsertResourceParams{Run: run, Seq: seq, Name: name, Generation: int32(rp.Generation), Plan: body}); err != nil {
		return fmt.Errorf("resource %q: %w", name, err)
	}
	var ids, kinds []string
	if rp.Source != nil {
		for _, sp := range rp.Source.Splits {
			ids, kinds = append(ids, sp.ID), append(kinds, string(engine.SplitRead))
		}
	}
	ids, kinds = append(ids, engine.PublishSplit(name)), append(kinds, string(engine.SplitPublish))
	if err := t.q.InsertSplits(t.ctx, db.InsertSplitsParams{
		Run: run, Ids: ids, Kinds: kinds, Resource: name, ResourceSeq: seq, Generation: int32(rp.Generation), Claim: claim,
	}); err != nil {
		return fmt.Errorf("splits of %q: %w", name, err)
	}
	return nil
}

// dropResource deletes what a run has of a resource; nil: of all.
func (t *stateTx) dropResource(run uuid.UUID, name *string) error {
	if err := t.q.DeleteSplits(t.ctx, db.DeleteSplitsParams{Run: run, Resource: name}); err != nil {
		return err
	}
	if err := t.q.DeleteArtifacts(t.ctx, db.DeleteArtifactsParams{Run: run, Resource: name}); err != nil {
		return err
	}
	if err := t.q.DeleteSeenRows(t.ctx, db.DeleteSeenRowsParams{Run: run, Resource: name}); err != nil {
		return err
	}
	return t.q.DeleteResources(t.ctx, db.DeleteResourcesParams{Run: run, Resource: name})
}

// ReplaceResource implements [engine.PlanStore]. rp.Generation must be one more
// than that of the plan in its place; the same plan again changes nothing. The
// new splits' claims go on above all old ones, so that no old owner's number
// ever fits again, here or in the destination's ledger (P1, P2).
func (s *State) ReplaceResource(ctx context.Context, f engine.Fence, rp *engine.ResourcePlan, facts []events.Fact) error {
	name := rp.Selection.Resource
	what := fmt.Sprintf("plan %q of run %s anew", name, f.RunID)
	return s.update(ctx, what, func(t *stateTx) error {
		if _, err := t.fence(f); err != nil {
			return err
		}
		old, err := t.q.GetResourcePlan(t.ctx, db.GetResourcePlanParams{Run: f.RunID, Name: name})
		if none(err) {
			return engine.Bugf("%s: its plan has no such resource", what)
		}
		if err != nil {
			return err
		}
		if rp.Generation == int(old.Generation) {
			if body, err := json.Marshal(rp); err == nil && bytes.Equal(body, old.Plan) {
				return t.AddFacts(t.ctx, f.RunID, facts...)
			}
		}
		if rp.Generation != int(old.Generation)+1 {
			return engine.Bugf("%s: generation %d can't follow %d", what, rp.Generation, old.Generation)
		}
		if old.Published {
			return engine.Bugf("%s: it is published", what)
		}
		if err := t.dropResource(f.RunID, &name); err != nil {
			return err
		}
		if err := t.addResource(f.RunID, old.Seq, rp, old.Claim); err != nil {
			return err
		}
		return t.AddFacts(t.ctx, f.RunID, facts...)
	})
}
