package pgcopy_test

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

func column(t *testing.T, typ schema.Type, add func(array.Builder)) ([]schema.Field, arrow.RecordBatch) {
	t.Helper()
	s := schema.Schema{Fields: []schema.Field{{Name: "id", Type: schema.Type{Kind: schema.Int64}}, {Name: "c", Type: typ}}}
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	defer b.Release()
	b.Field(0).(*array.Int64Builder).Append(1)
	add(b.Field(1))
	return s.Fields, b.NewRecordBatch()
}

func dest(oid uint32, typmod int32) pgcopy.TypeInfo {
	return pgcopy.TypeInfo{OID: oid, Typmod: typmod, Typtype: 'b', Major: 17}
}

type misfitCase struct {
	name  string
	typ   schema.Type
	value func(array.Builder)
	col   pgcopy.TypeInfo
	// reason is in the error; clamped, if not empty, is the text form of what a
	// clamp writes.
	reason, clamped string
}

func text(s string) func(array.Builder) {
	return func(b array.Builder) {
		if sb, ok := b.(*array.StringBuilder); ok {
			sb.Append(s)
			return
		}
		if err := b.AppendValueFromString(s); err != nil {
			panic(err)
		}
	}
}

func stamp(v int64) func(array.Builder) {
	return func(b array.Builder) { b.(*array.TimestampBuilder).Append(arrow.Timestamp(v)) }
}

func misfitCases() []misfitCase {
	kind := func(k schema.Kind) schema.Type { return schema.Type{Kind: k} }
	ns := schema.Type{Kind: schema.Timestamp, Digits: 9}
	us := schema.Type{Kind: schema.Timestamp, Digits: 6}
	num := func(p, s int32) pgcopy.TypeInfo { return dest(pgcopy.OIDNumeric, (p<<16|s&0x7ff)+4) }
	dec := schema.Type{Kind: schema.Decimal}
	return []misfitCase{
		{"int2", kind(schema.Int32), text("40000"), dest(pgcopy.OIDInt2, -1), "range of smallint", "32767"},
		{"int4", kind(schema.Int64), text("-3000000000"), dest(pgcopy.OIDInt4, -1), "range of integer", "-2147483648"},
		{"uint64 in int8", kind(schema.Uint64), text("18446744073709551615"), dest(pgcopy.OIDInt8, -1), "range of bigint", "9223372036854775807"},
		{"negative oid", kind(schema.Int32), text("-1"), dest(pgcopy.OIDOID, -1), "range of oid", "0"},
		{"float", kind(schema.Float64), text("0.1"), dest(pgcopy.OIDFloat4, -1), "fewer digits", "0.1"},
		{"big float", kind(schema.Float64), text("1e300"), dest(pgcopy.OIDFloat4, -1), "fewer digits", "3.4028235e+38"},
		{"scale (P14)", dec, text("1.239"), num(12, 2), "numeric(12,2)", "1.24"},
		{"half", dec, text("-1.235"), num(12, 2), "numeric(12,2)", "-1.24"},
		{"rounds up to a new digit", dec, text("9.999"), num(12, 2), "numeric(12,2)", "10.00"},
		{"rounds to nothing", dec, text("0.004"), num(12, 2), "numeric(12,2)", "0.00"},
		{"precision", dec, text("-12345678901"), num(12, 2), "numeric(12,2)", "-9999999999.99"},
		{"negative scale", dec, text("12350"), num(3, -2), "numeric(3,-2)", "12400"},
		{"infinity", dec, text("Infinity"), num(12, 2), "can't be infinite", ""},
		{"no number", dec, text("1,5"), num(12, 2), "no digit", ""},
		{"decimal in int", dec, text("2.5"), dest(pgcopy.OIDInt4, -1), "no integer", "3"},
		{"decimal beyond int8", dec, text("-1e30"), dest(pgcopy.OIDInt8, -1), "no integer", "-9223372036854775808"},
		{"varchar", kind(schema.String), text("héllo"), dest(pgcopy.OIDVarchar, 7), "5 characters do not fit 3", "hél"},
		{"char with spaces", kind(schema.String), text("ab   "), dest(pgcopy.OIDBpchar, 7), "do not fit 3", "ab "},
		{"name", kind(schema.String), text(strings.Repeat("é", 32)), dest(pgcopy.OIDName, -1), "type name", strings.Repeat("é", 31)},
		{"NUL", kind(schema.String), text("a\x00b"), dest(pgcopy.OIDText, -1), "U+0000", "ab"},
		{"UTF-8", kind(schema.String), text("a\xffb"), dest(pgcopy.OIDText, -1), "not valid UTF-8", "a\uFFFDb"},
		{"NUL in json", kind(schema.JSON), text("\"\x00\""), dest(pgcopy.OIDJSON, -1), "U+0000", ""},
		{"escaped NUL in jsonb", kind(schema.JSONB), text(`{"k":"x\u0000y"}`), dest(pgcopy.OIDJSONB, -1), `\u0000`, ""},
		{"half a pair in jsonb", kind(schema.JSONB), text(`"\ud83d\u0041"`), dest(pgcopy.OIDJSONB, -1), "surrogate", ""},
		{"label", kind(schema.Enum), text("c"), pgcopy.TypeInfo{OID: 20000, Typmod: -1, Typtype: 'e', Labels: []string{"a", "b"}}, "enum's labels", ""},
		{"ns", ns, stamp(1_500), dest(pgcopy.OIDTimestamp, -1), "microseconds only", "1970-01-01 00:00:00.000002"},
		{"ns before 1970", ns, stamp(-400), dest(pgcopy.OIDTimestamp, -1), "microseconds only", "1970-01-01 00:00:00"},
		{"digits", us, stamp(1_234_567), dest(pgcopy.OIDTimestamp, 3), "fractional digits", "1970-01-01 00:00:01.235"},
		{"too early", us, stamp(-300_000_000_000_000_000), dest(pgcopy.OIDTimestamp, -1), "beyond the timestamps", "4714-11-24 00:00:00 BC"},
		{"too early a date", kind(schema.Date), func(b array.Builder) { b.(*array.Date32Builder).Append(-3_000_000) }, dest(pgcopy.OIDDate, -1), "beyond the dates", "4714-11-24 BC"},
		{"time of day", schema.Type{Kind: schema.Time, Digits: 6}, func(b array.Builder) { b.(*array.Time64Builder).Append(90_000_000_000) }, dest(pgcopy.OIDTime, -1), "hours of a day", "24:00:00"},
		{"interval ns", kind(schema.Interval), func(b array.Builder) {
			b.(*array.MonthDayNanoIntervalBuilder).Append(arrow.MonthDayNanoInterval{Days: 1, Nanoseconds: -1})
		}, dest(pgcopy.OIDInterval, -1), "microseconds only", "0 mons 1 days 00:00:00"},
	}
}

func TestMisfits(t *testing.T) {
	for _, c := range misfitCases() {
		t.Run(c.name, func(t *testing.T) {
			fields, rec := column(t, c.typ, c.value)
			defer rec.Release()
			cols := []pgcopy.EncodeColumn{{Name: "id", Type: dest(pgcopy.OIDInt8, -1)}, {Name: "c", Type: c.col}}
			e, err := pgcopy.NewEncoder(fields, cols)
			require.NoError(t, err)
			out, err := e.AppendTuples([]byte("before"), rec, 0, 1)
			var re *pgcopy.RowError
			require.ErrorAs(t, err, &re)
			require.Equal(t, "before", string(out), "nothing of the row stays")
			require.Equal(t, 1, re.Column)
			require.Contains(t, re.Reason, c.reason)
			require.Equal(t, c.clamped != "", re.Clampable)
			var ve *engine.ValueError
			require.ErrorAs(t, re.ValueError("public.t", "id=1"), &ve)
			require.Contains(t, ve.Error(), `public.t column "c" row id=1`)

			for _, a := range []pgcopy.Action{pgcopy.ActionNull, pgcopy.ActionSkip, pgcopy.ActionClamp} {
				calls := 0
				e.OnMisfit = func(*pgcopy.RowError) pgcopy.Action { calls++; return a }
				out, err := e.AppendTuples(nil, rec, 0, 1)
				require.Equal(t, 1, calls, "action %d", a)
				switch {
				case a == pgcopy.ActionSkip:
					require.NoError(t, err)
					require.Empty(t, out)
				case a == pgcopy.ActionNull:
					require.NoError(t, err)
					split, err := pgcopy.SplitTuple(out, nil)
					require.NoError(t, err)
					require.Nil(t, split[1])
				case c.clamped == "":
					require.ErrorAs(t, err, &re)
				default:
					require.NoError(t, err)
					require.Equal(t, c.clamped, asText(t, c.col, out))
				}
			}
		})
	}
}

// asText decodes a tuple's second field and encodes it in its text form.
func asText(t *testing.T, col pgcopy.TypeInfo, row []byte) string {
	t.Helper()
	fields := []schema.Field{{Name: "id", Type: schema.Type{Kind: schema.Int64}}, {Name: "c", Type: col.Logical()}}
	rec := decode(t, memory.DefaultAllocator, fields, [][]byte{row})
	defer rec.Release()
	e, err := pgcopy.NewEncoder(fields, []pgcopy.EncodeColumn{{Type: dest(pgcopy.OIDInt8, -1)}, {Type: col, Text: true}})
	require.NoError(t, err)
	out, err := e.AppendTuples(nil, rec, 0, 1)
	require.NoError(t, err)
	split, err := pgcopy.SplitTuple(out, nil)
	require.NoError(t, err)
	return string(split[1])
}

func TestWhatLooksLikeAnEscapeIsKept(t *testing.T) {
	for _, v := range []string{`{"k":"\\u0000"}`, `"\\\\u0000"`, `"\ud83d\ude00"`, `"\"\\"`, `"u0000"`} {
		fields, rec := column(t, schema.Type{Kind: schema.JSONB}, text(v))
		e, err := pgcopy.NewEncoder(fields, []pgcopy.EncodeColumn{{Type: dest(pgcopy.OIDInt8, -1)}, {Type: dest(pgcopy.OIDJSONB, -1)}})
		require.NoError(t, err)
		out, err := e.AppendTuples(nil, rec, 0, 1)
		require.NoError(t, err, v)
		require.Contains(t, string(out), v)
		rec.Release()
	}
}

func TestEncoderRefusesPairsThatNeverFit(t *testing.T) {
	for _, c := range []struct {
		kind schema.Kind
		oid  uint32
	}{{schema.String, pgcopy.OIDInt4}, {schema.Bytes, pgcopy.OIDUUID}, {schema.Date, pgcopy.OIDTimestamp},
		{schema.Float64, pgcopy.OIDNumeric}, {schema.Unknown, pgcopy.OIDInet}, {schema.Bool, pgcopy.OIDInt4}} {
		f := []schema.Field{{Name: "c", Type: schema.Type{Kind: c.kind}}}
		_, err := pgcopy.NewEncoder(f, []pgcopy.EncodeColumn{{Name: "c", Type: dest(c.oid, -1)}})
		require.Equal(t, engine.Permanent, engine.ClassOf(err))
		require.NotEmpty(t, engine.HintOf(err))
	}
}

func TestDecoderRefusesWhatArrowCannotHold(t *testing.T) {
	u64 := func(v int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(v)) }
	for name, c := range map[string]struct {
		typ schema.Type
		v   []byte
	}{
		"timestamp of 294276": {schema.Type{Kind: schema.Timestamp, Digits: 6}, u64(9223371331199999999)},
		"long interval":       {schema.Type{Kind: schema.Interval}, append(u64(math.MaxInt64/1000+1), make([]byte, 8)...)},
		"numeric(4,2) of 100": {schema.Type{Kind: schema.Decimal, Precision: 4, Scale: 2}, []byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 100}},
		"numeric(4,2) of .001": {schema.Type{Kind: schema.Decimal, Precision: 4, Scale: 2},
			[]byte{0, 1, 0xff, 0xff, 0, 0, 0, 3, 0, 10}},
	} {
		d, err := pgcopy.NewDecoder(memory.DefaultAllocator, []schema.Field{{Name: "c", Type: c.typ}})
		require.NoError(t, err)
		var re *pgcopy.RowError
		require.ErrorAs(t, d.Append(tuple(c.v)), &re, name)
		require.Equal(t, "c", re.Name)
		require.Equal(t, engine.Bug, engine.ClassOf(d.Append(tuple(c.v))), "it takes no more")
		d.Release()
	}
}

func TestReadBackInTheRoutesTypes(t *testing.T) {
	s := newServer(t)
	for _, c := range []struct {
		name  string
		typ   schema.Type
		value func(array.Builder)
		col   string
	}{
		{"int32 in int8", schema.Type{Kind: schema.Int32}, text("-7"), "bigint"},
		{"int8 in int2", schema.Type{Kind: schema.Int8}, text("-7"), "smallint"},
		{"uint64 in numeric (case 05)", schema.Type{Kind: schema.Uint64}, text("18446744073709551615"), "numeric(20,0)"},
		{"uint32 in int8", schema.Type{Kind: schema.Uint32}, text("4294967295"), "bigint"},
		{"int64 in numeric", schema.Type{Kind: schema.Int64}, text("-9223372036854775808"), "numeric"},
		{"int64 as text", schema.Type{Kind: schema.Int64}, text("-9223372036854775808"), "text"},
		{"uint64 as text", schema.Type{Kind: schema.Uint64}, text("18446744073709551615"), "text"},
		{"float32 in float8", schema.Type{Kind: schema.Float32}, text("0.1"), "float8"},
		{"float64 as text", schema.Type{Kind: schema.Float64}, text("0.1"), "text"},
		{"NaN as text", schema.Type{Kind: schema.Float64}, text("NaN"), "text"},
		{"float64 in float4", schema.Type{Kind: schema.Float64}, text("0.5"), "real"},
		{"decimal in numeric", schema.Type{Kind: schema.Decimal, Precision: 12, Scale: 2}, func(b array.Builder) {
			b.(*array.Decimal128Builder).Append(decimal128.FromI64(150))
		}, "numeric(20,6)"},
		{"decimal NaN", schema.Type{Kind: schema.Decimal, Precision: 12, Scale: 2}, func(b array.Builder) {
			b.(*array.Decimal128Builder).Append(schema.DecimalNaN)
		}, "numeric"},
		{"decimal as text", schema.Type{Kind: schema.Decimal}, text("-1.50e-7"), "text"},
		{"string in varchar", schema.Type{Kind: schema.String}, text("abc"), "varchar(3)"},
		{"bool as text", schema.Type{Kind: schema.Bool}, text("true"), "text"},
		{"jsonb as text", schema.Type{Kind: schema.JSONB}, text(`{"b":1.50, "a":2}`), "text"},
		{"jsonb", schema.Type{Kind: schema.JSONB}, text(`{"bb":1.50, "a":2,"a":1e3}`), "jsonb"},
		{"ns that fit", schema.Type{Kind: schema.TimestampTZ, Digits: 9}, stamp(1_700_000_000_123_456_000), "timestamptz"},
		{"unknown as text", schema.Type{Kind: schema.Unknown}, text("[1,2)"), "text"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &server{t: t, conn: s.conn, major: s.major}
			fields, rec := column(t, c.typ, c.value)
			defer rec.Release()
			s.exec(`DROP TABLE IF EXISTS back; CREATE TABLE back (id int8, c ` + c.col + `)`)
			_, types := s.columns("back")
			e, err := pgcopy.NewEncoder(fields, []pgcopy.EncodeColumn{{Name: "id", Type: types[0]}, {Name: "c", Type: types[1]}})
			require.NoError(t, err)
			out, err := e.AppendTuples(nil, rec, 0, 1)
			require.NoError(t, err)
			require.NoError(t, s.copyIn("back", out))
			want := recordDigest(t, fields, rec)
			back, err := pgcopy.NewReadBackDigester(fields, types)
			require.NoError(t, err)
			require.Equal(t, want, digest(t, back, s.copyOut("SELECT * FROM back", 2)))
			require.Equal(t, want, digest(t, back, [][]byte{out}), "what was encoded has the digest as well")
			// Another value has another digest.
			s.exec("INSERT INTO back SELECT id + 1, c FROM back")
			require.NotEqual(t, want, digest(t, back, s.copyOut("SELECT * FROM back", 2)))
		})
	}
	_, err := pgcopy.NewReadBackDigester([]schema.Field{{Name: "c", Type: schema.Type{Kind: schema.JSON}}}, []pgcopy.TypeInfo{dest(pgcopy.OIDJSONB, -1)})
	require.Equal(t, engine.Permanent, engine.ClassOf(err), "json is compared as text, which jsonb forgets")
}
