package integrity_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/tranship-io/tranship/engine/schema"
)

// allKinds is a schema with a column of every kind, and record a record of it:
// rows of plain values, NULLs, and extremes.
func allKinds() *schema.Schema {
	i32 := schema.Type{Kind: schema.Int32}
	s := &schema.Schema{}
	for _, t := range []schema.Type{
		{Kind: schema.Bool}, {Kind: schema.Int8}, {Kind: schema.Int16}, {Kind: schema.Int32}, {Kind: schema.Int64},
		{Kind: schema.Uint8}, {Kind: schema.Uint16}, {Kind: schema.Uint32}, {Kind: schema.Uint64},
		{Kind: schema.Float32}, {Kind: schema.Float64},
		{Kind: schema.Decimal, Precision: 12, Scale: 2}, {Kind: schema.Decimal, Precision: 60, Scale: 30}, {Kind: schema.Decimal},
		{Kind: schema.String}, {Kind: schema.Bytes}, {Kind: schema.Date},
		{Kind: schema.Time, Digits: 6}, {Kind: schema.Time, Digits: 9},
		{Kind: schema.Timestamp, Digits: 6}, {Kind: schema.TimestampTZ, Digits: 9}, {Kind: schema.Interval},
		{Kind: schema.JSON}, {Kind: schema.JSONB}, {Kind: schema.UUID},
		{Kind: schema.Enum, Labels: []string{"a", "b"}}, {Kind: schema.Unknown},
		{Kind: schema.Array, Elem: &i32},
	} {
		s.Fields = append(s.Fields, schema.Field{Name: t.String(), Type: t, Nullable: true})
	}
	return s
}

func record(tb testing.TB, mem memory.Allocator) arrow.RecordBatch {
	tb.Helper()
	b := array.NewRecordBuilder(mem, allKinds().Arrow())
	defer b.Release()
	for row := range 9 {
		for i := range b.Fields() {
			if row%3 == 2 {
				b.Field(i).AppendNull()
				continue
			}
			appendValue(b.Field(i), row)
		}
	}
	return b.NewRecordBatch()
}

func appendValue(b array.Builder, row int) {
	n := int64(row)*1_000_003 - 2_000_000
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(row%2 == 0)
	case *array.Int8Builder:
		b.Append(int8(n))
	case *array.Int16Builder:
		b.Append(int16(n))
	case *array.Int32Builder:
		b.Append(int32(n))
	case *array.Int64Builder:
		b.Append(n)
	case *array.Uint8Builder:
		b.Append(uint8(n))
	case *array.Uint16Builder:
		b.Append(uint16(n))
	case *array.Uint32Builder:
		b.Append(uint32(n))
	case *array.Uint64Builder:
		b.Append(uint64(n))
	case *array.Float32Builder:
		b.Append(float32(n) / 3)
	case *array.Float64Builder:
		b.Append(float64(n) / 3)
	case *array.Decimal128Builder:
		b.Append(decimal128.FromI64(n))
	case *array.Decimal256Builder:
		b.Append(decimal256.FromI64(n))
	case *array.StringBuilder:
		b.Append([]string{"10.50", "-7e3", "0"}[row%3])
	case *array.BinaryBuilder:
		b.Append(make([]byte, row))
	case *array.Date32Builder:
		b.Append(arrow.Date32(row * 1000))
	case *array.Time64Builder:
		b.Append(arrow.Time64(row*1000 + row))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(n*1_000_000 + int64(row)))
	case *array.MonthDayNanoIntervalBuilder:
		b.Append(arrow.MonthDayNanoInterval{Months: int32(row), Days: -3, Nanoseconds: n * 1000})
	case *array.FixedSizeBinaryBuilder:
		b.Append([]byte("0123456789abcdef"))
	case *array.StructBuilder:
		b.Append(true)
		dims := b.FieldBuilder(schema.ArrayDims).(*array.ListBuilder)
		values := b.FieldBuilder(schema.ArrayValues).(*array.ListBuilder)
		dims.Append(true)
		values.Append(true)
		if row > 0 {
			dims.ValueBuilder().(*array.Int32Builder).AppendValues([]int32{int32(row), 1}, nil)
		}
		for i := range row {
			if i == 1 {
				values.ValueBuilder().AppendNull()
			} else {
				values.ValueBuilder().(*array.Int32Builder).Append(int32(i))
			}
		}
	default:
		panic(b.Type().String())
	}
}
