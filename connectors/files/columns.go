package files

import (
	"fmt"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

// The lineage columns.
const (
	lineageRun  = "_tranship_run_id"
	lineageTime = "_tranship_loaded_at"
)

// maxParquetDigits is the greatest precision of a decimal that common readers
// of Parquet keep exact: beyond it DuckDB, for one, reads a DOUBLE.
const maxParquetDigits = 38

// column is one column of the files.
type column struct {
	// source is the source's column; empty for a lineage column.
	source string
	field  schema.Field
	policy engine.Policy
	// text is true if the column is stored as text: by the policy, or because
	// the format has no exact type for it.
	text bool
	// key is true for a column of the key, which takes no NULL.
	key bool
}

// planColumns decides how each column is stored.
func planColumns(t *engine.Target, d *detail) ([]column, error) {
	if err := t.Schema.Validate(); err != nil {
		return nil, engine.Bugf("%s: %w", t.Resource, err)
	}
	cols := make([]column, 0, len(t.Schema.Fields)+2)
	for _, f := range t.Schema.Fields {
		c := column{source: f.Name, field: f, policy: t.Policies.For(f.Name)}
		_, named := t.Policies.Columns[f.Name]
		c.text = needsText(d.Format, f.Type) || (c.policy == engine.PolicyText && (named || special(f.Type)))
		for _, k := range t.Schema.Key {
			c.key = c.key || k == f.Name
		}
		cols = append(cols, c)
	}
	if !t.Lineage {
		return cols, nil
	}
	for _, f := range []schema.Field{
		{Name: lineageRun, Type: schema.Type{Kind: schema.String}},
		{Name: lineageTime, Type: schema.Type{Kind: schema.TimestampTZ, Digits: 6}},
	} {
		if t.Schema.Index(f.Name) >= 0 {
			return nil, engine.Permanentf("switch lineage off, or exclude the column",
				"%s: column %q exists in the source and is also a lineage column", t.Resource, f.Name)
		}
		cols = append(cols, column{field: f, policy: engine.PolicyFail})
	}
	return cols, nil
}

// needsText tells whether a format has no exact type of its own for a type.
func needsText(format string, t schema.Type) bool {
	if format != FormatParquet {
		return false
	}
	switch t.Kind {
	case schema.Decimal:
		return t.Precision == 0 || t.Precision > maxParquetDigits
	case schema.Interval:
		return true
	case schema.Array:
		return needsText(format, *t.Elem)
	}
	return false
}

// special tells whether some values of a type may have no place in a format.
func special(t schema.Type) bool {
	switch t.Kind {
	case schema.Decimal, schema.Date, schema.Time, schema.Timestamp, schema.TimestampTZ,
		schema.Float32, schema.Float64, schema.Array, schema.JSON, schema.JSONB:
		return true
	}
	return false
}

// nullable tells whether the stored column may hold NULL.
func (c column) nullable() bool { return c.field.Nullable || c.policy == engine.PolicyNull }

// storedType names the column's type in the files.
func (c column) storedType(format string) string {
	if c.text {
		return "text"
	}
	if format != FormatParquet {
		return c.field.Type.String()
	}
	return parquetTypeName(c.field.Type)
}

func parquetTypeName(t schema.Type) string {
	unit := "MICROS"
	if t.Digits > 6 {
		unit = "NANOS"
	}
	switch t.Kind {
	case schema.Bool:
		return "BOOLEAN"
	case schema.Int8, schema.Int16, schema.Int32, schema.Int64:
		return "INT(" + string(t.Kind[3:]) + ",true)"
	case schema.Uint8, schema.Uint16, schema.Uint32, schema.Uint64:
		return "INT(" + string(t.Kind[4:]) + ",false)"
	case schema.Float32:
		return "FLOAT"
	case schema.Float64:
		return "DOUBLE"
	case schema.Decimal:
		return fmt.Sprintf("DECIMAL(%d,%d)", t.Precision, t.Scale)
	case schema.Bytes:
		return "BYTE_ARRAY"
	case schema.Date:
		return "DATE"
	case schema.Time:
		return "TIME(" + unit + ")"
	case schema.Timestamp:
		return "TIMESTAMP(" + unit + ",local)"
	case schema.TimestampTZ:
		return "TIMESTAMP(" + unit + ",UTC)"
	case schema.JSON, schema.JSONB:
		return "JSON"
	case schema.UUID:
		return "UUID"
	case schema.Array:
		return "LIST<" + parquetTypeName(*t.Elem) + ">"
	}
	return "STRING"
}
