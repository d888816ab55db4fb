package runner

import (
	"context"
	"errors"
	"fmt"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// split works on a claimed split until it is done (nil), the boundary is
// reached (errBoundary), or something fails. sp is kept at the checkpoint.
func (r *run) split(ctx context.Context, l engine.Lease, sp *engine.ClaimedSplit, b *bounds) error {
	rp := r.resource(sp.Resource)
	if rp == nil || rp.Generation != sp.Generation {
		return &engine.StaleError{What: "claim", Subject: sp.ID, Ours: sp.Claim}
	}
	if err := r.raise(ctx, l, sp, rp); err != nil {
		return err
	}
	switch {
	case sp.Kind == engine.SplitPublish:
		return r.publish(ctx, l, sp, rp)
	case rp.Stream != nil:
		return r.pass(ctx, l, sp, rp, b)
	}
	return r.read(ctx, l, sp, rp, b)
}

// raise tells the facts of a claim, raises it at the destination, and then asks
// the ledger how far the split is applied (P1, P3).
func (r *run) raise(ctx context.Context, l engine.Lease, sp *engine.ClaimedSplit, rp *engine.ResourcePlan) error {
	var facts []events.Fact
	r.mu.Lock()
	if !r.started[sp.Resource] {
		r.started[sp.Resource] = true
		facts = append(facts, r.fact(events.ResourceStarted{Resource: sp.Resource}))
	}
	r.mu.Unlock()
	facts = append(facts, r.fact(events.SplitClaimed{Resource: sp.Resource, Split: sp.ID, Slot: l.Slot, Claim: sp.Claim}))
	if err := r.State.AppendFacts(ctx, l.Fence, facts); err != nil {
		return fmt.Errorf("store facts: %w", err)
	}
	if r.fencer == nil {
		return nil
	}
	for range 10 {
		entry, err := r.fencer.Claim(ctx, rp.Target, sp.ID, sp.Claim)
		var stale *engine.StaleError
		if errors.As(err, &stale) && stale.What == "claim" {
			// The number is still ours in State: then State was restored (P1).
			claim, raiseErr := r.State.RaiseClaim(ctx, l.Fence, sp.ID, stale.Have)
			if raiseErr != nil {
				return raiseErr
			}
			sp.Claim = claim
			continue
		}
		if err != nil {
			return err
		}
		if sp.Kind == engine.SplitRead && !engine.SameJSON(entry.Descriptor, splitOf(rp, sp.ID).Descriptor) {
			return fmt.Errorf("split %s is another piece in the plan that the destination has frozen: %w", sp.ID, engine.ErrPlanVoid)
		}
		return r.reconcile(ctx, l, sp, rp, entry)
	}
	return engine.Retryablef("split %s is claimed over and over by somebody else", sp.ID)
}

// reconcile makes State agree with the ledger, which alone says what is applied (P3).
func (r *run) reconcile(ctx context.Context, l engine.Lease, sp *engine.ClaimedSplit, rp *engine.ResourcePlan, e *engine.LedgerEntry) error {
	if e.Epoch == sp.Epoch {
		if e.Done && sp.Kind == engine.SplitRead {
			// Only a checkpoint that was never stored can make this differ.
			return engine.Bugf("split %s: the ledger says done at epoch %d, State does not", sp.ID, e.Epoch)
		}
		return nil
	}
	if sp.Kind == engine.SplitPublish {
		// The sink finds its own publish row and answers with its receipt (P8).
		return nil
	}
	action := "adopted"
	if e.Epoch < sp.Epoch {
		action = "rewound"
		if rp.Target.Staged {
			return fmt.Errorf("split %s: State is at epoch %d, the destination at %d: %w", sp.ID, sp.Epoch, e.Epoch, engine.ErrStagingLost)
		}
	}
	fact := r.fact(events.LedgerReconciled{Resource: sp.Resource, Split: sp.ID, Action: action, LedgerEpoch: e.Epoch, CheckpointEpoch: sp.Epoch})
	r.Log.Info("the destination's ledger decides", "split", sp.ID, "action", action, "ledger", e.Epoch, "checkpoint", sp.Epoch)
	return r.store(ctx, l, sp, engine.Progress{Epoch: e.Epoch, Position: e.Position, Done: e.Done, Totals: e.Totals, Facts: []events.Fact{fact}})
}

// store commits progress to State and moves sp to it.
func (r *run) store(ctx context.Context, l engine.Lease, sp *engine.ClaimedSplit, p engine.Progress) error {
	p.Split, p.Claim = sp.ID, sp.Claim
	p.Facts = append(p.Facts, r.fact(events.CheckpointSaved{Resource: sp.Resource, Split: sp.ID, Claim: sp.Claim, Epoch: p.Epoch}))
	if p.Done {
		p.Facts = append(p.Facts, r.fact(events.SplitFinished{Resource: sp.Resource, Split: sp.ID, Claim: sp.Claim, Counts: counts(p.Totals)}))
	}
	if err := r.State.Commit(ctx, l.Fence, p); err != nil {
		return fmt.Errorf("checkpoint split %s: %w", sp.ID, err)
	}
	pr := r.Progress.resource(sp.Resource)
	pr.Applied.Add(p.Totals.Applied - sp.Totals.Applied)
	if p.Done {
		pr.SplitsDone.Add(1)
	}
	sp.Epoch, sp.Position, sp.Totals = p.Epoch, p.Position, p.Totals
	if p.Done {
		return errSplitFinished
	}
	return nil
}

// errSplitFinished ends the work on a split that is done.
var errSplitFinished = errors.New("split finished")

func counts(t engine.Totals) events.Counts {
	return events.Counts{Read: t.Read, Applied: t.Applied, Superseded: t.Superseded, Skipped: t.Skipped, SetAside: t.SetAside, Bytes: t.Bytes}
}

// read reads a split and applies it epoch by epoch.
func (r *run) read(ctx context.Context, l engine.Lease, sp *engine.ClaimedSplit, rp *engine.ResourcePlan, b *bounds) error {
	req := engine.ReadRequest{
		Split: splitOf(rp, sp.ID), Claim: sp.Claim, Plan: rp.Source, Selection: rp.Selection, From: sp.Position,
		Wire: rp.Target.Wire, BatchBytes: r.set.batchBytes(rp.Target), Remember: rp.Target.RememberWindow,
		AsText: asText(rp.Target),
	}
	if rp.Target.RememberWindow && rp.Source.Window != nil {
		c, err := r.cursorOf(ctx, sp.Resource)
		if err != nil {
			return err
		}
		req.Skip = make(map[engine.RowID]struct{}, len(c.Seen))
		for _, id := range c.Seen {
			req.Skip[id] = struct{}{}
		}
	}
	rd := startRead(ctx, r.src, req, r.feed(sp, rp, b), nil)
	defer rd.close()
	return r.epochs(ctx, l, sp, rp, rd, b)
}

func (r *run) feed(sp *engine.ClaimedSplit, rp *engine.ResourcePlan, b *bounds) *feed {
	return &feed{budget: newBudget(r.set.splitBudget(rp.Target)), bounds: b, items: make(chan item, 64), progress: r.Progress.resource(sp.Resource),
		epochBytes: r.set.epochBytes(rp.Target), epochTime: r.set.EpochTime}
}

// epochs applies what a read hands over, epoch by epoch.
func (r *run) epochs(ctx context.Context, l engine.Lease, sp *engine.ClaimedSplit, rp *engine.ResourcePlan, rd *reader, b *bounds) error {
	for {
		first, more, err := rd.begin(ctx)
		if err != nil {
			return err
		}
		if !more {
			return errBoundary
		}
		if first.end != nil && !first.end.done && (!first.end.keep || engine.SameJSON(first.end.pos, sp.Position)) {
			rd.last = first.end.last
			continue
		}
		if err := r.apply(ctx, l, sp, rp, rd, first); err != nil {
			return err
		}
		if b.late() {
			return errBoundary
		}
	}
}

func splitOf(rp *engine.ResourcePlan, id string) engine.Split {
	for _, s := range rp.Source.Splits {
		if s.ID == id {
			return s
		}
	}
	return engine.Split{ID: id, Resource: rp.Selection.Resource}
}

// apply applies one epoch and stores its checkpoint: the destination first, then
// State, never the other way round (invariant 1).
func (r *run) apply(ctx context.Context, l engine.Lease, sp *engine.ClaimedSplit, rp *engine.ResourcePlan, rd *reader, first item) error {
	e := rd.epoch(first)
	e.Targets = map[string]*engine.Target{sp.Resource: rp.Target}
	if rp.Stream != nil {
		e.Targets, e.Stream = r.memberTargets(rp.Stream), rp.Target
	}
	e.Split, e.Claim, e.Number = sp.ID, sp.Claim, sp.Epoch+1
	rc, err := r.sink.Apply(ctx, e)
	if err != nil {
		return err
	}
	end := e.End()
	if err := checkReceipt(sp.Resource, sp.ID, end, rc); err != nil {
		return err
	}
	if err := r.setAside(rp, sp, e.Number, rc); err != nil {
		return err
	}
	t := sp.Totals
	step := engine.Totals{Read: end.Rows + end.Skipped, Applied: rc.Applied, Superseded: rc.Superseded, Skipped: rc.Skipped + end.Skipped,
		SetAside: rc.SetAside, Bytes: end.Bytes, Digest: end.Digest, ReadBack: rc.ReadBack, Policies: rc.Policies}
	step.AddPolicies(end.Policies)
	step.Members = memberSteps(end, rc)
	t.Policies = append([]engine.PolicyCount(nil), t.Policies...)
	t.Add(step)
	fact := r.fact(events.EpochCommitted{Resource: sp.Resource, Split: sp.ID, Claim: sp.Claim, Epoch: e.Number,
		Counts: counts(step), Digest: end.Digest.String(), SourceCRC: end.CRC, SinkCRC: rc.CRC})
	facts := []events.Fact{fact}
	if rc.SetAside > 0 {
		facts = append(facts, r.setAsideFacts(sp, rp, rc)...)
	}
	err = r.store(ctx, l, sp, engine.Progress{Epoch: e.Number, Position: end.Position, Done: end.Done, Totals: t,
		Artifacts: rc.Artifacts, Seen: rd.seen, Facts: facts})
	if rp.Stream != nil && (err == nil || errors.Is(err, errSplitFinished)) {
		r.acknowledge(ctx, l, sp, rp)
	}
	return err
}
