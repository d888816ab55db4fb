package integrity_test

import (
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

// The digest of the known record is part of the format: a change of it makes
// every stored receipt and ledger worthless.
func TestRecordDigestIsFrozen(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	rec := record(t, mem)
	defer rec.Release()
	d, err := integrity.RecordDigest(allKinds(), rec)
	require.NoError(t, err)
	require.Equal(t, "xxh3-128-sum:aaeed8d4eec36063e665ba67f38e3af5", d.String())
}

func TestDigestOfSlicesAddsUp(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	rec := record(t, mem)
	defer rec.Release()
	s := allKinds()
	all, err := integrity.RecordDigest(s, rec)
	require.NoError(t, err)
	var sliced, ranged integrity.Digest
	h := integrity.NewHasher(s)
	for _, cut := range [][2]int64{{0, 2}, {2, 3}, {3, 3}, {3, 9}} {
		part := rec.NewSlice(cut[0], cut[1])
		d, err := integrity.RecordDigest(s, part)
		require.NoError(t, err)
		sliced.Add(d)
		part.Release()
		d, err = h.Rows(rec, int(cut[0]), int(cut[1]))
		require.NoError(t, err)
		ranged.Add(d)
	}
	require.Equal(t, all, sliced)
	require.Equal(t, all, ranged)
}

func TestRecordCRC(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	rec := record(t, mem)
	defer rec.Release()
	for _, cut := range [][2]int64{{0, 9}, {0, 2}, {3, 5}, {2, 9}, {4, 4}, {5, 6}} {
		a, b := rec.NewSlice(cut[0], cut[1]), copySlice(t, mem, rec, cut[0], cut[1])
		require.Equal(t, integrity.RecordCRC(b), integrity.RecordCRC(a), "rows %v", cut)
		a.Release()
		b.Release()
	}
	// A change of any value byte of a valid row changes it.
	before := integrity.RecordCRC(rec)
	for i := range int(rec.NumCols()) {
		for _, buf := range rec.Column(i).Data().Buffers()[1:] {
			if buf == nil || buf.Len() == 0 {
				continue
			}
			buf.Bytes()[0] ^= 1
			require.NotEqual(t, before, integrity.RecordCRC(rec), "column %d", i)
			buf.Bytes()[0] ^= 1
		}
	}
	require.Equal(t, before, integrity.RecordCRC(rec))
}

// copySlice builds the rows anew, so that nothing is shared with rec.
func copySlice(t *testing.T, mem memory.Allocator, rec arrow.RecordBatch, from, to int64) arrow.RecordBatch {
	t.Helper()
	cols := make([]arrow.Array, rec.NumCols())
	for i := range cols {
		part := array.NewSlice(rec.Column(i), from, to)
		c, err := array.Concatenate([]arrow.Array{part}, mem)
		require.NoError(t, err)
		part.Release()
		cols[i] = c
	}
	out := array.NewRecordBatch(rec.Schema(), cols, to-from)
	for _, c := range cols {
		c.Release()
	}
	return out
}

// Values of a wider type, another scale, or another precision of time are the
// same values.
func TestEqualValuesEncodeEqually(t *testing.T) {
	encode := func(typ schema.Type, add func(array.Builder)) string {
		s := &schema.Schema{Fields: []schema.Field{{Name: "c", Type: typ}}}
		b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
		defer b.Release()
		add(b.Field(0))
		rec := b.NewRecordBatch()
		defer rec.Release()
		out, err := integrity.NewHasher(s).AppendRow(nil, rec, 0)
		require.NoError(t, err)
		return string(out)
	}
	text := func(s string) func(array.Builder) {
		return func(b array.Builder) { require.NoError(t, b.AppendValueFromString(s)) }
	}
	dec := func(p, s int) schema.Type { return schema.Type{Kind: schema.Decimal, Precision: p, Scale: s} }
	require.Equal(t, encode(schema.Type{Kind: schema.Int8}, text("-7")), encode(schema.Type{Kind: schema.Int64}, text("-7")))
	require.Equal(t, encode(schema.Type{Kind: schema.Uint16}, text("7")), encode(schema.Type{Kind: schema.Int32}, text("7")))
	for _, v := range []string{"1.5", "-1.5", "0", "100", "0.0001", "-12345678.0001", "90000000"} {
		want := encode(dec(0, 0), text(v))
		require.Equal(t, want, encode(dec(18, 4), text(v)), v)
		require.Equal(t, want, encode(dec(38, 7), text(v)), v)
		require.Equal(t, want, encode(dec(76, 33), text(v)), v)
	}
	ts := func(v int64) func(array.Builder) {
		return func(b array.Builder) { b.(*array.TimestampBuilder).Append(arrow.Timestamp(v)) }
	}
	us, ns := schema.Type{Kind: schema.Timestamp, Digits: 6}, schema.Type{Kind: schema.Timestamp, Digits: 9}
	for _, v := range []int64{0, -1, 1, 946684800000000, -86400000000} {
		require.Equal(t, encode(us, ts(v)), encode(ns, ts(v*1000)))
	}
	require.Equal(t, encode(us, ts(math.MaxInt64)), encode(ns, ts(math.MaxInt64)), "infinity")
	require.NotEqual(t, encode(ns, ts(1000)), encode(ns, ts(1001)), "a nanosecond counts")
	f := func(v float64) func(array.Builder) {
		return func(b array.Builder) { b.(*array.Float64Builder).Append(v) }
	}
	f64 := schema.Type{Kind: schema.Float64}
	require.Equal(t, encode(f64, f(math.NaN())), encode(f64, f(math.Float64frombits(0xfff8000000000123))))
	require.NotEqual(t, encode(f64, f(0)), encode(f64, f(math.Copysign(0, -1))), "-0 is kept")
	require.NotEqual(t, encode(schema.Type{Kind: schema.String}, text("")), encode(schema.Type{Kind: schema.String},
		func(b array.Builder) { b.AppendNull() }), "empty is not NULL")
}

func TestDigestErrorsNameColumnAndRow(t *testing.T) {
	for kind, text := range map[schema.Kind]string{schema.Decimal: "1,5", schema.JSONB: `{"a":}`} {
		s := &schema.Schema{Fields: []schema.Field{{Name: "amount", Type: schema.Type{Kind: kind}}}}
		b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
		b.Field(0).(*array.StringBuilder).AppendValues([]string{"1", text}, nil)
		rec := b.NewRecordBatch()
		_, err := integrity.RecordDigest(s, rec)
		require.ErrorContains(t, err, `column "amount" row 1`)
		s.Fields[0].Type.Kind = schema.Int64
		_, err = integrity.RecordDigest(s, rec)
		require.ErrorContains(t, err, `column "amount"`, "a record of another schema")
		rec.Release()
		b.Release()
	}
}

func TestDigestAllocatesNothing(t *testing.T) {
	rec := record(t, memory.DefaultAllocator)
	defer rec.Release()
	h := integrity.NewHasher(allKinds())
	allocs := testing.AllocsPerRun(100, func() {
		if _, err := h.Rows(rec, 0, int(rec.NumRows())); err != nil {
			t.Fatal(err)
		}
	})
	require.Zero(t, allocs)
	// The checksum needs one small buffer a record.
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { integrity.RecordCRC(rec) }), 1.0)
}

func BenchmarkHasher(b *testing.B) {
	rec := record(b, memory.DefaultAllocator)
	defer rec.Release()
	h := integrity.NewHasher(allKinds())
	fields := 0
	for b.Loop() {
		if _, err := h.Rows(rec, 0, 9); err != nil {
			b.Fatal(err)
		}
		fields += 9 * int(rec.NumCols())
	}
	b.ReportMetric(float64(fields)/b.Elapsed().Seconds()/1e6, "Mfields/s")
}
