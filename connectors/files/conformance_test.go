package files

import (
	"io"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, format := range []string{FormatParquet, FormatJSONL, FormatCSV} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			cfg := map[string]any{"path": t.TempDir(), "format": format}
			enginetest.RunSink(t, enginetest.SinkCase{
				Spec: NewSink().Spec(),
				Open: func(t *testing.T) engine.SinkSession {
					t.Helper()
					s, err := NewSink().Open(t.Context(), mustConfig(t, cfg), engine.OpenOptions{Slots: 2})
					require.NoError(t, err)
					return s
				},
				Rows: func(t *testing.T, target *engine.Target) [][]byte {
					t.Helper()
					return publishedRows(t, cfg, target)
				},
				Skip: conformanceSkips[format],
			})
		})
	}
}

// conformanceSkips are the columns with values that a format has no place for;
// the spec's notes and the tests of policies say what becomes of them.
var conformanceSkips = map[string][]string{
	// infinities; an array of two dimensions
	FormatParquet: {"date", "timestamp", "timestamptz", "timestamp_ns", "array"},
	// NaN and infinities; a JSON null; a lower bound of 0
	FormatJSONL: {"float32", "float64", "decimal_any", "date", "timestamp", "timestamptz", "timestamp_ns", "json", "array"},
	// decimal NaN and infinities; a lower bound of 0
	FormatCSV: {"decimal_any", "date", "timestamp", "timestamptz", "timestamp_ns", "array"},
}

// TestEveryValueAsText: with the policy text nothing at all is left out.
func TestEveryValueAsText(t *testing.T) {
	t.Parallel()
	s, rec, err := enginetest.Values(memory.DefaultAllocator)
	require.NoError(t, err)
	defer rec.Release()
	want, err := enginetest.CanonicalRows(&s, rec)
	require.NoError(t, err)
	for _, format := range []string{FormatParquet, FormatJSONL, FormatCSV} {
		cfg := map[string]any{"path": t.TempDir(), "format": format}
		r := openRig(t, cfg)
		req := r.request(&table{name: "suite.values", schema: s}, run1, 1, engine.WriteReplace)
		req.Policies.Default = engine.PolicyText
		target := r.plan(req)
		rc, err := r.s.Apply(t.Context(), epochOf(target, "suite.values/0", 1, 1, batchOf(t, &s, "suite.values", rec)))
		require.NoError(t, err, format)
		require.True(t, rc.Verified)
		require.Empty(t, rc.Policies)
		r.publish(target, rc)
		enginetest.RequireSameRows(t, want, publishedRows(t, cfg, target), format)
	}
}

// publishedRows reads the files that the manifest names.
func publishedRows(t *testing.T, cfg map[string]any, target *engine.Target) [][]byte {
	t.Helper()
	r := openRig(t, cfg)
	m := r.manifest(target)
	if m == nil {
		return nil
	}
	d, err := detailOf(target)
	require.NoError(t, err)
	cols, err := planColumns(target, d)
	require.NoError(t, err)
	var rows [][]byte
	take := func(rec arrow.RecordBatch) error {
		got, err := enginetest.CanonicalRows(&target.Schema, rec)
		rows = append(rows, got...)
		return err
	}
	for _, f := range m.Files {
		at, size, done, err := r.s.(*session).store.open(t.Context(), d.Folder+"/"+f.Name)
		require.NoError(t, err)
		in := io.NewSectionReader(at, 0, size)
		switch d.Format {
		case FormatParquet:
			err = readParquet(t.Context(), in, cols[:len(target.Schema.Fields)], 100, memory.DefaultAllocator, take)
		case FormatJSONL:
			err = readJSONL(in, cols, memory.DefaultAllocator, take)
		case FormatCSV:
			err = readCSV(in, cols, memory.DefaultAllocator, take)
		}
		require.NoError(t, err)
		done()
	}
	return rows
}
