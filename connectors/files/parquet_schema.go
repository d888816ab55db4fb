package files

import (
	"math"

	"github.com/apache/arrow-go/v18/parquet"
	pqschema "github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

// parquetSchema describes the file. It is made here rather than derived from
// Arrow types, which know neither JSON nor UUID.
func parquetSchema(cols []column) (*pqschema.GroupNode, error) {
	nodes := make(pqschema.FieldList, 0, len(cols))
	for _, c := range cols {
		rep := parquet.Repetitions.Required
		if c.nullable() {
			rep = parquet.Repetitions.Optional
		}
		n, err := parquetNode(c.field.Name, c.field.Type, c.text, rep)
		if err != nil {
			return nil, engine.Bugf("column %q: %w", c.field.Name, err)
		}
		nodes = append(nodes, n)
	}
	return pqschema.NewGroupNode("schema", parquet.Repetitions.Required, nodes, -1)
}

func parquetNode(name string, t schema.Type, text bool, rep parquet.Repetition) (pqschema.Node, error) {
	if t.Kind == schema.Array && !text {
		elem, err := parquetNode("element", *t.Elem, false, parquet.Repetitions.Optional)
		if err != nil {
			return nil, err
		}
		return pqschema.ListOfWithName(name, elem, rep, -1)
	}
	physical, logical, width := parquetType(t, text)
	return pqschema.NewPrimitiveNodeLogical(name, rep, logical, physical, width, -1)
}

// parquetType returns physical type, logical type and byte width of a value.
func parquetType(t schema.Type, text bool) (parquet.Type, pqschema.LogicalType, int) {
	i32, i64, str := parquet.Types.Int32, parquet.Types.Int64, parquet.Types.ByteArray
	if text {
		return str, pqschema.StringLogicalType{}, -1
	}
	unit := pqschema.TimeUnitMicros
	if t.Digits > 6 {
		unit = pqschema.TimeUnitNanos
	}
	switch t.Kind {
	case schema.Bool:
		return parquet.Types.Boolean, pqschema.NoLogicalType{}, -1
	case schema.Int8:
		return i32, pqschema.NewIntLogicalType(8, true), -1
	case schema.Int16:
		return i32, pqschema.NewIntLogicalType(16, true), -1
	case schema.Int32:
		return i32, pqschema.NewIntLogicalType(32, true), -1
	case schema.Int64:
		return i64, pqschema.NewIntLogicalType(64, true), -1
	case schema.Uint8:
		return i32, pqschema.NewIntLogicalType(8, false), -1
	case schema.Uint16:
		return i32, pqschema.NewIntLogicalType(16, false), -1
	case schema.Uint32:
		return i32, pqschema.NewIntLogicalType(32, false), -1
	case schema.Uint64:
		return i64, pqschema.NewIntLogicalType(64, false), -1
	case schema.Float32:
		return parquet.Types.Float, pqschema.NoLogicalType{}, -1
	case schema.Float64:
		return parquet.Types.Double, pqschema.NoLogicalType{}, -1
	case schema.Decimal:
		logical := pqschema.NewDecimalLogicalType(int32(t.Precision), int32(t.Scale))
		switch {
		case t.Precision <= 9:
			return i32, logical, -1
		case t.Precision <= 18:
			return i64, logical, -1
		}
		return parquet.Types.FixedLenByteArray, logical, decimalWidth(t.Precision)
	case schema.Bytes:
		return str, pqschema.NoLogicalType{}, -1
	case schema.Date:
		return i32, pqschema.DateLogicalType{}, -1
	case schema.Time:
		// Not adjusted to UTC: a time of day belongs to no zone.
		return i64, pqschema.NewTimeLogicalType(false, unit), -1
	case schema.Timestamp:
		return i64, pqschema.NewTimestampLogicalType(false, unit), -1
	case schema.TimestampTZ:
		return i64, pqschema.NewTimestampLogicalType(true, unit), -1
	case schema.JSON, schema.JSONB:
		return str, pqschema.JSONLogicalType{}, -1
	case schema.UUID:
		return parquet.Types.FixedLenByteArray, pqschema.UUIDLogicalType{}, 16
	}
	return str, pqschema.StringLogicalType{}, -1
}

// decimalWidth is the least number of bytes that hold every integer of as many
// decimal digits, with its sign.
func decimalWidth(precision int) int {
	return int(math.Ceil((float64(precision)*math.Log2(10) + 1) / 8))
}
