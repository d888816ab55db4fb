package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

func isStale(err error) bool {
	var stale *engine.StaleError
	return errors.As(err, &stale)
}

// ensurePlan loads the run's frozen plan, or makes it; then it makes sure that
// the destination is ready and that our numbers stand there (P1).
func (r *run) ensurePlan(ctx context.Context) error {
	// What was known before the lease was ours may be old: another process may
	// have published since.
	if err := r.refreshKnown(ctx); err != nil {
		return err
	}
	plan, err := r.State.LoadPlan(ctx, r.rec.ID)
	if err != nil {
		return fmt.Errorf("load plan: %w", err)
	}
	if plan != nil {
		return r.resumePlan(ctx, plan)
	}
	if r.working() {
		return fmt.Errorf("run %s has progress at the destination and no plan in State: %w", r.rec.ID, engine.ErrLedgerBehind)
	}
	return r.makePlan(ctx)
}

// makePlan plans every resource, prepares the destination, and freezes the plan
// there and in State, in this order: before State has the plan no split can be
// claimed, so a crash in between only plans again.
func (r *run) makePlan(ctx context.Context) error {
	resources, err := r.planAll(ctx)
	if err != nil {
		return err
	}
	plan := &engine.RunPlan{Resources: resources}
	facts, err := r.makeStream(ctx, plan)
	if err != nil {
		return fmt.Errorf("plan the change stream: %w", err)
	}
	for _, rp := range plan.Resources {
		more, err := r.prepare(ctx, rp)
		if err != nil {
			return err
		}
		facts = append(facts, more...)
	}
	if err := r.beginRun(ctx, plan); err != nil {
		return err
	}
	for _, rp := range plan.Resources {
		if err := r.freeze(ctx, rp); err != nil {
			return err
		}
		facts = append(facts, r.plannedFacts(rp)...)
	}
	if err := r.State.SavePlan(ctx, r.main, plan, facts); err != nil {
		return fmt.Errorf("save plan: %w", err)
	}
	r.resync = nil
	r.setPlan(ctx, plan)
	return nil
}

// planAll plans every resource that is asked for.
func (r *run) planAll(ctx context.Context) ([]*engine.ResourcePlan, error) {
	names := make([]string, len(r.Resources))
	for i, q := range r.Resources {
		names[i] = q.Resource
	}
	var out []*engine.ResourcePlan
	for _, q := range r.Resources {
		rp, err := r.planResource(ctx, q, names, 0)
		if err != nil {
			return nil, fmt.Errorf("plan %s: %w", q.Resource, err)
		}
		out = append(out, rp)
	}
	return out, nil
}

// resumePlan makes an unfinished run's destination ready again.
func (r *run) resumePlan(ctx context.Context, plan *engine.RunPlan) error {
	splits, err := r.State.Splits(ctx, r.rec.ID)
	if err != nil {
		return fmt.Errorf("load splits: %w", err)
	}
	if _, ok := r.sink.(engine.Adopter); ok && r.fencer != nil && r.known == nil {
		// The plan was frozen there before State had it: the destination was set
		// back to before its first run, and has neither ledger nor rows of ours (P3).
		return fmt.Errorf("the destination does not know run %s: %w", r.rec.ID, engine.ErrPlanVoid)
	}
	if err := checkStream(plan); err != nil {
		return err
	}
	published := map[string]bool{}
	for _, s := range splits {
		if s.Kind == engine.SplitPublish && s.Done {
			published[s.Resource] = true
		}
	}
	for _, rp := range plan.Resources {
		if err := r.checkFrom(rp); err != nil && !published[rp.Selection.Resource] {
			return err
		}
	}
	if err := r.checkLedger(plan, splits); err != nil {
		return err
	}
	r.setPlan(ctx, plan)
	if err := r.beginRun(ctx, plan); err != nil {
		return err
	}
	for _, rp := range plan.Resources {
		name := rp.Selection.Resource
		if published[name] {
			continue
		}
		_, err := r.prepare(ctx, rp)
		if err == nil {
			err = r.freeze(ctx, rp)
		}
		if errors.Is(err, engine.ErrStagingLost) {
			err = r.lost(ctx, r.main, name, rp.Generation, err)
		}
		if err != nil {
			return fmt.Errorf("prepare %s: %w", name, err)
		}
	}
	return nil
}

// cursorOf returns where the route's last published run ended; if the resource
// was reset since, all is read again from there. The destination decides where it
// keeps a record; State alone only where it doesn't (P3).
func (r *run) cursorOf(ctx context.Context, resource string) (engine.RouteCursor, error) {
	var have engine.RouteCursor
	if r.State != nil { // a preview may have none
		var err error
		if have, err = r.State.Cursor(ctx, r.route, resource); err != nil {
			return have, fmt.Errorf("load cursor of %s: %w", resource, err)
		}
	}
	if _, ok := r.sink.(engine.Adopter); ok {
		out := engine.RouteCursor{Reset: have.Reset}
		if ar := r.knownResource(resource); ar != nil {
			out.Cursor, out.Seen = ar.Cursor, ar.Seen
		} else if have.Cursor != nil && !have.Reset {
			r.Log.Warn("the destination does not know the cursor that State has: reading from the beginning", "resource", resource)
		}
		have = out
	}
	if have.Reset {
		have.Seen = nil
	}
	return have, nil
}

func (r *run) planResource(ctx context.Context, q ResourceRequest, all []string, generation int) (*engine.ResourcePlan, error) {
	req := engine.PlanRequest{
		Selection: q.Selection, Read: q.Read, Write: q.Write, Consistency: q.Consistency,
		Slots: r.set.Slots, SplitBytes: r.set.SplitBytes, AttemptTime: r.set.AttemptTime, HolderLives: !r.OneAttempt,
	}
	var follows json.RawMessage
	if q.Read != engine.ReadFull {
		c, err := r.cursorOf(ctx, q.Resource)
		if err != nil {
			return nil, err
		}
		follows = c.Cursor
		if !c.Reset {
			req.Cursor = c.Cursor
		}
	}
	if q.Read == engine.ReadCDC {
		// Rows stand only as long as the stream that keeps them right.
		stream, err := r.streamCursor(ctx)
		if err != nil {
			return nil, err
		}
		if stream.Cursor == nil {
			req.Cursor = nil
		}
	}
	plan, err := r.planner(q)
	if err != nil {
		return nil, err
	}
	var sp *engine.SourcePlan
	err = r.retry(ctx, "plan "+q.Resource, func(ctx context.Context) error {
		var err error
		sp, err = plan(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range sp.Splits {
		// Ids are ours: unique over generations, so that nothing of an earlier
		// plan can be taken for this one's.
		sp.Splits[i].ID = fmt.Sprintf("%s/%d.%d", q.Resource, generation, i)
		sp.Splits[i].Resource = q.Resource
	}
	var t *engine.Target
	err = r.retry(ctx, "plan target of "+q.Resource, func(ctx context.Context) error {
		var err error
		t, err = r.sink.Plan(ctx, engine.TargetRequest{
			Route: r.route, RunID: r.rec.ID.String(), Ordinal: r.rec.Ordinal, Generation: generation,
			Plan: sp, Read: q.Read, Write: q.Write, Target: q.Target, Verify: r.set.Verify, Policies: q.Policies,
			Schema: r.set.Schema, Lineage: r.set.Lineage, Others: all, Options: q.Options,
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	if q.Range != nil && q.Write == engine.WriteAppend && t.RememberWindow {
		return nil, engine.Permanentf("read the resource from its beginning into another target, or write it by upsert",
			"backfill %s: the destination cannot tell which rows of the range it has already, so they would be doubled", q.Resource)
	}
	t.Generation = generation
	t.Window = sp.Window
	return &engine.ResourcePlan{Selection: q.Selection, Read: q.Read, Write: q.Write, Source: sp, Target: t, Generation: generation, From: follows}, nil
}

// planner is how the source plans what is asked for.
func (r *run) planner(q ResourceRequest) (func(context.Context, engine.PlanRequest) (*engine.SourcePlan, error), error) {
	if q.Range == nil {
		return r.src.Plan, nil
	}
	if q.Read != engine.ReadIncremental {
		return nil, engine.Permanentf("only incremental resources have ranges; read it with full_refresh", "backfill %s: it is read in mode %s", q.Resource, q.Read)
	}
	s, ok := r.src.(engine.RangePlanner)
	if !ok {
		return nil, engine.Permanentf("read it from its beginning with full_refresh", "backfill %s: this source cannot read a range", q.Resource)
	}
	return func(ctx context.Context, req engine.PlanRequest) (*engine.SourcePlan, error) {
		return s.PlanRange(ctx, req, *q.Range)
	}, nil
}

func (r *run) prepare(ctx context.Context, rp *engine.ResourcePlan) ([]events.Fact, error) {
	var p *engine.Prepared
	err := r.retry(ctx, "prepare "+rp.Target.Name, func(ctx context.Context) error {
		var err error
		p, err = r.sink.Prepare(ctx, rp.Target)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("prepare target of %s: %w", rp.Selection.Resource, err)
	}
	var facts []events.Fact
	for _, s := range p.Statements {
		facts = append(facts, r.fact(events.SchemaChanged{Resource: rp.Selection.Resource, Statement: s}))
	}
	return facts, nil
}

// beginRun raises our ordinal at the destination. If it is behind although the
// run is still ours in State, State was restored from an older copy: take a
// greater one and try again (P1).
func (r *run) beginRun(ctx context.Context, plan *engine.RunPlan) error {
	if r.fencer == nil {
		return nil
	}
	for range 10 {
		targets := make([]*engine.Target, len(plan.Resources))
		for i, rp := range plan.Resources {
			rp.Target.Ordinal = r.rec.Ordinal
			targets[i] = rp.Target
		}
		err := r.retry(ctx, "raise the run's number", func(ctx context.Context) error {
			return r.fencer.BeginRun(ctx, targets)
		})
		var stale *engine.StaleError
		if !errors.As(err, &stale) {
			if err != nil {
				return fmt.Errorf("begin run at the destination: %w", err)
			}
			return nil
		}
		r.mu.Lock()
		frozen := r.plan != nil
		r.mu.Unlock()
		if frozen {
			return engine.Permanentf("start a new run", "run %s: %w", r.rec.ID, err)
		}
		rec, raiseErr := r.State.RaiseOrdinal(ctx, r.rec.ID, stale.Have)
		if raiseErr != nil {
			return errors.Join(err, raiseErr)
		}
		r.Log.Warn("the destination has seen a later run: taking a greater number", "ordinal", rec.Ordinal)
		r.rec = rec
	}
	return engine.Retryablef("another run of pipeline %q keeps raising its number at the destination", r.Pipeline)
}

func (r *run) freeze(ctx context.Context, rp *engine.ResourcePlan) error {
	if r.fencer == nil {
		return nil
	}
	return r.retry(ctx, "freeze plan", func(ctx context.Context) error {
		return r.fencer.Freeze(ctx, rp.Target, rp)
	})
}

func (r *run) plannedFacts(rp *engine.ResourcePlan) []events.Fact {
	name := rp.Selection.Resource
	facts := []events.Fact{r.fact(events.ResourcePlanned{
		Resource: name, Target: rp.Target.Name, Read: string(rp.Read), Write: string(rp.Write),
		Consistency: string(rp.Source.Consistency), Splits: len(rp.Source.Splits), Rows: rp.Source.Rows,
		Bytes: rp.Source.Bytes, Coverage: rp.Source.Coverage, Warnings: append(append([]string(nil), rp.Source.Warnings...), rp.Target.Warnings...),
	})}
	for _, s := range rp.Source.Splits {
		facts = append(facts, r.fact(events.SplitPlanned{Resource: name, Split: s.ID, Rows: s.Rows, Bytes: s.Bytes}))
	}
	return facts
}

// setPlan makes the plan the run's and initialises the live counters.
func (r *run) setPlan(ctx context.Context, plan *engine.RunPlan) {
	r.mu.Lock()
	r.plan = plan
	r.mu.Unlock()
	status := map[string]*ResourceProgress{}
	list := make([]*ResourceProgress, len(plan.Resources))
	for i, rp := range plan.Resources {
		list[i] = &ResourceProgress{Resource: rp.Selection.Resource, EstimatedRows: rp.Source.Rows,
			EstimatedBytes: rp.Source.Bytes, Splits: len(rp.Source.Splits)}
		status[rp.Selection.Resource] = list[i]
	}
	splits, err := r.State.Splits(ctx, r.rec.ID)
	if err != nil {
		// Only what is shown starts from zero; the work does not depend on it.
		r.Log.Warn("load splits for the counters", "error", err)
	}
	for _, s := range splits {
		p := status[s.Resource]
		if p == nil {
			continue
		}
		p.Applied.Add(s.Totals.Applied)
		if s.Done && s.Kind == engine.SplitRead {
			p.SplitsDone.Add(1)
		}
		if s.Done && s.Kind == engine.SplitPublish {
			p.Published.Store(true)
		}
	}
	r.Progress.reset(list)
}

// resource returns the current plan of a resource.
func (r *run) resource(name string) *engine.ResourcePlan {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.plan.Resource(name)
}
