package sim

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/memsink"
	"github.com/tranship-io/tranship/engine/enginetest/memsource"
)

// show lets the transaction that a table holds back become visible.
func (w *world) show(r *resource) {
	if r.held != nil {
		w.s.tell("source: what %s held back is seen in version %d", r.table, r.held.Commit())
		r.held = nil
	}
}

// change commits a transaction of several changes on a table, and now and then of
// another one too; it may be in the log for a while before anybody sees it (P16).
func (w *world) change(r *resource) {
	s := w.s
	if r.held != nil {
		w.show(r)
		return
	}
	tx, hold := w.src.Begin(), s.chance(2)
	w.changes(tx, r)
	for _, o := range w.res {
		// What a transaction holds back is locked.
		if o != r && o.read == engine.ReadCDC && o.held == nil && !hold && s.chance(3) {
			w.changes(tx, o)
		}
	}
	if hold {
		r.held = tx
	}
	w.s.tell("source: %s changes in the log at %d", r.table, tx.Log())
	if r.held == nil {
		w.s.tell("source: and is seen in version %d", tx.Commit())
	}
}

// changes adds some changes of a table to a transaction.
func (w *world) changes(tx *memsource.Tx, r *resource) {
	s := w.s
	rows := w.src.Rows(r.table, w.src.Version())
	if r.write == engine.WriteMerge && s.chance(60) {
		tx.Truncate(r.table)
		rows = nil
	}
	for range s.between(1, 4) {
		if len(rows) == 0 || s.chance(4) {
			w.insert(tx, r)
			continue
		}
		i := s.rng.IntN(len(rows))
		row := rows[i]
		rows = slices.Delete(rows, i, i+1)
		value := func() any { return fmt.Sprintf("%s-%d-%d", r.table, row.Ord, tx.Now()) }
		keep := s.chance(2) // the log leaves out a value that has not changed
		if keep {
			value = func() any { return row.Value(2) }
		}
		switch s.between(0, 6) {
		case 0:
			tx.Delete(r.table, row.Ord)
		case 6:
			if len(rows) == 0 {
				continue
			}
			// The key of a row that goes is another's from now on.
			i := s.rng.IntN(len(rows))
			tx.Delete(r.table, rows[i].Ord)
			if r.write == engine.WriteAppend {
				value = func() any { return fmt.Sprintf("%s-%d-%d", r.table, row.Ord, tx.Now()) }
			}
			tx.Move(r.table, row.Ord, rows[i].Ord, tx.Now(), value())
			rows = slices.Delete(rows, i, i+1)
		case 1:
			r.nextKey++
			if keep && (r.write == engine.WriteAppend || !s.chance(4)) {
				// Such a move can make a table be read again: not too often.
				value = func() any { return fmt.Sprintf("%s-%d-%d", r.table, row.Ord, tx.Now()) }
			}
			tx.Move(r.table, row.Ord, r.nextKey, tx.Now(), value())
			if s.chance(2) {
				// Another row takes the key that is free now.
				tx.Put(r.table, row.Ord, tx.Now(), fmt.Sprintf("%s-%d-again-%d", r.table, row.Ord, tx.Now()))
			}
		default:
			tx.Put(r.table, row.Ord, tx.Now(), value())
		}
	}
}

// streamed holds that the source is never told to forget what is not applied
// (invariant 3).
func (w *world) streamed() {
	db, ok := w.dst.(*memsink.DB)
	if !ok || !w.sc.stream || w.lost {
		return
	}
	if at := db.StreamAt(); len(at) > 0 && w.src.Confirmed() > memsource.Place(at) {
		w.violate("invariant 3: the log is acknowledged up to %d, the destination has it up to %d", w.src.Confirmed(), memsource.Place(at))
	}
}

// changed tells whether a table that is replicated by its changes is what the source
// was where its stream stands; a final one is where the source is now.
func (w *world) changed(r *resource, rows []memsink.Row, final bool) error {
	db, ok := w.dst.(*memsink.DB)
	if !ok {
		return nil
	}
	at := db.StreamAt()
	if !memsource.Whole(at) {
		return nil
	}
	if !final && !db.Published() {
		return nil // a later run is under way
	}
	place := memsource.Place(at)
	if final && place != w.src.LSN() {
		return fmt.Errorf("the stream stands at %d, the source at %d", place, w.src.LSN())
	}
	if r.write == engine.WriteAppend {
		rows = replay(rows)
	}
	want := w.src.StateAt(r.table, place)
	if err := once(rows); err != nil {
		return err
	}
	for _, row := range rows {
		if !bytes.Equal(want[row.Key], row.Wire) {
			return fmt.Errorf("at %d row %s is %q, want %q", place, rowNames([]memsink.Row{row}), row.Wire, want[row.Key])
		}
	}
	if len(rows) != len(want) {
		return fmt.Errorf("at %d there are %d rows, want %d", place, len(rows), len(want))
	}
	return nil
}

// replay makes the table of an appended log: rows that were read first, and then
// the changes in their order, with what was not sent taken from the row before.
func replay(log []memsink.Row) []memsink.Row {
	state := map[string]memsink.Row{}
	var changes []memsink.Row
	for _, row := range log {
		if row.Commit == "" {
			state[row.Key] = row
		} else {
			changes = append(changes, row)
		}
	}
	slices.SortStableFunc(changes, func(a, b memsink.Row) int {
		if a.Commit != b.Commit {
			if a.Commit < b.Commit {
				return -1
			}
			return 1
		}
		return int(a.Sequence - b.Sequence)
	})
	var moved memsink.Row
	for _, row := range changes {
		switch row.Op {
		case engine.OpTruncate:
			clear(state)
		case engine.OpDelete:
			moved = state[row.Key]
			delete(state, row.Key)
		case engine.OpMove:
			row.Wire = memsource.Fill(row.Wire, row.Unsent, moved.Wire, 3)
			state[row.Key] = row
		default:
			row.Wire = memsource.Fill(row.Wire, row.Unsent, state[row.Key].Wire, 3)
			state[row.Key] = row
		}
	}
	var out []memsink.Row
	for _, row := range state {
		out = append(out, row)
	}
	return out
}
