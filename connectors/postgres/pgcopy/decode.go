package pgcopy

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"

	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

const (
	// epochDays and epochMicros lie between 1970-01-01, from which Arrow counts,
	// and 2000-01-01, from which PostgreSQL counts.
	epochDays   = 10957
	epochMicros = epochDays * 86400 * 1_000_000
)

// append decodes a value that is not NULL; the builder has room for it.
func (c *columnDecoder) append(v []byte) *misfit {
	switch c.form {
	case formText:
		c.data.Append(v)
		return nil
	case formBytea:
		c.data.Append(v)
		return nil
	case formInt4:
		if len(v) == 4 {
			c.i32.UnsafeAppend(int32(binary.BigEndian.Uint32(v)))
			return nil
		}
	case formInt8:
		if len(v) == 8 {
			c.i64.UnsafeAppend(int64(binary.BigEndian.Uint64(v)))
			return nil
		}
	case formBool:
		if len(v) == 1 {
			c.bools.UnsafeAppend(v[0] != 0)
			return nil
		}
	case formInt2:
		if len(v) == 2 {
			c.i16.UnsafeAppend(int16(binary.BigEndian.Uint16(v)))
			return nil
		}
	case formOID:
		if len(v) == 4 {
			c.u32.UnsafeAppend(binary.BigEndian.Uint32(v))
			return nil
		}
	case formFloat4:
		if len(v) == 4 {
			c.f32.UnsafeAppend(math.Float32frombits(binary.BigEndian.Uint32(v)))
			return nil
		}
	case formFloat8:
		if len(v) == 8 {
			c.f64.UnsafeAppend(math.Float64frombits(binary.BigEndian.Uint64(v)))
			return nil
		}
	case formDate:
		if len(v) == 4 {
			return c.date(int32(binary.BigEndian.Uint32(v)))
		}
	case formTime:
		if len(v) == 8 {
			c.times.UnsafeAppend(arrow.Time64(binary.BigEndian.Uint64(v)))
			return nil
		}
	case formTimestamp:
		if len(v) == 8 {
			return c.timestamp(int64(binary.BigEndian.Uint64(v)))
		}
	case formInterval:
		if len(v) == 16 {
			return c.interval(v)
		}
	case formUUID:
		if len(v) == 16 {
			c.fixed.Append(v)
			return nil
		}
	case formJSONB:
		if len(v) > 0 && v[0] == 1 {
			c.data.Append(v[1:])
			return nil
		}
	case formNumeric:
		if c.shortNumeric(v) {
			return nil
		}
		if n, ok := parseNumeric(v); ok && n.valid() {
			return c.numeric(&n)
		}
	case formArray:
		return c.array(v)
	}
	return &misfit{malformed: true, value: c.form.String()}
}

func (c *columnDecoder) date(d int32) *misfit {
	if d == math.MaxInt32 || d == math.MinInt32 {
		c.days.UnsafeAppend(arrow.Date32(d))
		return nil
	}
	if d >= math.MaxInt32-epochDays {
		return &misfit{value: fmt.Sprintf("2000-01-01 + %d days", d), reason: "it is beyond the dates that travel (days from 1970 in 32 bits)"}
	}
	c.days.UnsafeAppend(arrow.Date32(d + epochDays))
	return nil
}

func (c *columnDecoder) timestamp(t int64) *misfit {
	if t == math.MaxInt64 || t == math.MinInt64 {
		c.stamps.UnsafeAppend(arrow.Timestamp(t))
		return nil
	}
	// PostgreSQL's last 30 years of 294,246 can't be counted from 1970.
	if t >= math.MaxInt64-epochMicros {
		return &misfit{value: fmt.Sprintf("2000-01-01 + %d µs", t), reason: "it is beyond the timestamps that travel (µs from 1970 in 64 bits)"}
	}
	c.stamps.UnsafeAppend(arrow.Timestamp(t + epochMicros))
	return nil
}

func (c *columnDecoder) interval(v []byte) *misfit {
	micros := int64(binary.BigEndian.Uint64(v))
	days, months := int32(binary.BigEndian.Uint32(v[8:])), int32(binary.BigEndian.Uint32(v[12:]))
	switch {
	case micros == math.MaxInt64 && days == math.MaxInt32 && months == math.MaxInt32:
		c.spans.UnsafeAppend(integrity.IntervalPosInf)
	case micros == math.MinInt64 && days == math.MinInt32 && months == math.MinInt32:
		c.spans.UnsafeAppend(integrity.IntervalNegInf)
	case micros > math.MaxInt64/1000 || micros < math.MinInt64/1000:
		return &misfit{value: fmt.Sprintf("%d months %d days %d µs", months, days, micros),
			reason: "its time part is beyond the intervals that travel (ns in 64 bits, about 292 years)"}
	default:
		c.spans.UnsafeAppend(arrow.MonthDayNanoInterval{Months: months, Days: days, Nanoseconds: micros * 1000})
	}
	return nil
}

// shortNumeric decodes what most numerics are: at most three groups of digits
// that fit a word. It leaves all others, and those at fault, to numeric.
func (c *columnDecoder) shortNumeric(v []byte) bool {
	n := len(v)
	if c.limit == 0 || n < 8 || n > 8+3*2 || int(v[0])<<9|int(v[1])<<1 != n-8 || v[4]&^0x40|v[5] != 0 {
		return false
	}
	u := uint64(0)
	for i := 8; i < n; i += 2 {
		g := uint64(binary.BigEndian.Uint16(v[i:]))
		if g > 9999 {
			return false
		}
		u = u*10000 + g
	}
	if u > 0 {
		// The last group's weight, in digits of the scale.
		e := 4*(int(int16(binary.BigEndian.Uint16(v[2:])))-(n-8)/2+1) + c.typ.Scale
		switch {
		case e < -3 || e > 4:
			return false
		case e >= 0:
			u *= pow10(e) // 12 digits and 4 more
		case u%pow10(-e) != 0:
			return false
		default:
			u /= pow10(-e)
		}
	}
	if u >= c.limit {
		return false
	}
	d := int64(u)
	if v[4] != 0 {
		d = -d
	}
	c.d128.UnsafeAppend(decimal128.New(d>>63, uint64(d)))
	return true
}

func (c *columnDecoder) numeric(n *numeric) *misfit {
	if c.typ.Precision == 0 {
		c.buf = n.appendText(c.buf[:0])
		c.data.Append(c.buf)
		return nil
	}
	if c.d128 != nil {
		switch n.sign {
		case numericNaN:
			c.d128.UnsafeAppend(schema.DecimalNaN)
			return nil
		case numericPosInf:
			c.d128.UnsafeAppend(schema.DecimalPosInf)
			return nil
		case numericNegInf:
			c.d128.UnsafeAppend(schema.DecimalNegInf)
			return nil
		}
		if w, ok := n.unscaled(c.typ.Scale, 2); ok && w[1] < 1<<63 {
			v := decimal128.New(int64(w[1]), w[0])
			if n.sign == numericNegative {
				v = v.Negate()
			}
			if v.FitsInPrecision(int32(c.typ.Precision)) {
				c.d128.UnsafeAppend(v)
				return nil
			}
		}
		return c.tooWide(n)
	}
	switch n.sign {
	case numericNaN:
		c.d256.UnsafeAppend(schema.Decimal256NaN)
		return nil
	case numericPosInf:
		c.d256.UnsafeAppend(schema.Decimal256PosInf)
		return nil
	case numericNegInf:
		c.d256.UnsafeAppend(schema.Decimal256NegInf)
		return nil
	}
	if w, ok := n.unscaled(c.typ.Scale, 4); ok && w[3] < 1<<63 {
		v := decimal256.New(w[3], w[2], w[1], w[0])
		if n.sign == numericNegative {
			v = v.Negate()
		}
		if v.FitsInPrecision(int32(c.typ.Precision)) {
			c.d256.UnsafeAppend(v)
			return nil
		}
	}
	return c.tooWide(n)
}

func (c *columnDecoder) tooWide(n *numeric) *misfit {
	return &misfit{value: shorten(string(n.appendText(nil))), reason: "it has more digits than " + c.typ.String()}
}

// unscaled returns |n| × 10^scale in the lowest words, least first; false if it
// is no integer or does not fit them.
func (n *numeric) unscaled(scale, words int) ([4]uint64, bool) {
	var w [4]uint64
	count := len(n.groups) / 2
	if count == 0 {
		return w, true
	}
	if e := 4*(n.weight-count+1) + scale; count <= 3 && e >= -3 && e <= 4 {
		// It fits a word: 12 digits, and 4 more.
		u := uint64(0)
		for i := range count {
			u = u*10000 + n.group(i)
		}
		if e >= 0 {
			w[0] = u * pow10(e)
			return w, true
		}
		w[0] = u / pow10(-e)
		return w, u%pow10(-e) == 0
	}
	for i := range count - 1 {
		if !mulAdd(&w, words, 10000, n.group(i)) {
			return w, false
		}
	}
	// The last group may reach beyond the scale, with zeros.
	g := n.group(count - 1)
	e := 4*(n.weight-count+1) + scale
	if e < 0 {
		if e < -3 || g%pow10(-e) != 0 {
			return w, false
		}
		ok := mulAdd(&w, words, pow10(4+e), g/pow10(-e))
		return w, ok
	}
	if !mulAdd(&w, words, 10000, g) {
		return w, false
	}
	for ; e > 0; e -= 4 {
		if !mulAdd(&w, words, pow10(min(e, 4)), 0) {
			return w, false
		}
	}
	return w, true
}

func pow10(n int) uint64 {
	return [...]uint64{1, 10, 100, 1000, 10000}[n]
}

// mulAdd sets w to w × m + a; false on overflow of the words.
func mulAdd(w *[4]uint64, words int, m, a uint64) bool {
	for i := range words {
		hi, lo := bits.Mul64(w[i], m)
		var carry uint64
		w[i], carry = bits.Add64(lo, a, 0)
		a = hi + carry
	}
	return a == 0
}

func (c *columnDecoder) array(v []byte) *misfit {
	h, ok := parseArray(v)
	if !ok {
		return &misfit{malformed: true, value: "array"}
	}
	a := c.arr
	a.outer.Append(true)
	a.dims.Append(true)
	for i := range 2 * h.ndim {
		a.dimValues.Append(int32(binary.BigEndian.Uint32(h.dims[4*i:])))
	}
	a.values.Append(true)
	a.elem.builder.Reserve(h.count)
	pos := 0
	for range h.count {
		e, next, err := fieldAt(h.elems, pos)
		if err != nil {
			return &misfit{malformed: true, value: "array"}
		}
		if pos = next; e == nil {
			a.elem.builder.AppendNull()
		} else if bad := a.elem.append(e); bad != nil {
			return bad
		}
	}
	if pos != len(h.elems) {
		return &misfit{malformed: true, value: "array"}
	}
	return nil
}
