package serve

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control/pipelines"
	"github.com/tranship-io/tranship/control/runs"
)

// compiler makes of stored pipelines what their runs need.
type compiler struct{ store pipelines.Store }

// CompileRuns implements [runs.Pipelines].
func (c compiler) CompileRuns(ctx context.Context, organization uuid.UUID, ref string) (runs.Compiled, error) {
	p, err := c.store.Pipeline(ctx, organization, ref)
	if err != nil {
		return runs.Compiled{}, err
	}
	g := p.Current.Graph
	out := runs.Compiled{ID: p.ID, Name: p.Name, Number: p.Current.Number, Paused: p.Paused, Policy: runs.Policy{
		Retry: runs.Retry{
			Attempts: g.Service.Retries.Attempts, Wait: time.Duration(g.Service.Retries.Backoff), MaxWait: time.Duration(g.Service.Retries.MaxBackoff),
		},
		TimeLimit: time.Duration(g.Service.TimeLimit), NoProgress: time.Duration(g.Service.NoProgressLimit),
		Compute: g.Service.Compute, Slots: g.Settings.Slots,
	}}
	for _, r := range p.Current.Routes {
		out.Routes = append(out.Routes, runs.Route{Key: r.Key, Name: r.Name, Hash: r.Hash})
	}
	return out, nil
}
