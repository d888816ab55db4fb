package files

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
)

var update = flag.Bool("update", false, "write golden files anew")

// TestManifestGolden: what is stored keeps its form.
func TestManifestGolden(t *testing.T) {
	t.Parallel()
	r := openRig(t, map[string]any{"path": t.TempDir(), "format": "jsonl"})
	tb := numbers(1, 3)
	req := r.request(tb, run1, 1, engine.WriteAppend)
	req.Lineage = true
	req.Route.Sink = "file:///lake"
	target := r.plan(req)
	rc, err := r.apply(target, tb, 10)
	require.NoError(t, err)
	// The time of loading is in the file, so its bytes differ from run to run.
	name := run1 + "/0/1-1-0123456789abcdef0123456789abcdef.jsonl"
	d, err := detailOf(target)
	require.NoError(t, err)
	f := rc.Artifacts[0]
	root := r.s.(*session).store.(*localStorage).root
	require.NoError(t, os.Rename(filepath.Join(root, d.Folder, f.Name), filepath.Join(root, d.Folder, name)))
	rc.Artifacts[0].Name = name
	rc.Artifacts[0].Checksum = "crc32c:01234567"
	p := publication(target, r.at, rc)
	p.Cursor = json.RawMessage(`{"id":"3"}`)
	p.Seen = []engine.RowID{{1}, {2}}
	_, err = r.s.Publish(t.Context(), p)
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(root, d.Folder, manifestName))
	require.NoError(t, err)
	golden := filepath.Join("testdata", "manifest.golden.json")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, got, 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
	m, err := ParseManifest(got)
	require.NoError(t, err)
	back, err := m.encode()
	require.NoError(t, err)
	require.Equal(t, string(got), string(back))
}

func TestManifestRefusals(t *testing.T) {
	t.Parallel()
	good, err := os.ReadFile(filepath.Join("testdata", "manifest.golden.json"))
	require.NoError(t, err)
	for _, c := range []struct{ pattern, with, says string }{
		{`"version": 1`, `"version": 2`, "version 2"},
		{`(?m)^  "rows": 3,`, `  "rows": 4,`, "sums"},
		{`"name": "0190`, `"name": "../0190`, "run/split/file"},
		{`"ordinal": 1`, `"ordinal": 0`, "ordinal"},
		{`"seen": "AQ`, `"seen": "Q`, "remembered rows"},
		{`\}\s*$`, `} x`, "follows"},
		{`\}\s*$`, ``, "unexpected"},
	} {
		bad := regexp.MustCompile(c.pattern).ReplaceAll(good, []byte(c.with))
		require.NotEqual(t, string(good), string(bad), c.pattern)
		_, err := ParseManifest(bad)
		require.ErrorContains(t, err, c.says)
	}
}

// FuzzParseManifest: a manifest from anywhere is refused, or is whole and
// survives being written and read again.
func FuzzParseManifest(f *testing.F) {
	good, err := os.ReadFile(filepath.Join("testdata", "manifest.golden.json"))
	require.NoError(f, err)
	f.Add(good)
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"version":1,"resource":"a","run_id":"b","ordinal":1,"files":null,"digest":"xxh3-128-sum:00000000000000000000000000000000"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseManifest(data)
		if err != nil {
			return
		}
		for _, file := range m.Files {
			require.NotContains(t, file.Name, "..")
			require.False(t, filepath.IsAbs(file.Name))
		}
		out, err := m.encode()
		require.NoError(t, err)
		_, err = ParseManifest(out)
		require.NoError(t, err)
	})
}
