package files

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

// allKinds has every logical kind, with values at the ends that every format
// holds, NULLs, and arrays.
func allKinds() *table {
	dec := func(p, s int) schema.Type { return schema.Type{Kind: schema.Decimal, Precision: p, Scale: s} }
	digits := func(k schema.Kind, n int) schema.Type { return schema.Type{Kind: k, Digits: n} }
	cols := []struct {
		name string
		typ  schema.Type
		a, b string
	}{
		{"bool", kind(schema.Bool), "true", "false"},
		{"i8", kind(schema.Int8), "-128", "127"},
		{"i16", kind(schema.Int16), "-32768", "32767"},
		{"i32", kind(schema.Int32), "-2147483648", "2147483647"},
		{"i64", kind(schema.Int64), "-9223372036854775808", "9223372036854775807"},
		{"u8", kind(schema.Uint8), "0", "255"},
		{"u16", kind(schema.Uint16), "0", "65535"},
		{"u32", kind(schema.Uint32), "0", "4294967295"},
		{"u64", kind(schema.Uint64), "0", "18446744073709551615"},
		{"f32", kind(schema.Float32), "-0", "3.4028235e+38"},
		{"f64", kind(schema.Float64), "-1.7976931348623157e+308", "5e-324"},
		{"d9", dec(9, 2), "-9999999.99", "0.01"},
		{"d18", dec(18, 0), "-999999999999999999", "999999999999999999"},
		{"d38", dec(38, 30), "0.000000000000000000000000000001", "99999999.999999999999999999999999999999"},
		{"d76", dec(76, 10), "-" + strings.Repeat("9", 66) + ".0000000001", "0.0000000000"},
		{"dec", dec(0, 0), "0.1234567890123456789012345678", "-0.00000000000000000001"},
		{"str", kind(schema.String), "", "a,b \"c\"\r\n\té\U0001F600\x00 NULL"},
		{"bytes", kind(schema.Bytes), "", "AP8Q"},
		{"date", kind(schema.Date), "-0043-03-15", "+12345-01-31"},
		{"time6", digits(schema.Time, 6), "00:00:00", "23:59:59.999999"},
		{"time9", digits(schema.Time, 9), "00:00:00.000000001", "12:30:00"},
		{"ts6", digits(schema.Timestamp, 6), "2024-01-02T03:04:05.678901", "-4712-01-01T00:00:00"},
		{"ts9", digits(schema.Timestamp, 9), "2024-01-02T03:04:05.678901234", "1677-09-21T00:12:44"},
		{"tz6", digits(schema.TimestampTZ, 6), "2024-05-09T13:28:27.031153Z", "9999-12-31T23:59:59.999999Z"},
		{"tz9", digits(schema.TimestampTZ, 9), "1969-12-31T23:59:59.999999999Z", "2262-04-11T00:00:00Z"},
		{"iv", kind(schema.Interval), "P1Y2M-3DT4H-5M6.7S", "PT0S"},
		{"json", kind(schema.JSON), `{"b": 1,  "a":[1e400, "x"]}`, `"null"`},
		{"jsonb", kind(schema.JSONB), `{"k":"\u0000"}`, `12345678901234567890.123456789`},
		{"uuid", kind(schema.UUID), "00000000-0000-0000-0000-000000000000", "f47ac10b-58cc-4372-a567-0e02b2c3d479"},
		{"enum", schema.Type{Kind: schema.Enum, Labels: []string{"sad", "so so"}}, "sad", "so so"},
		{"any", kind(schema.Unknown), "(1,2)", ""},
		{"ai", arrayOf(kind(schema.Int32)), "[]", "[1,null,3]"},
		{"at", arrayOf(kind(schema.String)), `["a,b","NULL",null,"say \"hi\"","","\\"]`, `[null]`},
		{"ad", arrayOf(dec(12, 2)), `[1234567890.12,-0.01]`, `[0.00]`},
		{"aj", arrayOf(kind(schema.JSONB)), `["[1,2]","null",null]`, `["{}"]`},
		{"ats", arrayOf(digits(schema.TimestampTZ, 6)), `["2024-01-02T03:04:05Z"]`, `[]`},
		{"au", arrayOf(kind(schema.UUID)), `["f47ac10b-58cc-4372-a567-0e02b2c3d479"]`, `[]`},
		{"ab", arrayOf(kind(schema.Bool)), `[true,false,null]`, `[]`},
		{"adec", arrayOf(dec(0, 0)), `[0.1234567890123456789012345678]`, `[]`},
	}
	tb := &table{name: "public.kinds", schema: schema.Schema{Fields: []schema.Field{key("id")}, Key: []string{"id"}}}
	rows := [][]any{{"1"}, {"2"}, {"3"}}
	for _, c := range cols {
		tb.schema.Fields = append(tb.schema.Fields, field(c.name, c.typ))
		rows[0] = append(rows[0], c.a)
		rows[1] = append(rows[1], c.b)
		rows[2] = append(rows[2], nil)
	}
	tb.rows = rows
	return tb
}

var everyFormat = []map[string]any{
	{"format": "parquet"},
	{"format": "parquet", "compression": "none"},
	{"format": "parquet", "compression": "snappy"},
	{"format": "jsonl"},
	{"format": "jsonl", "compression": "gzip"},
	{"format": "jsonl", "compression": "zstd"},
	{"format": "csv"},
	{"format": "csv", "compression": "gzip"},
	{"format": "csv", "compression": "zstd"},
}

func formatName(cfg map[string]any) string {
	if c, ok := cfg["compression"]; ok {
		return fmt.Sprintf("%s-%s", cfg["format"], c)
	}
	return fmt.Sprint(cfg["format"])
}

// TestEveryKindInEveryFormat: the read-back of P9 proves that each value comes
// out of storage as it went in.
func TestEveryKindInEveryFormat(t *testing.T) {
	t.Parallel()
	for _, cfg := range everyFormat {
		t.Run(formatName(cfg), func(t *testing.T) {
			t.Parallel()
			cfg := map[string]any{"path": t.TempDir(), "format": cfg["format"], "compression": cfg["compression"]}
			if cfg["compression"] == nil {
				delete(cfg, "compression")
			}
			tb := allKinds()
			r := openRig(t, cfg)
			req := r.request(tb, run1, 1, engine.WriteReplace)
			req.Lineage = true
			target := r.plan(req)
			rc, err := r.apply(target, tb, 2)
			require.NoError(t, err)
			require.True(t, rc.Verified)
			require.EqualValues(t, 3, rc.Applied)
			require.Len(t, rc.Artifacts, 1)
			require.Equal(t, rc.Artifacts[0].Digest, rc.ReadBack)
			require.Empty(t, rc.Policies)
			r.publish(target, rc)
			m := r.manifest(target)
			require.EqualValues(t, 3, m.Rows)
			require.Equal(t, []string{m.Files[0].Name}, r.dataKeys(target))
		})
	}
}
