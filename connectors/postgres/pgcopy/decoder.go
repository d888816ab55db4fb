package pgcopy

import (
	"encoding/binary"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

// Decoder turns tuples into Arrow records in the schema's in-flight types.
type Decoder struct {
	builder *array.RecordBuilder
	columns []columnDecoder
	rows    int
	bytes   int64
	// room is the number of rows that every builder has room for.
	room int
	// hint is the number of rows to make room for first.
	hint   int
	broken bool
}

// minRoom is the least number of rows to make room for at once.
const minRoom = 256

// NewDecoder makes a decoder of tuples whose fields are in the binary form of
// their native types; fields of kind Unknown must have been selected cast to
// text ([TypeInfo.SelectAsText]).
func NewDecoder(mem memory.Allocator, fields []schema.Field) (*Decoder, error) {
	for _, f := range fields {
		if _, ok := shapeOf(f.Type); !ok {
			return nil, engine.Bugf("decode column %q: PostgreSQL has no type that sends %s", f.Name, f.Type)
		}
	}
	s := schema.Schema{Fields: fields}
	d := &Decoder{builder: array.NewRecordBuilder(mem, s.Arrow()), columns: make([]columnDecoder, len(fields))}
	for i, f := range fields {
		d.columns[i] = newColumnDecoder(f.Name, f.Type, d.builder.Field(i))
	}
	return d, nil
}

// Append decodes one complete tuple. A value that no in-flight type can hold
// gives a *RowError. After any error the decoder takes only Release: the row is
// half in it.
func (d *Decoder) Append(tuple []byte) error {
	if d.broken {
		return engine.Bugf("decode copy tuple: the decoder failed before")
	}
	// Arrow's offsets are int32: the caller takes the record long before.
	if d.bytes+int64(len(tuple)) > math.MaxInt32 {
		return engine.Bugf("decode copy tuple: a record of more than 2 GiB")
	}
	if d.rows == d.room {
		next := 2 * d.rows
		if d.hint > 0 {
			next = d.rows + d.rows/4 // a little larger than the one before
		}
		d.grow(max(next, d.hint, minRoom))
	}
	if err := d.append(tuple); err != nil {
		d.broken = true
		return err
	}
	d.rows++
	d.bytes += int64(len(tuple))
	return nil
}

func (d *Decoder) append(tuple []byte) error {
	if len(tuple) < 2 {
		return errShort()
	}
	if n := int(int16(binary.BigEndian.Uint16(tuple))); n != len(d.columns) {
		return countError(n, len(d.columns))
	}
	pos := 2
	for i := range d.columns {
		if len(tuple)-pos < 4 {
			return errShort()
		}
		n := int(int32(binary.BigEndian.Uint32(tuple[pos:])))
		pos += 4
		c := &d.columns[i]
		if n < 0 {
			if n != -1 {
				return lengthError(n)
			}
			c.builder.AppendNull()
			continue
		}
		if n > len(tuple)-pos {
			return errShort()
		}
		if bad := c.append(tuple[pos : pos+n]); bad != nil {
			return bad.at(d.rows, i, c.name)
		}
		pos += n
	}
	if pos != len(tuple) {
		return engine.Bugf("decode copy tuple: it has %d bytes, its fields end at %d", len(tuple), pos)
	}
	return nil
}

// grow makes room for as many rows in all.
func (d *Decoder) grow(rows int) {
	for i := range d.columns {
		c := &d.columns[i]
		// Not Reserve, which takes the next power of two.
		c.builder.Resize(rows)
		if c.data != nil && d.rows == 0 {
			c.data.ReserveData(c.dataHint)
		}
	}
	d.room = rows
}

// Rows is the number of tuples since the last Take.
func (d *Decoder) Rows() int { return d.rows }

// Bytes is about the size in memory of the rows since the last Take.
func (d *Decoder) Bytes() int64 { return d.bytes }

// Take returns the rows appended since the last Take as a record, which the
// caller releases, and starts anew.
func (d *Decoder) Take() arrow.RecordBatch {
	rows := d.rows
	for i := range d.columns {
		if c := &d.columns[i]; c.data != nil {
			c.dataHint = c.data.DataLen() + c.data.DataLen()/16
		}
	}
	rec := d.builder.NewRecordBatch()
	d.rows, d.bytes, d.room = 0, 0, 0
	// The next record will be about as large: growing step by step would copy
	// everything twice.
	d.hint = rows + rows/16
	return rec
}

// Release gives the decoder's memory back.
func (d *Decoder) Release() { d.builder.Release() }

// misfit is a value that can't be decoded: malformed (a bug) or beyond what the
// in-flight type holds.
type misfit struct {
	malformed bool
	value     string
	reason    string
}

func (m *misfit) at(row, column int, name string) error {
	if m.malformed {
		return engine.Bugf("decode column %q row %d: its %s is malformed", name, row, m.value)
	}
	return &RowError{Row: row, Column: column, Name: name, Value: m.value, Reason: m.reason}
}

// columnDecoder appends the values of one column to its builder. One of the
// typed builders is the builder.
type columnDecoder struct {
	name    string
	typ     schema.Type
	form    form
	builder array.Builder

	bools *array.BooleanBuilder
	i16   *array.Int16Builder
	i32   *array.Int32Builder
	i64   *array.Int64Builder
	u32   *array.Uint32Builder
	f32   *array.Float32Builder
	f64   *array.Float64Builder
	d128  *array.Decimal128Builder
	// limit is above every value that short numerics may have unscaled; 0: the
	// column takes none.
	limit uint64
	d256  *array.Decimal256Builder
	data  *array.BinaryBuilder
	// dataHint is the number of bytes to make room for first.
	dataHint int
	days     *array.Date32Builder
	times    *array.Time64Builder
	stamps   *array.TimestampBuilder
	spans    *array.MonthDayNanoIntervalBuilder
	fixed    *array.FixedSizeBinaryBuilder
	arr      *arrayDecoder
	buf      []byte
}

// arrayDecoder has the builders below an array's struct.
type arrayDecoder struct {
	outer     *array.StructBuilder
	dims      *array.ListBuilder
	dimValues *array.Int32Builder
	values    *array.ListBuilder
	elem      columnDecoder
}

func newColumnDecoder(name string, t schema.Type, b array.Builder) columnDecoder {
	s, _ := shapeOf(t)
	c := columnDecoder{name: name, typ: t, form: s.form, builder: b}
	switch b := b.(type) {
	case *array.BooleanBuilder:
		c.bools = b
	case *array.Int16Builder:
		c.i16 = b
	case *array.Int32Builder:
		c.i32 = b
	case *array.Int64Builder:
		c.i64 = b
	case *array.Uint32Builder:
		c.u32 = b
	case *array.Float32Builder:
		c.f32 = b
	case *array.Float64Builder:
		c.f64 = b
	case *array.Decimal128Builder:
		c.d128 = b
		c.limit = 1
		for range min(t.Precision, 18) {
			c.limit *= 10
		}
	case *array.Decimal256Builder:
		c.d256 = b
	case *array.StringBuilder:
		c.data = b.BinaryBuilder
	case *array.BinaryBuilder:
		c.data = b
	case *array.Date32Builder:
		c.days = b
	case *array.Time64Builder:
		c.times = b
	case *array.TimestampBuilder:
		c.stamps = b
	case *array.MonthDayNanoIntervalBuilder:
		c.spans = b
	case *array.FixedSizeBinaryBuilder:
		c.fixed = b
	case *array.StructBuilder:
		a := &arrayDecoder{outer: b}
		a.dims = b.FieldBuilder(schema.ArrayDims).(*array.ListBuilder)
		a.dimValues = a.dims.ValueBuilder().(*array.Int32Builder)
		a.values = b.FieldBuilder(schema.ArrayValues).(*array.ListBuilder)
		a.elem = newColumnDecoder(name, *t.Elem, a.values.ValueBuilder())
		c.arr = a
	}
	return c
}
