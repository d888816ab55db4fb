package pgsink

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/engine"
)

// What an epoch's changes make of a key.
const (
	// keyGone: there is no such row any more.
	keyGone = iota
	// keyWhole: the row is as it stands here.
	keyWhole
	// keyPart: the row that is there, with the columns that were sent.
	keyPart
	// keyMoved: as keyPart, of the row that had another key when the epoch began.
	keyMoved
)

// outcome is what an epoch's changes make of one key.
type outcome struct {
	kind int
	// fields are the row's, in the order of the plan; of keyGone those of the key.
	fields [][]byte
	// unsent has the columns that no change has sent; nil: none.
	unsent []uint64
	// from are the fields of the row that a keyMoved was.
	from [][]byte
}

// collapse folds the changes of a resource in an epoch into one outcome a key:
// the last change decides, with columns that it left out from the changes before.
type collapse struct {
	width int
	// key are the places of the key's columns.
	key []int

	outcomes map[string]*outcome
	// truncated: all rows that were there when the epoch began are gone.
	truncated bool
	rows      int64
	truncates int64
	// deleted is the outcome that the last delete has put an end to, and its row:
	// what the second half of a change of the key goes on from.
	deleted    *outcome
	deletedRow [][]byte

	// encoder makes tuples of records; nil for wire rows.
	encoder *pgcopy.Encoder
	scratch [][]byte
	arena   []byte
}

func newCollapse(t *engine.Target, d *detail) (*collapse, error) {
	c := &collapse{width: len(d.Columns), outcomes: map[string]*outcome{}}
	for _, k := range d.Key {
		for i := range d.Columns {
			if d.Columns[i].Name == k {
				c.key = append(c.key, i)
			}
		}
	}
	if t.Wire != "" {
		return c, nil
	}
	cols := make([]pgcopy.EncodeColumn, len(d.Columns))
	for i := range d.Columns {
		cols[i] = pgcopy.EncodeColumn{Name: d.Columns[i].Source, Type: d.Columns[i].load().Info}
	}
	var err error
	if c.encoder, err = pgcopy.NewEncoder(t.Schema.Fields, cols); err != nil {
		return nil, fmt.Errorf("changes of %s: %w", t.Resource, err)
	}
	return c, nil
}

// encode makes tuples of a record.
func (c *collapse) encode(rec arrow.RecordBatch) ([]byte, error) {
	if c.encoder == nil {
		return nil, engine.Bugf("changes come as columns, and were planned as wire rows")
	}
	return c.encoder.AppendTuples(nil, rec, 0, int(rec.NumRows()))
}

// add takes the changes of a batch, whose memory is not kept.
func (c *collapse) add(b *engine.Batch, buf []byte) error {
	for row := range b.Rows {
		n, err := pgcopy.TupleLen(buf, c.width)
		if err != nil {
			return err
		}
		if n == 0 || row >= len(b.Ops) {
			return engine.Bugf("changes of %s: the batch has %d rows and says %d", b.Resource, row, b.Rows)
		}
		var unsent []uint64
		if b.Unchanged != nil {
			unsent = b.Unchanged[row]
		}
		if err := c.change(b.Ops[row], buf[:n], unsent); err != nil {
			return fmt.Errorf("changes of %s: %w", b.Resource, err)
		}
		buf = buf[n:]
	}
	if len(buf) > 0 {
		return engine.Bugf("changes of %s: the batch has more rows than it says", b.Resource)
	}
	return nil
}

func (c *collapse) change(op engine.Op, tuple []byte, unsent []uint64) error {
	c.rows++
	if op == engine.OpTruncate {
		c.truncated, c.truncates = true, c.truncates+1
		clear(c.outcomes)
		c.arena = nil
		return nil
	}
	var err error
	if c.scratch, err = pgcopy.SplitTuple(c.keep(tuple), c.scratch[:0]); err != nil {
		return err
	}
	fields := append([][]byte(nil), c.scratch...)
	key, err := c.keyOf(fields)
	if err != nil {
		return err
	}
	have := c.outcomes[key]
	if have != nil && have.kind == keyGone {
		have = nil
	}
	switch op {
	case engine.OpInsert:
		// A column that the table does not have any more is NULL in a new row.
		c.outcomes[key] = &outcome{kind: keyWhole, fields: fields}
	case engine.OpUpdate:
		c.outcomes[key] = after(have, fields, unsent, nil)
	case engine.OpDelete:
		c.deleted, c.deletedRow = have, fields
		c.outcomes[key] = &outcome{kind: keyGone, fields: fields}
	case engine.OpMove:
		if c.deletedRow == nil {
			return engine.Bugf("a change of a key does not follow the delete of the old one")
		}
		c.outcomes[key] = after(c.deleted, fields, unsent, c.deletedRow)
		c.deleted, c.deletedRow = nil, nil
	default:
		return engine.Bugf("a change of the unknown kind %d", op)
	}
	return nil
}

// after is a row after an update. have is what the epoch made of it before, nil if
// nothing; from, if not nil, is the row that had another key.
func after(have *outcome, fields [][]byte, unsent []uint64, from [][]byte) *outcome {
	out := &outcome{kind: keyWhole, fields: fields}
	if have == nil {
		if none(unsent) {
			return out
		}
		out.kind, out.unsent, out.from = keyPart, unsent, from
		if from != nil {
			out.kind = keyMoved
		}
		return out
	}
	out.unsent = append([]uint64(nil), unsent...)
	for i := range fields {
		if bit(unsent, i) && !bit(have.unsent, i) {
			fields[i] = have.fields[i]
			out.unsent[i/64] &^= 1 << (i % 64)
		}
	}
	if none(out.unsent) {
		out.unsent = nil
		return out
	}
	out.kind, out.from = have.kind, have.from
	if from != nil && out.from == nil {
		out.kind, out.from = keyMoved, from
	}
	return out
}

func bit(set []uint64, i int) bool { return i/64 < len(set) && set[i/64]&(1<<(i%64)) != 0 }

func none(set []uint64) bool {
	n := 0
	for _, w := range set {
		n += bits.OnesCount64(w)
	}
	return n == 0
}

// keep copies a tuple to memory that lives as long as the epoch.
func (c *collapse) keep(tuple []byte) []byte {
	if len(c.arena)+len(tuple) > cap(c.arena) {
		c.arena = make([]byte, 0, max(256<<10, len(tuple)))
	}
	at := len(c.arena)
	c.arena = append(c.arena, tuple...)
	return c.arena[at:len(c.arena):len(c.arena)]
}

// keyOf is the key's fields as text to find outcomes by. Values that the server
// takes for equal but that have other bytes are two keys here; that is no harm:
// deletes are applied before the rest, and only one of them can exist at the end.
func (c *collapse) keyOf(fields [][]byte) (string, error) {
	var b []byte
	for _, i := range c.key {
		if fields[i] == nil {
			return "", engine.Bugf("a change whose key is NULL")
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(fields[i])))
		b = append(b, fields[i]...)
	}
	return string(b), nil
}

// applied counts the changes that reach the destination: one a key, and one for a truncate.
func (c *collapse) applied() int64 {
	n := int64(len(c.outcomes))
	if c.truncated {
		n++
	}
	return n
}
