package pgcopy

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
)

// field appends the canonical field of a value that is not NULL.
func (d *Digester) field(out []byte, p *plan, v []byte) ([]byte, error) {
	switch p.op {
	case opVerbatim:
		return integrity.AppendBytes(out, v), nil
	case opInt2:
		if len(v) == 2 {
			return integrity.AppendInt(out, int64(int16(binary.BigEndian.Uint16(v)))), nil
		}
	case opInt4:
		if len(v) == 4 {
			return integrity.AppendInt(out, int64(int32(binary.BigEndian.Uint32(v)))), nil
		}
	case opOID:
		if len(v) == 4 {
			return integrity.AppendInt(out, int64(binary.BigEndian.Uint32(v))), nil
		}
	case opFloat4:
		if len(v) == 4 {
			return integrity.AppendFloat(out, float64(math.Float32frombits(binary.BigEndian.Uint32(v)))), nil
		}
	case opFloat8:
		if len(v) == 8 {
			return integrity.AppendFloat(out, math.Float64frombits(binary.BigEndian.Uint64(v))), nil
		}
	case opNumeric:
		if n, ok := parseNumeric(v); ok {
			return n.appendCanonical(out), nil
		}
	case opNumericInt:
		if n, ok := parseNumeric(v); ok {
			if u, ok := n.integer(); ok {
				return integrity.AppendInt(out, int64(u)), nil
			}
			// A fraction or a number out of range where an integer was written:
			// it encodes as itself, so the digests will differ.
			return n.appendCanonical(out), nil
		}
	case opJSONB:
		if len(v) > 0 && v[0] == 1 {
			return d.json(out, p, v[1:])
		}
	case opJSON:
		return d.json(out, p, v)
	case opArray:
		return d.array(out, p, v)
	default:
		return d.text(out, p, v)
	}
	return out, p.malformed(len(v))
}

func (d *Digester) json(out []byte, p *plan, text []byte) ([]byte, error) {
	out, at := integrity.BeginField(out)
	out, err := d.canon.Append(out, text)
	if err != nil {
		return out, engine.Permanentf("", "digest column %q: %w", p.name, err)
	}
	return integrity.EndField(out, at), nil
}

// array drops what only the database knows (element type, flags) from the head.
func (d *Digester) array(out []byte, p *plan, v []byte) ([]byte, error) {
	h, ok := parseArray(v)
	if !ok {
		return out, p.malformed(len(v))
	}
	out, at := integrity.BeginField(out)
	out = binary.BigEndian.AppendUint32(out, uint32(h.ndim))
	out = append(out, h.dims...)
	if p.elem.op == opVerbatim {
		return integrity.EndField(append(out, h.elems...), at), nil
	}
	pos := 0
	for range h.count {
		e, next, err := fieldAt(h.elems, pos)
		if err != nil {
			return out, err
		}
		if pos = next; e == nil {
			out = integrity.AppendNull(out)
		} else if out, err = d.field(out, p.elem, e); err != nil {
			return out, err
		}
	}
	if pos != len(h.elems) {
		return out, p.malformed(len(v))
	}
	return integrity.EndField(out, at), nil
}

// text parses what a server printed. What is no such value (a text column that
// somebody else wrote to) is encoded as the text, so the digests will differ.
func (d *Digester) text(out []byte, p *plan, v []byte) ([]byte, error) {
	switch p.op {
	case opTextInt:
		if u, ok := parseInteger(v); ok {
			return integrity.AppendInt(out, int64(u)), nil
		}
	case opTextFloat:
		if f, err := strconv.ParseFloat(string(v), 64); err == nil {
			return integrity.AppendFloat(out, f), nil
		}
	case opTextDecimal:
		begun, at := integrity.BeginField(out)
		if done, err := integrity.AppendDecimalText(begun, v); err == nil {
			return integrity.EndField(done, at), nil
		}
	case opTextBool:
		switch string(v) {
		case "t", "true":
			return integrity.AppendBool(out, true), nil
		case "f", "false":
			return integrity.AppendBool(out, false), nil
		}
	case opTextUUID:
		if u, err := uuid.ParseBytes(v); err == nil {
			return integrity.AppendBytes(out, u[:]), nil
		}
	}
	return integrity.AppendBytes(out, v), nil
}

// parseInteger reads a decimal integer of int64 or uint64, as its bits.
func parseInteger(v []byte) (uint64, bool) {
	neg := len(v) > 0 && v[0] == '-'
	if neg {
		v = v[1:]
	}
	if len(v) == 0 || len(v) > 20 {
		return 0, false
	}
	var u uint64
	for _, c := range v {
		if c < '0' || c > '9' {
			return 0, false
		}
		d := uint64(c - '0')
		if u > (math.MaxUint64-d)/10 {
			return 0, false
		}
		u = u*10 + d
	}
	if neg {
		return -u, u <= 1<<63
	}
	return u, true
}

// arrayHead is the head of a binary array; its elements are fields.
type arrayHead struct {
	ndim  int
	dims  []byte
	count int
	elems []byte
}

// maxDims is PostgreSQL's limit of an array's dimensions.
const maxDims = 6

func parseArray(v []byte) (arrayHead, bool) {
	var h arrayHead
	if len(v) < 12 {
		return h, false
	}
	h.ndim = int(int32(binary.BigEndian.Uint32(v)))
	if h.ndim < 0 || h.ndim > maxDims || len(v) < 12+8*h.ndim {
		return h, false
	}
	h.dims, h.elems = v[12:12+8*h.ndim], v[12+8*h.ndim:]
	if h.ndim == 0 {
		return h, len(h.elems) == 0
	}
	h.count = 1
	for i := range h.ndim {
		n := int(int32(binary.BigEndian.Uint32(h.dims[8*i:])))
		// Each element takes 4 bytes at least.
		if n < 0 || n > 0 && h.count > len(h.elems)/4/n {
			return h, false
		}
		h.count *= n
	}
	return h, true
}
