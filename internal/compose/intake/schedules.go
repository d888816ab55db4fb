package intake

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/control/schedules"
)

var _ schedules.Intake = Schedules{}

// Schedules lets schedules start runs.
type Schedules struct{ Runs *runs.Service }

// Start implements [schedules.Intake].
func (i Schedules) Start(ctx context.Context, a control.Actor, req schedules.StartRequest) (schedules.Started, error) {
	sum := sha256.Sum256(fmt.Appendf(nil, "schedule %s %s %s", req.Schedule, req.Instant.UTC(), req.Pipeline))
	ctx = control.WithIdempotency(ctx, control.Idempotency{Key: req.Key, Hash: sum[:]})
	started, err := i.Runs.Start(ctx, a, runs.StartRequest{
		Pipeline:  req.Pipeline.String(),
		Trigger:   runs.Trigger{Kind: runs.TriggerSchedule, Schedule: req.Schedule, Occurrence: req.Instant},
		Options:   runs.Options{FullRefresh: req.Options.FullRefresh, Only: req.Options.Only},
		AllowBusy: req.AllowBusy,
	})
	busy := started.Busy
	var overlap *runs.OverlapError
	if errors.As(err, &overlap) {
		if len(overlap.Busy) == 0 {
			// Another start was faster than we could see; ask again later.
			return schedules.Started{}, err
		}
		busy, err = overlap.Busy, nil
	}
	out := schedules.Started{}
	for _, r := range started.Runs {
		out.Runs = append(out.Runs, r.ID)
	}
	for _, b := range busy {
		out.Busy = append(out.Busy, schedules.Busy{Route: b.Route, Run: b.Run, State: string(b.State)})
	}
	return out, err
}
