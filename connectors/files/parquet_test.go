package files

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

// manyRows has every kind, a third of it NULL, and columns of its own whose
// values hardly repeat, so that plain pages and dictionaries are both written.
func manyRows(rows int) *table {
	r := rand.New(rand.NewPCG(7, 7))
	tb := allKinds()
	kinds := tb.rows
	dec := func(p, s int) schema.Type { return schema.Type{Kind: schema.Decimal, Precision: p, Scale: s} }
	plain := []struct {
		name  string
		typ   schema.Type
		value func(i int) string
	}{
		{"many_i32", kind(schema.Int32), func(int) string { return fmt.Sprint(int32(r.Uint32())) }},
		{"many_i16", kind(schema.Int16), func(int) string { return fmt.Sprint(int16(r.Uint32())) }},
		{"many_i64", kind(schema.Int64), func(int) string { return fmt.Sprint(int64(r.Uint64())) }},
		{"many_rising", kind(schema.Int64), func(i int) string { return fmt.Sprint(1e9 + i*3) }},
		{"many_f64", kind(schema.Float64), func(int) string { return fmt.Sprint(r.NormFloat64()) }},
		{"many_d9", dec(9, 0), func(int) string { return fmt.Sprint(r.Int32N(1e9) - 5e8) }},
		{"many_d18", dec(18, 0), func(int) string { return fmt.Sprint(r.Int64N(1e18) - 5e17) }},
		{"many_d20", dec(20, 0), func(int) string { return fmt.Sprintf("-9%d", r.Int64N(1e18)) }},
		{"many_d38", dec(38, 0), func(int) string { return fmt.Sprintf("9%d", r.Int64N(1e18)) }},
		{"many_str", kind(schema.String), func(i int) string { return strings.Repeat("x", i%7) + fmt.Sprint(r.Uint64()) }},
		{"many_bytes", kind(schema.Bytes), func(int) string { return fmt.Sprintf("%032d", r.Uint64())[:28] }},
		{"many_uuid", kind(schema.UUID), func(int) string { return fmt.Sprintf("%08x-1111-4111-8111-%012x", r.Uint32(), r.Uint32()) }},
		{"many_ai", arrayOf(kind(schema.Int64)), func(int) string { return fmt.Sprintf("[%d,null,%d]", r.Uint32(), r.Uint32()) }},
		{"many_as", arrayOf(kind(schema.String)), func(int) string { return fmt.Sprintf(`["%d","",null]`, r.Uint64()) }},
		{"many_au", arrayOf(kind(schema.UUID)), func(int) string { return fmt.Sprintf(`["%08x-1111-4111-8111-111111111111",null]`, r.Uint32()) }},
	}
	tb.rows = nil
	for i := range rows {
		row := []any{fmt.Sprint(i)}
		for c := 1; c < len(tb.schema.Fields); c++ {
			row = append(row, kinds[r.IntN(len(kinds))][c])
		}
		for _, c := range plain {
			if r.IntN(3) == 0 {
				row = append(row, nil)
			} else {
				row = append(row, c.value(i))
			}
		}
		// The same values where the column takes no NULL.
		for _, c := range plain {
			row = append(row, c.value(i))
		}
		tb.rows = append(tb.rows, row)
	}
	for _, c := range plain {
		tb.schema.Fields = append(tb.schema.Fields, field(c.name, c.typ))
	}
	for _, c := range plain {
		tb.schema.Fields = append(tb.schema.Fields, schema.Field{Name: "set_" + c.name, Type: c.typ})
	}
	return tb
}

// TestParquetRoundTrip: what is written from slices of records, over several
// pages and row groups, is read row by row in order; the encoder gives all of its
// memory back (the decoder of delta pages leaves some to the garbage collector).
func TestParquetRoundTrip(t *testing.T) {
	t.Parallel()
	tb := manyRows(9000)
	whole := tb.record(t, 0, len(tb.rows))
	for _, compression := range []string{CompressionZstd, CompressionNone} {
		t.Run(compression, func(t *testing.T) {
			t.Parallel()
			mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
			d := &detail{Format: FormatParquet, Compression: compression, RowGroup: 1 << 20}
			cols, err := planColumns(&engine.Target{Schema: tb.schema}, d)
			require.NoError(t, err)
			var out bytes.Buffer
			enc := newParquetEncoder(&out, d, cols, mem)
			r := rand.New(rand.NewPCG(1, 2))
			for from := int64(0); from < whole.NumRows(); {
				to := min(from+1+r.Int64N(3000), whole.NumRows())
				rec := whole.NewSlice(from, to)
				require.NoError(t, enc.write(rec, (to-from)*400))
				rec.Release()
				from = to
			}
			require.NoError(t, enc.finish())
			mem.AssertSize(t, 0)
			require.Greater(t, enc.groups, 2)
			var got []arrow.RecordBatch
			err = readParquet(t.Context(), bytes.NewReader(out.Bytes()), cols, 4096, memory.DefaultAllocator, func(rec arrow.RecordBatch) error {
				rec.Retain()
				got = append(got, rec)
				return nil
			})
			require.NoError(t, err)
			require.Greater(t, len(got), enc.groups, "groups are read in parts")
			for i, f := range tb.schema.Fields {
				var parts []arrow.Array
				for _, rec := range got {
					parts = append(parts, rec.Column(i))
				}
				all, err := array.Concatenate(parts, memory.DefaultAllocator)
				require.NoError(t, err)
				require.True(t, array.Equal(whole.Column(i), all), "column %s", f.Name)
				all.Release()
			}
			for _, rec := range got {
				rec.Release()
			}
		})
	}
}

// TestParquetDamage: a file that is not what was planned, or is broken, is an
// error, never a panic.
func TestParquetDamage(t *testing.T) {
	t.Parallel()
	tb := manyRows(300)
	d := &detail{Format: FormatParquet, Compression: CompressionNone, RowGroup: rowGroupDefault}
	cols, err := planColumns(&engine.Target{Schema: tb.schema}, d)
	require.NoError(t, err)
	var out bytes.Buffer
	enc := newParquetEncoder(&out, d, cols, memory.DefaultAllocator)
	require.NoError(t, enc.write(tb.record(t, 0, 300), 1))
	require.NoError(t, enc.finish())
	read := func(file []byte, cols []column) error {
		return readParquet(t.Context(), bytes.NewReader(file), cols, 100, memory.DefaultAllocator,
			func(arrow.RecordBatch) error { return nil })
	}
	require.NoError(t, read(out.Bytes(), cols))

	other := append([]column(nil), cols...)
	other[1].field.Name = "renamed"
	require.ErrorContains(t, read(out.Bytes(), other), `column 2 is named "bool", not "renamed"`)
	other[1] = cols[1]
	other[3].field.Type = kind(schema.Int32)
	require.ErrorContains(t, read(out.Bytes(), other), `column "i16": its type is`)

	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		broken := bytes.Clone(out.Bytes())
		for range 1 + r.IntN(20) {
			broken[4+r.IntN(len(broken)-5000)] ^= byte(1 + r.IntN(255))
		}
		_ = read(broken, cols) // whether it is noticed here or by the digest: no panic
	}
}
