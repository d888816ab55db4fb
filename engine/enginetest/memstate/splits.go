package memstate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// LoadPlan implements [engine.PlanStore].
func (s *Store) LoadPlan(ctx context.Context, runID uuid.UUID) (*engine.RunPlan, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.m.mu.Unlock()
	r := s.m.data.find(runID)
	if r == nil {
		return nil, unknownRun(runID)
	}
	if !r.planned {
		return nil, nil
	}
	plan := &engine.RunPlan{}
	for _, res := range r.resources {
		rp := new(engine.ResourcePlan)
		if err := json.Unmarshal(res.plan, rp); err != nil {
			return nil, engine.Bugf("load plan of run %s: %w", runID, err)
		}
		plan.Resources = append(plan.Resources, rp)
	}
	return plan, nil
}

// SavePlan implements [engine.PlanStore].
func (s *Store) SavePlan(ctx context.Context, f engine.Fence, plan *engine.RunPlan, facts []events.Fact) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.m.mu.Unlock()
	r, err := s.fenced(f)
	if err != nil {
		return err
	}
	if r.planned {
		return engine.Bugf("save plan of run %s: it has a plan already, and a plan is frozen", f.RunID)
	}
	if err := r.checkFacts(facts); err != nil {
		return err
	}
	for _, rp := range plan.Resources {
		if err := r.addResource(rp, 0); err != nil {
			r.resources, r.splits = nil, nil
			return err
		}
	}
	r.planned = true
	r.addFacts(facts)
	return nil
}

// addResource stores a resource's plan and its splits, whose claims go on after
// the given number.
func (r *runRec) addResource(rp *engine.ResourcePlan, claim int64) error {
	name := rp.Selection.Resource
	body, err := json.Marshal(rp)
	if err != nil {
		return engine.Bugf("encode plan of %q: %w", name, err)
	}
	if r.resource(name) != nil {
		return engine.Bugf("resource %q is twice in the plan", name)
	}
	r.resources = append(r.resources, &resourceRec{name: name, generation: rp.Generation, plan: body,
		artifacts: map[string]engine.Artifact{}, seen: map[engine.RowID]struct{}{}})
	add := func(id string, kind engine.SplitKind) error {
		if r.split(id) != nil {
			return engine.Bugf("split %q is twice in the plan", id)
		}
		r.splits = append(r.splits, &splitRec{ClaimedSplit: engine.ClaimedSplit{ID: id, Resource: name, Kind: kind, Claim: claim, Generation: rp.Generation}})
		return nil
	}
	if rp.Source != nil {
		for _, sp := range rp.Source.Splits {
			if err := add(sp.ID, engine.SplitRead); err != nil {
				return err
			}
		}
	}
	return add(engine.PublishSplit(name), engine.SplitPublish)
}

// ReplaceResource implements [engine.PlanStore].
func (s *Store) ReplaceResource(ctx context.Context, f engine.Fence, rp *engine.ResourcePlan, facts []events.Fact) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.m.mu.Unlock()
	name := rp.Selection.Resource
	what := fmt.Sprintf("plan %q of run %s anew", name, f.RunID)
	r, err := s.fenced(f)
	if err != nil {
		return err
	}
	if err := r.checkFacts(facts); err != nil {
		return err
	}
	old := r.resource(name)
	if old == nil {
		return engine.Bugf("%s: its plan has no such resource", what)
	}
	if body, err := json.Marshal(rp); err == nil && rp.Generation == old.generation && bytes.Equal(body, old.plan) {
		r.addFacts(facts)
		return nil
	}
	if rp.Generation != old.generation+1 {
		return engine.Bugf("%s: generation %d can't follow %d", what, rp.Generation, old.generation)
	}
	var claim int64
	for _, sp := range r.splits {
		if sp.Resource == name {
			claim = max(claim, sp.Claim)
			if sp.Kind == engine.SplitPublish && sp.done {
				return engine.Bugf("%s: it is published", what)
			}
		}
	}
	// Build it beside the old one, then put it in its place.
	next := &runRec{}
	if err := next.addResource(rp, claim); err != nil {
		return err
	}
	r.resources[slices.Index(r.resources, old)] = next.resources[0]
	at := slices.IndexFunc(r.splits, func(sp *splitRec) bool { return sp.Resource == name })
	rest := slices.DeleteFunc(slices.Clone(r.splits), func(sp *splitRec) bool { return sp.Resource == name })
	r.splits = slices.Insert(rest, at, next.splits...)
	r.addFacts(facts)
	return nil
}

// ClaimSplit implements [engine.ProgressStore].
func (s *Store) ClaimSplit(ctx context.Context, f engine.Fence, exclude []string) (*engine.ClaimedSplit, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.m.mu.Unlock()
	r, err := s.fenced(f)
	if err != nil {
		return nil, err
	}
	if r.run.State != engine.StateRunning {
		return nil, fmt.Errorf("claim a split: the run is %s: %w", r.run.State,
			&engine.StaleError{What: "generation", Subject: slotName(f), Ours: f.Generation, Have: f.Generation})
	}
	if !r.planned {
		return nil, engine.Bugf("claim a split of run %s: it has no plan yet", f.RunID)
	}
	reading := map[string]bool{}
	for _, sp := range r.splits {
		if sp.Kind == engine.SplitRead && !sp.done {
			reading[sp.Resource] = true
		}
	}
	now, open := s.m.opt.Now(), false
	// Publishing comes first, then reading in plan order.
	for _, kind := range []engine.SplitKind{engine.SplitPublish, engine.SplitRead} {
		for _, sp := range r.splits {
			if sp.Kind != kind || sp.done || slices.Contains(exclude, sp.Resource) {
				continue
			}
			open = true
			if r.ownedNow(sp, now) || kind == engine.SplitPublish && reading[sp.Resource] {
				continue
			}
			sp.Claim++
			sp.owned, sp.owner, sp.lease = true, f.Slot, f.Generation
			c := sp.ClaimedSplit
			c.Position, c.Totals = slices.Clone(c.Position), copyTotals(c.Totals)
			return &c, nil
		}
	}
	if !open {
		return nil, engine.ErrSplitDone
	}
	return nil, nil
}

// mine finds a split that the caller owns, under whatever claim.
func (r *runRec) mine(f engine.Fence, id string) (sp *splitRec, have int64, mine bool) {
	if sp = r.split(id); sp == nil {
		return nil, 0, false
	}
	return sp, sp.Claim, sp.owned && sp.owner == f.Slot && sp.lease == f.Generation
}

// RaiseClaim implements [engine.ProgressStore].
func (s *Store) RaiseClaim(ctx context.Context, f engine.Fence, split string, atLeast int64) (int64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.m.mu.Unlock()
	r, err := s.fenced(f)
	if err != nil {
		return 0, err
	}
	sp, have, mine := r.mine(f, split)
	if !mine {
		return 0, &engine.StaleError{What: "claim", Subject: "split " + split, Ours: atLeast, Have: have}
	}
	sp.Claim = max(sp.Claim, atLeast+1)
	return sp.Claim, nil
}

// ReturnSplit implements [engine.ProgressStore].
func (s *Store) ReturnSplit(ctx context.Context, f engine.Fence, split string, claim int64) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.m.mu.Unlock()
	r, err := s.fenced(f)
	if err != nil {
		return err
	}
	sp, have, mine := r.mine(f, split)
	if sp == nil || have != claim || !mine && sp.owned && !sp.done {
		return &engine.StaleError{What: "claim", Subject: "split " + split, Ours: claim, Have: have}
	}
	sp.owned = false
	return nil
}
