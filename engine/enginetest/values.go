package enginetest

import (
	"fmt"
	"math"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/tranship-io/tranship/engine/schema"
)

// Values returns a table with a column of every logical kind, named after it,
// and the rows that break things: extremes, NULLs, empty and special values. Its
// key is the int64 column "id", which counts from 1. The caller releases the record.
func Values(mem memory.Allocator) (schema.Schema, arrow.RecordBatch, error) {
	s := schema.Schema{Key: []string{"id"}, Fields: []schema.Field{{Name: "id", Type: schema.Type{Kind: schema.Int64}}}}
	docs := [][]string{{}}
	for _, c := range valueColumns() {
		s.Fields = append(s.Fields, schema.Field{Name: c.name, Type: c.typ, Nullable: true})
		docs = append(docs, c.values)
	}
	rows := 0
	for _, v := range docs {
		rows = max(rows, len(v))
	}
	// One more row than values: the last is NULL in every column but the key.
	var text strings.Builder
	for i := range rows + 1 {
		fmt.Fprintf(&text, `{"id":%d`, i+1)
		for j, f := range s.Fields[1:] {
			value := "null"
			if v := docs[j+1]; i < len(v) {
				value = v[i]
			}
			fmt.Fprintf(&text, ",%q:%s", f.Name, value)
		}
		text.WriteString("}\n")
	}
	b := array.NewRecordBuilder(mem, s.Arrow())
	defer b.Release()
	for line := range strings.Lines(text.String()) {
		if err := b.UnmarshalJSON([]byte(line)); err != nil {
			return s, nil, fmt.Errorf("build the table of values from %s: %w", line, err)
		}
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	out, err := withSpecials(mem, &s, rec)
	return s, out, err
}

// valueColumn is a kind with values in Arrow's JSON form.
type valueColumn struct {
	name   string
	typ    schema.Type
	values []string
}

func valueColumns() []valueColumn {
	k := func(k schema.Kind) schema.Type { return schema.Type{Kind: k} }
	array := func(e schema.Type) schema.Type { return schema.Type{Kind: schema.Array, Elem: &e} }
	return []valueColumn{
		{"bool", k(schema.Bool), []string{"true", "false"}},
		{"int8", k(schema.Int8), []string{"-128", "127", "0"}},
		{"int16", k(schema.Int16), []string{"-32768", "32767", "0"}},
		{"int32", k(schema.Int32), []string{"-2147483648", "2147483647", "0"}},
		{"int64", k(schema.Int64), []string{"-9223372036854775808", "9223372036854775807", "9007199254740993"}},
		{"uint8", k(schema.Uint8), []string{"255", "0"}},
		{"uint16", k(schema.Uint16), []string{"65535", "0"}},
		{"uint32", k(schema.Uint32), []string{"4294967295", "0"}},
		{"uint64", k(schema.Uint64), []string{"18446744073709551615", "0"}},
		{"float32", k(schema.Float32), []string{"1.5", "-0.1", "3.4028234e38"}},
		{"float64", k(schema.Float64), []string{"1.5", "0.1", "1.7976931348623157e308"}},
		{"decimal", schema.Type{Kind: schema.Decimal, Precision: 38, Scale: 30}, []string{`"0.000000000000000000000000000001"`, `"99999999.999999999999999999999999999999"`, `"-1.5"`}},
		{"decimal_wide", schema.Type{Kind: schema.Decimal, Precision: 76, Scale: 10}, []string{`"123456789012345678901234567890123456789012345678901234567890.5"`, `"-0.0000000001"`, `"0"`}},
		{"decimal_any", k(schema.Decimal), []string{`"0.1234567890123456789012345678"`, `"-1e-20"`, `"12345678901234567890123456789.5"`}},
		{"string", k(schema.String), []string{`""`, `"say \"hi\", a\\b\r\n\tc"`, `"Grüße 🚢 NULL \\N"`}},
		{"string_short", schema.Type{Kind: schema.String, Length: 5}, []string{`"ééééé"`, `" a "`, `""`}},
		{"bytes", k(schema.Bytes), []string{`""`, `"3q2+7wA="`}},
		{"date", k(schema.Date), []string{`"2024-02-29"`, `"0001-01-01"`, `"1969-12-31"`}},
		{"time", schema.Type{Kind: schema.Time, Digits: 6}, []string{`"00:00:00"`, `"23:59:59.999999"`}},
		{"timestamp", schema.Type{Kind: schema.Timestamp, Digits: 6}, []string{`"2024-01-02 03:04:05.678901"`, `"1969-12-31 23:59:59.999999"`}},
		{"timestamptz", schema.Type{Kind: schema.TimestampTZ, Digits: 6}, []string{`"2024-01-02 03:04:05.678901Z"`, `"1900-01-01 00:00:00Z"`}},
		{"timestamp_ns", schema.Type{Kind: schema.Timestamp, Digits: 9}, []string{`"2024-01-01 00:00:00.123456789"`}},
		{"interval", k(schema.Interval), []string{`{"months":14,"days":-3,"nanoseconds":4000}`, `{"months":0,"days":0,"nanoseconds":0}`}},
		{"json", k(schema.JSON), []string{`"{\"b\": 1.50, \"a\":[null]}"`, `"null"`}},
		{"jsonb", k(schema.JSONB), []string{`"{\"b\": 1.50, \"a\":[null]}"`, `"9007199254740993"`, `"\"x\""`}},
		{"uuid", k(schema.UUID), []string{`"AAECAwQFBgcICQoLDA0ODw=="`}},
		{"enum", schema.Type{Kind: schema.Enum, Labels: []string{"sad", "ok", "happy"}}, []string{`"happy"`, `"sad"`}},
		{"array", array(k(schema.Int32)), []string{`{"dims":[3,1],"values":[1,null,3]}`, `{"dims":[],"values":[]}`, `{"dims":[2,0,2,1],"values":[1,2,3,4]}`}},
		{"array_text", array(k(schema.String)), []string{`{"dims":[4,1],"values":["a,b","NULL",null,""]}`}},
		{"unknown", k(schema.Unknown), []string{`"(1,2)"`, `""`}},
	}
}

// withSpecials puts values in place that have no JSON form: −0, NaN, infinities.
func withSpecials(mem memory.Allocator, s *schema.Schema, rec arrow.RecordBatch) (arrow.RecordBatch, error) {
	n := int(rec.NumRows())
	cols := make([]arrow.Array, 0, rec.NumCols())
	defer func() {
		for _, c := range cols {
			c.Release()
		}
	}()
	for i, f := range s.Fields {
		b := array.NewBuilder(mem, f.Type.Arrow())
		specials := 0
		switch b := b.(type) {
		case *array.Float32Builder:
			b.AppendValues([]float32{float32(math.Copysign(0, -1)), float32(math.NaN()), float32(math.Inf(-1))}, nil)
			specials = 3
		case *array.Float64Builder:
			b.AppendValues([]float64{math.Copysign(0, -1), math.NaN(), math.Inf(1)}, nil)
			specials = 3
		case *array.Date32Builder:
			b.AppendValues([]arrow.Date32{arrow.Date32(schema.DatePosInf), arrow.Date32(schema.DateNegInf)}, nil)
			specials = 2
		case *array.TimestampBuilder:
			b.AppendValues([]arrow.Timestamp{arrow.Timestamp(schema.TimestampPosInf), arrow.Timestamp(schema.TimestampNegInf)}, nil)
			specials = 2
		case *array.StringBuilder:
			if f.Type.Kind == schema.Decimal {
				b.AppendValues([]string{"NaN", "-Infinity", "1.50"}, nil)
				specials = 3
			}
		case *array.Int64Builder:
			if f.Name == "id" {
				b.AppendValues([]int64{int64(n) + 1, int64(n) + 2, int64(n) + 3}, nil)
				specials = 3
			}
		}
		b.AppendNulls(3 - specials)
		tail := b.NewArray()
		b.Release()
		col, err := array.Concatenate([]arrow.Array{rec.Column(i), tail}, mem)
		tail.Release()
		if err != nil {
			return nil, fmt.Errorf("append special values to column %q: %w", f.Name, err)
		}
		cols = append(cols, col)
	}
	return array.NewRecordBatch(s.Arrow(), cols, int64(n)+3), nil
}
