package pgcopy_test

import (
	"encoding/binary"
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

// benchTable is 16 columns as business tables have them: a key, references,
// money, flags, names, times.
func benchTable() ([]schema.Field, []pgcopy.EncodeColumn) {
	types := []pgcopy.TypeInfo{
		{OID: pgcopy.OIDInt8}, {OID: pgcopy.OIDInt4}, {OID: pgcopy.OIDInt4}, {OID: pgcopy.OIDInt2},
		{OID: pgcopy.OIDNumeric, Typmod: (12<<16 | 2) + 4}, {OID: pgcopy.OIDNumeric, Typmod: (12<<16 | 2) + 4},
		{OID: pgcopy.OIDFloat8}, {OID: pgcopy.OIDFloat8}, {OID: pgcopy.OIDBool},
		{OID: pgcopy.OIDText}, {OID: pgcopy.OIDText}, {OID: pgcopy.OIDVarchar, Typmod: 24}, {OID: pgcopy.OIDUUID},
		{OID: pgcopy.OIDDate}, {OID: pgcopy.OIDTimestamptz}, {OID: pgcopy.OIDTimestamptz},
	}
	fields, cols := make([]schema.Field, len(types)), make([]pgcopy.EncodeColumn, len(types))
	for i, t := range types {
		if t.Typtype = 'b'; t.Typmod == 0 {
			t.Typmod = -1
		}
		name := string(rune('a' + i))
		fields[i] = schema.Field{Name: name, Type: t.Logical(), Native: t.Native()}
		cols[i] = pgcopy.EncodeColumn{Name: name, Type: t}
	}
	return fields, cols
}

func benchTuples(rows int) []byte {
	var b []byte
	field := func(v ...byte) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(v)))
		b = append(b, v...)
	}
	u64 := func(v uint64) { field(binary.BigEndian.AppendUint64(nil, v)...) }
	for i := range rows {
		b = append(b, 0, 16)
		u64(uint64(i))
		field(binary.BigEndian.AppendUint32(nil, uint32(i*7))...)
		field(binary.BigEndian.AppendUint32(nil, uint32(i%100))...)
		field(0, byte(i))
		for range 2 {
			field(0, 2, 0, 0, 0, 0, 0, 2, byte(i%39), 7, 0x13, 0x88)
		}
		u64(math.Float64bits(float64(i) / 3))
		u64(math.Float64bits(-float64(i)))
		field(byte(i & 1))
		field([]byte("Customer name no. 12345")...)
		field([]byte("somebody@example.org")...)
		field([]byte("shipped")...)
		field([]byte("0123456789abcdef")...)
		field(0, 0, 0x22, byte(i))
		u64(uint64(i) * 1_000_003)
		b = binary.BigEndian.AppendUint32(b, math.MaxUint32)
	}
	return b
}

const benchRows = 1000

// perRow reports the CPU time of a row, which a busy machine does not stretch.
func perRow(b *testing.B, start time.Duration) {
	b.Helper()
	b.ReportMetric(float64(cpuTime(b)-start)/float64(b.N)/benchRows, "cpu-ns/row")
	b.ReportMetric(0, "ns/op")
}

// cpuTime is the process's so far.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkTupleLen(b *testing.B) {
	buf := benchTuples(benchRows)
	b.SetBytes(int64(len(buf)))
	start := cpuTime(b)
	for b.Loop() {
		for rest := buf; len(rest) > 0; {
			n, err := pgcopy.TupleLen(rest, 16)
			if err != nil || n == 0 {
				b.Fatal(n, err)
			}
			rest = rest[n:]
		}
	}
	perRow(b, start)
}

// BenchmarkDigester is scan and digest in one pass: the budget is 150 ns a row.
func BenchmarkDigester(b *testing.B) {
	fields, _ := benchTable()
	buf := benchTuples(benchRows)
	d, err := pgcopy.NewDigester(fields, nil)
	require.NoError(b, err)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	start := cpuTime(b)
	for b.Loop() {
		for rest := buf; len(rest) > 0; {
			n, err := d.Next(rest)
			if err != nil || n == 0 {
				b.Fatal(n, err)
			}
			rest = rest[n:]
		}
	}
	perRow(b, start)
}

func BenchmarkDecoder(b *testing.B) {
	fields, _ := benchTable()
	buf := benchTuples(benchRows)
	d, err := pgcopy.NewDecoder(memory.DefaultAllocator, fields)
	require.NoError(b, err)
	defer d.Release()
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	start := cpuTime(b)
	for b.Loop() {
		for rest := buf; len(rest) > 0; {
			n, err := pgcopy.TupleLen(rest, 16)
			if err != nil {
				b.Fatal(err)
			}
			if err := d.Append(rest[:n]); err != nil {
				b.Fatal(err)
			}
			rest = rest[n:]
		}
		d.Take().Release()
	}
	perRow(b, start)
}

func BenchmarkEncoder(b *testing.B) {
	fields, cols := benchTable()
	rec := benchRecord(b, fields)
	defer rec.Release()
	e, err := pgcopy.NewEncoder(fields, cols)
	require.NoError(b, err)
	var out []byte
	b.ReportAllocs()
	start := cpuTime(b)
	for b.Loop() {
		if out, err = e.AppendTuples(out[:0], rec, 0, benchRows); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(len(out)))
	perRow(b, start)
}

func BenchmarkRecordDigest(b *testing.B) {
	fields, _ := benchTable()
	rec := benchRecord(b, fields)
	defer rec.Release()
	h := integrity.NewHasher(&schema.Schema{Fields: fields})
	start := cpuTime(b)
	for b.Loop() {
		if _, err := h.Rows(rec, 0, benchRows); err != nil {
			b.Fatal(err)
		}
	}
	perRow(b, start)
}

func benchRecord(tb testing.TB, fields []schema.Field) arrow.RecordBatch {
	tb.Helper()
	d, err := pgcopy.NewDecoder(memory.DefaultAllocator, fields)
	require.NoError(tb, err)
	defer d.Release()
	for rest := benchTuples(benchRows); len(rest) > 0; {
		n, err := pgcopy.TupleLen(rest, 16)
		require.NoError(tb, err)
		require.NoError(tb, d.Append(rest[:n]))
		rest = rest[n:]
	}
	return d.Take()
}

// The hot paths allocate nothing once they are warm.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	fields, cols := benchTable()
	buf := benchTuples(benchRows)
	d, err := pgcopy.NewDigester(fields, nil)
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		for rest := buf; len(rest) > 0; {
			n, err := d.Next(rest)
			if err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
	}))
	rec := benchRecord(t, fields)
	defer rec.Release()
	e, err := pgcopy.NewEncoder(fields, cols)
	require.NoError(t, err)
	var out []byte
	require.Zero(t, testing.AllocsPerRun(10, func() {
		if out, err = e.AppendTuples(out[:0], rec, 0, benchRows); err != nil {
			t.Fatal(err)
		}
	}))
	require.Equal(t, buf, out, "what was decoded encodes as it was")
}
