package integrity

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"

	"github.com/tranship-io/tranship/engine/schema"
)

const (
	// epochDays and epochMicros lie between 1970-01-01, from which Arrow counts,
	// and 2000-01-01, from which the canonical encoding counts.
	epochDays   = 10957
	epochMicros = epochDays * 86400 * 1_000_000
)

// column reads the values of one column of the bound record.
type column struct {
	name  string
	typ   schema.Type
	arrow arrow.DataType
	plain bool
	nanos bool

	// Of the bound array; slices begin at its first value.
	nulls  []byte
	offset int
	bools  *array.Boolean
	i8     []int8
	i16    []int16
	i32    []int32
	i64    []int64
	u8     []uint8
	u16    []uint16
	u32    []uint32
	u64    []uint64
	f32    []float32
	f64    []float64
	d128   []decimal128.Num
	d256   []decimal256.Num
	days   []arrow.Date32
	times  []arrow.Time64
	stamps []arrow.Timestamp
	spans  []arrow.MonthDayNanoInterval
	starts []int32
	data   []byte
	fixed  *array.FixedSizeBinary
	// Of an array: where its dims and values begin, and a reader of each.
	dimStarts []int32
	dims      []int32
	elem      *column
}

func newColumn(name string, t schema.Type, plain bool) *column {
	c := &column{name: name, typ: t, arrow: t.Arrow(), plain: plain, nanos: t.Digits > 6}
	if t.Kind == schema.Array {
		c.elem = newColumn(name, *t.Elem, plain)
	}
	return c
}

// bind points the reader at an array, which must stay until the next bind.
func (c *column) bind(a arrow.Array) error {
	if a.DataType().ID() != c.arrow.ID() {
		return c.mismatch(a)
	}
	if a.Len() == 0 {
		// It may have no buffers at all, and nothing of it is read.
		return nil
	}
	c.nulls, c.offset = nil, a.Data().Offset()
	if a.NullN() > 0 {
		c.nulls = a.NullBitmapBytes()
	}
	switch a := a.(type) {
	case *array.Boolean:
		c.bools = a
	case *array.Int8:
		c.i8 = a.Int8Values()
	case *array.Int16:
		c.i16 = a.Int16Values()
	case *array.Int32:
		c.i32 = a.Int32Values()
	case *array.Int64:
		c.i64 = a.Int64Values()
	case *array.Uint8:
		c.u8 = a.Uint8Values()
	case *array.Uint16:
		c.u16 = a.Uint16Values()
	case *array.Uint32:
		c.u32 = a.Uint32Values()
	case *array.Uint64:
		c.u64 = a.Uint64Values()
	case *array.Float32:
		c.f32 = a.Float32Values()
	case *array.Float64:
		c.f64 = a.Float64Values()
	case *array.Decimal128:
		c.d128 = a.Values()
	case *array.Decimal256:
		c.d256 = a.Values()
	case *array.String:
		c.starts, c.data = a.ValueOffsets(), valueData(a)
	case *array.Binary:
		c.starts, c.data = a.ValueOffsets(), valueData(a)
	case *array.Date32:
		c.days = a.Date32Values()
	case *array.Time64:
		c.times = a.Time64Values()
	case *array.Timestamp:
		c.stamps = a.TimestampValues()
	case *array.MonthDayNanoInterval:
		c.spans = a.MonthDayNanoIntervalValues()
	case *array.FixedSizeBinary:
		c.fixed = a
	case *array.Struct:
		return c.bindArray(a)
	default:
		return c.mismatch(a)
	}
	if t, ok := c.arrow.(arrow.TemporalWithUnit); ok {
		if u, ok := a.DataType().(arrow.TemporalWithUnit); !ok || u.TimeUnit() != t.TimeUnit() {
			return c.mismatch(a)
		}
	}
	return nil
}

func (c *column) mismatch(a arrow.Array) error {
	return fmt.Errorf("column %q: the record holds %s, its schema says %s, which travels as %s",
		c.name, a.DataType(), c.typ, c.arrow)
}

func (c *column) bindArray(a *array.Struct) error {
	if c.elem == nil || a.NumField() != 2 {
		return c.mismatch(a)
	}
	dims, ok := a.Field(schema.ArrayDims).(*array.List)
	values, ok2 := a.Field(schema.ArrayValues).(*array.List)
	if !ok || !ok2 {
		return c.mismatch(a)
	}
	lengths, ok := dims.ListValues().(*array.Int32)
	if !ok {
		return c.mismatch(a)
	}
	c.dims = lengths.Int32Values()
	c.dimStarts = listStarts(dims)
	c.starts = listStarts(values)
	return c.elem.bind(values.ListValues())
}

// listStarts returns the offsets of a list's values, from its first on.
func listStarts(l *array.List) []int32 {
	return l.Offsets()[l.Data().Offset():]
}

// valueData returns all the bytes that the offsets point into.
func valueData(a interface{ Data() arrow.ArrayData }) []byte {
	if b := a.Data().Buffers()[2]; b != nil {
		return b.Bytes()
	}
	return nil
}

// append appends row i as a field.
func (c *column) append(dst []byte, i int, canon *Canonicalizer) ([]byte, error) {
	if c.nulls != nil && bitutil.BitIsNotSet(c.nulls, c.offset+i) {
		return AppendNull(dst), nil
	}
	switch c.typ.Kind {
	case schema.Bool:
		return AppendBool(dst, c.bools.Value(i)), nil
	case schema.Int8:
		return AppendInt(dst, int64(c.i8[i])), nil
	case schema.Int16:
		return AppendInt(dst, int64(c.i16[i])), nil
	case schema.Int32:
		return AppendInt(dst, int64(c.i32[i])), nil
	case schema.Int64:
		return AppendInt(dst, c.i64[i]), nil
	case schema.Uint8:
		return AppendInt(dst, int64(c.u8[i])), nil
	case schema.Uint16:
		return AppendInt(dst, int64(c.u16[i])), nil
	case schema.Uint32:
		return AppendInt(dst, int64(c.u32[i])), nil
	case schema.Uint64:
		return AppendInt(dst, int64(c.u64[i])), nil
	case schema.Float32:
		return AppendFloat(dst, float64(c.f32[i])), nil
	case schema.Float64:
		return AppendFloat(dst, c.f64[i]), nil
	case schema.Date:
		return c.date(dst, int32(c.days[i]))
	case schema.Time:
		if c.nanos {
			micros, nanos := splitNanos(int64(c.times[i]))
			return AppendMicros(dst, micros, nanos), nil
		}
		return AppendMicros(dst, int64(c.times[i]), 0), nil
	case schema.Timestamp, schema.TimestampTZ:
		return c.timestamp(dst, int64(c.stamps[i]))
	case schema.Interval:
		return c.interval(dst, c.spans[i]), nil
	case schema.UUID:
		return AppendBytes(dst, c.fixed.Value(i)), nil
	case schema.Array:
		return c.array(dst, i, canon)
	case schema.Decimal:
		if !c.plain || c.typ.Precision > 0 {
			return c.decimal(dst, i)
		}
	case schema.JSONB:
		if !c.plain {
			dst, at := BeginField(dst)
			dst, err := canon.Append(dst, c.data[c.starts[i]:c.starts[i+1]])
			return EndField(dst, at), err
		}
	}
	return AppendBytes(dst, c.data[c.starts[i]:c.starts[i+1]]), nil
}

func (c *column) decimal(dst []byte, i int) ([]byte, error) {
	dst, at := BeginField(dst)
	var err error
	switch {
	case c.typ.Precision == 0:
		dst, err = AppendDecimalText(dst, c.data[c.starts[i]:c.starts[i+1]])
	case c.typ.Precision <= 38:
		dst, err = AppendDecimal128(dst, c.d128[i], int32(c.typ.Scale))
	default:
		dst, err = AppendDecimal256(dst, c.d256[i], int32(c.typ.Scale))
	}
	return EndField(dst, at), err
}

func (c *column) date(dst []byte, d int32) ([]byte, error) {
	if d == schema.DatePosInf || d == schema.DateNegInf {
		return AppendDays(dst, d), nil
	}
	if d <= math.MinInt32+epochDays {
		return dst, fmt.Errorf("the date %d days from 1970 is beyond the canonical range", d)
	}
	return AppendDays(dst, d-epochDays), nil
}

func (c *column) timestamp(dst []byte, t int64) ([]byte, error) {
	if t == schema.TimestampPosInf || t == schema.TimestampNegInf {
		return AppendMicros(dst, t, 0), nil
	}
	var nanos uint16
	if c.nanos {
		t, nanos = splitNanos(t)
	} else if t <= math.MinInt64+epochMicros {
		return dst, fmt.Errorf("the timestamp %d µs from 1970 is beyond the canonical range", t)
	}
	return AppendMicros(dst, t-epochMicros, nanos), nil
}

// interval: the extremes of all three parts together are ±infinity, in ns as in
// PostgreSQL's µs.
func (c *column) interval(dst []byte, v arrow.MonthDayNanoInterval) []byte {
	if v == IntervalPosInf || v == IntervalNegInf {
		return AppendInterval(dst, v.Months, v.Days, v.Nanoseconds, 0)
	}
	micros, nanos := splitNanos(v.Nanoseconds)
	return AppendInterval(dst, v.Months, v.Days, micros, nanos)
}

// An interval of which every part is extreme is infinite, as in PostgreSQL 17.
var (
	IntervalPosInf = arrow.MonthDayNanoInterval{Months: math.MaxInt32, Days: math.MaxInt32, Nanoseconds: math.MaxInt64}
	IntervalNegInf = arrow.MonthDayNanoInterval{Months: math.MinInt32, Days: math.MinInt32, Nanoseconds: math.MinInt64}
)

func (c *column) array(dst []byte, i int, canon *Canonicalizer) ([]byte, error) {
	dst, at := BeginField(dst)
	dims := c.dims[c.dimStarts[i]:c.dimStarts[i+1]]
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(dims)/2))
	for _, d := range dims {
		dst = binary.BigEndian.AppendUint32(dst, uint32(d))
	}
	var err error
	for j := c.starts[i]; j < c.starts[i+1]; j++ {
		if dst, err = c.elem.append(dst, int(j), canon); err != nil {
			return dst, err
		}
	}
	return EndField(dst, at), nil
}
