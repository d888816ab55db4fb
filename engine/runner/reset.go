package runner

import (
	"context"
	"fmt"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// maxResets bounds how often a process begins a resource anew.
const maxResets = 3

// reset throws away what was loaded of a resource and plans it anew: its
// snapshot's holder or its staging is gone (P7, P12). Slots that meet the same
// loss find that it is done already.
func (r *run) reset(ctx context.Context, f engine.Fence, name string, generation int, cause error) error {
	// One reset at a time; r.mu is never held while an end is asked.
	select {
	case r.resetting <- struct{}{}:
		defer func() { <-r.resetting }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	old := r.resource(name)
	if old.Generation > generation {
		return nil
	}
	if r.resets[name]++; r.resets[name] > maxResets {
		return fmt.Errorf("resource %s was begun anew %d times: %w", name, maxResets, cause)
	}
	if old.Write == engine.WriteAppend && !old.Target.Staged {
		return engine.Bugf("resource %s: appended rows can't be taken back: %w", name, cause)
	}
	r.Log.Warn("beginning the resource anew", "resource", name, "reason", cause)
	q := ResourceRequest{Selection: old.Selection, Read: old.Read, Write: old.Write, Target: "",
		Policies: old.Target.Policies, Consistency: old.Source.Consistency, Options: old.Target.Options}
	all := make([]string, len(r.plan.Resources))
	for i, rp := range r.plan.Resources {
		all[i] = rp.Selection.Resource
	}
	for _, have := range r.Resources {
		if have.Resource == name {
			q.Target = have.Target
		}
	}
	rp, err := r.planResource(ctx, q, all, old.Generation+1)
	if err != nil {
		return fmt.Errorf("plan %s anew: %w", name, err)
	}
	if _, err := r.prepare(ctx, rp); err != nil {
		return err
	}
	if err := r.freeze(ctx, rp); err != nil {
		return err
	}
	facts := append([]events.Fact{r.fact(events.ResourceReset{Resource: name, Reason: cause.Error()})}, r.plannedFacts(rp)...)
	if err := r.State.ReplaceResource(ctx, f, rp, facts); err != nil {
		return fmt.Errorf("store new plan of %s: %w", name, err)
	}
	r.mu.Lock()
	for i := range r.plan.Resources {
		if r.plan.Resources[i].Selection.Resource == name {
			r.plan.Resources[i] = rp
		}
	}
	r.mu.Unlock()
	// Only now: while State has the old plan, its checkpoints must stay true (invariant 1).
	if err := r.retry(ctx, "drop staging", func(ctx context.Context) error { return r.sink.Abort(ctx, old.Target) }); err != nil {
		r.Log.Warn("staging is left until the next run begins", "resource", name, "error", err)
	}
	p := r.Progress.resource(name)
	p.EstimatedRows, p.EstimatedBytes, p.Splits = rp.Source.Rows, rp.Source.Bytes, len(rp.Source.Splits)
	p.Applied.Store(0)
	p.SplitsDone.Store(0)
	return nil
}
