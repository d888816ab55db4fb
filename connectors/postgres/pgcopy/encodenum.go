package pgcopy

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"

	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

// signed tells how the bits of an integer of the kind are meant.
func signed(k schema.Kind) bool { return k != schema.Uint64 }

// integer appends an integer field of the column's width.
func (e *Encoder) integer(dst []byte, p *encodePlan, bits uint64, clamp bool) ([]byte, *unfit) {
	v := int64(bits)
	if !signed(p.typ.Kind) && v < 0 {
		// More than any signed column holds.
		if !clamp {
			return dst, misfitf(true, strconv.FormatUint(bits, 10), "it is beyond the range of %s", typeNameOf(p.shape))
		}
		v = math.MaxInt64
	}
	return appendInteger(dst, p, v, clamp)
}

func typeNameOf(s shape) string { return typeName(TypeInfo{OID: s.oid}) }

func appendInteger(dst []byte, p *encodePlan, v int64, clamp bool) ([]byte, *unfit) {
	lo, hi := int64(math.MinInt64), int64(math.MaxInt64)
	switch p.shape.form {
	case formInt2:
		lo, hi = math.MinInt16, math.MaxInt16
	case formInt4:
		lo, hi = math.MinInt32, math.MaxInt32
	case formOID:
		lo, hi = 0, math.MaxUint32
	}
	if v < lo || v > hi {
		if !clamp {
			return dst, misfitf(true, strconv.FormatInt(v, 10), "it is beyond the range of %s", typeNameOf(p.shape))
		}
		v = min(max(v, lo), hi)
	}
	switch p.shape.form {
	case formInt2:
		return append(dst, 0, 0, 0, 2, byte(v>>8), byte(v)), nil
	case formInt8:
		return integrity.AppendInt(dst, v), nil
	}
	dst = append(dst, 0, 0, 0, 4)
	return binary.BigEndian.AppendUint32(dst, uint32(v)), nil
}

// float4 appends a real, which must be the number itself.
func (p *encodePlan) float4(dst []byte, bits uint64, clamp bool) ([]byte, *unfit) {
	v := math.Float64frombits(bits)
	f := float32(v)
	if float64(f) != v && v == v {
		if !clamp {
			return dst, misfitf(true, strconv.FormatFloat(v, 'g', -1, 64), "real has fewer digits")
		}
		if math.IsInf(float64(f), 0) {
			f = float32(math.Copysign(math.MaxFloat32, v))
		}
	}
	b := math.Float32bits(f)
	if v != v {
		b = 0x7fc00000
	}
	dst = append(dst, 0, 0, 0, 4)
	return binary.BigEndian.AppendUint32(dst, b), nil
}

// decimalOf makes a binary numeric of a plain payload of an integer or decimal
// kind; its groups are borrowed from e.num or v.
func (e *Encoder) decimalOf(t schema.Type, v []byte) (numeric, *unfit) {
	switch {
	case t.Kind.Integer():
		bits := binary.BigEndian.Uint64(v)
		var text [20]byte
		s := strconv.AppendInt(text[:0], int64(bits), 10)
		if !signed(t.Kind) {
			s = strconv.AppendUint(text[:0], bits, 10)
		}
		v, _ = integrity.AppendDecimalText(e.num[:0], s)
		e.num = v
		return canonicalNumeric(v, 0), nil
	case t.Precision == 0:
		canonical, err := integrity.AppendDecimalText(e.num[:0], v)
		if err != nil {
			return numeric{}, misfitf(false, shorten(string(v)), "%s", err)
		}
		e.num = canonical
		return canonicalNumeric(canonical, textScale(v)), nil
	}
	return canonicalNumeric(v, t.Scale), nil
}

// textScale returns how many digits a decimal text shows after the point.
func textScale(v []byte) int {
	exp := 0
	if i := bytes.IndexAny(v, "eE"); i >= 0 {
		exp, _ = strconv.Atoi(string(v[i+1:]))
		v = v[:i]
	}
	frac := 0
	if i := bytes.IndexByte(v, '.'); i >= 0 {
		frac = len(v) - i - 1
	}
	return max(frac-exp, 0)
}

// canonicalNumeric reads a canonical decimal payload.
func canonicalNumeric(v []byte, scale int) numeric {
	n := numeric{weight: int(int16(binary.BigEndian.Uint16(v[1:]))), scale: scale, groups: v[5:]}
	switch v[0] {
	case integrity.DecimalNegative:
		n.sign = numericNegative
	case integrity.DecimalNaN:
		n.sign, n.scale = numericNaN, 0
	case integrity.DecimalPosInf:
		n.sign, n.scale = numericPosInf, 0
	case integrity.DecimalNegInf:
		n.sign, n.scale = numericNegInf, 0
	}
	return n
}

// fraction returns how many digits after the point are needed, which is negative
// for a multiple of a power of ten; whole the number of those before it.
func (n *numeric) fraction() int {
	count := len(n.groups) / 2
	if count == 0 {
		return math.MinInt
	}
	f := 4 * (count - 1 - n.weight)
	for g := n.group(count - 1); g%10 == 0; g /= 10 {
		f--
	}
	return f
}

func (n *numeric) whole() int {
	if len(n.groups) == 0 {
		return math.MinInt
	}
	w := 4*n.weight + 1
	for g := n.group(0); g >= 10; g /= 10 {
		w++
	}
	return w
}

// maxScale is the greatest number of digits that a numeric shows after its point.
const maxScale = 16383

func (e *Encoder) numeric(dst []byte, p *encodePlan, v []byte, clamp bool) ([]byte, *unfit) {
	n, bad := e.decimalOf(p.typ, v)
	if bad != nil {
		return dst, bad
	}
	precision, scale, bounded := numericTypmod(p.shape.typmod)
	inf := n.sign == numericPosInf || n.sign == numericNegInf
	switch {
	case inf && bounded:
		return dst, misfitf(false, string(n.appendText(nil)), "a numeric with a precision can't be infinite")
	case inf && p.major > 0 && p.major < 14:
		return dst, misfitf(false, string(n.appendText(nil)), "numeric has no infinity before PostgreSQL 14")
	case !bounded:
		if n.scale > maxScale || n.whole() > 131072 {
			return dst, misfitf(false, shorten(string(v)), "it has more digits than numeric can hold")
		}
	case n.fraction() > scale || n.whole() > precision-scale:
		if !clamp {
			return dst, misfitf(true, shorten(string(n.appendText(nil))), "it does not fit numeric(%d,%d)", precision, scale)
		}
		e.num, _ = integrity.AppendDecimalText(e.num[:0], n.bound(precision, scale))
		n = canonicalNumeric(e.num, max(scale, 0))
	default:
		n.scale = max(scale, 0)
	}
	return n.appendBinary(dst), nil
}

// appendBinary appends the number as a numeric field.
func (n *numeric) appendBinary(dst []byte) []byte {
	weight := n.weight
	if len(n.groups) == 0 {
		weight = 0
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(8+len(n.groups)))
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(n.groups)/2))
	dst = binary.BigEndian.AppendUint16(dst, uint16(weight))
	dst = binary.BigEndian.AppendUint16(dst, n.sign)
	dst = binary.BigEndian.AppendUint16(dst, uint16(n.scale))
	return append(dst, n.groups...)
}

// bound returns the nearest number of the precision and scale, as text: rounded
// half away from zero, then cut to the greatest one.
func (n *numeric) bound(precision, scale int) string {
	show := *n
	show.sign, show.scale = numericPositive, max(n.fraction(), 0)
	text := show.appendText(nil)
	digits := bytes.ReplaceAll(text, []byte{'.'}, nil)
	// digits × 10^-show.scale; keep = how many of them lie before the scale's end.
	keep := len(digits) - show.scale + scale
	kept := append([]byte{'0'}, digits[:min(max(keep, 0), len(digits))]...)
	for len(kept)-1 < keep {
		kept = append(kept, '0')
	}
	if keep >= 0 && keep < len(digits) && digits[keep] >= '5' {
		i := len(kept) - 1
		for kept[i] == '9' {
			kept[i] = '0'
			i--
		}
		kept[i]++
	}
	kept = bytes.TrimLeft(kept, "0")
	if len(kept) > precision {
		kept = bytes.Repeat([]byte{'9'}, precision)
	}
	if len(kept) == 0 {
		return "0"
	}
	sign := ""
	if n.sign == numericNegative {
		sign = "-"
	}
	return sign + string(kept) + "e" + strconv.Itoa(-scale)
}

// decimalInt appends a decimal as an integer, which it must be.
func (e *Encoder) decimalInt(dst []byte, p *encodePlan, v []byte, clamp bool) ([]byte, *unfit) {
	n, bad := e.decimalOf(p.typ, v)
	if bad != nil {
		return dst, bad
	}
	u, ok := n.integer()
	i := int64(u)
	if ok && (n.sign == numericNegative) == (i < 0) || u == 0 && ok {
		return appendInteger(dst, p, i, clamp)
	}
	finite := n.sign == numericPositive || n.sign == numericNegative
	if !clamp || !finite {
		return dst, misfitf(finite, shorten(string(n.appendText(nil))), "it is no integer in the range of %s", typeNameOf(p.shape))
	}
	rounded, _ := integrity.AppendDecimalText(nil, n.bound(19, 0))
	r := canonicalNumeric(rounded, 0)
	if u, ok = r.integer(); ok && int64(u) >= 0 == (r.sign == numericPositive) {
		return appendInteger(dst, p, int64(u), true)
	}
	if n.sign == numericNegative {
		return appendInteger(dst, p, math.MinInt64, true)
	}
	return appendInteger(dst, p, math.MaxInt64, true)
}
