package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/sweep"
	"github.com/tranship-io/tranship/internal/awsadapter/tasks"
	"github.com/tranship-io/tranship/internal/compose/cloud/plane"
)

// handler does one round for each event. What the event says hardly matters: a
// schedule that fired or a command that went to the dead letters mean that something
// may be owed, and the round finds out what. Only the end of a container is told by
// its event first.
type handler struct {
	plane *plane.Plane
	loop  *sweep.Loop
	// ended settles the end of a container; nil where there are none.
	ended func(ctx context.Context, e dispatch.TaskEnd) error
}

// answer is empty; its list keeps a queue's mapping from taking an answer without
// one as a failure.
type answer struct {
	BatchItemFailures []struct{} `json:"batchItemFailures"`
}

func (h *handler) handle(ctx context.Context, event json.RawMessage) (answer, error) {
	if err := h.plane.DB.Ready(ctx); err != nil {
		return answer{}, err
	}
	h.plane.Log.DebugContext(ctx, "sweep", "event", string(event))
	if err := h.report(ctx, event); err != nil {
		return answer{}, err
	}
	pause, err := h.loop.Round(ctx)
	if err != nil {
		return answer{}, err
	}
	if pause == 0 {
		h.plane.Log.InfoContext(ctx, "no work is left: the sweep is off")
	}
	return answer{BatchItemFailures: []struct{}{}}, h.plane.After(ctx)
}

// report settles the end of a container, if that is what the event tells.
func (h *handler) report(ctx context.Context, event json.RawMessage) error {
	var e struct {
		Source string          `json:"source"`
		Detail json.RawMessage `json:"detail"`
	}
	if err := json.Unmarshal(event, &e); err != nil || e.Source != "aws.ecs" || h.ended == nil {
		return nil //nolint:nilerr // Other events have other shapes, which do not matter.
	}
	end, ended, err := tasks.EndOf(e.Detail)
	if err != nil || !ended {
		return err
	}
	err = h.ended(ctx, end)
	var gone *control.NotFoundError
	if errors.As(err, &gone) {
		// Its run was deleted since.
		return nil
	}
	return err
}
