package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control/inspections"
	"github.com/tranship-io/tranship/internal/compose/cloud/database"
)

// event names the inspection.
type event struct {
	Organization uuid.UUID `json:"organization"`
	Inspection   uuid.UUID `json:"inspection"`
}

// answer tells whether it was this invocation that looked.
type answer struct {
	Looked bool `json:"looked"`
}

// handler executes inspections, one an invocation.
type handler struct {
	db     *database.Database
	worker *inspections.Worker
	log    *slog.Logger
}

// margin is how long before the end of an invocation a look ends, so that its
// outcome can be stored: 15 s, or a third of a short invocation.
func margin(left time.Duration) time.Duration { return min(15*time.Second, left/3) }

func (h *handler) handle(ctx context.Context, e event) (answer, error) {
	if e == (event{}) {
		return answer{}, nil // a weekly call that keeps the function active
	}
	if e.Organization == uuid.Nil || e.Inspection == uuid.Nil {
		return answer{}, errors.New("the event names no inspection")
	}
	if err := h.db.Ready(ctx); err != nil {
		return answer{}, err
	}
	limit := inspections.Limit
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		limit = min(limit, left-margin(left))
	}
	looked, err := h.worker.LookFor(ctx, inspections.Ref{Organization: e.Organization, ID: e.Inspection}, limit)
	if err != nil {
		return answer{}, fmt.Errorf("execute inspection %s: %w", e.Inspection, err)
	}
	if !looked {
		h.log.InfoContext(ctx, "the inspection is over, or somebody else has it", "organization", e.Organization, "inspection", e.Inspection)
	}
	return answer{Looked: looked}, nil
}
