package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

// numbers is a table of rows first … last.
func numbers(first, last int) *table {
	tb := &table{
		name: "public.n",
		schema: schema.Schema{Key: []string{"id"}, Fields: []schema.Field{
			key("id"), field("s", kind(schema.String)),
		}},
	}
	for i := first; i <= last; i++ {
		tb.rows = append(tb.rows, []any{strconv.Itoa(i), "row " + strconv.Itoa(i)})
	}
	return tb
}

// TestReplaceKeepsTheOldUntilPublish is invariant 8 and case 23.
func TestReplaceKeepsTheOldUntilPublish(t *testing.T) {
	t.Parallel()
	r := openRig(t, map[string]any{"path": t.TempDir()})
	old := r.load(r.request(numbers(1, 1000), run1, 1, engine.WriteReplace), numbers(1, 1000), 300)
	require.EqualValues(t, 1000, old.Rows)

	// A run that fails after it wrote a part changes nothing for readers.
	target := r.plan(r.request(numbers(1, 10), run2, 2, engine.WriteReplace))
	_, err := r.applyEpoch(target, numbers(1, 5), "public.n/0", 1, 1, 5)
	require.NoError(t, err)
	require.Equal(t, old, r.manifest(target))
	require.Len(t, r.dataKeys(target), 2)
	require.NoError(t, r.s.Abort(t.Context(), target))
	require.NoError(t, r.s.Abort(t.Context(), target), "abort twice")
	require.Equal(t, []string{old.Files[0].Name}, r.dataKeys(target))

	// No rows at the source: the table becomes empty.
	target = r.plan(r.request(numbers(1, 0), run3, 3, engine.WriteReplace))
	rc, err := r.apply(target, numbers(1, 0), 10)
	require.NoError(t, err)
	r.publish(target, rc)
	require.EqualValues(t, 0, r.manifest(target).Rows)
	require.Empty(t, r.dataKeys(target))
}

func TestPublishTwiceAndLate(t *testing.T) {
	t.Parallel()
	r := openRig(t, map[string]any{"path": t.TempDir(), "format": "csv"})
	tb := numbers(1, 10)
	one := r.plan(r.request(tb, run1, 1, engine.WriteAppend))
	rc1, err := r.apply(one, tb, 10)
	require.NoError(t, err)
	first := r.publish(one, rc1)
	require.False(t, first.AlreadyDone)
	m1 := r.manifest(one)
	again := r.publish(one, rc1)
	require.True(t, again.AlreadyDone)
	require.Equal(t, first.Applied, again.Applied)
	require.Equal(t, m1, r.manifest(one), "a publish that is repeated appends nothing twice")

	two := r.plan(r.request(numbers(11, 15), run2, 2, engine.WriteAppend))
	rc2, err := r.apply(two, numbers(11, 15), 10)
	require.NoError(t, err)
	p := publication(two, r.at, rc2)
	p.Cursor = []byte(`{"at":15}`)
	p.Seen = []engine.RowID{{1, 2, 3}, {4}}
	_, err = r.s.Publish(t.Context(), p)
	require.NoError(t, err)
	m2 := r.manifest(two)
	require.EqualValues(t, 15, m2.Rows)
	require.Equal(t, m1.Files[0], m2.Files[0], "append rewrites nothing")
	require.Len(t, m2.Runs, 2)

	// The first run's publish arrives once more: it was done, and stays so.
	require.True(t, r.publish(one, rc1).AlreadyDone)
	require.Equal(t, m2, r.manifest(one))

	// An older run that never published is refused, at Prepare and at Publish.
	late := r.request(tb, "01800000-0000-7000-8000-000000000000", 1, engine.WriteAppend)
	stale, err := r.s.Plan(t.Context(), late)
	require.NoError(t, err)
	_, err = r.s.Prepare(t.Context(), stale)
	var se *engine.StaleError
	require.ErrorAs(t, err, &se)
	require.Equal(t, &engine.StaleError{What: "ordinal", Subject: "public.n", Ours: 1, Have: 2}, se)
	_, err = r.s.Publish(t.Context(), publication(stale, r.at))
	require.ErrorAs(t, err, &se)
	require.Equal(t, m2, r.manifest(one))

	found, err := r.s.(engine.Adopter).Adopt(t.Context(), two.Route)
	require.NoError(t, err)
	require.Equal(t, []engine.Adoption{{
		Installation: "i-1", RunID: run2, Ordinal: 2,
		Resources: []engine.AdoptedResource{{
			Resource: "public.n", Cursor: []byte(`{"at":15}`), Seen: p.Seen, RunID: run2, Ordinal: 2, Published: true,
		}},
	}}, found)
	found, err = r.s.(engine.Adopter).Adopt(t.Context(), engine.Route{Pipeline: "other", Source: two.Route.Source, Sink: two.Route.Sink})
	require.NoError(t, err)
	require.Empty(t, found)
}

// TestSweep: zombie claims, orphans and superseded runs go; younger runs, files
// that aren't ours, and named files stay.
func TestSweep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := openRig(t, map[string]any{"path": dir})
	tb := numbers(1, 10)
	target := r.plan(r.request(tb, run2, 2, engine.WriteReplace))
	zombie, err := r.applyEpoch(target, tb, "public.n/0", 1, 1, 10)
	require.NoError(t, err)
	rc, err := r.applyEpoch(target, tb, "public.n/0", 2, 1, 10)
	require.NoError(t, err)
	require.NotEqual(t, zombie.Artifacts[0].Name, rc.Artifacts[0].Name)
	younger := filepath.Join(dir, "public.n", run3, "0", "1-1-ff.parquet")
	older := filepath.Join(dir, "public.n", run1, "0", "1-1-ff.parquet")
	part := filepath.Join(dir, "public.n", run1, "0", ".part-1")
	readme := filepath.Join(dir, "public.n", "README.md")
	for _, f := range []string{younger, older, part, readme} {
		require.NoError(t, os.MkdirAll(filepath.Dir(f), 0o755))
		require.NoError(t, os.WriteFile(f, nil, 0o644))
	}
	r.publish(target, rc)
	require.FileExists(t, younger)
	require.FileExists(t, readme)
	require.NoFileExists(t, older)
	require.NoFileExists(t, part)
	require.NoDirExists(t, filepath.Dir(filepath.Dir(older)))
	require.ElementsMatch(t, []string{rc.Artifacts[0].Name, run3 + "/0/1-1-ff.parquet"}, r.dataKeys(target))
}

func TestPublishRefusesWhatIsNotWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := openRig(t, map[string]any{"path": dir})
	tb := numbers(1, 10)
	target := r.plan(r.request(tb, run1, 1, engine.WriteReplace))
	rc, err := r.apply(target, tb, 10)
	require.NoError(t, err)

	p := publication(target, r.at, rc)
	p.Totals.Applied++
	_, err = r.s.Publish(t.Context(), p)
	var mm *engine.MismatchError
	require.ErrorAs(t, err, &mm)

	file := filepath.Join(dir, "public.n", filepath.FromSlash(rc.Artifacts[0].Name))
	require.NoError(t, os.Truncate(file, 10))
	_, err = r.s.Publish(t.Context(), publication(target, r.at, rc))
	require.ErrorIs(t, err, engine.ErrStagingLost)
	require.NoError(t, os.Remove(file))
	_, err = r.s.Publish(t.Context(), publication(target, r.at, rc))
	require.ErrorIs(t, err, engine.ErrStagingLost)
	require.Nil(t, r.manifest(target))
}

func TestForeignFolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := openRig(t, map[string]any{"path": dir})
	tb := numbers(1, 3)
	r.load(r.request(tb, run1, 1, engine.WriteReplace), tb, 10)

	other := r.request(tb, run2, 2, engine.WriteReplace)
	other.Route.Pipeline = "bakery"
	target, err := r.s.Plan(t.Context(), other)
	require.NoError(t, err)
	_, err = r.s.Prepare(t.Context(), target)
	require.ErrorContains(t, err, `pipeline "shop"`)
	require.Equal(t, engine.Permanent, engine.ClassOf(err))

	other = r.request(tb, run2, 2, engine.WriteReplace)
	other.Route.Installation = "i-2"
	target, err = r.s.Plan(t.Context(), other)
	require.NoError(t, err)
	_, err = r.s.Prepare(t.Context(), target)
	require.ErrorContains(t, err, "installation i-1")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "public.n", "mine.parquet"), nil, 0o644))
	target, err = r.s.Plan(t.Context(), r.request(tb, run2, 2, engine.WriteReplace))
	require.NoError(t, err)
	_, err = r.s.Prepare(t.Context(), target)
	require.ErrorContains(t, err, "mine.parquet")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "public.n", "manifest.json"), []byte(`{"version":99}`), 0o644))
	_, err = r.s.Plan(t.Context(), r.request(tb, run2, 2, engine.WriteReplace))
	require.ErrorContains(t, err, "version 99")
}

func TestAppendChecksColumns(t *testing.T) {
	t.Parallel()
	r := openRig(t, map[string]any{"path": t.TempDir()})
	tb := numbers(1, 3)
	r.load(r.request(tb, run1, 1, engine.WriteAppend), tb, 10)
	tb.schema.Fields = append([]schema.Field{}, tb.schema.Fields...)
	tb.schema.Fields[1].Type = kind(schema.Int32)
	_, err := r.s.Plan(t.Context(), r.request(tb, run2, 2, engine.WriteAppend))
	require.ErrorContains(t, err, `column "s" is STRING in earlier files and would be INT(32,true) now`)
	_, err = r.s.Plan(t.Context(), r.request(tb, run2, 2, engine.WriteReplace))
	require.NoError(t, err)

	wider := numbers(1, 3)
	wider.schema.Fields = append(append([]schema.Field{}, wider.schema.Fields[:1]...), field("x", kind(schema.Int8)))
	req := r.request(wider, run2, 2, engine.WriteAppend)
	target, err := r.s.Plan(t.Context(), req)
	require.NoError(t, err)
	require.Len(t, target.Warnings, 2)
	req.Schema = engine.SchemaFreeze
	_, err = r.s.Plan(t.Context(), req)
	require.ErrorContains(t, err, `column "x" is new`)
}

// TestPublishersAtOnce: many runs publish at the same time; the manifest ends
// with the greatest ordinal, and each earlier one either published or was refused.
func TestPublishersAtOnce(t *testing.T) {
	t.Parallel()
	cfg := map[string]any{"path": t.TempDir(), "format": "jsonl"}
	const n = 12
	var wg sync.WaitGroup
	var mu sync.Mutex
	rows := int64(0)
	for i := range n {
		r := openRig(t, cfg)
		tb := numbers(1, i+1)
		req := r.request(tb, strings.Replace(run1, "000000000001", "0000000000"+strconv.Itoa(10+i), 1), int64(i+1), engine.WriteAppend)
		target, err := r.s.Plan(t.Context(), req)
		require.NoError(t, err)
		rc, err := r.apply(target, tb, 100)
		require.NoError(t, err)
		wg.Go(func() {
			_, err := r.s.Publish(context.Background(), publication(target, r.at, rc))
			var stale *engine.StaleError
			switch {
			case err == nil:
				mu.Lock()
				rows += int64(i + 1)
				mu.Unlock()
			case !errors.As(err, &stale):
				t.Errorf("publish: %v", err)
			}
		})
	}
	wg.Wait()
	r := openRig(t, cfg)
	target, err := r.s.Plan(t.Context(), r.request(numbers(1, 1), run1, 99, engine.WriteAppend))
	require.NoError(t, err)
	m := r.manifest(target)
	require.EqualValues(t, n, m.Ordinal)
	require.Equal(t, rows, m.Rows)
}

func TestMismatchesFail(t *testing.T) {
	t.Parallel()
	r := openRig(t, map[string]any{"path": t.TempDir()})
	tb := numbers(1, 10)
	target := r.plan(r.request(tb, run1, 1, engine.WriteReplace))
	batch := func() *engine.Batch { return batchOf(t, &tb.schema, tb.name, tb.record(t, 0, 10)) }
	for what, spoil := range map[string]func(*engine.Batch){
		"crc":    func(b *engine.Batch) { b.CRC++ },
		"digest": func(b *engine.Batch) { b.Digest.Lo++ },
	} {
		b := batch()
		spoil(b)
		_, err := r.s.Apply(t.Context(), epochOf(target, "public.n/0", 1, 1, b))
		var mm *engine.MismatchError
		require.ErrorAs(t, err, &mm)
		require.Equal(t, what, mm.What)
		require.Equal(t, "public.n/0", mm.Split)
		require.Equal(t, "public.n", mm.Resource)
	}
	e := epochOf(target, "public.n/0", 1, 1, batch())
	end := e.End
	e.End = func() engine.EpochEnd { v := end(); v.Rows++; return v }
	_, err := r.s.Apply(t.Context(), e)
	var mm *engine.MismatchError
	require.ErrorAs(t, err, &mm)
	require.Equal(t, "rows", mm.What)

	failing := epochOf(target, "public.n/0", 1, 1, batch())
	next := failing.Next
	calls := 0
	failing.Next = func(ctx context.Context) (*engine.Batch, error) {
		if calls++; calls == 2 {
			return nil, errors.New("source is gone")
		}
		return next(ctx)
	}
	_, err = r.s.Apply(t.Context(), failing)
	require.ErrorContains(t, err, "source is gone")

	changed := batch()
	changed.Ops = make([]engine.Op, 10)
	changed.Ops[3] = engine.OpDelete
	_, err = r.s.Apply(t.Context(), epochOf(target, "public.n/0", 1, 1, changed))
	require.Equal(t, engine.Permanent, engine.ClassOf(err))
	require.Error(t, err)
}

// TestRolledFiles: an epoch becomes many files, whose parts sum up.
func TestRolledFiles(t *testing.T) {
	t.Parallel()
	for _, cfg := range everyFormat {
		t.Run(formatName(cfg), func(t *testing.T) {
			t.Parallel()
			c := map[string]any{"path": t.TempDir(), "format": cfg["format"], "roll": "4KiB", "row_group": 1}
			if cfg["compression"] != nil {
				c["compression"] = cfg["compression"]
			}
			r := openRig(t, c)
			// Equal rows make equal files, which must not be taken for one.
			tb := numbers(1, 3000)
			for i := range tb.rows {
				tb.rows[i] = []any{"7", strings.Repeat("same ", 20)}
				if cfg["format"] == "parquet" { // which would keep one of them all
					tb.rows[i][1] = fmt.Sprintf("%0100x", xxh3.HashString(strconv.Itoa(i)))
				}
			}
			target := r.plan(r.request(tb, run1, 1, engine.WriteReplace))
			rc, err := r.apply(target, tb, 50)
			require.NoError(t, err)
			require.Greater(t, len(rc.Artifacts), 1)
			var sum integrity.Digest
			for _, a := range rc.Artifacts {
				sum.Add(a.Digest)
			}
			require.Equal(t, sum, rc.ReadBack)
			r.publish(target, rc)
			require.EqualValues(t, 3000, r.manifest(target).Rows)
			require.Len(t, r.dataKeys(target), len(rc.Artifacts))
		})
	}
}
