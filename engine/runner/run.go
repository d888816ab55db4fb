package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tranship-io/tranship/engine"
)

// Result is how a call of Run ended.
type Result struct {
	Run     engine.Run
	Receipt *engine.RunReceipt
	// HandedOver is true when the attempt ended at its boundary with work left
	// and the run still open (OneAttempt).
	HandedOver bool
	// Resumed is true when the run had been begun by an earlier process.
	Resumed bool
}

// Run works on a pipeline's route until its run completes, fails, or is asked
// to stop. The error is the reason of a failed run; the result is there too
// whenever a run was started.
func Run(ctx context.Context, o Options) (*Result, error) {
	r := &run{Options: o, set: o.Settings.withDefaults(), began: time.Now(), failed: map[string]error{}, resetting: make(chan struct{}, 1)}
	if r.Log == nil {
		r.Log = slog.New(slog.DiscardHandler)
	}
	if r.Progress == nil {
		r.Progress = new(Progress)
	}
	if r.Holder == "" {
		r.Holder = "local"
	}
	r.steady = &steady{State: o.State, set: r.set, log: r.Log, over: ctx.Done()}
	r.State = r.steady
	if len(o.Resources) == 0 {
		return nil, engine.Permanentf("name at least one resource, or a pattern that matches one", "the pipeline has no resources")
	}
	defer r.close()
	if err := r.openEnds(ctx); err != nil {
		return nil, err
	}
	if err := r.findRoute(ctx); err != nil {
		return nil, err
	}
	if err := r.finishPredecessor(ctx); err != nil {
		return nil, err
	}
	res, err := r.startAndWork(ctx, o.Version, o.Restart)
	for err == nil && r.replanned && !r.OneAttempt {
		// The run has ended where the structure changed: the next one follows on.
		r.replanned = false
		res, err = r.startAndWork(ctx, o.Version, false)
	}
	return res, err
}

// run is the state of one call of Run.
type run struct {
	Options
	set   Settings
	began time.Time

	// steady is State; a preview has none.
	steady *steady

	src  engine.SourceSession
	sink engine.SinkSession
	// fencer is nil for sinks that are not transactional.
	fencer engine.Fencer

	route engine.Route
	// known is what the destination knows of the route, nil if nothing.
	known *engine.Adoption

	rec  engine.Run
	main engine.Fence

	// resync: the next plan reads all members of the change stream again.
	resync error

	// resetting holds the right to begin resources anew, and guards resets.
	resetting chan struct{}
	resets    map[string]int

	mu     sync.Mutex
	plan   *engine.RunPlan
	failed map[string]error
	// started are resources whose first claim was told.
	started map[string]bool
	// parked: the change stream has caught up, and waits for members that failed.
	parked bool
	// replanned: the run ends because its plan does, and the next one follows on.
	replanned bool
	// lagAt is when the stream's lag was told last.
	lagAt time.Time
	// news are told whenever a slot is done with a split.
	news news
	// following is true while a slot follows the change stream.
	following atomic.Bool
}

func (r *run) openEnds(ctx context.Context) error {
	opt := engine.OpenOptions{Pipeline: r.Pipeline, GiveUp: r.set.GiveUp, Slots: r.set.Slots, WorkDir: r.set.WorkDir}
	// An end that failed to open is none that close could end, whatever came with the error.
	src, err := r.OpenSource(ctx, opt)
	if err != nil {
		return fmt.Errorf("open source: %w", err)
	}
	r.src = src
	sink, err := r.OpenSink(ctx, opt)
	if err != nil {
		return fmt.Errorf("open sink: %w", err)
	}
	r.sink = sink
	r.fencer, _ = r.sink.(engine.Fencer)
	return nil
}

// close ends the sessions; their own servers clean up what a failed close leaves.
func (r *run) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for name, end := range map[string]interface{ Close(context.Context) error }{"source": r.src, "sink": r.sink} {
		if end == nil {
			continue
		}
		if err := end.Close(ctx); err != nil {
			r.Log.Debug("close session", "end", name, "error", err)
		}
	}
	r.src, r.sink = nil, nil
}

// startAndWork starts or resumes a run of the version and works on it.
func (r *run) startAndWork(ctx context.Context, version string, restart bool) (*Result, error) {
	req := engine.StartRequest{Route: r.route, Version: version, Restart: restart, Slots: r.set.Slots}
	if r.known != nil {
		req.AtLeastOrdinal = r.known.Ordinal
	}
	rec, resumed, err := r.State.StartRun(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("start run: %w", err)
	}
	if resumed && r.overtaken(rec) {
		r.Log.Warn("a later run is known at the destination: beginning anew", "run", rec.ID)
		req.Restart = true
		if rec, resumed, err = r.State.StartRun(ctx, req); err != nil {
			return nil, fmt.Errorf("start run: %w", err)
		}
	}
	r.begin(rec)
	res := &Result{Resumed: resumed}
	err = r.attempts(ctx, res)
	for tries := 0; tries < maxResets && unsettled(err); tries++ {
		r.Log.Warn("State and destination disagree about the run", "run", rec.ID, "reason", err)
		next, settleErr := r.settle(ctx, req, rec, err)
		if settleErr != nil {
			err = settleErr
			break
		}
		rec = next
		r.begin(rec)
		res = &Result{Resumed: res.Resumed}
		err = r.attempts(ctx, res)
	}
	if unsettled(err) {
		err = r.giveUp(ctx, res, err)
	}
	res.Run, _ = r.State.GetRun(context.WithoutCancel(ctx), rec.ID)
	return res, err
}

// begin makes the run the one that is worked on.
func (r *run) begin(rec engine.Run) {
	// State's word on the route counts: it may have changed since we asked.
	r.rec, r.route = rec, rec.Route
	r.plan, r.resets, r.started, r.parked = nil, map[string]int{}, map[string]bool{}, false
	r.lagAt = time.Time{}
	clear(r.failed)
}

// attempts lets attempt follow attempt until the run is over.
func (r *run) attempts(ctx context.Context, res *Result) error {
	for {
		lease, err := r.State.Acquire(ctx, r.rec.ID, 0, r.Holder, r.set.LeaseTime)
		if err != nil {
			return fmt.Errorf("take slot 0 of run %s: %w", r.rec.ID, err)
		}
		r.main = lease.Fence
		out := r.attempt(ctx, lease)
		if unsettled(out.err) {
			if err := r.State.EndAttempt(ctx, lease, nil); err != nil {
				return fmt.Errorf("end attempt: %w", err)
			}
			return out.err
		}
		if errors.Is(out.err, errLeaseLost) {
			// Somebody else's attempt has the run, and will end it.
			return out.err
		}
		if out.handOver && !r.OneAttempt {
			continue
		}
		if out.handOver {
			res.HandedOver = true
			return nil
		}
		return r.finish(ctx, out, res)
	}
}

// outcome is how an attempt ended.
type outcome struct {
	// done: nothing is left to do. handOver: the boundary came first.
	done, handOver bool
	// stopped: asked to stop; canceled: asked to cancel.
	stopped, canceled bool
	err               error
}
