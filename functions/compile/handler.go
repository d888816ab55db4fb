package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control/schedules"
	"github.com/tranship-io/tranship/internal/compose/cloud/plane"
	"github.com/tranship-io/tranship/store"
)

// event is what Scheduler gives: a firing, or the daily repair.
type event struct {
	Organization uuid.UUID `json:"organization"`
	Schedule     uuid.UUID `json:"schedule"`
	Revision     int64     `json:"revision"`
	// At is <aws.scheduler.scheduled-time>.
	At     string `json:"at"`
	Repair bool   `json:"repair"`
}

// answer is for whoever invokes it by hand.
type answer struct {
	Repaired *schedules.Repaired `json:"repaired,omitempty"`
}

type handler struct {
	plane    *plane.Plane
	compiler *schedules.Compiler
}

func (h *handler) handle(ctx context.Context, e event) (answer, error) {
	if err := h.plane.DB.Ready(ctx); err != nil {
		return answer{}, err
	}
	if e.Repair {
		return h.repair(ctx)
	}
	if e.Organization == uuid.Nil || e.Schedule == uuid.Nil {
		return answer{}, errors.New("the event names no schedule: it is that of a firing, or {\"repair\":true}")
	}
	// Whether something is due is decided by the schedule itself: a time that cannot
	// be read only loses what it is good for, which is a clock that runs behind.
	at, err := time.Parse(time.RFC3339, e.At)
	if err != nil {
		h.plane.Log.WarnContext(ctx, "the event's time cannot be read", "schedule", e.Schedule, "error", err)
	}
	err = h.compiler.Fire(ctx, schedules.Wake{Ref: schedules.Ref{Organization: e.Organization, Schedule: e.Schedule}, Revision: e.Revision, At: at})
	return answer{}, errors.Join(err, h.plane.After(ctx))
}

// repair is what is done once a day: broken chains of schedules are mended, what
// is too old is deleted, and the sweep looks at everything (the backstop of P23).
func (h *handler) repair(ctx context.Context) (answer, error) {
	done, err := h.compiler.Repair(ctx)
	h.plane.Log.InfoContext(ctx, "schedules are compared", "checked", done.Checked, "missing", done.Missing, "stale", done.Stale, "orphans", done.Orphans)
	deleted, tooOld := h.plane.DB.Retain(ctx, store.Retention{})
	h.plane.Log.InfoContext(ctx, "retention", "deleted", deleted)
	if tooOld != nil {
		tooOld = fmt.Errorf("delete what is too old: %w", tooOld)
	}
	return answer{Repaired: &done}, errors.Join(err, tooOld, h.plane.DB.Arm(ctx), h.plane.After(ctx))
}
