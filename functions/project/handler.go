package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control/projection"
	"github.com/tranship-io/tranship/internal/compose/cloud"
	"github.com/tranship-io/tranship/internal/compose/cloud/plane"
)

// handler folds the facts that messages tell of.
type handler struct {
	plane     *plane.Plane
	batch     cloud.Batch[projection.Told]
	projector *projection.Projector
	// released tells that occurrences of schedules, which waited for a run's end, are due.
	released bool
}

func (h *handler) handle(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
	if err := h.plane.DB.Ready(ctx); err != nil {
		return events.SQSEventResponse{}, err
	}
	answer := h.batch.Handle(ctx, event, h.fold)
	if h.released {
		h.released = false
		if err := h.plane.Firing.Run(ctx, time.Now()); err != nil {
			h.plane.Log.WarnContext(ctx, "fire occurrences that waited: the sweep does it", "error", err)
		}
	}
	if err := h.plane.After(ctx); err != nil {
		h.plane.Log.WarnContext(ctx, "what follows is left to the sweep", "error", err)
	}
	return answer, nil
}

// fold folds the runs of all messages together. The messages of a run that cannot
// be folded come again, all of them, so that their order stays.
func (h *handler) fold(ctx context.Context, messages []projection.Told) []error {
	refs := make([]projection.RunRef, len(messages))
	for i, m := range messages {
		refs[i] = projection.RunRef{Organization: m.Organization, Run: m.Run}
	}
	broken, err := h.projector.Fold(ctx, refs)
	errs := make([]error, len(messages))
	var folded []projection.Told
	for i, r := range refs {
		if slices.Contains(broken, r) {
			errs[i] = fmt.Errorf("fold facts of run %s: %w", r.Run, err)
			continue
		}
		folded = append(folded, messages[i])
	}
	if values := measure(folded, time.Now()); len(values) > 0 {
		h.plane.Metrics.Emit(values...)
	}
	return errs
}

// ended releases the occurrences that waited for the end of a pipeline's run.
func (h *handler) ended(ctx context.Context, organization, pipeline uuid.UUID) error {
	released, err := h.plane.DB.Schedules().Release(ctx, organization, pipeline, time.Now())
	h.released = h.released || released
	return err
}

// check refuses a message that names no run.
func check(t projection.Told) error {
	if t.Organization == uuid.Nil || t.Run == uuid.Nil {
		return errors.New("it names no run")
	}
	return nil
}
