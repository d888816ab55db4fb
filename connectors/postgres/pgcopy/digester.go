package pgcopy

import (
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

// Digester sums the content digest of tuples.
type Digester struct {
	digest integrity.Digest
	rows   int64
}

// NewDigester makes a digester of tuples as a source sends them: each field in
// the binary form of its native type, except those with asText set (nil: none),
// which were cast to text.
func NewDigester(fields []schema.Field, asText []bool) (*Digester, error) { return &Digester{}, nil }

// NewReadBackDigester makes a digester of tuples read back from a destination
// whose columns have the types dest, in the logical types of the route, so that
// both sides are compared in the same type (P9).
func NewReadBackDigester(route []schema.Field, dest []TypeInfo) (*Digester, error) {
	return &Digester{}, nil
}

// Tuple adds one complete tuple.
func (d *Digester) Tuple(tuple []byte) error { return nil }

// Next finds the first tuple in buf and adds it, in one pass. It returns the
// tuple's length, 0 if it is not complete, and the errors of TupleLen.
func (d *Digester) Next(buf []byte) (int, error) { return 0, nil }

// AppendCanonical appends the canonical encoding of a tuple, for debugging.
func (d *Digester) AppendCanonical(dst, tuple []byte) ([]byte, error) { return dst, nil }

// Take returns the digest and number of the rows added since the last Take.
func (d *Digester) Take() (integrity.Digest, int64) {
	t, n := d.digest, d.rows
	d.digest, d.rows = integrity.Digest{}, 0
	return t, n
}
