package pgsource

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/connectors/postgres/pgoutput"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

// member collects the changes of one resource.
type member struct {
	name string
	read engine.MemberRead
	// since is the commit from which on changes are wanted.
	since pgoutput.LSN
	// seen is after all that the finished pieces of its rows have seen.
	seen pgoutput.LSN
	// from has for each field of the plan its place in the server's tuples, −1 if it
	// is not there; key are the fields of the key.
	from []int
	key  []int

	digest    *pgcopy.Digester
	buf       []byte
	rows      int
	ops       []engine.Op
	unchanged [][]uint64
	commits   []engine.Commit
	sequence  []int64
	seq       uint64
}

// layout maps the server's description of the table onto the plan's fields; the
// reason why it can't, if the table's structure has changed beyond it.
func (m *member) layout(t *pgoutput.Table) (replan string) {
	fields := m.read.Plan.Resource.Schema.Fields
	m.from = make([]int, len(fields))
	for i, f := range fields {
		m.from[i] = slices.IndexFunc(t.Columns, func(c pgoutput.Column) bool { return c.Name == f.Name })
		if j := m.from[i]; j >= 0 && (t.Columns[j].Type != f.Native.OID || t.Columns[j].Typmod != f.Native.Typmod) {
			return "column " + f.Name + " of " + m.name + " has another type"
		}
	}
	m.key = m.key[:0]
	for _, k := range m.read.Plan.Resource.Schema.Key {
		m.key = append(m.key, slices.IndexFunc(fields, func(f schema.Field) bool { return f.Name == k }))
	}
	sel := m.read.Selection
	for _, c := range t.Columns {
		known := slices.ContainsFunc(fields, func(f schema.Field) bool { return f.Name == c.Name })
		if !known && len(sel.Include) == 0 && !slices.Contains(sel.Exclude, c.Name) {
			return "column " + c.Name + " of " + m.name + " is new"
		}
	}
	return ""
}

// size is about what a row of these fields takes.
func size(fields []pgoutput.Field) int64 {
	n := int64(2)
	for _, f := range fields {
		n += 4 + int64(len(f.Data))
	}
	return n
}

// add appends a row of the server's tuple. fill, if not nil, is the row before the
// change, which has what the tuple leaves out.
func (m *member) add(op engine.Op, tuple, fill []pgoutput.Field, keyOnly bool, commit engine.Commit, sequence int64) error {
	start := len(m.buf)
	m.buf = binary.BigEndian.AppendUint16(m.buf, uint16(len(m.from)))
	var unsent []uint64
	for i, j := range m.from {
		var f pgoutput.Field
		switch {
		case j < 0 || j >= len(tuple):
			f.Kind = pgoutput.Unsent
		case keyOnly && !slices.Contains(m.key, i):
			f.Kind = pgoutput.Unsent
		default:
			f = tuple[j]
			if f.Kind == pgoutput.Unsent && fill != nil {
				f = fill[j]
			}
		}
		switch f.Kind {
		case pgoutput.Unsent:
			if unsent == nil {
				unsent = make([]uint64, (len(m.from)+63)/64)
			}
			unsent[i/64] |= 1 << (i % 64)
			m.buf = binary.BigEndian.AppendUint32(m.buf, 0xffffffff)
		case pgoutput.Null:
			m.buf = binary.BigEndian.AppendUint32(m.buf, 0xffffffff)
		default:
			m.buf = binary.BigEndian.AppendUint32(m.buf, uint32(len(f.Data)))
			m.buf = append(m.buf, f.Data...)
		}
	}
	if unsent != nil && m.unchanged == nil {
		m.unchanged = make([][]uint64, m.rows, m.rows+64)
	}
	if m.unchanged != nil {
		m.unchanged = append(m.unchanged, unsent)
	}
	if n := len(m.commits); n == 0 || m.commits[n-1].Position != commit.Position {
		commit.Row = m.rows
		m.commits = append(m.commits, commit)
	}
	m.ops = append(m.ops, op)
	m.sequence = append(m.sequence, sequence)
	m.rows++
	return m.digest.Tuple(m.buf[start:])
}

// whole tells whether rows whose key changes with this commit have to come whole.
func (m *member) whole(commit pgoutput.LSN) bool { return m.read.Aligning || commit <= m.seen }

// sameKey tells whether two tuples have the same key.
func (m *member) sameKey(a, b []pgoutput.Field) bool {
	for _, i := range m.key {
		j := m.from[i]
		if j >= 0 && j < len(b) && b[j].Kind == pgoutput.Unsent {
			continue // a key that lies outside of the row and has not changed
		}
		if j < 0 || j >= len(a) || j >= len(b) || a[j].Kind != b[j].Kind || !bytes.Equal(a[j].Data, b[j].Data) {
			return false
		}
	}
	return true
}

// batch hands out the collected rows; nil if there are none.
func (m *member) batch() *engine.Batch {
	if m.rows == 0 {
		return nil
	}
	b := &engine.Batch{Resource: m.name, Seq: m.seq, Rows: m.rows, Bytes: int64(len(m.buf)), Wire: m.buf, CRC: integrity.CRC(0, m.buf),
		Ops: m.ops, Unchanged: m.unchanged, Commits: m.commits, Sequence: m.sequence}
	b.Digest, _ = m.digest.Take()
	m.seq++
	m.buf, m.rows, m.ops, m.unchanged, m.commits, m.sequence = nil, 0, nil, nil, nil, nil
	return b
}
