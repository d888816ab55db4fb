package memsink

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/gate"
)

// BeginRun implements [engine.Fencer].
func (s *Session) BeginRun(ctx context.Context, targets []*engine.Target) error {
	for _, t := range targets {
		if err := s.beginTarget(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) beginTarget(ctx context.Context, t *engine.Target) error {
	db, key, queued := s.db, keyOf(t), false
	defer func() {
		if queued {
			db.mu.Lock()
			db.waiting[key]--
			db.wake()
			db.mu.Unlock()
		}
	}()
	return s.locking(ctx, gate.Call{Op: "sink.begin_run", Subject: t.Resource}, func() (bool, error) {
		if err := s.alive(nil); err != nil {
			return false, err
		}
		have, ok := db.fences[key]
		if ok && (have.ordinal > t.Ordinal || have.ordinal == t.Ordinal && have.run != t.RunID) {
			return false, &engine.StaleError{What: "ordinal", Subject: t.Resource, Ours: t.Ordinal, Have: have.ordinal}
		}
		if ok && have.ordinal == t.Ordinal {
			return false, nil
		}
		if ok && have.run != t.RunID && !db.opt.Broken.NoStandingCheck && db.standing(key, have.run) {
			return false, fmt.Errorf("begin run %s of %s: run %s: %w", t.RunID, t.Resource, have.run, engine.ErrUnfinished)
		}
		if db.terminate(func(x *txn) bool { return x.fence == key && x.target.Ordinal < t.Ordinal }) {
			if !queued {
				queued = true
				db.waiting[key]++
			}
			return true, nil
		}
		have.ordinal, have.run = t.Ordinal, t.RunID
		db.fences[key] = have
		db.dropOthers(key, t.RunID)
		return false, nil
	})
}

// standing tells whether a run has appended rows to the live table without
// being published (P21).
func (db *DB) standing(key fenceKey, run string) bool {
	plan := db.plans[planKey{fence: key, run: run}]
	if plan == nil || plan.Write != engine.WriteAppend || plan.Target.Staged {
		return false
	}
	if db.ledger[ledgerKey{fence: key, run: run, split: engine.PublishSplit(key.resource)}].Done {
		return false
	}
	for k, r := range db.ledger {
		if k.fence == key && k.run == run && r.Totals.Applied > 0 {
			return true
		}
	}
	return false
}

// dropOthers drops what other runs staged: those that are superseded, and those
// that have prepared and do not own the fence (they begin the resource anew), also
// of an installation that was lost before it began.
// Ledger rows stay for two runs, as evidence; they can't be written any more.
func (db *DB) dropOthers(key fenceKey, run string) {
	maps.DeleteFunc(db.tables, func(_ string, t table) bool {
		_, began := db.fences[t.fence]
		return t.staging && t.run != run && (t.fence == key || !began && t.fence.resource == key.resource)
	})
	for name := range db.deltas {
		if _, ok := db.tables[name]; !ok {
			delete(db.deltas, name)
		}
	}
	keep := 0
	older := map[string]int64{}
	for k := range db.plans {
		if k.fence == key && k.run != run {
			older[k.run] = db.plans[k].Target.Ordinal
		}
	}
	runs := slices.Collect(maps.Keys(older))
	slices.SortFunc(runs, func(a, b string) int { return int(older[b] - older[a]) })
	for _, r := range runs {
		if keep++; keep <= 2 {
			continue
		}
		delete(db.plans, planKey{fence: key, run: r})
		maps.DeleteFunc(db.ledger, func(k ledgerKey, _ ledgerRow) bool { return k.fence == key && k.run == r })
	}
}

// Freeze implements [engine.Fencer].
func (s *Session) Freeze(ctx context.Context, t *engine.Target, plan *engine.ResourcePlan) error {
	return s.locking(ctx, gate.Call{Op: "sink.freeze", Subject: t.Resource}, func() (bool, error) {
		if err := s.alive(nil); err != nil {
			return false, err
		}
		return s.db.freeze(t, plan)
	})
}

func (db *DB) freeze(t *engine.Target, plan *engine.ResourcePlan) (blocked bool, err error) {
	if err := db.owns(t); err != nil {
		return false, err
	}
	id := engine.PublishSplit(t.Resource)
	publish, frozen := db.ledger[rowOf(t, id)]
	if frozen && publish.Done {
		return false, nil
	}
	if have := db.fences[keyOf(t)].cursor; follows(plan, frozen) && !bytes.Equal(have, plan.From) && !db.opt.Broken.NoCursorCheck {
		return false, fmt.Errorf("freeze %s: the destination is at %s, the plan starts at %s: %w", t.Resource, have, plan.From, engine.ErrPlanVoid)
	}
	if frozen && publish.generation == t.Generation && db.same(t, plan) {
		if db.lost(t, publish) {
			return false, fmt.Errorf("freeze %s: %w", t.Resource, engine.ErrStagingLost)
		}
		return false, nil
	}
	if frozen && publish.generation >= t.Generation && db.worked(t) {
		// Somebody works on the frozen plan: this caller does not own the run any more.
		return false, &engine.StaleError{What: "generation", Subject: t.Resource, Ours: int64(t.Generation), Have: int64(publish.generation)}
	}
	// Rows that an epoch holds are not deleted under it.
	if db.terminate(func(x *txn) bool { return x.fence == keyOf(t) && x.target.RunID == t.RunID }) {
		return true, nil
	}
	maps.DeleteFunc(db.ledger, func(k ledgerKey, _ ledgerRow) bool { return k.fence == keyOf(t) && k.run == t.RunID })
	db.plans[planKey{fence: keyOf(t), run: t.RunID}] = plan
	if plan.Read == engine.ReadCDC && len(plan.Source.Splits) > 0 && plan.Stream == nil && !db.opt.Broken.KeepCursor {
		// From now on its changes are kept apart: the rows that are there stand no more.
		f := db.fences[keyOf(t)]
		f.cursor = nil
		db.fences[keyOf(t)] = f
	}
	for _, sp := range plan.Source.Splits {
		db.ledger[rowOf(t, sp.ID)] = ledgerRow{LedgerEntry: engine.LedgerEntry{Split: sp.ID, Descriptor: sp.Descriptor},
			unlogged: t.Staged && db.opt.Unlogged, generation: t.Generation}
	}
	db.ledger[rowOf(t, id)] = ledgerRow{LedgerEntry: engine.LedgerEntry{Split: id}, generation: t.Generation, splits: len(plan.Source.Splits)}
	return false, nil
}

// follows tells whether a plan must start at the stored cursor; a stream's moves with
// its epochs once its plan is frozen.
func follows(plan *engine.ResourcePlan, frozen bool) bool {
	return plan.Read == engine.ReadIncremental || plan.Read == engine.ReadCDC && !frozen
}

// worked tells whether a split of the run's frozen plan was ever claimed.
func (db *DB) worked(t *engine.Target) bool {
	for k, r := range db.ledger {
		if k.fence == keyOf(t) && k.run == t.RunID && r.Claim > 0 {
			return true
		}
	}
	return false
}

// same tells whether the frozen plan has the same splits as this one.
func (db *DB) same(t *engine.Target, plan *engine.ResourcePlan) bool {
	have := db.plans[planKey{fence: keyOf(t), run: t.RunID}]
	return have != nil && slices.EqualFunc(have.Source.Splits, plan.Source.Splits, func(a, b engine.Split) bool {
		return a.ID == b.ID && bytes.Equal(a.Descriptor, b.Descriptor)
	})
}

// owns tells whether the target's run still holds its fence.
func (db *DB) owns(t *engine.Target) error {
	f := db.fences[keyOf(t)]
	if f.ordinal != t.Ordinal || f.run != t.RunID {
		return &engine.StaleError{What: "ordinal", Subject: t.Resource, Ours: t.Ordinal, Have: f.ordinal}
	}
	return nil
}

// Claim implements [engine.Fencer].
func (s *Session) Claim(ctx context.Context, t *engine.Target, split string, claim int64) (*engine.LedgerEntry, error) {
	var out engine.LedgerEntry
	err := s.locking(ctx, gate.Call{Op: "sink.claim", Subject: fmt.Sprintf("%s@%d", split, claim)}, func() (bool, error) {
		db, key := s.db, rowOf(t, split)
		if err := s.alive(nil); err != nil {
			return false, err
		}
		if err := db.owns(t); err != nil {
			return false, err
		}
		row, ok := db.ledger[key]
		if !ok && !t.Staged {
			return false, fmt.Errorf("claim %s: its ledger row is gone: %w", split, engine.ErrLedgerBehind)
		}
		if !ok {
			return false, fmt.Errorf("claim %s: its ledger row is gone: %w", split, engine.ErrStagingLost)
		}
		if row.Claim > claim || row.Claim == claim && row.owner != s.id {
			return false, &engine.StaleError{What: "claim", Subject: split, Ours: claim, Have: row.Claim}
		}
		if db.terminate(func(x *txn) bool { return x.row == key && x.claim < claim }) {
			return true, nil
		}
		if t.Staged && !row.Done {
			if _, ok := db.tables[stagingName(t)]; !ok {
				return false, fmt.Errorf("claim %s: %w", split, engine.ErrStagingLost)
			}
		}
		row.Claim, row.owner = claim, s.id
		db.ledger[key] = row
		out = row.LedgerEntry
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// Adopt implements [engine.Adopter].
func (s *Session) Adopt(ctx context.Context, r engine.Route) ([]engine.Adoption, error) {
	var out []engine.Adoption
	err := s.do(ctx, "sink.adopt", r.Pipeline, func() error {
		db := s.db
		at := map[string]int{}
		keys := slices.SortedFunc(maps.Keys(db.fences), func(a, b fenceKey) int {
			return bytes.Compare([]byte(a.route.Installation+" "+a.resource), []byte(b.route.Installation+" "+b.resource))
		})
		for _, k := range keys {
			f := db.fences[k]
			if k.route.Pipeline != r.Pipeline || k.route.Source != r.Source || k.route.Sink != r.Sink {
				continue
			}
			i, ok := at[k.route.Installation]
			if !ok {
				i = len(out)
				at[k.route.Installation] = i
				out = append(out, engine.Adoption{Installation: k.route.Installation})
			}
			if a := &out[i]; f.ordinal > a.Ordinal {
				a.Ordinal, a.RunID = f.ordinal, f.run
			}
			out[i].Resources = append(out[i].Resources, db.adopted(k, f))
		}
		return nil
	})
	return out, err
}

func (db *DB) adopted(k fenceKey, f fence) engine.AdoptedResource {
	a := engine.AdoptedResource{Resource: k.resource, Cursor: f.cursor, RunID: f.run, Ordinal: f.ordinal,
		Plan: db.plans[planKey{fence: k, run: f.run}]}
	for lk, row := range db.ledger {
		if lk.fence != k || lk.run != f.run {
			continue
		}
		a.Ledger = append(a.Ledger, row.LedgerEntry)
		if lk.split == engine.PublishSplit(k.resource) {
			a.Published = row.Done
		}
	}
	slices.SortFunc(a.Ledger, func(x, y engine.LedgerEntry) int { return bytes.Compare([]byte(x.Split), []byte(y.Split)) })
	return a
}
