package pgsource

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
)

func TestNamesRoundTrip(t *testing.T) {
	t.Parallel()
	for _, n := range [][2]string{{"public", "orders"}, {"s.t", "a.b"}, {`q"t`, "x"}, {"a*", "b?"}, {" ", "x y"}, {"ü", "日本"}, {"A", "b]c[d"}, {`back\slash`, "-"}} {
		name := resourceName(n[0], n[1])
		p, err := parsePattern(name)
		require.NoError(t, err, name)
		require.True(t, p.literal(), name)
		require.Equal(t, n[0], p.schema.text)
		require.Equal(t, n[1], p.name.text)
		require.True(t, p.matches(n[0], n[1]))
	}
	require.Equal(t, `"s.t"."a.b"`, resourceName("s.t", "a.b"))
	require.Equal(t, `public.Order Id`, resourceName("public", "Order Id"))
}

func FuzzParsePattern(f *testing.F) {
	for _, s := range []string{"public.*", `"s.t"."a.b"`, "orders", `"a""b".c`, "a.b.c", `"`, "[.x", "a.[b"} {
		f.Add(s, "public", "orders")
	}
	f.Fuzz(func(t *testing.T, s, schema, name string) {
		if p, err := parsePattern(s); err == nil {
			p.matches(schema, name)
		}
		if schema == "" || name == "" {
			return
		}
		p, err := parsePattern(resourceName(schema, name))
		if err != nil || !p.matches(schema, name) {
			t.Fatalf("%q.%q is written as %s and read as %+v: %v", schema, name, resourceName(schema, name), p, err)
		}
	})
}

// What is stored of plans and positions keeps its form.
func TestStoredForms(t *testing.T) {
	t.Parallel()
	text, binary := "1", []byte{0, 255}
	require.JSONEq(t, `{"key":[{"t":"1"},{"b":"AP8="}]}`, string(encode(position{Key: []keyValue{{Text: &text}, {Binary: &binary}}})))
	require.JSONEq(t, `{"block":7,"end":true}`, string(encode(position{Block: 7, End: true})))
	from := "2024-01-01 00:00:00+00"
	d := descriptor{Version: 1, Way: byCursor, OID: 16400, Schema: "public", Name: "t", Kind: "r", Order: []string{"u", "id"},
		Casts: []string{"timestamp with time zone", "integer"}, Cursor: &cursorRange{Column: "u", From: &from, To: &from, Mark: &from, Nulls: true}}
	const stored = `{"v":1,"way":"cursor","oid":16400,"schema":"public","name":"t","kind":"r","order":["u","id"],"casts":["timestamp with time zone","integer"],
		"cursor":{"column":"u","from":"2024-01-01 00:00:00+00","to":"2024-01-01 00:00:00+00","mark":"2024-01-01 00:00:00+00","nulls":true}}`
	require.JSONEq(t, stored, string(encode(d)))
	back, err := parseDescriptor(engine.Split{ID: "public.t/1", Descriptor: json.RawMessage(stored)})
	require.NoError(t, err)
	require.Equal(t, &d, back)
	blocks := descriptor{Version: 1, Way: byBlocks, OID: 1, Schema: "a", Name: "b", Kind: "r", FirstBlock: 10, EndBlock: 20, Open: true, BlockBytes: 8192, Holder: "h", Snapshot: "s"}
	require.JSONEq(t, `{"v":1,"way":"blocks","oid":1,"schema":"a","name":"b","kind":"r","first_block":10,"end_block":20,"open":true,"block_bytes":8192,"holder":"h","snapshot":"s"}`, string(encode(blocks)))
}

func FuzzParsePosition(f *testing.F) {
	f.Add(`{"key":[{"t":"1"},{"b":"AP8="}]}`)
	f.Add(`{"block":7,"end":true}`)
	f.Fuzz(func(t *testing.T, raw string) {
		d := &descriptor{Way: byKeys, Order: []string{"a", "b"}, Casts: []string{"integer", "text"}}
		p, err := parsePosition("s", d, engine.Position(raw))
		if err != nil {
			return
		}
		again, err := parsePosition("s", d, encode(p))
		if err != nil || string(encode(again)) != string(encode(p)) {
			t.Fatalf("%q is read as %s and that as %s: %v", raw, encode(p), encode(again), err)
		}
	})
}

func FuzzParseDescriptor(f *testing.F) {
	f.Add(`{"v":1,"way":"keys","oid":1,"schema":"a","name":"b","kind":"r","order":["a"],"casts":["integer"],"from":["1"]}`)
	f.Add(`{"v":1,"way":"blocks","oid":1,"schema":"a","name":"b","kind":"r","end_block":5,"block_bytes":1}`)
	f.Fuzz(func(t *testing.T, raw string) {
		d, err := parseDescriptor(engine.Split{ID: "s", Descriptor: json.RawMessage(raw)})
		if err != nil {
			return
		}
		p := &pieces{d: d, list: "x", from: "y", block: d.FirstBlock}
		for range 3 {
			pc, ok := p.take()
			if ok && !strings.HasPrefix(pc.sql, "COPY (SELECT x FROM y") {
				t.Fatal(pc.sql)
			}
		}
	})
}

func TestBlockPieces(t *testing.T) {
	t.Parallel()
	d := &descriptor{Way: byBlocks, FirstBlock: 5, EndBlock: 2500, BlockBytes: 8192, Open: true}
	p := &pieces{d: d, list: "x", from: "y", block: 5}
	var ends []int64
	for {
		pc, ok := p.take()
		if !ok {
			break
		}
		ends = append(ends, pc.end.Block)
		require.Equal(t, pc.end.End, !strings.Contains(pc.sql, "ctid <"))
	}
	require.Equal(t, []int64{1029, 2053, 2500}, ends)
	empty := &pieces{d: &descriptor{Way: byBlocks, BlockBytes: 8192, Open: true}, list: "x", from: "y"}
	pc, ok := empty.take()
	require.True(t, ok, "rows may come into an empty table before the snapshot")
	require.True(t, pc.end.End)
	_, ok = empty.take()
	require.False(t, ok)
}
