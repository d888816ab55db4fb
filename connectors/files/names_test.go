package files

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"github.com/tranship-io/tranship/engine"
)

func TestFolders(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"public.orders": "public.orders",
		`"s.t"."a.b"`:   "s%2Et.a%2Eb",
		`s."q""t"`:      "s.q%22t",
		`s."é/.."`:      "s.%C3%A9%2F%2E%2E",
		"orders":        "orders",
	} {
		require.Equal(t, want, folderOf(parsePath(name)), name)
	}
	long := strings.Repeat("k", 300)
	a, b := folderOf([]string{"public", long + "_alpha"}), folderOf([]string{"public", long + "_beta"})
	require.NotEqual(t, a, b)
	require.LessOrEqual(t, len(a), maxNameBytes+100)
	require.LessOrEqual(t, len(folderOf([]string{long, long, long})), maxNameBytes)
	require.LessOrEqual(t, len(safeName(strings.Repeat("é", 200))), maxNameBytes)
	require.NotEqual(t, folderOf([]string{"a.b", "c"}), folderOf([]string{"a", "b.c"}))
	require.Equal(t, "3", splitDir("public.orders", "public.orders/3"))
	require.Equal(t, "0.3", splitDir("public.orders", "public.orders/0.3"))
	require.Equal(t, "%2E%2E", splitDir("a", "a/.."))
	require.NotEqual(t, splitDir("a", "b/3"), splitDir("a", "a/b/3"))
}

func TestRunOf(t *testing.T) {
	t.Parallel()
	run, ok := runOf(run1 + "/0/" + fileName(1, 2, xxh3.Uint128{}, ".csv"))
	require.True(t, ok)
	require.Equal(t, run1, run)
	run, ok = runOf(runDir(run1, 3) + "/0/x.csv")
	require.True(t, ok)
	require.Equal(t, run1, run)
	for _, key := range []string{"x.csv", run1 + "/x.csv", "year=2024/month=1/x.csv", run1 + "x/0/x.csv", strings.ToUpper(run1[:8]) + "G" + run1[9:] + "/0/x"} {
		_, ok = runOf(key)
		require.False(t, ok, key)
	}
}

func TestTwoTablesOneFolder(t *testing.T) {
	t.Parallel()
	r := openRig(t, map[string]any{"path": t.TempDir()})
	req := r.request(numbers(1, 1), run1, 1, engine.WriteReplace)
	req.Others = []string{"public.n", "public.m"}
	_, err := r.s.Plan(t.Context(), req)
	require.NoError(t, err)
	req.Others = append(req.Others, "PUBLIC.N")
	_, err = r.s.Plan(t.Context(), req)
	require.ErrorContains(t, err, "public.n")
	require.ErrorContains(t, err, "PUBLIC.N")
}

func TestConfiguration(t *testing.T) {
	t.Parallel()
	for cfg, says := range map[string]string{
		`{}`:                                "no path",
		`{"path":"x","format":"xlsx"}`:      "xlsx",
		`{"path":"x","compression":"gzip"}`: "parquet",
		`{"path":"x","format":"csv","compression":"snappy"}`: "snappy",
		`{"path":"ftp://x"}`:               "ftp",
		`{"path":"x","roll":"12 parsecs"}`: "12 parsecs",
		`{"path":"x","row_groups":1}`:      "row_groups",
		`{"path":"s3://"}`:                 "bucket",
	} {
		_, err := NewSink().Open(t.Context(), engine.Config(cfg), engine.OpenOptions{})
		require.ErrorContains(t, err, says, cfg)
		require.Equal(t, engine.Permanent, engine.ClassOf(err))
	}
	for text, want := range map[string]int64{`"64MiB"`: 64 << 20, `10`: 10, `"10 MB"`: 10e6, `"1g"`: 1 << 30, `"5b"`: 5} {
		var s Size
		require.NoError(t, json.Unmarshal([]byte(text), &s), text)
		require.EqualValues(t, want, s)
	}
	r := openRig(t, map[string]any{"path": t.TempDir()})
	req := r.request(numbers(1, 1), run1, 1, engine.WriteUpsert)
	_, err := r.s.Plan(t.Context(), req)
	require.ErrorContains(t, err, "upsert")
	req.Write, req.Options = engine.WriteReplace, json.RawMessage(`{"compression":"none","roll":"1MiB"}`)
	target, err := r.s.Plan(t.Context(), req)
	require.NoError(t, err)
	d, err := detailOf(target)
	require.NoError(t, err)
	require.Equal(t, &detail{Folder: "public.n", Format: "parquet", Compression: "none", Roll: 1 << 20, RowGroup: rowGroupDefault}, d)
	req.Options = json.RawMessage(`{"rol":1}`)
	_, err = r.s.Plan(t.Context(), req)
	require.ErrorContains(t, err, "rol")
}
