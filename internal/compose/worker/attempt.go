package worker

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/control/sweep"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/runner"
	"github.com/tranship-io/tranship/internal/redact"
)

var (
	errOfferLost = errors.New("the offer is somebody else's by now")
	errAsked     = errors.New("the run's owner wants it to stop")
	errLimit     = errors.New("a limit of the run is reached")
)

// attempt is one life of a worker.
type attempt struct {
	pool    *Pool
	command dispatch.Command
	nudge   chan struct{}

	once sync.Once
	halt chan struct{}
	// secrets guards what the attempt tells: facts, errors, logs and its span
	// (invariant 10).
	secrets redact.Redactor
}

func (a *attempt) ref() sweep.Ref {
	return sweep.Ref{Organization: a.command.Organization, Run: a.command.Run}
}

// live accepts the offer, works, and concludes.
func (a *attempt) live() (out Outcome) {
	p := a.pool
	log := a.secrets.Logger(p.c.Log).With("run", a.command.Run, "organization", a.command.Organization)
	ctx, watched := p.c.Watch(p.hard, a.command)
	defer func() { watched(out) }()
	mine, err := p.c.Store.Accept(ctx, a.command, p.c.Holder, p.c.Lease)
	if err != nil || !mine {
		if err != nil {
			log.WarnContext(ctx, "accept an attempt", "error", err)
		}
		return Outcome{What: "lost", Err: err}
	}
	log.InfoContext(ctx, "attempt begins")
	out = a.work(ctx)
	out.Err = a.secrets.Error(out.Err)
	log.InfoContext(ctx, "attempt ended", "outcome", out.What, "error", out.Err)
	return out
}

// work executes the attempt and tells the control plane how it ended.
func (a *attempt) work(ctx context.Context) Outcome {
	p := a.pool
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.halt = make(chan struct{})
	st := &state{State: p.c.Store.RunState(a.command.Organization, a.command.Run), attempt: a, leased: make(chan struct{}), moved: make(chan struct{}, 1)}

	var watch sync.WaitGroup
	watch.Go(func() { a.keepOffer(work, cancel, st) })
	watch.Go(func() {
		select {
		case <-p.stop:
			a.stop()
		case <-work.Done():
		}
	})
	if a.command.Cancel {
		watch.Go(func() { a.bePrompt(work, cancel, st) })
	}
	res, err := a.run(work, cancel, st, &watch)
	cause := context.Cause(work)
	cancel(nil)
	watch.Wait()
	return a.conclude(context.WithoutCancel(ctx), st, res, err, cause)
}

// stop ends the work at safe positions.
func (a *attempt) stop() { a.once.Do(func() { close(a.halt) }) }

// run calls the engine; a panic in this goroutine is an error.
func (a *attempt) run(ctx context.Context, cancel context.CancelCauseFunc, st *state, watch *sync.WaitGroup) (res *runner.Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = errPanic(v, debug.Stack())
		}
	}()
	p := a.pool
	r, err := p.c.Store.Run(ctx, a.command.Organization, a.command.Run)
	if err != nil {
		return nil, engine.Retryablef("read the run: %w", err)
	}
	st.run = r
	watch.Go(func() { a.keepLimits(ctx, cancel, st) })
	opt, err := p.c.Ends(ctx, r, a.command.Organization, a.secrets.Add)
	if err != nil {
		return nil, err
	}
	if opt.Resources, err = narrow(opt.Resources, r.Options); err != nil {
		return nil, err
	}
	// What decides about the run hears no secrets either.
	opt.State, opt.OneAttempt, opt.Stop, opt.Nudge, opt.Holder = &guarded{st, &a.secrets}, true, a.halt, a.nudge, p.c.Holder
	opt.Log = a.secrets.Logger(p.c.Log).With("run", r.ID, "pipeline", r.Name)
	set := &opt.Settings
	set.LeaseTime = p.c.Lease
	if set.AttemptTime <= 0 || set.AttemptTime > p.c.AttemptTime {
		set.AttemptTime = p.c.AttemptTime
	}
	if set.Memory <= 0 {
		set.Memory = p.c.Memory
	}
	if most := p.c.MaxMemory; most > 0 && (set.Memory <= 0 || set.Memory > most) {
		set.Memory = most
	}
	return runner.Run(ctx, opt)
}

// narrow applies a run's options to its resources.
func narrow(all []runner.ResourceRequest, o runs.Options) ([]runner.ResourceRequest, error) {
	if len(o.Backfill) > 0 {
		return backfill(all, o.Backfill)
	}
	for _, name := range slices.Concat(o.Only, o.FullRefresh) {
		if !slices.ContainsFunc(all, func(q runner.ResourceRequest) bool { return q.Resource == name }) {
			return nil, engine.Permanentf("name resources as tranship discover lists them", "the run is about resource %q, which the pipeline does not replicate", name)
		}
	}
	if len(o.Only) == 0 {
		return all, nil
	}
	return slices.DeleteFunc(slices.Clone(all), func(q runner.ResourceRequest) bool { return !slices.Contains(o.Only, q.Resource) }), nil
}

// backfill leaves of the resources those that are read again, with their ranges.
func backfill(all []runner.ResourceRequest, parts []runs.Backfill) ([]runner.ResourceRequest, error) {
	var out []runner.ResourceRequest
	for _, b := range parts {
		i := slices.IndexFunc(all, func(q runner.ResourceRequest) bool { return q.Resource == b.Resource })
		if i < 0 {
			return nil, engine.Permanentf("name resources as tranship discover lists them", "the backfill is of resource %q, which the pipeline does not replicate", b.Resource)
		}
		q := all[i]
		q.Range = &b.CursorRange
		out = append(out, q)
	}
	return out, nil
}

// keepOffer keeps the accepted offer until the attempt has its lease, and hears
// what the run's owner wants meanwhile.
func (a *attempt) keepOffer(ctx context.Context, cancel context.CancelCauseFunc, st *state) {
	c := &a.pool.c
	t := time.NewTicker(c.heartbeat())
	defer t.Stop()
	for {
		select {
		case <-st.leased:
			return
		case <-ctx.Done():
			return
		case <-t.C:
		case <-a.nudge:
		}
		desired, err := c.Store.Keep(ctx, a.command, c.Holder, c.Lease)
		var stale *engine.StaleError
		switch {
		case errors.As(err, &stale):
			select {
			case <-st.leased:
				// The lease took the offer's place meanwhile.
			default:
				cancel(errOfferLost)
			}
			return
		case err != nil:
			c.Log.WarnContext(ctx, "keep an offer", "run", a.command.Run, "error", err)
		case desired != engine.DesiredRun && !a.command.Cancel:
			cancel(errAsked)
			return
		}
	}
}

// promptness is how long an attempt that only ends a canceled run tries to reach
// the run's ends, so that a cancel takes no more than 10 s (P22).
const promptness = 3 * time.Second

// bePrompt gives the ends of a canceled run up if they cannot be reached.
func (a *attempt) bePrompt(ctx context.Context, cancel context.CancelCauseFunc, st *state) {
	t := time.NewTimer(promptness)
	defer t.Stop()
	select {
	case <-t.C:
		cancel(errAsked)
	case <-st.leased:
	case <-ctx.Done():
	}
}

// haste is how long an attempt that reached a limit of its run may take to come
// to a safe position.
const haste = 10 * time.Second

// keepLimits ends the attempt when its run reaches a limit.
func (a *attempt) keepLimits(ctx context.Context, cancel context.CancelCauseFunc, st *state) {
	for {
		at := st.deadline()
		if at.IsZero() {
			select {
			case <-st.moved:
				continue
			case <-ctx.Done():
				return
			}
		}
		t := time.NewTimer(time.Until(at))
		select {
		case <-t.C:
			a.stop()
			select {
			case <-time.After(haste):
				cancel(errLimit)
			case <-ctx.Done():
			}
			return
		case <-st.moved:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// conclude makes the control plane know how the attempt ended.
func (a *attempt) conclude(ctx context.Context, st *state, res *runner.Result, err, cause error) Outcome {
	p := a.pool
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	settle := func(decide func(*runs.Run) runs.Change) {
		if serr := p.c.Store.Settle(ctx, a.ref(), decide); serr != nil {
			// The sweep does it (P23).
			p.c.Log.WarnContext(ctx, "settle a run", "run", a.command.Run, "error", serr)
		}
	}
	switch {
	case st.finished != "":
		if st.retry != nil {
			settle(st.retry)
		}
		return Outcome{What: string(st.finished), Err: err}
	case st.retry != nil:
		settle(st.retry)
		return Outcome{What: "retried", Err: err}
	case res != nil && res.HandedOver:
		settle(runs.Idle)
		return Outcome{What: "handed_over"}
	case st.hasLease():
		// The lease is lost, or could not be given back: the sweep decides.
		return Outcome{What: "lost", Err: err}
	case errors.Is(cause, errOfferLost):
		return Outcome{What: "lost", Err: cause}
	}
	// No attempt began: the offer is still ours.
	if gerr := p.c.Store.GiveUp(ctx, a.command, p.c.Holder); gerr != nil {
		p.c.Log.WarnContext(ctx, "give up an offer", "run", a.command.Run, "error", gerr)
		return Outcome{What: "lost", Err: err}
	}
	stopping := p.hard.Err() != nil
	select {
	case <-p.stop:
		stopping = true
	default:
	}
	var stale *engine.StaleError
	switch {
	case a.command.Cancel:
		// Nothing of this process is open any more, and what an earlier worker left
		// could not be reached: the next run of the route ends it (P5, P21).
		settle(runs.EndCancel)
		return Outcome{What: "canceled", Err: err}
	case errors.Is(cause, errAsked), errors.Is(cause, errLimit), stopping, errors.As(err, &stale):
		settle(runs.Idle)
		return Outcome{What: "handed_over", Err: err}
	case err == nil:
		settle(runs.Idle)
		return Outcome{What: "handed_over"}
	}
	f := failureOf(err, st.run.Attempts > 0)
	f.Error, f.Hint = a.secrets.Text(f.Error), a.secrets.Text(f.Hint)
	settle(func(r *runs.Run) runs.Change { return runs.Failed(r, f, p.c.Random()) })
	return Outcome{What: "failed", Err: err}
}
