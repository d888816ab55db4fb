package pgcopy_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

// tuple builds a tuple; nil is NULL.
func tuple(fields ...[]byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(fields)))
	for _, f := range fields {
		if f == nil {
			b = integrity.AppendNull(b)
		} else {
			b = integrity.AppendBytes(b, f)
		}
	}
	return b
}

func TestTupleLen(t *testing.T) {
	whole := tuple([]byte("abc"), nil, []byte{})
	for n := range whole {
		got, err := pgcopy.TupleLen(whole[:n], 3)
		require.NoError(t, err)
		require.Zero(t, got, "%d bytes are no tuple yet", n)
	}
	got, err := pgcopy.TupleLen(append(bytes.Clone(whole), 9, 9), 3)
	require.NoError(t, err)
	require.Equal(t, len(whole), got)
	_, err = pgcopy.TupleLen([]byte{0xff, 0xff}, 3)
	require.ErrorIs(t, err, pgcopy.ErrTrailer)
	for name, bad := range map[string][]byte{
		"field count":   tuple(nil),
		"negative":      {0, 3, 0xff, 0xff, 0xff, 0xfe},
		"beyond a GiB":  {0, 3, 0x7f, 0xff, 0xff, 0xff},
		"count below 0": {0xff, 0xfe},
	} {
		_, err := pgcopy.TupleLen(bad, 3)
		require.Error(t, err, name)
		require.Equal(t, engine.Bug, engine.ClassOf(err), name)
	}
	fields, err := pgcopy.SplitTuple(whole, nil)
	require.NoError(t, err)
	require.Equal(t, [][]byte{[]byte("abc"), nil, {}}, fields)
	require.NotNil(t, fields[2], "empty is not NULL")
}

func TestScannerTellsABrokenStream(t *testing.T) {
	collect := func(stream []byte) (int, error) {
		s, n := pgcopy.NewScanner(1), 0
		if err := s.Scan(stream, func([]byte) error { n++; return nil }); err != nil {
			return n, err
		}
		return n, s.Close()
	}
	one := tuple([]byte("x"))
	n, err := collect(pgcopy.AppendTrailer(append(pgcopy.AppendHeader(nil), one...)))
	require.NoError(t, err)
	require.Equal(t, 1, n)

	_, err = collect(append(pgcopy.AppendHeader(nil), one...))
	require.Equal(t, engine.Retryable, engine.ClassOf(err), "no end marker: the connection broke")
	_, err = collect(append(pgcopy.AppendHeader(nil), one[:5]...))
	require.Equal(t, engine.Retryable, engine.ClassOf(err))
	_, err = collect(append(pgcopy.AppendTrailer(pgcopy.AppendHeader(nil)), 1))
	require.Equal(t, engine.Bug, engine.ClassOf(err), "bytes after the end")
	_, err = collect([]byte("1\tx\n"))
	require.ErrorContains(t, err, "signature")
	header := pgcopy.AppendHeader(nil)
	header[12] = 1
	_, err = collect(header)
	require.ErrorContains(t, err, "flags")
}

func FuzzScanner(f *testing.F) {
	good := pgcopy.AppendTrailer(append(append(pgcopy.AppendHeader(nil), tuple([]byte("a"), nil)...), tuple(nil, []byte("bc"))...))
	f.Add(good, uint8(3), uint8(2))
	f.Add([]byte("PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x01x\x00\x00"), uint8(1), uint8(0))
	f.Fuzz(func(t *testing.T, stream []byte, piece, columns uint8) {
		run := func(size int) (out [][]byte, err error) {
			s := pgcopy.NewScanner(int(columns))
			for rest := stream; len(rest) > 0 && err == nil; {
				p := rest[:min(size, len(rest))]
				rest = rest[len(p):]
				err = s.Scan(p, func(tuple []byte) error {
					fields, err := pgcopy.SplitTuple(tuple, nil)
					require.NoError(t, err)
					require.Len(t, fields, int(columns))
					out = append(out, bytes.Clone(tuple))
					return nil
				})
			}
			return out, err
		}
		whole, err := run(len(stream) + 1)
		pieces, err2 := run(int(piece) + 1)
		require.Equal(t, whole, pieces, "how the stream is cut means nothing")
		require.Equal(t, err == nil, err2 == nil)
	})
}

// fuzzTypes has every logical kind that PostgreSQL sends.
func fuzzTypes() []schema.Type {
	i32 := schema.Type{Kind: schema.Int32}
	num := schema.Type{Kind: schema.Decimal}
	js := schema.Type{Kind: schema.JSONB}
	return []schema.Type{{Kind: schema.Bool}, {Kind: schema.Int16}, i32, {Kind: schema.Int64}, {Kind: schema.Uint32},
		{Kind: schema.Float32}, {Kind: schema.Float64}, num, {Kind: schema.Decimal, Precision: 12, Scale: 2},
		{Kind: schema.Decimal, Precision: 60, Scale: 30}, {Kind: schema.String}, {Kind: schema.Bytes}, {Kind: schema.Date},
		{Kind: schema.Time, Digits: 6}, {Kind: schema.Timestamp, Digits: 6}, {Kind: schema.TimestampTZ, Digits: 6},
		{Kind: schema.Interval}, {Kind: schema.JSON}, js, {Kind: schema.UUID}, {Kind: schema.Enum}, {Kind: schema.Unknown},
		{Kind: schema.Array, Elem: &i32}, {Kind: schema.Array, Elem: &num}, {Kind: schema.Array, Elem: &js}}
}

// fuzzOID is the type that a value of the logical type is encoded for.
func fuzzOID(t schema.Type) uint32 {
	return map[schema.Kind]uint32{schema.Bool: pgcopy.OIDBool, schema.Int16: pgcopy.OIDInt2, schema.Int32: pgcopy.OIDInt4,
		schema.Int64: pgcopy.OIDInt8, schema.Uint32: pgcopy.OIDOID, schema.Float32: pgcopy.OIDFloat4, schema.Float64: pgcopy.OIDFloat8,
		schema.Decimal: pgcopy.OIDNumeric, schema.String: pgcopy.OIDText, schema.Bytes: pgcopy.OIDBytea, schema.Date: pgcopy.OIDDate,
		schema.Time: pgcopy.OIDTime, schema.Timestamp: pgcopy.OIDTimestamp, schema.TimestampTZ: pgcopy.OIDTimestamptz,
		schema.Interval: pgcopy.OIDInterval, schema.JSON: pgcopy.OIDJSON, schema.JSONB: pgcopy.OIDJSONB, schema.UUID: pgcopy.OIDUUID,
		schema.Enum: pgcopy.OIDText, schema.Unknown: pgcopy.OIDText}[t.Kind]
}

// Whatever bytes come: no panic, and what can be decoded has the same digest
// either way, and encodes to a value with that digest.
func FuzzField(f *testing.F) {
	add := func(i int, v ...byte) { f.Add(uint8(i), v) }
	add(0, 1)
	add(2, 0xff, 0xff, 0xff, 0xff)
	add(6, 0x7f, 0xf0, 0, 0, 0, 0, 0, 1)
	add(7, 0, 2, 0, 0, 0x40, 0, 0, 2, 0, 1, 0x13, 0x88)
	add(7, 0, 0, 0, 0, 0xc0, 0, 0, 0)
	add(8, 0, 2, 0, 0, 0, 0, 0, 2, 0, 1, 0x13, 0x88)
	add(12, 0x7f, 0xff, 0xff, 0xff)
	add(18, []byte("\x01{\"b\":1.50,\"a\":[]}")...)
	add(22, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 23, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff)
	f.Fuzz(func(t *testing.T, kind uint8, v []byte) {
		types := fuzzTypes()
		fields := []schema.Field{{Name: "c", Type: types[int(kind)%len(types)]}}
		row := tuple(append([]byte{}, v...))
		dg, err := pgcopy.NewDigester(fields, nil)
		require.NoError(t, err)
		digestErr := dg.Tuple(row)
		mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
		defer mem.AssertSize(t, 0)
		dec, err := pgcopy.NewDecoder(mem, fields)
		require.NoError(t, err)
		defer dec.Release()
		if dec.Append(row) != nil || digestErr != nil {
			// A digest may fail alone, at text that is no JSON; and so may a decoder,
			// at a timestamp that Arrow can't count.
			return
		}
		rec := dec.Take()
		defer rec.Release()
		got, err := integrity.RecordDigest(&schema.Schema{Fields: fields}, rec)
		require.NoError(t, err)
		want, _ := dg.Take()
		if fields[0].Type.Kind == schema.Bool && v[0] > 1 {
			return
		}
		require.Equal(t, want, got)
		col := pgcopy.EncodeColumn{Name: "c", Type: pgcopy.TypeInfo{OID: fuzzOID(fields[0].Type), Typmod: -1, Typtype: 'b', Major: 17}}
		if elem := fields[0].Type.Elem; elem != nil {
			col.Type.Elem = &pgcopy.TypeInfo{OID: fuzzOID(*elem), Typmod: -1, Typtype: 'b', Major: 17}
		}
		enc, err := pgcopy.NewEncoder(fields, []pgcopy.EncodeColumn{col})
		require.NoError(t, err)
		out, err := enc.AppendTuples(nil, rec, 0, 1)
		if err != nil {
			var re *pgcopy.RowError
			require.ErrorAs(t, err, &re)
			return
		}
		require.NoError(t, dg.Tuple(out))
		again, _ := dg.Take()
		require.Equal(t, want, again)
	})
}
