package runner

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

var (
	errCanceled  = errors.New("the run was canceled")
	errLeaseLost = errors.New("the lease was lost: another attempt owns the slot")
)

// attempt is one bounded life in all slots of this process.
func (r *run) attempt(ctx context.Context, main engine.Lease) outcome {
	b := &bounds{bytes: r.set.AttemptBytes, rows: r.set.AttemptRows}
	if r.set.AttemptTime > 0 {
		b.deadline = time.Now().Add(r.set.AttemptTime)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	watch := make(chan struct{})
	defer func() { cancel(nil); <-watch }()
	go func() {
		defer close(watch)
		select {
		case <-r.Stop:
			b.Stop("stop")
		case <-ctx.Done():
		}
	}()

	keep, err := r.keepLease(ctx, cancel, main, b)
	if err != nil {
		return r.outcomeOf(ctx, b, err)
	}
	defer keep()

	first := []events.Fact{r.fact(events.AttemptStarted{Attempt: main.Attempt, Slot: 0, Generation: main.Generation, Holder: main.Holder, MemoryBytes: r.set.Memory})}
	before, _ := usage()
	// A State of requested runs told their start when it made them running.
	if main.Attempt == 1 && !r.OneAttempt {
		first = append(first, r.fact(events.RunStarted{Slots: r.set.Slots}))
	}
	if err := r.State.AppendFacts(ctx, r.main, first); err != nil {
		return outcome{err: fmt.Errorf("store facts: %w", err)}
	}
	if err := r.ensurePlan(ctx); err != nil {
		return r.outcomeOf(ctx, b, err)
	}
	if r.Planned != nil {
		r.Planned(r.plan)
	}

	group, gctx := errgroup.WithContext(ctx)
	var bounded atomic.Bool
	// alone is closed when the first slot has nothing left to do.
	alone := make(chan struct{})
	for i := range r.set.Slots {
		group.Go(func() error {
			var err error
			if i == 0 {
				err = r.work(gctx, main, b)
				close(alone)
			} else {
				err = r.workSlot(gctx, i, alone, b)
			}
			if errors.Is(err, errBoundary) {
				// The other slots come to it by themselves, at their safe positions.
				bounded.Store(true)
				return nil
			}
			return err
		})
	}
	if err = group.Wait(); err == nil && bounded.Load() {
		err = errBoundary
	}
	out := r.outcomeOf(ctx, b, err)
	used := r.used(main, before)
	if out.handOver || out.stopped {
		reason, _ := b.reached()
		end := []events.Fact{used, r.fact(events.AttemptHandedOver{Slot: 0, Generation: main.Generation, Reason: reason})}
		if out.handOver {
			if err := r.State.EndAttempt(context.WithoutCancel(ctx), main, end); err != nil {
				return outcome{err: fmt.Errorf("end attempt: %w", err)}
			}
		} else if err := r.State.AppendFacts(context.WithoutCancel(ctx), r.main, end); err != nil {
			return outcome{err: fmt.Errorf("store facts: %w", err)}
		}
	} else if err := r.State.AppendFacts(context.WithoutCancel(ctx), r.main, []events.Fact{used}); err != nil {
		// Nothing but figures depends on it.
		r.Log.Debug("store what the attempt used", "error", err)
	}
	return out
}

// used is the fact of what the attempt took since its process had used that many
// seconds of CPU time.
func (r *run) used(l engine.Lease, before float64) events.Fact {
	cpu, peak := usage()
	return r.fact(events.AttemptUsed{Slot: l.Slot, Generation: l.Generation, CPUMillis: int64((cpu - before) * 1000), PeakBytes: peak})
}

// errBoundary ends a slot's work at the attempt's boundary.
var errBoundary = errors.New("attempt boundary")

func (r *run) outcomeOf(ctx context.Context, b *bounds, err error) outcome {
	reason, stopped := b.reached()
	cause := context.Cause(ctx)
	var stale *engine.StaleError
	if errors.As(err, &stale) && stale.What == "generation" {
		cause = errLeaseLost
	}
	switch {
	case errors.Is(cause, errCanceled), errors.Is(err, errCanceled):
		return outcome{canceled: true, err: errCanceled}
	case errors.Is(cause, errLeaseLost):
		return outcome{err: errLeaseLost}
	case err == nil:
		return outcome{done: true}
	case errors.Is(err, errBoundary) && stopped && reason == "pause":
		return outcome{stopped: true}
	case stopped && reason == "stop" && (errors.Is(err, errBoundary) || engine.ClassOf(err) == engine.Retryable):
		// Stopped while waiting for something that was not there: still a stop.
		return outcome{stopped: !r.OneAttempt, handOver: r.OneAttempt}
	case errors.Is(err, errBoundary):
		return outcome{handOver: true}
	}
	return outcome{err: err}
}

// keepLease renews a lease until the returned function is called, and carries
// the owner's wishes into the attempt (P22).
func (r *run) keepLease(ctx context.Context, cancel context.CancelCauseFunc, l engine.Lease, b *bounds) (func(), error) {
	beat := func() bool {
		desired, err := r.State.Renew(ctx, l, r.set.LeaseTime)
		var stale *engine.StaleError
		switch {
		case errors.As(err, &stale):
			cancel(errLeaseLost)
			return false
		case err != nil:
			// The lease itself bounds how long a store may be out of reach.
			r.Log.Warn("renew lease", "slot", l.Slot, "error", err)
		case desired == engine.DesiredCancel:
			cancel(errCanceled)
			return false
		case desired == engine.DesiredPause:
			b.Stop("pause")
		}
		return true
	}
	if !beat() {
		return nil, context.Cause(ctx)
	}
	done, stopped := make(chan struct{}), make(chan struct{})
	var nudge <-chan struct{}
	if l.Slot == 0 {
		// What the first slot hears is the whole attempt's.
		nudge = r.Nudge
	}
	go func() {
		defer close(stopped)
		t := time.NewTicker(r.set.heartbeat())
		defer t.Stop()
		for {
			select {
			case <-t.C:
				select {
				case <-done:
					// A tick that waited is not for a lease that has ended.
					return
				default:
				}
				if !beat() {
					return
				}
			case <-nudge:
				if !beat() {
					return
				}
			case <-done:
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { close(done); <-stopped }, nil
}

// workSlot lives in a slot beside the main one, until that has nothing left to
// do. A slot that cannot be had or kept is one less to work in: whether the run
// is still ours is the first slot's to find out.
func (r *run) workSlot(ctx context.Context, slot int, alone <-chan struct{}, b *bounds) error {
	l, err := r.steady.take(ctx, alone, r.rec.ID, slot, r.Holder)
	if errors.Is(err, engine.ErrLocked) {
		// Another worker lives there: it does this slot's work.
		return nil
	}
	if err != nil && ctx.Err() == nil && engine.ClassOf(err) == engine.Retryable {
		r.Log.Warn("going on with fewer slots", "slot", slot, "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("take slot %d: %w", slot, err)
	}
	slotCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	keep, err := r.keepLease(slotCtx, cancel, l, b)
	if err == nil {
		defer keep()
		err = r.work(slotCtx, l, b)
	}
	if errors.Is(err, errLeaseLost) || errors.Is(context.Cause(slotCtx), errLeaseLost) && ctx.Err() == nil {
		r.Log.Warn("going on with fewer slots", "slot", slot, "error", errLeaseLost)
		return nil
	}
	if endErr := r.State.EndAttempt(context.WithoutCancel(ctx), l, nil); endErr != nil {
		var stale *engine.StaleError
		if !errors.As(endErr, &stale) {
			err = errors.Join(err, fmt.Errorf("end slot %d: %w", slot, endErr))
		}
	}
	return err
}

// idle is how long a slot waits before it asks again for a split while others work.
const idle = 50 * time.Millisecond

// work claims splits until none is left (nil) or the boundary is reached.
func (r *run) work(ctx context.Context, l engine.Lease, b *bounds) error {
	tries := map[string]*try{}
	// aside are resources that this slot leaves alone until it has done something
	// else: a change stream after a pass, and members that wait for it.
	var aside []string
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if _, stop := b.reached(); stop {
			return errBoundary
		}
		sp, err := r.State.ClaimSplit(ctx, l.Fence, append(r.excluded(), aside...))
		switch {
		case errors.Is(err, engine.ErrSplitDone) && len(aside) == 0:
			return nil
		case err != nil && !errors.Is(err, engine.ErrSplitDone):
			return fmt.Errorf("claim a split: %w", err)
		case sp == nil:
			wait := idle
			if err == nil && (len(aside) > 0 || r.following.Load()) {
				// Others are at what there is to do beside the stream.
				wait = streamIdle
			} else if err != nil {
				wait = 0
			}
			aside = nil
			if err := r.news.wait(ctx, wait, b); err != nil {
				return err
			}
			continue
		}
		before := sp.Epoch
		err = r.split(ctx, l, sp, b)
		r.news.tell()
		if err == nil || errors.Is(err, errSplitFinished) {
			delete(tries, sp.ID)
			aside = nil
			continue
		}
		if errors.Is(err, errPassed) || errors.Is(err, errUnsettled) {
			delete(tries, sp.ID)
			if errors.Is(err, errPassed) {
				aside = nil
			}
			aside = append(aside, sp.Resource)
			if err := r.giveBack(ctx, l, sp, nil); err != nil {
				return err
			}
			continue
		}
		if errors.Is(err, errBoundary) {
			return r.giveBack(ctx, l, sp, errBoundary)
		}
		if ctx.Err() != nil {
			return r.giveBack(ctx, l, sp, context.Cause(ctx))
		}
		t := tries[sp.ID]
		if t == nil || sp.Epoch > before {
			t = newTry(r.set)
			tries[sp.ID] = t
		}
		if err := r.afterError(ctx, l, sp, t, b, err); err != nil {
			return err
		}
	}
}

// giveBack returns the split at its checkpoint; a lost claim is somebody else's already.
func (r *run) giveBack(ctx context.Context, l engine.Lease, sp *engine.ClaimedSplit, with error) error {
	err := r.State.ReturnSplit(context.WithoutCancel(ctx), l.Fence, sp.ID, sp.Claim)
	var stale *engine.StaleError
	if err != nil && !errors.As(err, &stale) {
		return errors.Join(with, fmt.Errorf("return split %q: %w", sp.ID, err))
	}
	return with
}

// begunAnew tells whether another slot of ours has put a new plan in the place of
// the split's: the destination knows it a moment before we do.
func (r *run) begunAnew(ctx context.Context, sp *engine.ClaimedSplit) bool {
	select {
	case r.resetting <- struct{}{}:
		<-r.resetting
	case <-ctx.Done():
		return false
	}
	rp := r.resource(sp.Resource)
	return rp != nil && rp.Generation > sp.Generation
}

// afterError decides what an error in a split means: nil to go on claiming.
func (r *run) afterError(ctx context.Context, l engine.Lease, sp *engine.ClaimedSplit, t *try, b *bounds, cause error) error {
	var stale *engine.StaleError
	if errors.As(cause, &stale) {
		switch stale.What {
		case "generation":
			if r.begunAnew(ctx, sp) {
				return r.giveBack(ctx, l, sp, nil)
			}
			return errLeaseLost
		case "ordinal":
			return engine.Permanentf("a later run of this pipeline has begun; start a new run", "run %s: %w", r.rec.ID, cause)
		}
		// The claim belongs to somebody else: nothing of ours was written.
		return r.giveBack(ctx, l, sp, nil)
	}
	if unsettled(cause) {
		// The run goes on from what the destination has; see startAndWork.
		return r.giveBack(ctx, l, sp, cause)
	}
	if errors.Is(cause, engine.ErrPositionLost) {
		return r.giveBack(ctx, l, sp, r.positionLost(ctx, cause))
	}
	if errors.Is(cause, engine.ErrSnapshotLost) || errors.Is(cause, engine.ErrStagingLost) {
		if err := r.giveBack(ctx, l, sp, nil); err != nil {
			return err
		}
		cause = r.lost(ctx, l.Fence, sp.Resource, sp.Generation, cause)
		if cause == nil || unsettled(cause) {
			return cause
		}
		r.failResource(ctx, l.Fence, sp.Resource, cause)
		return nil
	}
	if engine.ClassOf(cause) == engine.Retryable {
		wait, again := t.next()
		if again {
			if err := r.giveBack(ctx, l, sp, nil); err != nil {
				return err
			}
			f := r.fact(events.Retry{Resource: sp.Resource, Split: sp.ID, Error: cause.Error(), Try: t.n, NotBefore: time.Now().Add(wait).UTC()})
			if err := r.State.AppendFacts(ctx, l.Fence, []events.Fact{f}); err != nil {
				return fmt.Errorf("store facts: %w", err)
			}
			r.Log.Warn("trying again", "split", sp.ID, "try", t.n, "in", wait.Round(time.Millisecond), "error", cause)
			return sleepOrStop(ctx, wait, b)
		}
		cause = engine.Retryablef("gave up on split %s after %d tries in %s: %w", sp.ID, t.n, time.Since(t.since).Round(time.Second), cause)
	}
	// The resource fails before its split is given back: no other slot may take up
	// in between what has just failed.
	r.failResource(ctx, l.Fence, sp.Resource, cause)
	return r.giveBack(ctx, l, sp, nil)
}

func (r *run) excluded() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := make([]string, 0, len(r.failed)+1)
	for n := range r.failed {
		names = append(names, n)
	}
	if r.parked {
		names = append(names, engine.StreamResource)
	}
	return names
}

// failResource gives a resource up in this run's process; the others go on.
func (r *run) failResource(ctx context.Context, f engine.Fence, resource string, cause error) {
	r.mu.Lock()
	_, already := r.failed[resource]
	if !already {
		r.failed[resource] = fmt.Errorf("resource %s: %w", resource, cause)
	}
	r.mu.Unlock()
	if already {
		return
	}
	r.Progress.resource(resource).Failed.Store(true)
	r.Log.Error("resource failed", "resource", resource, "error", cause)
	fact := r.fact(events.ResourceFailed{Resource: resource, Error: cause.Error()})
	if err := r.State.AppendFacts(context.WithoutCancel(ctx), f, []events.Fact{fact}); err != nil {
		r.Log.Warn("store facts", "error", err)
	}
}
