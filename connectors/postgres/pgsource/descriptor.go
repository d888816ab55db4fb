package pgsource

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/tranship-io/tranship/connectors/postgres/pgoutput"
	"github.com/tranship-io/tranship/engine"
)

// Ways to read a split.
const (
	// byKeys reads a range of the key in the key's order.
	byKeys = "keys"
	// byBlocks reads a range of heap blocks; valid only inside one snapshot (P12).
	byBlocks = "blocks"
	// byCursor reads an incremental window in the order of (cursor, key).
	byCursor = "cursor"
	// whole reads everything in no order, so it can't go on in the middle.
	whole = "whole"
)

// descriptor is what a split remembers of its plan; it is stored as JSON, so
// names never change their meaning.
type descriptor struct {
	Version int    `json:"v"`
	Way     string `json:"way"`
	// OID and Schema, Name are the relation to read: the resource's or a partition.
	OID    uint32 `json:"oid"`
	Schema string `json:"schema"`
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	// Partial is true when the role may read some columns only.
	Partial bool `json:"partial,omitempty"`

	// Order are the columns that rows are ordered by (keys, cursor).
	Order []string `json:"order,omitempty"`
	// Casts are the columns' types for literals, Schemas those of the types that
	// are not PostgreSQL's own.
	Casts   []string `json:"casts,omitempty"`
	Schemas []string `json:"schemas,omitempty"`
	// From and To bound a key range, as the server's text, one value a column of
	// Order: From <= key < To; nil means no bound.
	From []string `json:"from,omitempty"`
	To   []string `json:"to,omitempty"`
	// Unproved is true for a key of the user's that no index proves unique: rows
	// are watched for doubles and NULLs while they are read.
	Unproved bool `json:"unproved,omitempty"`
	// Last marks the split that also looks for NULL keys.
	Last bool `json:"last,omitempty"`

	// FirstBlock and EndBlock bound a block range; an Open one reads on to the
	// table's end.
	FirstBlock int64 `json:"first_block,omitempty"`
	EndBlock   int64 `json:"end_block,omitempty"`
	Open       bool  `json:"open,omitempty"`
	// BlockBytes is about how much of rows (with TOAST) a block stands for.
	BlockBytes int64 `json:"block_bytes,omitempty"`

	// Cursor is the window of an incremental read.
	Cursor *cursorRange `json:"cursor,omitempty"`

	// Holder and Snapshot name the exported snapshot and who holds it.
	Holder   string `json:"holder,omitempty"`
	Snapshot string `json:"snapshot,omitempty"`

	// Aligned, for a piece that is read beside a change stream, is the alignment
	// point of its table.
	Aligned *alignment `json:"aligned,omitempty"`

	// Restart is true when a relation that was truncated, rewritten or made anew
	// since the plan means to read the resource again from its beginning.
	Restart bool `json:"restart,omitempty"`
	// Files are the relfilenodes of the tables below the resource, by OID; only the
	// plan's first split has them.
	Files map[uint32]uint32 `json:"files,omitempty"`
}

// cursorRange is the window of an incremental read; values are the server's text.
type cursorRange struct {
	Column string `json:"column"`
	// From is where the window begins, nil: at the first row. It is part of the
	// window unless After is set.
	From  *string `json:"from,omitempty"`
	After bool    `json:"after,omitempty"`
	// To is the greatest value of the window, nil: there was no row.
	To *string `json:"to,omitempty"`
	// Mark is where the next run's window begins, nil: at the first row.
	Mark *string `json:"mark,omitempty"`
	// Nulls: the column may hold NULL, and such rows are counted as skipped.
	Nulls bool `json:"nulls,omitempty"`
}

// position is where a read of a split stopped.
type position struct {
	// Key is the last row's value of each column of the descriptor's Order.
	Key []keyValue `json:"key,omitempty"`
	// Block is the next block to read.
	Block int64 `json:"block,omitempty"`
	// End is true after the last row.
	End bool `json:"end,omitempty"`
	// Seen is a place in the log after all that a snapshot of an aligned piece has
	// seen, the last one's.
	Seen pgoutput.LSN `json:"seen,omitempty"`
}

// keyValue is a value of a key column: text as the server prints it, or, for
// types whose text only the server knows, its binary form.
type keyValue struct {
	Text   *string `json:"t,omitempty"`
	Binary *[]byte `json:"b,omitempty"`
}

func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		// These types hold nothing that JSON can't.
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return b
}

func decodeStrict(raw json.RawMessage, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return fmt.Errorf("data after the document")
	}
	return nil
}

func parseDescriptor(s engine.Split) (*descriptor, error) {
	d := &descriptor{}
	if err := decodeStrict(s.Descriptor, d); err != nil {
		return nil, engine.Bugf("split %s: its descriptor can't be read: %w", s.ID, err)
	}
	if d.Version != 1 {
		return nil, engine.Permanentf("run it with the version that made it, or with --restart", "split %s was planned by another version of tranship", s.ID)
	}
	ok := d.OID != 0 && d.Schema != "" && d.Name != "" && len(d.Casts) == len(d.Order)
	switch d.Way {
	case byKeys:
		ok = ok && len(d.Order) > 0 && (d.From == nil || len(d.From) == len(d.Order)) && (d.To == nil || len(d.To) == len(d.Order))
	case byCursor:
		ok = ok && len(d.Order) > 0 && d.Cursor != nil && d.Order[0] == d.Cursor.Column
	case byBlocks:
		ok = ok && d.FirstBlock >= 0 && d.EndBlock >= d.FirstBlock && d.BlockBytes > 0
	case whole:
	default:
		ok = false
	}
	if !ok {
		return nil, engine.Bugf("split %s: its descriptor makes no sense", s.ID)
	}
	return d, nil
}

func parsePosition(split string, d *descriptor, raw engine.Position) (*position, error) {
	p := &position{}
	if len(raw) == 0 {
		return p, nil
	}
	if err := decodeStrict(raw, p); err != nil {
		return nil, engine.Bugf("split %s: its position can't be read: %w", split, err)
	}
	valid := p.Block >= 0 && (len(p.Key) == 0 || len(p.Key) == len(d.Order))
	for _, k := range p.Key {
		valid = valid && (k.Text == nil) != (k.Binary == nil)
	}
	if !valid {
		return nil, engine.Bugf("split %s: its position makes no sense", split)
	}
	return p, nil
}
