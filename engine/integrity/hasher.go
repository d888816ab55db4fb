package integrity

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/tranship-io/tranship/engine/schema"
)

// RecordDigest returns the content digest of a record in the schema's in-flight
// types.
func RecordDigest(s *schema.Schema, rec arrow.RecordBatch) (Digest, error) {
	return NewHasher(s).Rows(rec, 0, int(rec.NumRows()))
}

// keepBuffer is the most memory that a hasher keeps for the next record: one
// large row must not hold its memory for ever (invariant 11).
const keepBuffer = 1 << 20

// Hasher digests rows of records of one schema. It keeps its memory between
// calls, and is not safe for concurrent use.
type Hasher struct {
	rows *RowReader
	buf  []byte
}

// NewHasher makes a hasher of records in the schema's in-flight types.
func NewHasher(s *schema.Schema) *Hasher {
	return &Hasher{rows: NewRowReader(s.Fields, false)}
}

// Rows returns the digest of the rows [from, to) of the record. A value that has
// no canonical form (text that is no decimal, text that is no JSON) is an error
// that names the column and the row.
func (h *Hasher) Rows(rec arrow.RecordBatch, from, to int) (Digest, error) {
	var d Digest
	if err := h.rows.Bind(rec); err != nil {
		return d, err
	}
	for i := from; i < to; i++ {
		var err error
		if h.buf, err = h.rows.AppendRow(h.buf[:0], i); err != nil {
			return d, err
		}
		d.AddRow(h.buf)
	}
	if cap(h.buf) > keepBuffer {
		h.buf = nil
	}
	return d, nil
}

// AppendRow appends the canonical encoding of one row: what a digest is taken
// of, for finding out why two differ.
func (h *Hasher) AppendRow(dst []byte, rec arrow.RecordBatch, row int) ([]byte, error) {
	if err := h.rows.Bind(rec); err != nil {
		return dst, err
	}
	return h.rows.AppendRow(dst, row)
}

// RowReader encodes the rows of records of one schema, field by field.
//
// A plain reader differs from the canonical one in two kinds, for which equal
// values may be written in more than one way: unbounded decimals and JSONB stay
// the text that they travel as. It is what an encoder for another system starts
// from; its output has no digest.
type RowReader struct {
	columns []*column
	canon   Canonicalizer
	rows    int
}

// NewRowReader makes a reader of records in the fields' in-flight types.
func NewRowReader(fields []schema.Field, plain bool) *RowReader {
	r := &RowReader{columns: make([]*column, len(fields))}
	for i, f := range fields {
		r.columns[i] = newColumn(f.Name, f.Type, plain)
	}
	return r
}

// Bind makes the record the one that is read; it is borrowed until the next Bind.
// A record that is not of the schema is an error.
func (r *RowReader) Bind(rec arrow.RecordBatch) error {
	if int(rec.NumCols()) != len(r.columns) {
		return fmt.Errorf("the record has %d columns, its schema %d", rec.NumCols(), len(r.columns))
	}
	r.rows = int(rec.NumRows())
	for i, c := range r.columns {
		if err := c.bind(rec.Column(i)); err != nil {
			return err
		}
	}
	return nil
}

// AppendRow appends all fields of a row.
func (r *RowReader) AppendRow(dst []byte, row int) ([]byte, error) {
	if row < 0 || row >= r.rows {
		return dst, fmt.Errorf("row %d is not among the record's %d", row, r.rows)
	}
	var err error
	for _, c := range r.columns {
		if dst, err = c.append(dst, row, &r.canon); err != nil {
			return dst, fmt.Errorf("column %q row %d: %w", c.name, row, err)
		}
	}
	return dst, nil
}

// AppendField appends one field of a row of the bound record.
func (r *RowReader) AppendField(dst []byte, col, row int) ([]byte, error) {
	c := r.columns[col]
	dst, err := c.append(dst, row, &r.canon)
	if err != nil {
		return dst, fmt.Errorf("column %q row %d: %w", c.name, row, err)
	}
	return dst, nil
}
