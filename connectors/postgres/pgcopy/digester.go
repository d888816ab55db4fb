package pgcopy

import (
	"encoding/binary"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

// Digester sums the content digest of tuples: for every type with a logical kind
// it is [integrity.RecordDigest] of the decoded rows, found without decoding
// what is canonical in binary form.
type Digester struct {
	plans []plan
	// ops are the plans' own, close together.
	ops []op
	// usual is true if quick knows every one of them.
	usual  bool
	digest integrity.Digest
	rows   int64
	buf    []byte
	canon  integrity.Canonicalizer
}

// NewDigester makes a digester of tuples as a source sends them: each field in
// the binary form of its native type, except those with asText set (nil: none),
// which were cast to text.
//
// Fields of kind Unknown are digested as the bytes they come in: binary in a
// verbatim wire, text where they were cast. Those two digests differ, so both
// ends of a run must do the same. Numbers, bools, UUIDs and jsonb cast to text
// are parsed; other kinds cast to text are digested as that text.
//
// When rows pass in wire format, the same digester reads them back: with the
// destination's columns selected likewise.
func NewDigester(fields []schema.Field, asText []bool) (*Digester, error) {
	d := &Digester{plans: make([]plan, len(fields))}
	for i, f := range fields {
		if i < len(asText) && asText[i] {
			o, ok := opFor(f.Type.Kind, formText)
			if !ok {
				o = opVerbatim
			}
			d.plans[i] = plan{name: f.Name, op: o}
			continue
		}
		s, ok := shapeOf(f.Type)
		if !ok {
			return nil, engine.Bugf("digest column %q: PostgreSQL has no type that sends %s", f.Name, f.Type)
		}
		p, err := compile(f.Name, f.Type, s)
		if err != nil {
			return nil, err
		}
		d.plans[i] = p
	}
	return d.ready(), nil
}

// NewReadBackDigester makes a digester of tuples read back from a destination
// whose columns have the types dest, in the logical types of the route, so that
// both sides are compared in the same type (P9): numbers by value whatever their
// width, jsonb by value, json as text. A pair of types that can't be compared is
// a permanent error; a column of kind Unknown, or one stored as text, is
// selected cast to text (or to its type) and dest says so.
func NewReadBackDigester(route []schema.Field, dest []TypeInfo) (*Digester, error) {
	if len(route) != len(dest) {
		return nil, engine.Bugf("read back: %d columns, %d types", len(route), len(dest))
	}
	d := &Digester{plans: make([]plan, len(route))}
	for i, f := range route {
		p, err := compile(f.Name, f.Type, dest[i].shape())
		if err != nil {
			return nil, err
		}
		d.plans[i] = p
	}
	return d.ready(), nil
}

func (d *Digester) ready() *Digester {
	d.usual = true
	for _, p := range d.plans {
		d.ops = append(d.ops, p.op)
		switch p.op {
		case opVerbatim, opInt2, opInt4, opFloat8, opNumeric:
		default:
			d.usual = false
		}
	}
	return d
}

// Tuple adds one complete tuple.
func (d *Digester) Tuple(tuple []byte) error {
	n, err := d.Next(tuple)
	if err != nil {
		return err
	}
	if n != len(tuple) || n == 0 {
		return engine.Bugf("digest copy tuple: it has %d bytes, its fields end at %d", len(tuple), n)
	}
	return nil
}

// Next finds the first tuple in buf and adds it, in one pass over its fields. It
// returns the tuple's length, or 0 if it is not complete and nothing was added,
// and the errors of TupleLen.
func (d *Digester) Next(buf []byte) (int, error) {
	end, canonical, err := d.canonical(buf)
	if end == 0 || err != nil {
		return 0, err
	}
	d.digest.AddRow(canonical)
	d.rows++
	return end, nil
}

// AppendCanonical appends the canonical encoding of a tuple, for finding out why
// two digests differ.
func (d *Digester) AppendCanonical(dst, tuple []byte) ([]byte, error) {
	_, canonical, err := d.canonical(tuple)
	return append(dst, canonical...), err
}

// Take returns the digest and number of the rows added since the last Take.
func (d *Digester) Take() (integrity.Digest, int64) {
	t, n := d.digest, d.rows
	d.digest, d.rows = integrity.Digest{}, 0
	d.buf = keep(d.buf)
	return t, n
}

// canonical returns the length of the first tuple and its canonical encoding,
// which stands in buf itself if every field does so as it is.
func (d *Digester) canonical(buf []byte) (int, []byte, error) {
	if len(buf) < 2 {
		return 0, nil, nil
	}
	if n := int(int16(binary.BigEndian.Uint16(buf))); n != len(d.ops) {
		return 0, nil, countError(n, len(d.ops))
	}
	if d.usual {
		if n, canonical := d.quick(buf); n > 0 {
			return n, canonical, nil
		}
	}
	// Bytes from run on are canonical and not yet copied, so that whole runs are
	// moved at once. Widening a field writes its new head and leaves its old
	// payload to begin the next run.
	pos, run, out := 2, 2, d.buf[:0]
	for i, o := range d.ops {
		start := pos
		if len(buf)-pos < 4 {
			return 0, nil, nil
		}
		n := int(int32(binary.BigEndian.Uint32(buf[pos:])))
		pos += 4
		if n < 0 {
			if n != -1 {
				return 0, nil, lengthError(n)
			}
			continue
		}
		if n > len(buf)-pos {
			if pos+n > maxTuple {
				return 0, nil, sizeError(n)
			}
			return 0, nil, nil
		}
		v := buf[pos : pos+n]
		pos += n
		switch {
		case o == opVerbatim:
			continue
		case o == opFloat8 && n == 8 && !isNaN64(binary.BigEndian.Uint64(v)):
			continue
		case o == opInt4 && n == 4:
			s := byte(int8(v[0]) >> 7)
			out = append(out, buf[run:start]...)
			out = append(out, 0, 0, 0, 8, s, s, s, s)
			run = start + 4
			continue
		case o == opInt2 && n == 2:
			s := byte(int8(v[0]) >> 7)
			out = append(out, buf[run:start]...)
			out = append(out, 0, 0, 0, 8, s, s, s, s, s, s)
			run = start + 4
			continue
		case o == opNumeric && plainNumeric(v):
			out = append(out, buf[run:start]...)
			out = append(out, byte((n-3)>>24), byte((n-3)>>16), byte((n-3)>>8), byte(n-3), v[4]>>6, v[2], v[3], v[0], v[1])
			run = start + 4 + 8
			continue
		}
		out = append(out, buf[run:start]...)
		var err error
		if out, err = d.field(out, &d.plans[i], v); err != nil {
			return 0, nil, err
		}
		run = pos
	}
	if run == 2 {
		return pos, buf[2:pos], nil
	}
	out = append(out, buf[run:pos]...)
	d.buf = out
	return pos, out, nil
}

// plainNumeric tells whether a binary numeric is a number whose groups are
// canonical as they stand, as the server sends them: zero has none.
func plainNumeric(v []byte) bool {
	n := len(v)
	if n < 8 {
		return false
	}
	// The number of groups, weight, sign, scale.
	head := binary.BigEndian.Uint64(v)
	if n == 8 {
		return head>>16 == 0
	}
	return n >= 10 && int(head>>48)<<1 == n-8 && head&(0xbfff<<16) == 0 && v[8]|v[9] != 0 && v[n-2]|v[n-1] != 0
}

// keepBuffer is the most memory that is kept for the next batch: a row of 50 MB
// among small ones must not hold its memory for ever (invariant 11).
const keepBuffer = 1 << 20

func keep(buf []byte) []byte {
	if cap(buf) > keepBuffer {
		return nil
	}
	return buf
}

func sizeError(n int) error {
	return engine.Bugf("read copy tuple: a field of %d bytes makes it longer than 1 GiB", n)
}

func (p *plan) malformed(n int) error {
	return engine.Bugf("digest column %q: a value has %d bytes, which its type never has", p.name, n)
}

// isNaN64 tells whether the bits are a NaN.
func isNaN64(b uint64) bool { return b&^(1<<63) > 0x7ff<<52 }
