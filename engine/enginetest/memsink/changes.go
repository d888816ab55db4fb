package memsink

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/memrow"
)

var _ engine.ChangeSink = (*Session)(nil)

// change is a row of a change stream's batch.
type change struct {
	resource string
	op       engine.Op
	wire     []byte
	key      string
	unsent   uint64
	commit   string
	sequence int64
}

// delta is what the changes make of a member's keys while its rows are staged.
type delta struct {
	rows map[string]deltaRow
	// truncated: what is staged can't be told from what is gone.
	truncated bool
}

// deltaRow is a key's state after its changes. Fields of unsent bits are not known:
// they are those of the staged row, but for a row that was moved here, whose staged
// row may be another's.
type deltaRow struct {
	wire   []byte
	unsent uint64
	gone   bool
	moved  bool
}

// PlanStream implements [engine.ChangeSink].
func (s *Session) PlanStream(_ context.Context, req engine.StreamTargetRequest) (*engine.Target, error) {
	return &engine.Target{Route: req.Route, RunID: req.RunID, Ordinal: req.Ordinal, Resource: engine.StreamResource,
		Name: engine.StreamResource, Read: engine.ReadCDC, Technique: "apply changes"}, nil
}

// commitChanges is the commit of a stream's epoch: the changes of members that are
// published go into their tables, those of others into their deltas.
func (db *DB) commitChanges(x *txn, e *engine.Epoch, end engine.EpochEnd, in *intake, rc *engine.Receipt) error {
	rc.Members = map[string]engine.Totals{}
	by := map[string][]change{}
	var order []string
	for _, c := range in.changes {
		if _, ok := by[c.resource]; !ok {
			order = append(order, c.resource)
		}
		by[c.resource] = append(by[c.resource], c)
	}
	for _, name := range order {
		t := e.Targets[name]
		if err := db.owns(t); err != nil && !db.opt.Broken.NoOrdinalCheck {
			return err
		}
		n := int64(len(by[name]))
		switch published := db.ledger[rowOf(t, engine.PublishSplit(name))].Done; {
		case t.Write == engine.WriteAppend:
			db.appendChanges(t, by[name])
		case t.Staged && !published:
			d := db.deltas[stagingName(t)]
			d.rows = maps.Clone(d.rows)
			d.take(by[name], len(t.Schema.Fields))
			db.deltas[stagingName(t)] = d
		default:
			db.applyChanges(t, by[name])
		}
		rc.Members[name] = engine.Totals{Applied: n}
		rc.Applied += n
	}
	db.observe(x, e.Number, false, nil)
	row := db.ledger[x.row]
	row.Epoch, row.Position, row.Done = e.Number, end.Position, end.Done
	step := engine.Totals{Read: end.Rows + end.Skipped, Applied: rc.Applied, Skipped: end.Skipped, Bytes: end.Bytes, Digest: end.Digest,
		Members: map[string]engine.Totals{}}
	for name, t := range end.Members {
		t.Add(rc.Members[name])
		step.Members[name] = t
	}
	row.Totals.Add(step)
	db.ledger[x.row] = row
	f := db.fences[x.fence]
	f.cursor = end.Position
	db.fences[x.fence] = f
	db.end(x)
	return nil
}

func (db *DB) appendChanges(t *engine.Target, changes []change) {
	tab := db.tables[t.Name]
	tab.rows = slices.Clone(tab.rows)
	for _, c := range changes {
		tab.rows = append(tab.rows, Row{Wire: c.wire, Key: c.key, Run: t.RunID, Op: c.op, Commit: c.commit, Sequence: c.sequence, Unsent: c.unsent})
	}
	db.tables[t.Name] = tab
	db.version++
}

// applyChanges changes the live table, one change after another.
func (db *DB) applyChanges(t *engine.Target, changes []change) {
	tab := db.tables[t.Name]
	rows := slices.Clone(tab.rows)
	find := func(key string) int { return slices.IndexFunc(rows, func(r Row) bool { return r.Key == key }) }
	var moved []byte
	for _, c := range changes {
		i := find(c.key)
		var old []byte
		if i >= 0 {
			old = rows[i].Wire
			rows = slices.Delete(rows, i, i+1)
		}
		switch c.op {
		case engine.OpTruncate:
			rows = nil
		case engine.OpDelete:
			moved = old
		case engine.OpMove:
			rows = append(rows, Row{Wire: fill(c.wire, c.unsent, moved, len(t.Schema.Fields)), Key: c.key, Run: t.RunID})
		default:
			rows = append(rows, Row{Wire: fill(c.wire, c.unsent, old, len(t.Schema.Fields)), Key: c.key, Run: t.RunID})
		}
	}
	tab.rows = rows
	db.tables[t.Name] = tab
	db.version++
}

// take collapses changes into the delta.
func (d *delta) take(changes []change, fields int) {
	if d.rows == nil {
		d.rows = map[string]deltaRow{}
	}
	var moved deltaRow
	for _, c := range changes {
		old, had := d.rows[c.key]
		if !had {
			old = deltaRow{unsent: ^uint64(0)}
		}
		row := deltaRow{wire: c.wire, unsent: c.unsent}
		switch c.op {
		case engine.OpTruncate:
			clear(d.rows)
			d.truncated = true
			continue
		case engine.OpDelete:
			// The second half of a move may need what the first half removes.
			moved, row = old, deltaRow{wire: c.wire, gone: true}
		case engine.OpMove:
			row.wire, row.unsent = fill(c.wire, c.unsent&^moved.unsent, moved.wire, fields), c.unsent&moved.unsent
			row.moved = row.unsent != 0
		case engine.OpUpdate:
			row.wire, row.unsent = fill(c.wire, c.unsent&^old.unsent, old.wire, fields), c.unsent&old.unsent
			row.moved = old.moved && row.unsent != 0
		}
		d.rows[c.key] = row
	}
}

// merged are a member's rows: those that were staged, and what the changes made of them.
func (db *DB) merged(t *engine.Target, d delta) ([]Row, error) {
	staged := map[string]Row{}
	for _, r := range db.tables[stagingName(t)].rows {
		staged[r.Key] = r
	}
	if d.truncated {
		return nil, fmt.Errorf("publish %s: the table was truncated while it was read: %w", t.Resource, engine.ErrStagingLost)
	}
	for key, row := range d.rows {
		have, ok := staged[key]
		delete(staged, key)
		if row.gone {
			continue
		}
		if row.unsent != 0 {
			if !ok || row.moved && !db.opt.Broken.FillMoved {
				return nil, fmt.Errorf("publish %s: a row's columns are not known: %w", t.Resource, engine.ErrStagingLost)
			}
			row.wire = fill(row.wire, row.unsent, have.Wire, len(t.Schema.Fields))
		}
		staged[key] = Row{Wire: row.wire, Key: key, Run: t.RunID}
	}
	rows := slices.Collect(maps.Values(staged))
	return SortRows(rows), nil
}

// fill completes a row's unsent fields from another row; nil leaves it as it is.
func fill(wire []byte, unsent uint64, from []byte, fields int) []byte {
	if unsent == 0 || from == nil {
		return wire
	}
	var out []byte
	for i := range fields {
		if unsent&(1<<i) != 0 {
			out = append(out, memrow.Field(from, i)...)
		} else {
			out = append(out, memrow.Field(wire, i)...)
		}
	}
	return out
}
