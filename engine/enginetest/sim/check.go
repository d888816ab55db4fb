package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/memrow"
	"github.com/tranship-io/tranship/engine/enginetest/memsink"
	"github.com/tranship-io/tranship/engine/enginetest/memsource"
	"github.com/tranship-io/tranship/engine/integrity"
)

// violate notes that something does not hold that must.
func (w *world) violate(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
}

func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.violations) > 0
}

func planKey(run, resource string, generation int) string {
	return fmt.Sprintf("%s/%s/%d", run, resource, generation)
}

// planned notes a frozen plan.
func (w *world) planned(run string, rp *engine.ResourcePlan) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.plans[planKey(run, rp.Selection.Resource, rp.Generation)] = rp
}

// committing is told by the destination of every commit before its rows are
// visible: whoever commits must own what it writes to (invariant 2).
func (w *world) committing(c memsink.Commit) {
	t := c.Target
	w.s.tell("  run %d (%s) writes %s to %s", t.Ordinal, t.RunID[len(t.RunID)-4:], rowNames(c.Rows), t.Resource)
	switch {
	case w.sc.objects:
		if c.HaveOrdinal > t.Ordinal {
			w.violate("invariant 2: run %d published %s over run %d", t.Ordinal, t.Resource, c.HaveOrdinal)
		}
	case c.HaveOrdinal != t.Ordinal || c.HaveRun != t.RunID:
		w.violate("invariant 2: run %d wrote %s epoch %d, which run %d owns", t.Ordinal, c.Split, c.Epoch, c.HaveOrdinal)
	case c.HaveClaim != c.Claim || c.HaveEpoch != c.Epoch-1:
		w.violate("invariant 2: claim %d wrote epoch %d of %s, whose ledger is at claim %d epoch %d", c.Claim, c.Epoch, c.Split, c.HaveClaim, c.HaveEpoch)
	}
	if !c.Publish {
		return
	}
	if t.Read == engine.ReadCDC {
		return
	}
	version := w.src.Version()
	w.mu.Lock()
	defer w.mu.Unlock()
	plan := w.plans[planKey(t.RunID, t.Resource, t.Generation)]
	if plan == nil {
		plan = c.Plan
	}
	w.published[t.Resource+"/"+t.RunID] = publication{plan: plan, from: memsource.PlannedAt(plan.Source), to: version}
}

// rightful tells whether a checkpoint's claim is the split's in State.
func (w *world) rightful(st engine.State, f engine.Fence, p engine.Progress) bool {
	splits, err := st.Splits(context.Background(), f.RunID)
	if err != nil {
		return false
	}
	for _, s := range splits {
		if s.ID == p.Split {
			return s.Claim == p.Claim
		}
	}
	return false
}

// checkpointed holds invariant 1: the destination has what the checkpoint says.
func (w *world) checkpointed(f engine.Fence, p engine.Progress) {
	if w.lost {
		return
	}
	switch db := w.dst.(type) {
	case *memsink.DB:
		if have, ok := db.Applied(f.RunID.String(), p.Split); ok && have < p.Epoch {
			w.violate("invariant 1: split %s is checkpointed at epoch %d, the destination has %d", p.Split, p.Epoch, have)
		}
	case *memsink.Objects:
		for _, a := range p.Artifacts {
			if !db.Has(a.Name) {
				w.violate("invariant 1: split %s epoch %d is checkpointed, its artifact is not there", p.Split, p.Epoch)
			}
		}
	}
}

// look is a reader: whatever it sees of a replaced target is the whole of one
// run's rows (invariant 8).
func (w *world) look() {
	w.streamed()
	for _, r := range w.res {
		if r.write != engine.WriteReplace {
			continue
		}
		rows, run := w.dst.Rows(r.table)
		if slices.ContainsFunc(rows, func(row memsink.Row) bool { return len(row.Wire) == 0 }) {
			w.violate("invariant 8: %s lists an object that is missing", r.table)
			continue
		}
		if run == "" {
			if len(rows) > 0 {
				w.violate("invariant 8: %s shows %d rows before any publish", r.table, len(rows))
			}
			continue
		}
		if err := w.whole(r, run, rows); err != nil {
			w.violate("invariant 8: %s after the publish of run %s: %v", r.table, run, err)
		}
	}
}

// whole tells whether rows are what a run had to bring of a full read.
func (w *world) whole(r *resource, run string, rows []memsink.Row) error {
	w.mu.Lock()
	pub, ok := w.published[r.table+"/"+run]
	w.mu.Unlock()
	if !ok {
		return fmt.Errorf("run %s has %d rows and was never published", run, len(rows))
	}
	if r.consistency == engine.ConsistencySnapshot {
		return w.between(r, rows, pub.from, pub.from)
	}
	return w.between(r, rows, pub.from, pub.to)
}

// between tells whether rows could be read by chunks while the source went from
// one version to another: a row that lived through is there once, in a state
// that it had; one that did not may be there (P12).
func (w *world) between(r *resource, rows []memsink.Row, from, to int64) error {
	was := map[string]int{}
	always := map[int64]int64{}
	for v := from; v <= to; v++ {
		for _, row := range w.src.Rows(r.table, v) {
			was[string(row.Wire)] = 1
			always[row.Ord]++
		}
	}
	seen := map[int64]bool{}
	for _, row := range rows {
		ord, _ := memrow.Int(memrow.Field(row.Wire, 0))
		if was[string(row.Wire)] == 0 {
			return fmt.Errorf("row %d was never so in versions %d to %d", ord, from, to)
		}
		if seen[ord] {
			return fmt.Errorf("row %d is doubled", ord)
		}
		seen[ord] = true
	}
	for ord, n := range always {
		if n == to-from+1 && !seen[ord] {
			return fmt.Errorf("row %d is lost: it lived in versions %d to %d", ord, from, to)
		}
	}
	return nil
}

// end checks the content of every target after a completed run; final: nothing
// is under way and nothing changed since; last: a run began and ended after that.
func (w *world) end(final, last bool) {
	if w.lost && !final {
		// What the destination lost after it was published, the next run finds.
		return
	}
	for _, r := range w.res {
		rows, _ := w.dst.Rows(r.table)
		var err error
		switch {
		case slices.ContainsFunc(rows, func(row memsink.Row) bool { return len(row.Wire) == 0 }):
			err = errors.New("a listed object is missing")
		case r.write == engine.WriteReplace:
		case r.read == engine.ReadCDC:
			err = w.changed(r, rows, final)
		case r.name == "append", r.name == "appendsnap":
			err = w.appended(r, rows, final)
		case r.write == engine.WriteDelete:
			if len(rows) > 0 {
				err = fmt.Errorf("%d rows are there of a source that deletes", len(rows))
			}
		case final:
			err = w.equal(r, rows)
		default:
			err = once(rows)
		}
		if err != nil {
			w.violate("invariant 4: content of %s: %v", r.table, err)
			w.s.note("  target %s", rowNames(rows))
		}
	}
	if st := w.dst.Staging(); last && len(st) > 0 {
		w.violate("staging is left: %q", st)
	}
}

// appended tells whether every run's rows are there once.
func (w *world) appended(r *resource, rows []memsink.Row, final bool) error {
	by := map[string][]memsink.Row{}
	for _, row := range rows {
		by[row.Run] = append(by[row.Run], row)
	}
	for run, part := range by {
		w.mu.Lock()
		_, ok := w.published[r.table+"/"+run]
		w.mu.Unlock()
		if !ok && !final {
			continue
		}
		if err := w.whole(r, run, part); err != nil {
			return fmt.Errorf("run %s: %w", run, err)
		}
	}
	return nil
}

// once tells whether no row is doubled and every row was the source's once.
func once(rows []memsink.Row) error {
	seen := map[string]bool{}
	for _, row := range rows {
		if seen[row.Key] {
			ord, _ := memrow.Int(memrow.Field(row.Wire, 0))
			return fmt.Errorf("row %d is doubled", ord)
		}
		seen[row.Key] = true
	}
	return nil
}

// equal tells whether the target is what the source is, but for rows without a cursor.
func (w *world) equal(r *resource, rows []memsink.Row) error {
	if err := once(rows); err != nil {
		return err
	}
	have := map[string]string{}
	for _, row := range rows {
		have[row.Key] = string(row.Wire)
	}
	for _, row := range w.src.Rows(r.table, w.src.Version()) {
		if _, ok := memrow.Int(memrow.Field(row.Wire, 1)); !ok {
			continue
		}
		switch got, ok := have[row.Key]; {
		case !ok:
			return fmt.Errorf("row %d is lost", row.Ord)
		case got != string(row.Wire):
			return fmt.Errorf("row %d is an old one", row.Ord)
		}
		delete(have, row.Key)
	}
	if len(have) > 0 {
		return fmt.Errorf("%d rows are there that the source has not", len(have))
	}
	return nil
}

// receipt checks what a completed run says of itself (invariant 7, P6).
func (w *world) receipt(p *proc) {
	rc := p.res.Receipt
	if rc == nil {
		w.violate("p%d completed a run without a receipt", p.id)
		return
	}
	if _, err := json.Marshal(rc); err != nil {
		w.violate("receipt: %v", err)
	}
	for _, rr := range rc.Resources {
		if rr.State != "published" || rr.RowsRead != rr.RowsWritten+rr.RowsSuperseded+rr.RowsSkipped+rr.RowsSetAside {
			w.violate("invariant 7: receipt of %s: %+v", rr.Resource, rr)
		}
		i := slices.IndexFunc(w.res, func(r *resource) bool { return r.table == rr.Resource })
		if r := w.res[i]; r.read != engine.ReadFull || r.write == engine.WriteDelete || w.lost {
			continue
		}
		rows, _ := w.dst.Rows(rr.Resource)
		var n int64
		var d integrity.Digest
		for _, row := range rows {
			if row.Run == rc.RunID {
				n++
				d.AddRow(row.Wire)
			}
		}
		// Another run may have replaced them since.
		if n > 0 && (n != rr.RowsWritten || d != rr.SourceDigest) {
			w.violate("invariant 7: receipt of %s says %d rows with %s, the target has %d with %s", rr.Resource, rr.RowsWritten, rr.SourceDigest, n, d)
		}
	}
}

// rowNames lists rows by key and cursor for the trace.
func rowNames(rows []memsink.Row) string {
	out := make([]string, len(rows))
	for i, row := range rows {
		if len(row.Wire) == 0 {
			out[i] = "missing"
			continue
		}
		id, _ := memrow.Int(memrow.Field(row.Wire, 0))
		u, _ := memrow.Int(memrow.Field(row.Wire, 1))
		out[i] = fmt.Sprintf("%d:%d", id, u)
	}
	return "[" + strings.Join(out, " ") + "]"
}
