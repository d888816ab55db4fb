package main

import (
	"context"
	"encoding/json"

	"github.com/tranship-io/tranship/control/sweep"
	"github.com/tranship-io/tranship/internal/compose/cloud/plane"
)

// handler does one round for each event. What the event says does not matter: a
// schedule that fired, a task whose state changed or a command that went to the
// dead letters all mean that something may be owed, and the round finds out what.
type handler struct {
	plane *plane.Plane
	loop  *sweep.Loop
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
	pause, err := h.loop.Round(ctx)
	if err != nil {
		return answer{}, err
	}
	if pause == 0 {
		h.plane.Log.InfoContext(ctx, "no work is left: the sweep is off")
	}
	return answer{BatchItemFailures: []struct{}{}}, h.plane.After(ctx)
}
