package schema

import (
	"github.com/apache/arrow-go/v18/arrow"
)

// Positions of the two children of an array column's Arrow struct.
const (
	// ArrayDims holds, for each dimension from the outermost, its length and
	// its lower bound: [length, lower, length, lower, …]; empty for an empty array.
	ArrayDims = 0
	// ArrayValues holds the elements in row-major order.
	ArrayValues = 1
)

// Arrow returns the Arrow type in which values of the type travel.
//
//	bounded Decimal        decimal128 (≤ 38 digits) or decimal256
//	unbounded Decimal      utf8, decimal text
//	Date                   date32; math.MaxInt32, MinInt32 are ±infinity
//	Time                   time64[µs or ns]
//	Timestamp              timestamp[µs or ns] without zone; MaxInt64, MinInt64 are ±infinity
//	TimestampTZ            timestamp[µs or ns, UTC]; the same
//	Interval               month_day_nano
//	JSON, JSONB, Enum      utf8
//	UUID                   fixed_size_binary(16)
//	Unknown                utf8, the system's text form
//	Array                  struct<dims: list<int32>, values: list<element>>
//
// A bounded decimal that can be NaN or infinite in its native system travels
// these as the sentinels of [DecimalNaN] and its siblings.
func (t Type) Arrow() arrow.DataType {
	unit := arrow.Microsecond
	if t.Digits > 6 {
		unit = arrow.Nanosecond
	}
	switch t.Kind {
	case Bool:
		return arrow.FixedWidthTypes.Boolean
	case Int8:
		return arrow.PrimitiveTypes.Int8
	case Int16:
		return arrow.PrimitiveTypes.Int16
	case Int32:
		return arrow.PrimitiveTypes.Int32
	case Int64:
		return arrow.PrimitiveTypes.Int64
	case Uint8:
		return arrow.PrimitiveTypes.Uint8
	case Uint16:
		return arrow.PrimitiveTypes.Uint16
	case Uint32:
		return arrow.PrimitiveTypes.Uint32
	case Uint64:
		return arrow.PrimitiveTypes.Uint64
	case Float32:
		return arrow.PrimitiveTypes.Float32
	case Float64:
		return arrow.PrimitiveTypes.Float64
	case Decimal:
		switch {
		case t.Precision == 0:
			return arrow.BinaryTypes.String
		case t.Precision <= 38:
			return &arrow.Decimal128Type{Precision: int32(t.Precision), Scale: int32(t.Scale)}
		default:
			return &arrow.Decimal256Type{Precision: int32(t.Precision), Scale: int32(t.Scale)}
		}
	case Bytes:
		return arrow.BinaryTypes.Binary
	case Date:
		return arrow.FixedWidthTypes.Date32
	case Time:
		return &arrow.Time64Type{Unit: unit}
	case Timestamp:
		return &arrow.TimestampType{Unit: unit}
	case TimestampTZ:
		return &arrow.TimestampType{Unit: unit, TimeZone: "UTC"}
	case Interval:
		return arrow.FixedWidthTypes.MonthDayNanoInterval
	case UUID:
		return &arrow.FixedSizeBinaryType{ByteWidth: 16}
	case Array:
		return arrow.StructOf(
			arrow.Field{Name: "dims", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32)},
			arrow.Field{Name: "values", Type: arrow.ListOf(t.Elem.Arrow())},
		)
	}
	return arrow.BinaryTypes.String
}

// Arrow returns the Arrow schema of rows in flight.
func (s *Schema) Arrow() *arrow.Schema {
	fields := make([]arrow.Field, len(s.Fields))
	for i, f := range s.Fields {
		fields[i] = arrow.Field{Name: f.Name, Type: f.Type.Arrow(), Nullable: true}
	}
	return arrow.NewSchema(fields, nil)
}
