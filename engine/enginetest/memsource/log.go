package memsource

import (
	"bytes"
	"slices"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/memrow"
)

// The log has every committed transaction in the order of commits. That is not the
// order in which snapshots see them: a transaction is in the log from [Tx.Log] on,
// as one is that waits for a synchronous standby, and visible from [Tx.Commit] on
// (P16). Whoever changes the tables lets no other transaction touch its rows before
// that, as row locks do.

// Change is a change of a row as the log has it.
type Change struct {
	Table string
	Op    engine.Op
	// Wire is the row; fields that the log does not have are NULL, and their bits set
	// in Unsent. A delete has the key only, a truncate nothing.
	Wire   []byte
	Unsent uint64
}

// logged is a transaction in the log.
type logged struct {
	lsn     int64
	changes []Change
	// visible is true once snapshots see it.
	visible bool
}

// Broken removes one protection of the source's change stream each.
type Broken struct {
	// NoAlign: pieces don't wait for what their alignment point saw.
	NoAlign bool
	// AlwaysSettled: members need not wait for the stream.
	AlwaysSettled bool
	// EagerAck: the log is let go when it is delivered, not when it is stored.
	EagerAck bool
}

// log appends the transaction to the log; the caller holds db.mu.
func (tx *Tx) log() {
	if tx.logged != nil {
		return
	}
	db := tx.db
	db.lsn++
	l := &logged{lsn: db.lsn}
	for _, c := range tx.changes {
		l.changes = append(l.changes, c.table.logged(c)...)
	}
	tx.logged = l
	db.log = append(db.log, l)
}

// Log writes the transaction to the log, where the stream finds it, before it is
// visible to anybody.
func (tx *Tx) Log() int64 {
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	tx.log()
	return tx.logged.lsn
}

// logged turns a change into what the log has of it, and moves the log's state on.
func (t *table) logged(c change) []Change {
	if t.tip == nil {
		t.tip = map[int64][]byte{}
	}
	if c.truncate {
		clear(t.tip)
		return []Change{{Table: t.name, Op: engine.OpTruncate, Wire: t.blank(nil)}}
	}
	ord := c.ord
	var wire []byte
	if !c.delete {
		wire = memrow.Append(nil, c.values)
		if t.keyed {
			ord, _ = memrow.Int(memrow.Field(wire, t.key[0]))
		}
	}
	was := ord
	if c.move {
		was = c.ord
	}
	old, had := t.tip[was]
	if c.delete {
		delete(t.tip, ord)
		if !had {
			return nil
		}
		return []Change{{Table: t.name, Op: engine.OpDelete, Wire: t.blank(old)}}
	}
	t.tip[ord] = wire
	switch {
	case had && was != ord:
		delete(t.tip, was)
		sent, unsent := t.partial(old, wire)
		return []Change{{Table: t.name, Op: engine.OpDelete, Wire: t.blank(old)}, {Table: t.name, Op: engine.OpMove, Wire: sent, Unsent: unsent}}
	case had:
		sent, unsent := t.partial(old, wire)
		return []Change{{Table: t.name, Op: engine.OpUpdate, Wire: sent, Unsent: unsent}}
	}
	return []Change{{Table: t.name, Op: engine.OpInsert, Wire: wire}}
}

// blank is a row of which only the key is known.
func (t *table) blank(row []byte) []byte {
	var out []byte
	for i := range t.schema.Fields {
		if row != nil && slices.Contains(t.key, i) {
			out = append(out, memrow.Field(row, i)...)
		} else {
			out = memrow.Append(out, []any{nil})
		}
	}
	return out
}

// partial leaves out the last column where it has not changed, as a server leaves
// out a large value that it did not have to write.
func (t *table) partial(old, row []byte) ([]byte, uint64) {
	last := len(t.schema.Fields) - 1
	if slices.Contains(t.key, last) || !bytes.Equal(memrow.Field(old, last), memrow.Field(row, last)) {
		return row, 0
	}
	field := memrow.Field(row, last)
	return memrow.Append(slices.Clone(row[:len(row)-len(field)]), []any{nil}), 1 << last
}

// StateAt returns the rows of a table after the transactions up to a place in the log.
func (db *DB) StateAt(name string, lsn int64) map[string][]byte {
	db.mu.Lock()
	defer db.mu.Unlock()
	t := db.tables[name]
	out := map[string][]byte{}
	for _, l := range db.log {
		if l.lsn > lsn {
			break
		}
		var moved []byte
		for _, c := range l.changes {
			if c.Table != name {
				continue
			}
			key := memrow.Pick(c.Wire, t.key)
			switch c.Op {
			case engine.OpTruncate:
				clear(out)
			case engine.OpDelete:
				moved = out[key]
				delete(out, key)
			case engine.OpMove:
				out[key] = Fill(c.Wire, c.Unsent, moved, len(t.schema.Fields))
			case engine.OpUpdate:
				out[key] = Fill(c.Wire, c.Unsent, out[key], len(t.schema.Fields))
			default:
				out[key] = c.Wire
			}
		}
	}
	return out
}

// Fill completes a row's unsent fields from another row; nil leaves it as it is.
func Fill(wire []byte, unsent uint64, from []byte, fields int) []byte {
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

// LSN is the end of the log.
func (db *DB) LSN() int64 {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.lsn
}

// Confirmed is up to where the log was acknowledged since the last slot was made.
func (db *DB) Confirmed() int64 {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.confirmed
}

// confirm lets the log of a slot go; the caller holds db.mu.
func (db *DB) confirm(slot string, lsn int64) {
	if have, ok := db.slots[slot]; ok && lsn > have {
		db.slots[slot], db.confirmed = lsn, lsn
	}
}

// LoseSlots drops all slots, as a server does that keeps no more log.
func (db *DB) LoseSlots() {
	db.mu.Lock()
	defer db.mu.Unlock()
	clear(db.slots)
}
