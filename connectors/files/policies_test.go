package files

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

// nonfin is case 02: rows 1 and 3 hold what only PostgreSQL holds.
func nonfin() *table {
	return &table{
		name: "public.nonfin",
		schema: schema.Schema{Key: []string{"id"}, Fields: []schema.Field{
			key("id"),
			field("ts", schema.Type{Kind: schema.Timestamp, Digits: 6}),
			field("tz", schema.Type{Kind: schema.TimestampTZ, Digits: 6}),
			field("d", kind(schema.Date)),
			field("n", schema.Type{Kind: schema.Decimal, Precision: 10, Scale: 2}),
			field("f", kind(schema.Float64)),
		}},
		rows: [][]any{
			{"1", "-infinity", "infinity", "infinity", "NaN", "-Infinity"},
			{"2", "2024-01-02T03:04:05.678901", "2024-01-02T03:04:05.678901Z", "2024-01-02", "1.5", "1.5"},
			{"3", "infinity", "-infinity", "-infinity", "Infinity", "NaN"},
		},
	}
}

func counts(rc *engine.Receipt) map[string]int64 {
	sum := map[string]int64{}
	for _, p := range rc.Policies {
		sum[p.Column+" "+string(p.Policy)+" "+p.Reason] += p.Count
	}
	return sum
}

func (r *rig) try(tb *table, p engine.Policies) (*engine.Target, *engine.Receipt, error) {
	r.t.Helper()
	req := r.request(tb, run1, 1, engine.WriteReplace)
	req.Policies = p
	target := r.plan(req)
	rc, err := r.apply(target, tb, 100)
	return target, rc, err
}

func TestNonFiniteFailsByDefault(t *testing.T) {
	t.Parallel()
	for _, format := range []string{FormatParquet, FormatJSONL, FormatCSV} {
		r := openRig(t, map[string]any{"path": t.TempDir(), "format": format})
		target, _, err := r.try(nonfin(), engine.Policies{})
		v := valueError(t, err)
		require.Equal(t, "public.nonfin", v.Resource)
		require.Equal(t, "ts", v.Column)
		require.Equal(t, "id=1", v.Key)
		require.Equal(t, `"-infinity"`, v.Value)
		require.Contains(t, engine.HintOf(err), "clamp")
		require.Empty(t, r.dataKeys(target), "a failed epoch leaves nothing")
	}
}

func TestNonFiniteNull(t *testing.T) {
	t.Parallel()
	for _, format := range []string{FormatParquet, FormatJSONL, FormatCSV} {
		r := openRig(t, map[string]any{"path": t.TempDir(), "format": format})
		_, rc, err := r.try(nonfin(), engine.Policies{Default: engine.PolicyNull})
		require.NoError(t, err)
		want := map[string]int64{
			"ts null infinite": 2, "tz null infinite": 2, "d null infinite": 2,
			"n null infinite": 1, "n null not a number": 1,
		}
		if format == FormatJSONL { // Parquet DOUBLE and CSV keep these
			want["f null infinite"], want["f null not a number"] = 1, 1
		}
		require.Equal(t, want, counts(rc), format)
		require.EqualValues(t, 3, rc.Applied)
	}
}

func TestNonFiniteClampTextSetAside(t *testing.T) {
	t.Parallel()
	tb := nonfin()
	r := openRig(t, map[string]any{"path": t.TempDir(), "format": "csv"})
	target, rc, err := r.try(tb, engine.Policies{Default: engine.PolicyClamp, Columns: map[string]engine.Policy{"n": engine.PolicyText}})
	require.NoError(t, err)
	require.Equal(t, strings.Join([]string{
		"id,ts,tz,d,n,f",
		"1,0001-01-01T00:00:00,9999-12-31T23:59:59.999999Z,9999-12-31,NaN,-Infinity",
		"2,2024-01-02T03:04:05.678901,2024-01-02T03:04:05.678901Z,2024-01-02,1.50,1.5",
		"3,9999-12-31T23:59:59.999999,0001-01-01T00:00:00Z,0001-01-01,Infinity,NaN", "",
	}, "\r\n"), string(r.content(target, rc.Artifacts[0].Name)))

	// NaN has no neighbour.
	_, _, err = r.try(tb, engine.Policies{Default: engine.PolicyClamp})
	require.Equal(t, "n", valueError(t, err).Column)

	_, rc, err = r.try(tb, engine.Policies{Default: engine.PolicySetAside, SetAside: "file:aside.jsonl"})
	require.NoError(t, err)
	require.EqualValues(t, 1, rc.Applied)
	require.EqualValues(t, 2, rc.SetAside)
	require.Len(t, rc.SetAsideRows, 2)
	require.Equal(t, "id=1", rc.SetAsideRows[0].Key)
	require.JSONEq(t, `{"id":1,"ts":"-infinity","tz":"infinity","d":"infinity","n":"NaN","f":"-Infinity"}`, string(rc.SetAsideRows[0].Values))
	require.Equal(t, map[string]int64{"ts set_aside infinite": 2}, counts(rc))

	// All rows set aside: no file, and the run is whole all the same.
	only := nonfin()
	only.rows = only.rows[:1]
	_, rc, err = r.try(only, engine.Policies{Default: engine.PolicySetAside, SetAside: "file:aside.jsonl"})
	require.NoError(t, err)
	require.Empty(t, rc.Artifacts)

	req := r.request(tb, run1, 1, engine.WriteReplace)
	req.Policies = engine.Policies{Default: engine.PolicySetAside, SetAside: "table:x.y"}
	_, err = r.s.Plan(t.Context(), req)
	require.ErrorContains(t, err, "table:x.y")
}

// TestTextPolicyKeepsEverything: text columns hold every special value.
func TestTextPolicyKeepsEverything(t *testing.T) {
	t.Parallel()
	tb := nonfin()
	tb.schema.Fields = append(tb.schema.Fields, field("a", arrayOf(kind(schema.Float64))), field("t", schema.Type{Kind: schema.Time, Digits: 6}))
	tb.rows[0] = append(tb.rows[0], `{"lower":[0],"values":["NaN",0.5]}`, "24:00:00")
	tb.rows[1] = append(tb.rows[1], `[[0.98,0.67,0],[0.67,0.41,0.59]]`, "00:00:00")
	tb.rows[2] = append(tb.rows[2], nil, nil)
	for _, format := range []string{FormatParquet, FormatJSONL, FormatCSV} {
		r := openRig(t, map[string]any{"path": t.TempDir(), "format": format})
		target, rc, err := r.try(tb, engine.Policies{Default: engine.PolicyText})
		require.NoError(t, err, format)
		require.Empty(t, rc.Policies)
		require.True(t, rc.Verified)
		require.Equal(t, "text", target.Columns[1].Type)
	}
}

// TestArrays is case 03.
func TestArrays(t *testing.T) {
	t.Parallel()
	tb := &table{
		name: "public.arr",
		schema: schema.Schema{Key: []string{"id"}, Fields: []schema.Field{
			key("id"), field("a", arrayOf(kind(schema.Int32))), field("t", arrayOf(kind(schema.String))), field("m", arrayOf(kind(schema.Float64))),
		}},
		rows: [][]any{
			{"1", nil, "[]", nil},
			{"2", "[1,null,3]", `["a,b","NULL",null,"say \"hi\"","","\\"]`, "[[0.98,0.67,0],[0.67,0.41,0.59]]"},
		},
	}
	r := openRig(t, map[string]any{"path": t.TempDir(), "format": "jsonl"})
	target, rc, err := r.try(tb, engine.Policies{})
	require.NoError(t, err)
	requireText(t, `{"id":1,"a":null,"t":[],"m":null}
{"id":2,"a":[1,null,3],"t":["a,b","NULL",null,"say \"hi\"","","\\"],"m":[[0.98,0.67,0],[0.67,0.41,0.59]]}
`, string(r.content(target, rc.Artifacts[0].Name)))

	p := openRig(t, map[string]any{"path": t.TempDir(), "format": "parquet"})
	_, _, err = p.try(tb, engine.Policies{})
	v := valueError(t, err)
	require.Equal(t, "m", v.Column)
	require.Equal(t, "id=2", v.Key)
	_, rc, err = p.try(tb, engine.Policies{Columns: map[string]engine.Policy{"m": engine.PolicyNull}})
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"m null " + reasonDimensions: 1}, counts(rc))

	tb.rows = [][]any{{"1", `{"lower":[5],"values":[7,8]}`, nil, nil}}
	_, _, err = p.try(tb, engine.Policies{})
	require.Equal(t, "a", valueError(t, err).Column)
	target, rc, err = r.try(tb, engine.Policies{Default: engine.PolicyClamp})
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"a clamp " + reasonBounds: 1}, counts(rc))
	require.JSONEq(t, `{"id":1,"a":[7,8],"t":null,"m":null}`, string(r.content(target, rc.Artifacts[0].Name)))
}

// TestNumbersAreExact is case 01.
func TestNumbersAreExact(t *testing.T) {
	t.Parallel()
	tb := &table{
		name: "public.num_scale",
		schema: schema.Schema{Key: []string{"id"}, Fields: []schema.Field{
			key("id"), field("u", kind(schema.Decimal)),
			field("p", schema.Type{Kind: schema.Decimal, Precision: 38, Scale: 30}),
			field("m", schema.Type{Kind: schema.Decimal, Precision: 12, Scale: 2}),
			field("big", kind(schema.Uint64)),
		}},
		rows: [][]any{
			{"1", "0.1234567890123456789012345678", "0.000000000000000000000000000001", "1234567890.12", "18446744073709551615"},
			{"2", "12345678901234567890123456789.5", "99999999.999999999999999999999999999999", "-0.01", "0"},
			{"3", "-0.00000000000000000001", "0", "0", "1"},
		},
	}
	r := openRig(t, map[string]any{"path": t.TempDir(), "format": "jsonl"})
	target, rc, err := r.try(tb, engine.Policies{})
	require.NoError(t, err)
	requireText(t, `{"id":1,"u":0.1234567890123456789012345678,"p":0.000000000000000000000000000001,"m":1234567890.12,"big":18446744073709551615}
{"id":2,"u":12345678901234567890123456789.5,"p":99999999.999999999999999999999999999999,"m":-0.01,"big":0}
{"id":3,"u":-0.00000000000000000001,"p":0.000000000000000000000000000000,"m":0.00,"big":1}
`, string(r.content(target, rc.Artifacts[0].Name)))
	p := openRig(t, map[string]any{"path": t.TempDir()})
	target, _, err = p.try(tb, engine.Policies{})
	require.NoError(t, err)
	require.Equal(t, "text", target.Columns[1].Type)
	require.Equal(t, "DECIMAL(38,30)", target.Columns[2].Type)
}

func TestJSONColumns(t *testing.T) {
	t.Parallel()
	tb := &table{
		name: "public.docs",
		schema: schema.Schema{Key: []string{"id"}, Fields: []schema.Field{
			key("id"), field("j", kind(schema.JSON)), field("b", kind(schema.JSONB)), field("s", kind(schema.String)),
		}},
		rows: [][]any{
			{"500", "{\"k\":\n \"x\\u0000y\"}", `{"k": 9007199254740993}`, "a\x00b"},
			{"501", `{"k":"\\u0000"}`, nil, `a\u0000b`},
		},
	}
	r := openRig(t, map[string]any{"path": t.TempDir(), "format": "jsonl"})
	target, rc, err := r.try(tb, engine.Policies{})
	require.NoError(t, err, "a line break between tokens is no change of value")
	requireText(t, `{"id":500,"j":{"k":  "x\u0000y"},"b":{"k": 9007199254740993},"s":"a\u0000b"}
{"id":501,"j":{"k":"\\u0000"},"b":null,"s":"a\\u0000b"}
`, string(r.content(target, rc.Artifacts[0].Name)))
	require.Empty(t, rc.Policies)

	tb.rows = [][]any{{"1", nil, " null", nil}}
	_, _, err = r.try(tb, engine.Policies{})
	require.Contains(t, valueError(t, err).Reason, "JSON null")
	target, rc, err = r.try(tb, engine.Policies{Columns: map[string]engine.Policy{"b": engine.PolicyText}})
	require.NoError(t, err)
	require.JSONEq(t, `{"id":1,"j":null,"b":" null","s":null}`, string(r.content(target, rc.Artifacts[0].Name)))

	tb.rows = [][]any{{"1", "{", nil, nil}}
	_, _, err = r.try(tb, engine.Policies{})
	require.Contains(t, valueError(t, err).Reason, reasonNoJSON)

	tb.rows = [][]any{{"7", nil, nil, "\xff"}, {"8", nil, nil, "x\xfe"}, {"9", nil, nil, "ok"}}
	for _, format := range []string{FormatParquet, FormatJSONL, FormatCSV} {
		r := openRig(t, map[string]any{"path": t.TempDir(), "format": format})
		_, _, err = r.try(tb, engine.Policies{})
		require.Equal(t, "id=7", valueError(t, err).Key)
		_, rc, err = r.try(tb, engine.Policies{Default: engine.PolicySetAside, SetAside: "file:x"})
		require.NoError(t, err)
		require.EqualValues(t, 2, rc.SetAside)
		for _, a := range rc.SetAsideRows {
			require.True(t, json.Valid(a.Values))
		}
	}
}

func TestCSVTellsNullFromEmpty(t *testing.T) {
	t.Parallel()
	tb := &table{
		name:   "public.t",
		schema: schema.Schema{Fields: []schema.Field{field("a, \"b\"", kind(schema.String)), field("b", kind(schema.String))}},
		rows: [][]any{
			{nil, ""}, {"", nil}, {nil, nil}, {"x\r\ny", " pad "}, {`say "hi"`, "a,b"}, {"NULL", `\N`},
		},
	}
	r := openRig(t, map[string]any{"path": t.TempDir(), "format": "csv"})
	target, rc, err := r.try(tb, engine.Policies{})
	require.NoError(t, err)
	require.Equal(t, strings.Join([]string{
		`"a, ""b""",b`, `,""`, `"",`, `,`, "\"x\r\ny\",\" pad \"", `"say ""hi""","a,b"`, `NULL,\N`, "",
	}, "\r\n"), string(r.content(target, rc.Artifacts[0].Name)))

	one := &table{name: "public.one", schema: schema.Schema{Fields: tb.schema.Fields[1:]}, rows: [][]any{{nil}, {""}, {nil}}}
	_, rc, err = r.try(one, engine.Policies{})
	require.NoError(t, err)
	require.EqualValues(t, 3, rc.Applied)
}

func TestPrecisionAndKeys(t *testing.T) {
	t.Parallel()
	tb := &table{
		name: "public.t",
		schema: schema.Schema{Key: []string{"d", "n"}, Fields: []schema.Field{
			{Name: "d", Type: kind(schema.Date)}, {Name: "n", Type: schema.Type{Kind: schema.Decimal, Precision: 4, Scale: 2}},
		}},
		rows: [][]any{{"2024-01-02", "123.45"}},
	}
	r := openRig(t, map[string]any{"path": t.TempDir()})
	_, _, err := r.try(tb, engine.Policies{Default: engine.PolicyNull})
	v := valueError(t, err)
	require.Equal(t, "d=2024-01-02, n=123.45", v.Key)
	require.Contains(t, v.Reason, "a key takes no NULL")
	_, rc, err := r.try(tb, engine.Policies{Default: engine.PolicyClamp})
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"n clamp " + reasonPrecision: 1}, counts(rc))
}
