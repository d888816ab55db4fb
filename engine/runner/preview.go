package runner

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
)

// Previewed is what a run would do.
type Previewed struct {
	// Source and Sink are the identities of the ends.
	Source, Sink string
	// Resources has one entry for each requested resource, in their order.
	Resources []PreviewedResource
	// Stream is the plan of the change stream, nil if there is none; StreamErr says
	// why there can be none.
	Stream    *engine.StreamPlan
	StreamErr error
}

// PreviewedResource is what a run would do with one resource.
type PreviewedResource struct {
	Request ResourceRequest
	// Plan is nil if Err says why there can be none.
	Plan *engine.ResourcePlan
	Err  error
	// Continues tells that an incremental read goes on where the last run ended.
	Continues bool
}

// Preview plans every resource as the next run of the route would, and changes
// nothing. Of o it uses what a run does; State may be nil: nothing is remembered
// then but what the destination knows. The error is one that concerns all
// resources.
func Preview(ctx context.Context, o Options) (*Previewed, error) {
	r := &run{Options: o, set: o.Settings.withDefaults()}
	if r.Log == nil {
		r.Log = slog.New(slog.DiscardHandler)
	}
	defer r.close()
	if err := r.openEnds(ctx); err != nil {
		return nil, err
	}
	if err := r.lookUpRoute(ctx); err != nil {
		return nil, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make run id: %w", err)
	}
	r.rec = engine.Run{ID: id, Ordinal: 1}
	out := &Previewed{Source: r.src.Identity(), Sink: r.sink.Identity()}
	names := make([]string, len(r.Resources))
	for i, q := range r.Resources {
		names[i] = q.Resource
	}
	for _, q := range r.Resources {
		p := PreviewedResource{Request: q}
		if p.Plan, p.Err = r.planResource(ctx, q, names, 0); p.Err != nil {
			p.Err = fmt.Errorf("plan %s: %w", q.Resource, p.Err)
		} else if q.Read != engine.ReadFull {
			c, err := r.cursorOf(ctx, q.Resource)
			if err != nil {
				return nil, err
			}
			p.Continues = c.Cursor != nil && !c.Reset
		}
		out.Resources = append(out.Resources, p)
	}
	var planned []*engine.ResourcePlan
	for _, p := range out.Resources {
		if p.Err == nil {
			planned = append(planned, p.Plan)
		}
	}
	stream, _, err := r.planStream(ctx, planned)
	if err != nil {
		out.StreamErr = fmt.Errorf("plan the change stream: %w", err)
	} else if stream != nil {
		out.Stream = stream.Stream
	}
	return out, ctx.Err()
}

// lookUpRoute finds out who we are (P1) as findRoute does, and adopts nothing.
func (r *run) lookUpRoute(ctx context.Context) error {
	r.route = engine.Route{Pipeline: r.Pipeline, Source: r.src.Identity(), Sink: r.sink.Identity()}
	remembered := false
	if r.State != nil {
		own, err := r.State.Installation(ctx)
		if err != nil {
			return fmt.Errorf("read installation: %w", err)
		}
		r.route.Installation = own
		known, ok, err := r.State.RouteKnown(ctx, r.route)
		if err != nil {
			return fmt.Errorf("look up route: %w", err)
		}
		if remembered = ok; ok {
			r.route.Installation = known
		}
	}
	if r.route.Installation == "" {
		r.route.Installation = uuid.NewString()
	}
	found, err := r.adoptions(ctx)
	if err != nil {
		return err
	}
	if r.known = pick(found, r.route.Installation); r.known == nil && !remembered && len(found) == 1 {
		// The run would adopt it.
		r.known, r.route.Installation = &found[0], found[0].Installation
	}
	return nil
}
