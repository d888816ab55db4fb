package sample

import (
	"slices"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

// The resources.
const (
	orders = "sample.orders"
	kinds  = "sample.kinds"
)

func typ(k schema.Kind) schema.Type { return schema.Type{Kind: k} }

func fraction(k schema.Kind, digits int) schema.Type { return schema.Type{Kind: k, Digits: digits} }

func decimal(precision, scale int) schema.Type {
	return schema.Type{Kind: schema.Decimal, Precision: precision, Scale: scale}
}

func listOf(elem schema.Type) schema.Type { return schema.Type{Kind: schema.Array, Elem: &elem} }

// leading are the columns that every resource begins with.
func leading() []schema.Field {
	return []schema.Field{
		{Name: "id", Type: typ(schema.Int64)},
		{Name: "updated_at", Type: fraction(schema.TimestampTZ, 6)},
		{Name: "note", Type: typ(schema.String), Nullable: true},
	}
}

func ordersSchema() schema.Schema {
	return schema.Schema{Key: []string{"id"}, Fields: append(leading(),
		schema.Field{Name: "customer_id", Type: typ(schema.Int32)},
		schema.Field{Name: "status", Type: schema.Type{Kind: schema.Enum, Labels: []string{"new", "paid", "sent", "returned"}}},
		schema.Field{Name: "amount", Type: decimal(12, 2)},
		schema.Field{Name: "weight", Type: typ(schema.Float64), Nullable: true},
		schema.Field{Name: "express", Type: typ(schema.Bool)},
		schema.Field{Name: "due", Type: typ(schema.Date), Nullable: true},
	)}
}

func kindsSchema() schema.Schema {
	s := schema.Schema{Key: []string{"id"}, Fields: leading()}
	for _, c := range []struct {
		name string
		t    schema.Type
	}{
		{"bool", typ(schema.Bool)},
		{"int8", typ(schema.Int8)}, {"int16", typ(schema.Int16)}, {"int32", typ(schema.Int32)}, {"int64", typ(schema.Int64)},
		{"uint8", typ(schema.Uint8)}, {"uint16", typ(schema.Uint16)}, {"uint32", typ(schema.Uint32)}, {"uint64", typ(schema.Uint64)},
		{"float32", typ(schema.Float32)}, {"float64", typ(schema.Float64)},
		{"decimal_12_2", decimal(12, 2)}, {"decimal_38_30", decimal(38, 30)}, {"decimal_76_10", decimal(76, 10)}, {"decimal", decimal(0, 0)},
		{"string", typ(schema.String)}, {"bytes", typ(schema.Bytes)},
		{"date", typ(schema.Date)}, {"time", fraction(schema.Time, 6)}, {"time_ns", fraction(schema.Time, 9)},
		{"timestamp", fraction(schema.Timestamp, 6)}, {"timestamp_ns", fraction(schema.Timestamp, 9)},
		{"timestamptz", fraction(schema.TimestampTZ, 6)}, {"timestamptz_ns", fraction(schema.TimestampTZ, 9)},
		{"interval", typ(schema.Interval)}, {"json", typ(schema.JSON)}, {"jsonb", typ(schema.JSONB)}, {"uuid", typ(schema.UUID)},
		{"enum", schema.Type{Kind: schema.Enum, Labels: []string{"sad", "ok", "happy"}}}, {"unknown", typ(schema.Unknown)},
		{"array_int32", listOf(typ(schema.Int32))}, {"array_string", listOf(typ(schema.String))},
		{"array_decimal", listOf(decimal(12, 2))}, {"array_float64", listOf(typ(schema.Float64))},
	} {
		s.Fields = append(s.Fields, schema.Field{Name: c.name, Type: c.t, Nullable: true})
	}
	return s
}

// resources returns what the source offers.
func (s *session) resources() []engine.Resource {
	all := []engine.Resource{
		{Name: orders, Path: []string{"sample", "orders"}, Schema: ordersSchema()},
		{Name: kinds, Path: []string{"sample", "kinds"}, Schema: kindsSchema()},
	}
	for i := range all {
		all[i].Kind = "table"
		all[i].Rows = *s.cfg.Rows
		all[i].Bytes = *s.cfg.Rows * s.rowBytes(all[i].Schema)
	}
	return all
}

// choose keeps the selected columns, in their order. Key columns stay: rows
// without their key could not be told apart.
func choose(r engine.Resource, sel engine.Selection) (engine.Resource, error) {
	for _, names := range [][]string{sel.Include, sel.Exclude, sel.Key} {
		for _, n := range names {
			if r.Schema.Index(n) < 0 {
				return r, engine.Permanentf("", "%s has no column %q", r.Name, n)
			}
		}
	}
	if len(sel.Key) > 0 {
		r.Schema.Key = sel.Key
	}
	r.Schema.Fields = slices.DeleteFunc(slices.Clone(r.Schema.Fields), func(f schema.Field) bool {
		if slices.Contains(r.Schema.Key, f.Name) {
			return false
		}
		return (len(sel.Include) > 0 && !slices.Contains(sel.Include, f.Name)) || slices.Contains(sel.Exclude, f.Name)
	})
	return r, nil
}
