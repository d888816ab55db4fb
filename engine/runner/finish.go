package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// giveUp closes a run that could not be settled.
func (r *run) giveUp(ctx context.Context, res *Result, cause error) error {
	lease, err := r.State.Acquire(ctx, r.rec.ID, 0, r.Holder, r.set.LeaseTime)
	if err != nil {
		return errors.Join(cause, fmt.Errorf("take slot 0 of run %s: %w", r.rec.ID, err))
	}
	r.main = lease.Fence
	return r.finish(ctx, outcome{err: cause}, res)
}

// finish closes the run with its receipt.
func (r *run) finish(ctx context.Context, out outcome, res *Result) error {
	ctx = context.WithoutCancel(ctx)
	end := engine.RunEnd{}
	reason := out.err
	if reason == nil && out.done {
		reason = r.joinFailures()
	}
	switch {
	case reason != nil && !out.canceled:
		end.State = engine.StateFailed
		end.Resumable = r.planned() && engine.ClassOf(reason) != engine.Bug
		end.Error = reason.Error()
	case out.canceled:
		end.State = engine.StateCanceled
		reason = r.abort(ctx)
		// "canceled" is written only when no session of the run is left (P22).
		r.close()
	case out.stopped:
		end.State = engine.StatePaused
	default:
		end.State = engine.StateCompleted
	}
	receipt, err := r.receipt(ctx, end)
	if err != nil {
		return errors.Join(reason, err)
	}
	res.Receipt = receipt
	if err := r.seal(&end, receipt, reason); err != nil {
		return errors.Join(reason, err)
	}
	if err := r.State.FinishRun(ctx, r.main, end); err != nil {
		if isStale(reason) {
			// Who overtook us has the last word on the run.
			return reason
		}
		return errors.Join(reason, fmt.Errorf("finish run: %w", err))
	}
	return reason
}

func (r *run) planned() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.plan != nil
}

// joinFailures makes one error of the resources that failed.
func (r *run) joinFailures() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, rp := range r.plan.Resources {
		if err := r.failed[rp.Selection.Resource]; err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// abortTime bounds how long a cancel waits for the destination: what stays
// staged there is dropped when the route's next run begins (P21, P22).
const abortTime = 4 * time.Second

// abort drops what a canceled run has staged.
func (r *run) abort(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, abortTime)
	defer cancel()
	r.mu.Lock()
	plan := r.plan
	r.mu.Unlock()
	if plan == nil {
		// Canceled before this attempt looked at what an earlier one had planned.
		var err error
		if plan, err = r.State.LoadPlan(ctx, r.rec.ID); err != nil || plan == nil {
			return err
		}
	}
	var errs []error
	for _, rp := range plan.Resources {
		errs = append(errs, r.retry(ctx, "drop staging", func(ctx context.Context) error {
			return r.sink.Abort(ctx, rp.Target)
		}))
	}
	return errors.Join(errs...)
}

func (r *run) fact(p events.Payload) events.Fact {
	f, err := events.New(r.rec.ID, time.Now(), p)
	if err != nil {
		// Payloads are plain structs of ours: encoding them cannot fail.
		panic(err)
	}
	return f
}
