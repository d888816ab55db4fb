package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// A change stream is worked on in passes: a slot claims its split, reads it up to
// where the source was when the pass began, and gives it back, so that whichever
// slot comes next reads a piece of a member or goes on with the stream. A run that
// continues follows the stream once nothing else is left to do.

const (
	// streamIdle is how long a slot waits before the next pass, or before it asks for
	// other work, while other slots are at all that is to do beside the stream.
	streamIdle = time.Second
	// followTime ends an epoch of a followed stream: it is the latency that the engine
	// adds. catchUpBytes ends one that catches up: it bounds what a lost epoch costs.
	followTime   = 250 * time.Millisecond
	catchUpBytes = 8 << 20
	// lagEvery is how often the stream's lag is told.
	lagEvery = 10 * time.Second
)

var (
	// errPassed ends a pass that has caught up; the split is not done.
	errPassed = errors.New("the change stream has caught up")
	// errUnsettled: a member waits for the stream to pass what its reads have seen.
	errUnsettled = errors.New("the change stream has not passed the reads yet")
)

// pass reads the stream once up to where its source is.
func (r *run) pass(ctx context.Context, l engine.Lease, sp *engine.ClaimedSplit, rp *engine.ResourcePlan, b *bounds) error {
	splits, err := r.State.Splits(ctx, r.rec.ID)
	if err != nil {
		return fmt.Errorf("load splits: %w", err)
	}
	waiting, failed := r.openMembers(rp.Stream, splits)
	published := waiting+failed == 0
	follow := published && r.Continuous
	req := engine.ReadRequest{Split: splitOf(rp, sp.ID), Claim: sp.Claim, Plan: rp.Source, Selection: rp.Selection, From: sp.Position,
		BatchBytes: r.set.batchBytes(rp.Target), Members: r.memberReads(rp.Stream, splits), Follow: follow}
	f := r.feed(sp, rp, b)
	f.members = true
	if r.set.EpochBytes == 0 {
		f.epochBytes = catchUpBytes
	}
	if follow {
		f.epochTime = followTime
		r.following.Store(true)
		defer r.following.Store(false)
	}
	rd := startRead(ctx, r.src, req, f, &pass{ends: published && !r.Continuous, next: published})
	defer rd.close()
	err = r.epochs(ctx, l, sp, rp, rd, b)
	if errors.Is(err, errSplitFinished) && rd.replan != "" {
		r.tellReplan(ctx, l, rd.replan)
	}
	if _, stop := b.reached(); !errors.Is(err, errBoundary) || stop {
		return err
	}
	// Not the attempt's end, but the pass's.
	switch {
	case rd.replan != "" && r.rowsMissing(rp.Stream, splits):
		return r.afresh(ctx, engine.Permanentf("", "the structure changed before all initial rows were published: %s", rd.replan))
	case waiting == 0 && failed > 0:
		// The others have all that there was. What the failed ones lack stays for the
		// run that is resumed.
		r.mu.Lock()
		r.parked = true
		r.mu.Unlock()
	}
	return errPassed
}

// openMembers counts the members that are not published: those that are worked on,
// and those that failed here.
func (r *run) openMembers(s *engine.StreamPlan, splits []engine.SplitStatus) (waiting, failed int) {
	published := map[string]bool{}
	for _, sp := range splits {
		if sp.Kind == engine.SplitPublish && sp.Done {
			published[sp.Resource] = true
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range s.Members {
		switch {
		case published[name]:
		case r.failed[name] != nil:
			failed++
		default:
			waiting++
		}
	}
	return waiting, failed
}

// rowsMissing tells whether a member has initial rows that are not published.
func (r *run) rowsMissing(s *engine.StreamPlan, splits []engine.SplitStatus) bool {
	return slices.ContainsFunc(splits, func(sp engine.SplitStatus) bool {
		return sp.Kind == engine.SplitPublish && !sp.Done && slices.Contains(s.Members, sp.Resource) && len(r.resource(sp.Resource).Source.Splits) > 0
	})
}

// tellReplan notes that the next run has to be planned anew.
func (r *run) tellReplan(ctx context.Context, l engine.Lease, reason string) {
	r.mu.Lock()
	r.replanned = true
	r.mu.Unlock()
	r.Log.Info("the run ends here, the next one is planned anew", "reason", reason)
	if err := r.State.AppendFacts(ctx, l.Fence, []events.Fact{r.fact(events.StreamReplanned{Reason: reason})}); err != nil {
		r.Log.Warn("store facts", "error", err)
	}
}

func (r *run) memberTargets(s *engine.StreamPlan) map[string]*engine.Target {
	out := make(map[string]*engine.Target, len(s.Members))
	for _, name := range s.Members {
		out[name] = r.resource(name).Target
	}
	return out
}

func (r *run) memberReads(s *engine.StreamPlan, splits []engine.SplitStatus) map[string]engine.MemberRead {
	out := make(map[string]engine.MemberRead, len(s.Members))
	for _, name := range s.Members {
		rp := r.resource(name)
		out[name] = engine.MemberRead{Selection: rp.Selection, Plan: rp.Source, Wire: rp.Target.Wire, AsText: asText(rp.Target)}
	}
	for _, sp := range splits {
		m, ok := out[sp.Resource]
		switch {
		case !ok:
			continue
		case sp.Kind == engine.SplitPublish && sp.Done:
			m.Aligning, m.Reads = false, nil
		case sp.Kind == engine.SplitRead && !sp.Done:
			m.Aligning = true
		case sp.Kind == engine.SplitRead:
			m.Reads = append(m.Reads, sp.Position)
		}
		out[sp.Resource] = m
	}
	return out
}

// settled tells how far the stream has to be applied before a member is published:
// past whatever the reads of its pieces saw. errUnsettled: it is not yet.
func (r *run) settled(rp *engine.ResourcePlan, splits []engine.SplitStatus) (*engine.StreamPoint, error) {
	stream := r.resource(engine.StreamResource)
	streamer, ok := r.src.(engine.Streamer)
	if stream == nil || !ok {
		return nil, engine.Bugf("resource %s is read as changes without a stream", rp.Selection.Resource)
	}
	var reads []engine.Position
	var at *engine.SplitStatus
	for i, s := range splits {
		switch {
		case s.Kind != engine.SplitRead:
		case s.Resource == rp.Selection.Resource:
			reads = append(reads, s.Position)
		case s.Resource == engine.StreamResource:
			at = &splits[i]
		}
	}
	if len(reads) == 0 {
		return nil, nil
	}
	if at == nil {
		return nil, engine.Bugf("the run's change stream has no split")
	}
	done, err := streamer.Settled(at.Position, reads)
	if err != nil {
		return nil, fmt.Errorf("compare the stream with the reads of %s: %w", rp.Selection.Resource, err)
	}
	if done {
		return &engine.StreamPoint{Target: stream.Target, Split: at.ID, Epoch: at.Epoch}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if cause := r.failed[engine.StreamResource]; cause != nil {
		return nil, engine.Permanentf("", "its changes can't be followed: %w", cause)
	}
	return nil, errUnsettled
}

// acknowledge lets the source forget what is stored in State and at the
// destination (invariant 3). What it still holds after a failure it lets go later.
func (r *run) acknowledge(ctx context.Context, l engine.Lease, sp *engine.ClaimedSplit, rp *engine.ResourcePlan) {
	streamer, ok := r.src.(engine.Streamer)
	if !ok || len(sp.Position) == 0 {
		return
	}
	if err := streamer.Acknowledge(ctx, splitOf(rp, sp.ID), sp.Position); err != nil {
		r.Log.Warn("acknowledge the changes", "error", err)
	}
	r.mu.Lock()
	told := !r.lagAt.IsZero() && time.Since(r.lagAt) < lagEvery
	if !told {
		r.lagAt = time.Now()
	}
	r.mu.Unlock()
	if told {
		return
	}
	lag, err := streamer.Lag(ctx, sp.Position)
	if err != nil {
		r.Log.Debug("measure the stream's lag", "error", err)
		return
	}
	age := int64(-1)
	if !lag.At.IsZero() {
		age = max(time.Since(lag.At).Milliseconds(), 0)
	}
	fact := r.fact(events.StreamLag{LagBytes: lag.Bytes, LagMillis: age, RetainedBytes: lag.Retained})
	if err := r.State.AppendFacts(ctx, l.Fence, []events.Fact{fact}); err != nil {
		r.Log.Warn("store facts", "error", err)
	}
}

// lost begins a resource anew whose staged rows or snapshot are gone. A member of
// the stream can't be begun anew beside it, since the stream has passed its point:
// a new run follows on from where the stream is.
func (r *run) lost(ctx context.Context, f engine.Fence, name string, generation int, cause error) error {
	if r.resource(name).Read == engine.ReadCDC {
		return r.afresh(ctx, cause)
	}
	return r.reset(ctx, f, name, generation, cause)
}

// afresh makes an error that lets a new run follow on from where the stream is, with
// the initial rows of members that are not published read again: unless rows that
// they appended stand, which the new run would double (P21).
func (r *run) afresh(ctx context.Context, cause error) error {
	n, err := r.appendedRows(ctx, r.rec)
	if err != nil {
		return errors.Join(cause, err)
	}
	if n > 0 {
		return engine.Permanentf("empty the targets of the appended resources, reset them and run with --restart",
			"%w; a new run is needed, but %d initial rows are appended and stand", cause, n)
	}
	return fmt.Errorf("%w: %w", engine.ErrPlanVoid, cause)
}

// positionLost decides what a stream does that lost its place.
func (r *run) positionLost(ctx context.Context, cause error) error {
	if r.set.OnLost != engine.OnLostResync {
		return engine.Permanentf("set settings.changes.on_lost to resync to read all its tables again",
			"the change stream can't go on: %w", cause)
	}
	err := r.afresh(ctx, cause)
	if errors.Is(err, engine.ErrPlanVoid) {
		r.mu.Lock()
		r.resync = cause
		r.mu.Unlock()
	}
	return err
}
