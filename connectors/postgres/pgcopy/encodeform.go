package pgcopy

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine/schema"
)

// appendForm appends the text form of a plain payload.
func (e *Encoder) appendForm(dst []byte, t schema.Type, v []byte) ([]byte, *unfit) {
	switch t.Kind {
	case schema.Bool:
		return append(dst, "ft"[v[0]]), nil
	case schema.Uint64:
		return strconv.AppendUint(dst, binary.BigEndian.Uint64(v), 10), nil
	case schema.Float32, schema.Float64:
		return appendFloat(dst, math.Float64frombits(binary.BigEndian.Uint64(v)), t.Kind), nil
	case schema.Decimal:
		if t.Precision == 0 {
			return append(dst, v...), nil
		}
		n := canonicalNumeric(v, t.Scale)
		return n.appendText(dst), nil
	case schema.Bytes:
		return hex.AppendEncode(append(dst, `\x`...), v), nil
	case schema.UUID:
		u := uuid.UUID(v)
		text, _ := u.MarshalText()
		return append(dst, text...), nil
	case schema.Date:
		return appendDate(dst, int32(binary.BigEndian.Uint32(v))), nil
	case schema.Time:
		return appendTime(dst, v), nil
	case schema.Timestamp, schema.TimestampTZ:
		return appendTimestamp(dst, v, t.Kind == schema.TimestampTZ), nil
	case schema.Interval:
		return appendInterval(dst, v), nil
	case schema.Array:
		return e.appendArrayForm(dst, *t.Elem, v)
	}
	if t.Kind.Integer() {
		return strconv.AppendInt(dst, int64(binary.BigEndian.Uint64(v)), 10), nil
	}
	if bad := e.checkText(&encodePlan{typ: t}, v); bad != nil {
		bad.clampable = false
		return dst, bad
	}
	return append(dst, v...), nil
}

func appendFloat(dst []byte, v float64, k schema.Kind) []byte {
	switch {
	case v != v:
		return append(dst, "NaN"...)
	case math.IsInf(v, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(v, -1):
		return append(dst, "-Infinity"...)
	case k == schema.Float32:
		return strconv.AppendFloat(dst, v, 'g', -1, 32)
	}
	return strconv.AppendFloat(dst, v, 'g', -1, 64)
}

// appendArrayForm appends an array literal: bounds where one is not 1, every
// element in quotes.
func (e *Encoder) appendArrayForm(dst []byte, elem schema.Type, v []byte) ([]byte, *unfit) {
	ndim := int(binary.BigEndian.Uint32(v))
	if ndim == 0 {
		return append(dst, "{}"...), nil
	}
	dims, elems := v[4:4+8*ndim], v[4+8*ndim:]
	bounds := false
	for i := range ndim {
		bounds = bounds || binary.BigEndian.Uint32(dims[8*i+4:]) != 1
	}
	if bounds {
		for i := range ndim {
			n, lower := int64(int32(binary.BigEndian.Uint32(dims[8*i:]))), int64(int32(binary.BigEndian.Uint32(dims[8*i+4:])))
			dst = strconv.AppendInt(append(dst, '['), lower, 10)
			dst = append(strconv.AppendInt(append(dst, ':'), lower+n-1, 10), ']')
		}
		dst = append(dst, '=')
	}
	dst, _, bad := e.appendDim(dst, elem, dims, elems)
	return dst, bad
}

func (e *Encoder) appendDim(dst []byte, elem schema.Type, dims, elems []byte) (out, rest []byte, bad *unfit) {
	n := int(binary.BigEndian.Uint32(dims))
	dst = append(dst, '{')
	for i := range n {
		if i > 0 {
			dst = append(dst, ',')
		}
		if len(dims) > 8 {
			if dst, elems, bad = e.appendDim(dst, elem, dims[8:], elems); bad != nil {
				return dst, elems, bad
			}
			continue
		}
		v, next, err := fieldAt(elems, 0)
		if err != nil {
			return dst, elems, misfitf(false, "array", "%s", err)
		}
		if elems = elems[next:]; v == nil {
			dst = append(dst, "NULL"...)
		} else if dst, bad = e.appendQuoted(dst, elem, v); bad != nil {
			return dst, elems, bad
		}
	}
	return append(dst, '}'), elems, nil
}

func (e *Encoder) appendQuoted(dst []byte, elem schema.Type, v []byte) ([]byte, *unfit) {
	dst = append(dst, '"')
	start := len(dst)
	dst, bad := e.appendForm(dst, elem, v)
	if bad != nil {
		return dst, bad
	}
	escapes := 0
	for _, c := range dst[start:] {
		if c == '"' || c == '\\' {
			escapes++
		}
	}
	if escapes > 0 {
		raw := append([]byte(nil), dst[start:]...)
		dst = dst[:start]
		for _, c := range raw {
			if c == '"' || c == '\\' {
				dst = append(dst, '\\')
			}
			dst = append(dst, c)
		}
	}
	return append(dst, '"'), nil
}
