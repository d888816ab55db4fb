package runner

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tranship-io/tranship/engine"
)

// working tells whether the destination knows claims of this very run: its plan
// was saved in a State that this one is an older copy of (P1).
func (r *run) working() bool {
	if r.known == nil || r.fencer == nil {
		return false
	}
	for _, ar := range r.known.Resources {
		for _, e := range ar.Ledger {
			if ar.RunID == r.rec.ID.String() && e.Claim > 0 {
				return true
			}
		}
	}
	return false
}

// checkLedger tells whether splits that State has as done are so at the
// destination, where their rows can't be brought again by beginning anew, and
// whether both speak of the same plan (P3).
func (r *run) checkLedger(plan *engine.RunPlan, splits []engine.SplitStatus) error {
	for _, rp := range plan.Resources {
		// State, set back, has an older plan than the destination works on.
		ar := r.knownResource(rp.Selection.Resource)
		if r.fencer == nil || ar == nil || ar.RunID != r.rec.ID.String() || ar.Plan == nil {
			continue
		}
		have := ar.Plan.Generation
		if ar.Published && have != rp.Generation || have > rp.Generation || have == rp.Generation && r.working() && !sameSplits(ar.Plan, rp) {
			return fmt.Errorf("resource %s: the destination works on another plan (%d) than State has (%d): %w", rp.Selection.Resource, have, rp.Generation, engine.ErrLedgerBehind)
		}
	}
	for _, s := range splits {
		rp, ar := plan.Resource(s.Resource), r.knownResource(s.Resource)
		if !s.Done || s.Kind != engine.SplitRead || rp.Target.Staged || ar == nil || ar.RunID != r.rec.ID.String() || ar.Published {
			continue
		}
		for _, e := range ar.Ledger {
			if e.Split == s.ID && !e.Done {
				return fmt.Errorf("split %s: %w", s.ID, engine.ErrLedgerBehind)
			}
		}
	}
	return nil
}

// checkFrom tells whether a frozen plan still follows on what the destination
// has: no later run owns the target, and an incremental plan starts where the
// target is. If it was set back to before the run began, rows that an earlier run
// had brought are missing, and the plan would leave them out (P3).
func (r *run) checkFrom(rp *engine.ResourcePlan) error {
	ar := r.knownResource(rp.Selection.Resource)
	if r.fencer != nil && ar != nil && ar.RunID != r.rec.ID.String() && ar.Ordinal > rp.Target.Ordinal {
		// Knowledge was old when the run was adopted: a later one has begun (P21).
		return fmt.Errorf("resource %s belongs to run %s by now: %w", rp.Selection.Resource, ar.RunID, engine.ErrPlanVoid)
	}
	if _, ok := r.sink.(engine.Adopter); !ok || rp.Read == engine.ReadFull {
		return nil
	}
	var have json.RawMessage
	if ar != nil {
		own := ar.RunID == r.rec.ID.String()
		if own && (ar.Published || rp.Read == engine.ReadCDC && ar.Plan != nil) {
			// A stream's cursor moves with its epochs, the ledger tells where it is; a
			// member's is gone once its rows are read again.
			return nil
		}
		have = ar.Cursor
	}
	if engine.SameJSON(have, rp.From) {
		return nil
	}
	return fmt.Errorf("resource %s follows on cursor %s, the destination is at %s: %w", rp.Selection.Resource, cmp.Or(string(rp.From), "none"), cmp.Or(string(have), "none"), engine.ErrPlanVoid)
}

// checkStream tells whether a plan has the change stream and all its members: one
// that was taken from a destination, where it was being frozen, may lack some.
func checkStream(plan *engine.RunPlan) error {
	stream := plan.Resource(engine.StreamResource)
	for _, rp := range plan.Resources {
		if rp.Read == engine.ReadCDC && stream == nil {
			return fmt.Errorf("resource %s has no change stream: %w", rp.Selection.Resource, engine.ErrPlanVoid)
		}
	}
	if stream == nil {
		return nil
	}
	for _, name := range stream.Stream.Members {
		if plan.Resource(name) == nil {
			return fmt.Errorf("the change stream's member %s has no plan: %w", name, engine.ErrPlanVoid)
		}
	}
	return nil
}

// sameSplits tells whether two plans of a resource are cut alike.
func sameSplits(a, b *engine.ResourcePlan) bool {
	return slices.EqualFunc(a.Source.Splits, b.Source.Splits, func(x, y engine.Split) bool {
		return x.ID == y.ID && engine.SameJSON(x.Descriptor, y.Descriptor)
	})
}

func (r *run) knownResource(name string) *engine.AdoptedResource {
	if r.known == nil {
		return nil
	}
	for i := range r.known.Resources {
		if r.known.Resources[i].Resource == name {
			return &r.known.Resources[i]
		}
	}
	return nil
}
