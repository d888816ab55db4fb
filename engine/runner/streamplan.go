package runner

import (
	"context"
	"errors"
	"fmt"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// streamCursor is where the route's change stream ended; none when it has to begin
// anew.
func (r *run) streamCursor(ctx context.Context) (engine.RouteCursor, error) {
	c, err := r.cursorOf(ctx, engine.StreamResource)
	if err != nil || r.resync != nil || c.Reset {
		c.Cursor = nil
	}
	return c, err
}

// makeStream plans the change stream of the members, if there are any, puts it at
// the front of the plan, and makes at the source what it needs: only now, when
// every plan is accepted.
func (r *run) makeStream(ctx context.Context, plan *engine.RunPlan) ([]events.Fact, error) {
	rp, req, err := r.planStream(ctx, plan.Resources)
	if errors.Is(err, engine.ErrPositionLost) && r.resync == nil {
		if r.set.OnLost != engine.OnLostResync {
			return nil, r.positionLost(ctx, err)
		}
		r.resync = err
		plan.Resources = nil
		r.Log.Warn("reading all members of the change stream again", "reason", err)
		return r.replanMembers(ctx, plan)
	}
	if err != nil || rp == nil {
		return nil, err
	}
	streamer := r.src.(engine.Streamer) //nolint:forcetypeassert // planStream has looked
	err = r.retry(ctx, "prepare the change stream", func(ctx context.Context) error {
		return streamer.PrepareStream(ctx, *req, rp.Source, rp.Stream)
	})
	if err != nil {
		return nil, err
	}
	plan.Resources = append([]*engine.ResourcePlan{rp}, plan.Resources...)
	var facts []events.Fact
	if r.resync != nil {
		facts = append(facts, r.fact(events.StreamReplanned{Reason: r.resync.Error(), Resync: true}))
	}
	for _, s := range rp.Stream.Statements {
		facts = append(facts, r.fact(events.SchemaChanged{Resource: engine.StreamResource, Statement: s}))
	}
	return facts, nil
}

// replanMembers plans everything again, with no cursor of the stream.
func (r *run) replanMembers(ctx context.Context, plan *engine.RunPlan) ([]events.Fact, error) {
	resources, err := r.planAll(ctx)
	if err != nil {
		return nil, err
	}
	plan.Resources = resources
	return r.makeStream(ctx, plan)
}

// planStream plans the change stream of those resources that are read as changes,
// and changes nothing; nil if there are none.
func (r *run) planStream(ctx context.Context, resources []*engine.ResourcePlan) (*engine.ResourcePlan, *engine.StreamRequest, error) {
	req := &engine.StreamRequest{Route: r.route}
	var targets []*engine.Target
	for _, rp := range resources {
		if rp.Read == engine.ReadCDC {
			req.Members = append(req.Members, engine.StreamMember{Selection: rp.Selection, Write: rp.Write, Plan: rp.Source})
			targets = append(targets, rp.Target)
		}
	}
	if len(req.Members) == 0 {
		return nil, nil, nil
	}
	streamer, ok := r.src.(engine.Streamer)
	if !ok {
		return nil, nil, engine.Permanentf("read it in mode full or incremental", "this source has no changes to read")
	}
	sink, ok := r.sink.(engine.ChangeSink)
	if !ok || r.fencer == nil {
		return nil, nil, engine.Permanentf("read the resources in mode full or incremental", "this destination can't take changes")
	}
	have, err := r.cursorOf(ctx, engine.StreamResource)
	if err != nil {
		return nil, nil, err
	}
	from, err := r.streamCursor(ctx)
	if err != nil {
		return nil, nil, err
	}
	req.Cursor = from.Cursor
	for i := range req.Members {
		c, err := r.cursorOf(ctx, req.Members[i].Selection.Resource)
		if err != nil {
			return nil, nil, err
		}
		req.Members[i].Follows = from.Cursor != nil && c.Cursor != nil && !c.Reset
	}
	out := &engine.ResourcePlan{Selection: engine.Selection{Resource: engine.StreamResource}, Read: engine.ReadCDC, From: have.Cursor}
	err = r.retry(ctx, "plan the change stream", func(ctx context.Context) error {
		var err error
		out.Source, out.Stream, err = streamer.PlanStream(ctx, *req)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if len(out.Source.Splits) != 1 {
		return nil, nil, engine.Bugf("the source plans a change stream of %d splits", len(out.Source.Splits))
	}
	out.Source.Splits[0].ID = engine.StreamResource + "/0.0"
	out.Source.Splits[0].Resource = engine.StreamResource
	err = r.retry(ctx, "plan the change stream's target", func(ctx context.Context) error {
		var err error
		out.Target, err = sink.PlanStream(ctx, engine.StreamTargetRequest{Route: r.route, RunID: r.rec.ID.String(), Ordinal: r.rec.Ordinal, Members: targets})
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("plan target: %w", err)
	}
	return out, req, nil
}

// asText names the columns that a source hands over in text form.
func asText(t *engine.Target) []string {
	var out []string
	for _, c := range t.Columns {
		if c.AsText {
			out = append(out, c.Source)
		}
	}
	return out
}
