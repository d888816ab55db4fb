// Package intake lets the services of runs and of schedules work together: it
// compiles stored pipelines for their runs, and starts the runs of occurrences.
package intake

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/pipelines"
	"github.com/tranship-io/tranship/control/runs"
)

var _ runs.Pipelines = Compiler{}

// Compiler makes of stored pipelines what their runs need.
type Compiler struct {
	Store pipelines.Store
	// Platform is what attempts can run on; a pipeline that names something else has
	// no runs.
	Platform dispatch.Platform
}

// CompileRuns implements [runs.Pipelines].
func (c Compiler) CompileRuns(ctx context.Context, organization uuid.UUID, ref string) (runs.Compiled, error) {
	p, err := c.Store.Pipeline(ctx, organization, ref)
	if err != nil {
		return runs.Compiled{}, err
	}
	g := p.Current.Graph
	if err := c.Platform.Check("service.compute", g.Service.Compute); err != nil {
		return runs.Compiled{}, err
	}
	out := runs.Compiled{ID: p.ID, Name: p.Name, Number: p.Current.Number, Paused: p.Paused, Policy: runs.Policy{
		Retry: runs.Retry{
			Attempts: g.Service.Retries.Attempts, Wait: time.Duration(g.Service.Retries.Backoff), MaxWait: time.Duration(g.Service.Retries.MaxBackoff),
		},
		TimeLimit: time.Duration(g.Service.TimeLimit), NoProgress: time.Duration(g.Service.NoProgressLimit),
		Compute: g.Service.Compute, Slots: g.Settings.Slots, Memory: int64(g.Settings.Memory),
	}}
	for _, r := range p.Current.Routes {
		out.Routes = append(out.Routes, runs.Route{Key: r.Key, Name: r.Name, Hash: r.Hash})
	}
	return out, nil
}
