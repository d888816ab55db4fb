package files

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

// python runs testdata/readback.py on folders of targets.
func python(t *testing.T, mode string, folders ...string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	out, err := exec.Command(filepath.Join(root, "scripts", "python-tools.sh")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	args := append([]string{filepath.Join("testdata", "readback.py"), mode}, folders...)
	cmd := exec.Command(filepath.Join(root, ".tools", "py", "bin", "python"), args...)
	cmd.Stderr = os.Stderr
	out, err = cmd.Output()
	require.NoError(t, err)
	return string(out)
}

func (r *rig) folder(target *engine.Target) string {
	r.t.Helper()
	d, err := detailOf(target)
	require.NoError(r.t, err)
	return filepath.Join(r.s.(*session).store.(*localStorage).root, d.Folder)
}

// TestReadElsewhere: DuckDB, pyarrow and Python's JSON see the types and values
// that stand, looked through by a person, in the golden file.
func TestReadElsewhere(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	for _, format := range []string{FormatParquet, FormatJSONL, FormatCSV} {
		r := openRig(t, map[string]any{"path": t.TempDir(), "format": format})
		tb := allKinds()
		req := r.request(tb, run1, 1, engine.WriteReplace)
		target := r.plan(req)
		rc, err := r.apply(target, tb, 2)
		require.NoError(t, err)
		r.publish(target, rc)
		fmt.Fprintf(&got, "== %s\n%s", format, python(t, "show", r.folder(target)))
	}
	golden := filepath.Join("testdata", "elsewhere.golden.txt")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
}

// loadRecords applies ready records as one epoch and publishes them.
func (r *rig) loadRecords(s schema.Schema, name string, recs []arrow.RecordBatch) *engine.Target {
	r.t.Helper()
	tb := &table{name: name, schema: s}
	target := r.plan(r.request(tb, run1, 1, engine.WriteReplace))
	var batches []*engine.Batch
	for _, rec := range recs {
		batches = append(batches, batchOf(r.t, &s, name, rec))
	}
	rc, err := r.s.Apply(r.t.Context(), epochOf(target, name+"/0", 1, 1, batches...))
	require.NoError(r.t, err)
	require.True(r.t, rc.Verified)
	r.publish(target, rc)
	return target
}

// TestEncodingsElsewhere: many rows, so that dictionaries with and without their
// cut-off, delta encoding, several pages, row groups and files all occur; as
// Parquet and as CSV they are the same rows to DuckDB.
func TestEncodingsElsewhere(t *testing.T) {
	t.Parallel()
	s := benchTable()
	var recs []arrow.RecordBatch
	for k := range 6 {
		recs = append(recs, benchRecord(&s, 4000, 4000*k))
	}
	c := openRig(t, map[string]any{"path": t.TempDir(), "format": "csv", "roll": "2MiB"})
	csv := c.loadRecords(s, "public.bench", recs)
	for _, compression := range []string{CompressionZstd, CompressionSnappy, CompressionNone} {
		p := openRig(t, map[string]any{"path": t.TempDir(), "row_group": "1MiB", "roll": "1MiB", "compression": compression})
		parquet := p.loadRecords(s, "public.bench", recs)
		require.Greater(t, len(p.dataKeys(parquet)), 1)
		require.Equal(t, "[24000, 24000, 0, 0]\n", python(t, "same", p.folder(parquet), c.folder(csv)))
	}
}
