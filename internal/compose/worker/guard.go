package worker

import (
	"context"
	"encoding/json"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
	"github.com/tranship-io/tranship/internal/redact"
)

// guarded is a State that is told no secrets (invariant 10): it cleans the prose of
// facts, and how a run ended.
type guarded struct {
	engine.State
	secrets *redact.Redactor
}

func (g *guarded) facts(all []events.Fact) []events.Fact {
	out := make([]events.Fact, len(all))
	for i, f := range all {
		f.Payload = g.secrets.JSON(f.Payload)
		out[i] = f
	}
	return out
}

// AppendFacts implements [engine.RunStore].
func (g *guarded) AppendFacts(ctx context.Context, f engine.Fence, facts []events.Fact) error {
	return g.State.AppendFacts(ctx, f, g.facts(facts))
}

// FinishRun implements [engine.RunStore].
func (g *guarded) FinishRun(ctx context.Context, f engine.Fence, end engine.RunEnd) error {
	end.Error, end.Receipt, end.Facts = g.secrets.Text(end.Error), g.secrets.JSON(end.Receipt), g.facts(end.Facts)
	return g.State.FinishRun(ctx, f, end)
}

// SavePlan implements [engine.PlanStore].
func (g *guarded) SavePlan(ctx context.Context, f engine.Fence, plan *engine.RunPlan, facts []events.Fact) error {
	return g.State.SavePlan(ctx, f, plan, g.facts(facts))
}

// ReplaceResource implements [engine.PlanStore].
func (g *guarded) ReplaceResource(ctx context.Context, f engine.Fence, rp *engine.ResourcePlan, facts []events.Fact) error {
	return g.State.ReplaceResource(ctx, f, rp, g.facts(facts))
}

// Commit implements [engine.ProgressStore].
func (g *guarded) Commit(ctx context.Context, f engine.Fence, p engine.Progress) error {
	p.Facts = g.facts(p.Facts)
	return g.State.Commit(ctx, f, p)
}

// CommitPublish implements [engine.ProgressStore].
func (g *guarded) CommitPublish(ctx context.Context, f engine.Fence, p engine.Progress, cursor json.RawMessage, seen []engine.RowID) error {
	p.Facts = g.facts(p.Facts)
	return g.State.CommitPublish(ctx, f, p, cursor, seen)
}

// EndAttempt implements [engine.LeaseStore].
func (g *guarded) EndAttempt(ctx context.Context, l engine.Lease, facts []events.Fact) error {
	return g.State.EndAttempt(ctx, l, g.facts(facts))
}
