package memsource

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

// record makes one record of rows: those that came as records are concatenated,
// those that came as values are built.
func record(mem memory.Allocator, s *schema.Schema, rows []Row) (arrow.RecordBatch, error) {
	if rows[0].rec == nil {
		return build(mem, s, rows)
	}
	cols := make([]arrow.Array, len(s.Fields))
	defer func() {
		for _, c := range cols {
			if c != nil {
				c.Release()
			}
		}
	}()
	for i := range cols {
		parts := make([]arrow.Array, len(rows))
		for j, row := range rows {
			parts[j] = row.rec.Column(i)
		}
		var err error
		if cols[i], err = array.Concatenate(parts, mem); err != nil {
			return nil, engine.Bugf("concatenate column %q: %w", s.Fields[i].Name, err)
		}
	}
	return array.NewRecordBatch(s.Arrow(), cols, int64(len(rows))), nil
}

func build(mem memory.Allocator, s *schema.Schema, rows []Row) (arrow.RecordBatch, error) {
	b := array.NewRecordBuilder(mem, s.Arrow())
	defer b.Release()
	for i, f := range s.Fields {
		for _, row := range rows {
			v := row.values[i]
			switch col := b.Field(i).(type) {
			case *array.Int64Builder:
				if n, ok := v.(int64); ok {
					col.Append(n)
					continue
				}
			case *array.StringBuilder:
				if s, ok := v.(string); ok {
					col.Append(s)
					continue
				}
			case *array.BinaryBuilder:
				if s, ok := v.([]byte); ok {
					col.Append(s)
					continue
				}
			case *array.BooleanBuilder:
				if x, ok := v.(bool); ok {
					col.Append(x)
					continue
				}
			case *array.Float64Builder:
				if x, ok := v.(float64); ok {
					col.Append(x)
					continue
				}
			}
			if v != nil {
				return nil, engine.Bugf("column %q of kind %s holds a %T", f.Name, f.Type.Kind, v)
			}
			b.Field(i).AppendNull()
		}
	}
	return b.NewRecordBatch(), nil
}
