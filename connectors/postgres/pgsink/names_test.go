package pgsink

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

func TestFitNameKeepsLongNamesApart(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 70)
	a, b := fitName(long+"_alpha"), fitName(long+"_beta")
	require.NotEqual(t, a, b)
	require.LessOrEqual(t, len(a), maxName)
	require.LessOrEqual(t, len(b), maxName)
	require.Equal(t, a, fitName(long+"_alpha"), "the same on every run")

	accents := fitName(strings.Repeat("é", 40))
	require.LessOrEqual(t, len(accents), maxName)
	require.True(t, utf8.ValidString(accents))
	require.Equal(t, strings.Repeat("é", 31), fitName(strings.Repeat("é", 31)), "62 bytes fit")
}

func TestParseName(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][]string{
		"orders":            {"orders"},
		"public.orders":     {"public", "orders"},
		`"s.t"."a.b"`:       {"s.t", "a.b"},
		`"q""t".x`:          {`q"t`, "x"},
		`public."Order Id"`: {"public", "Order Id"},
	} {
		got, err := parseName(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for _, bad := range []string{`"open`, `"a"b`} {
		_, err := parseName(bad)
		require.Error(t, err, bad)
		require.Equal(t, engine.Permanent, engine.ClassOf(err))
	}
}

func request(name string, others ...string) *engine.TargetRequest {
	path, err := parseName(name)
	if err != nil {
		panic(err)
	}
	return &engine.TargetRequest{Plan: &engine.SourcePlan{Resource: engine.Resource{Name: name, Path: path}}, Others: others}
}

func TestPlaceFor(t *testing.T) {
	t.Parallel()
	p, err := placeFor(request(`"s.t"."a.b"`), "")
	require.NoError(t, err)
	require.Equal(t, place{"s.t", "a.b"}, p)
	require.Equal(t, `"s.t"."a.b"`, p.sql())

	p, err = placeFor(request("shop.orders"), "replica")
	require.NoError(t, err)
	require.Equal(t, place{"replica", "orders"}, p)

	req := request("shop.orders")
	req.Target = `other."T"`
	p, err = placeFor(req, "replica")
	require.NoError(t, err)
	require.Equal(t, place{"other", "T"}, p)

	// Two 63-byte names that differ in the last character stay two (case 09 b).
	long := strings.Repeat("t", 62)
	_, err = placeFor(request("shop."+long+"a", "shop."+long+"a", "shop."+long+"b"), "replica")
	require.NoError(t, err)

	_, err = placeFor(request("a.orders", "a.orders", "b.orders"), "replica")
	require.ErrorContains(t, err, "a.orders")
	require.ErrorContains(t, err, "b.orders")
}

func TestColumnNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 70)
	s := &schema.Schema{Fields: []schema.Field{{Name: long + "_alpha"}, {Name: long + "_beta"}, {Name: "Order Id"}}}
	names, err := columnNames("r", s, map[string]string{"Order Id": "order_id"})
	require.NoError(t, err)
	require.NotEqual(t, names[0], names[1])
	require.Equal(t, "order_id", names[2])

	_, err = columnNames("r", s, map[string]string{"Order Id": names[0]})
	require.ErrorContains(t, err, "Order Id")
	require.ErrorContains(t, err, "_alpha")
	_, err = columnNames("r", s, map[string]string{"nope": "x"})
	require.ErrorContains(t, err, "nope")
}

func TestStagingNamesNeverMix(t *testing.T) {
	t.Parallel()
	route := engine.Route{Installation: "i", Pipeline: "p", Source: "s", Sink: "d"}
	long := strings.Repeat("t", 62)
	names := map[string]bool{}
	for _, table := range []string{long + "a", long + "b"} {
		for _, run := range []string{"run-1", "run-2"} {
			for generation := range 2 {
				n := stagingName(&engine.Target{Route: route, Resource: "public." + table, RunID: run, Generation: generation}, table)
				require.LessOrEqual(t, len(n), maxName)
				require.False(t, names[n], n)
				names[n] = true
			}
		}
	}
	require.Len(t, names, 8)
}

func FuzzParseName(f *testing.F) {
	for _, s := range []string{"a", "a.b", `"s.t"."a.b"`, `"`, `""`, `"a""b".c`, "a..b", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		parts, err := parseName(name)
		if err != nil {
			return
		}
		quoted := make([]string, len(parts))
		for i, p := range parts {
			quoted[i] = ident(p)
		}
		again, err := parseName(strings.Join(quoted, "."))
		require.NoError(t, err)
		require.Equal(t, parts, again)
		require.LessOrEqual(t, len(fitName(name)), maxName)
	})
}
