package main

import (
	"context"
	"errors"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/internal/compose/cloud"
	"github.com/tranship-io/tranship/internal/compose/cloud/plane"
)

// handler starts containers.
type handler struct {
	plane   *plane.Plane
	batch   cloud.Batch[dispatch.Command]
	starter *dispatch.Starter
}

func (h *handler) handle(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
	if err := h.plane.DB.Ready(ctx); err != nil {
		return events.SQSEventResponse{}, err
	}
	answer := h.batch.Handle(ctx, event, h.start)
	if err := h.plane.After(ctx); err != nil {
		h.plane.Log.WarnContext(ctx, "what follows is left to the sweep", "error", err)
	}
	return answer, nil
}

// start starts a container for each command. A message comes again only if nothing
// could be recorded: from then on the operation is what is tried again.
func (h *handler) start(ctx context.Context, commands []dispatch.Command) []error {
	errs := make([]error, len(commands))
	for i, c := range commands {
		o, err := h.starter.Start(ctx, c)
		errs[i] = err
		if err == nil {
			h.plane.Log.InfoContext(ctx, "container", "run", c.Run, "slot", c.Slot, "sent", c.Sent, "state", o.State, "outcome", string(o.Outcome), "error", o.Error)
		}
	}
	return errs
}

// check refuses a message that names no attempt.
func check(c dispatch.Command) error {
	if c.Organization == uuid.Nil || c.Run == uuid.Nil {
		return errors.New("it names no run")
	}
	return nil
}
