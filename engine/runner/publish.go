package runner

import (
	"context"
	"fmt"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// publish makes a resource visible: a claimed split like any other (P8).
func (r *run) publish(ctx context.Context, l engine.Lease, sp *engine.ClaimedSplit, rp *engine.ResourcePlan) error {
	p := &engine.Publication{Target: rp.Target, Split: sp.ID, Claim: sp.Claim, From: rp.From, Cursor: rp.Source.NextCursor, ActivityAt: r.rec.StartedAt}
	splits, err := r.State.Splits(ctx, r.rec.ID)
	if err != nil {
		return fmt.Errorf("load splits: %w", err)
	}
	for _, s := range splits {
		if s.Resource != sp.Resource || s.Kind != engine.SplitRead {
			continue
		}
		if s.Generation != sp.Generation {
			// The resource was begun anew meanwhile.
			return &engine.StaleError{What: "claim", Subject: sp.ID, Ours: sp.Claim}
		}
		if !s.Done {
			return engine.Bugf("publish of %s was claimed before split %s was done", sp.Resource, s.ID)
		}
		p.Splits = append(p.Splits, s.ID)
		p.Totals.Add(s.Totals)
		if rp.Stream != nil {
			// What is applied stands at its destination already; the next run follows on.
			p.Cursor = s.Position
		}
	}
	if err := r.checkTotals(rp, &p.Totals); err != nil {
		return err
	}
	if rp.Read == engine.ReadCDC && rp.Stream == nil {
		if p.Stream, err = r.settled(rp, splits); err != nil {
			return err
		}
	}
	if p.Artifacts, err = r.State.Artifacts(ctx, r.rec.ID, sp.Resource); err != nil {
		return fmt.Errorf("load artifacts: %w", err)
	}
	if p.Seen, err = r.State.SeenRows(ctx, r.rec.ID, sp.Resource); err != nil {
		return fmt.Errorf("load remembered rows: %w", err)
	}
	begun := r.fact(events.PublishBegun{Resource: sp.Resource, Technique: rp.Target.Technique})
	if err := r.State.AppendFacts(ctx, l.Fence, []events.Fact{begun}); err != nil {
		return fmt.Errorf("store facts: %w", err)
	}
	rc, err := r.sink.Publish(ctx, p)
	if err != nil {
		return err
	}
	t := engine.Totals{}
	if rc.Published != nil {
		// What is visible was read and counted by a history that State forgot.
		t = *rc.Published
		t.Policies = append([]engine.PolicyCount(nil), t.Policies...)
		t.Sub(p.Totals)
		p.Totals.Add(t)
	}
	t.AddPolicies(rc.Policies)
	// A publish can leave rows out that the splits counted as applied (a staged
	// append that finds them there already); they move from applied to skipped.
	t.Applied -= rc.Skipped
	t.Skipped += rc.Skipped
	facts := []events.Fact{
		r.fact(events.PublishDone{Resource: sp.Resource, Rows: p.Totals.Applied - rc.Skipped, Verified: r.set.Verify == engine.VerifyDigest}),
		r.fact(events.ResourceCompleted{Resource: sp.Resource, Counts: counts(p.Totals)}),
	}
	for _, s := range rc.Statements {
		facts = append(facts, r.fact(events.SchemaChanged{Resource: sp.Resource, Statement: s}))
	}
	err = r.State.CommitPublish(ctx, l.Fence, engine.Progress{Split: sp.ID, Claim: sp.Claim, Epoch: sp.Epoch + 1, Done: true, Totals: t, Facts: facts},
		p.Cursor, p.Seen)
	if err != nil {
		return fmt.Errorf("store the publish of %s: %w", sp.Resource, err)
	}
	r.Progress.resource(sp.Resource).Published.Store(true)
	return nil
}

// checkTotals holds invariant 7 over a resource before it becomes visible.
func (r *run) checkTotals(rp *engine.ResourcePlan, t *engine.Totals) error {
	resource := rp.Selection.Resource
	if sum := t.Applied + t.Superseded + t.Skipped + t.SetAside; sum != t.Read {
		return &engine.MismatchError{Resource: resource, What: "rows", Source: fmt.Sprint(t.Read), Destination: fmt.Sprint(sum)}
	}
	// Changes are not read back: the row of a key is what several of them made of it.
	if r.set.Verify == engine.VerifyDigest && rp.Stream == nil && t.Digest != t.ReadBack {
		return &engine.MismatchError{Resource: resource, What: "digest", Source: t.Digest.String(), Destination: t.ReadBack.String()}
	}
	return nil
}
