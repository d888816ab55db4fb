package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/projection"
	"github.com/tranship-io/tranship/internal/compose/cloud"
	"github.com/tranship-io/tranship/internal/compose/cloud/plane"
	"github.com/tranship-io/tranship/internal/compose/worker"
)

// handler executes attempts.
type handler struct {
	plane *plane.Plane
	batch cloud.Batch[dispatch.Command]
	// config is what attempts have in common.
	config worker.Config
}

// margin is how long before the end of an invocation an attempt has to come to a
// safe position: a minute, or a third of a short invocation.
func margin(left time.Duration) time.Duration { return min(time.Minute, left/3) }

// handle executes the commands of an event, one after the other; there is one.
func (h *handler) handle(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
	return h.batch.Handle(ctx, event, func(ctx context.Context, commands []dispatch.Command) []error {
		errs := make([]error, len(commands))
		for i, c := range commands {
			errs[i] = h.attempt(ctx, c)
		}
		return errs
	}), nil
}

// attempt executes one attempt within the invocation.
func (h *handler) attempt(ctx context.Context, c dispatch.Command) error {
	config := h.config
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		config.AttemptTime = left - margin(left)
		// What does not come to a safe position in time ends in order, not by a kill. It
		// is canceled: a deadline that passes would look like a failure of the run's ends.
		hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer time.AfterFunc(left-margin(left)/4, cancel).Stop()
		ctx = hard
	}
	_, err := h.execute(ctx, nil, config, c)
	return err
}

// execute executes one attempt, tells of its facts, and sends what is to follow: the
// run's next attempt. The error tells that the sweep has to do that.
func (h *handler) execute(ctx context.Context, stop <-chan struct{}, config worker.Config, c dispatch.Command) (worker.Outcome, error) {
	if err := h.plane.DB.Ready(ctx); err != nil {
		return worker.Outcome{}, err
	}
	config.Holder = cloud.Holder(ctx)
	config.Lease, config.Random, config.Committed, config.Log = h.plane.Lease, rand.Float64, h.plane.Wake, h.plane.Log
	run := projection.RunRef{Organization: c.Organization, Run: c.Run}
	began := time.Now()
	end := h.plane.Follow(ctx, run)
	out := worker.Execute(ctx, stop, config, c)
	end()
	h.plane.Metrics.Emit(
		cloud.Value{Name: "Attempts", Unit: cloud.Count, Amount: 1},
		cloud.Value{Name: "AttemptTime", Unit: cloud.Milliseconds, Amount: float64(time.Since(began).Milliseconds())},
	)
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return out, errors.Join(h.plane.Facts.Forward(after, run), h.plane.After(ctx))
}

// check refuses a command that names no run.
func check(c dispatch.Command) error {
	if c.Run == uuid.Nil || c.Organization == uuid.Nil || c.Sent <= 0 {
		return fmt.Errorf("it names no attempt: organization %s, run %s, offer %d", c.Organization, c.Run, c.Sent)
	}
	return nil
}
