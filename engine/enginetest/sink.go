package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

// SinkCase is a sink under test. Every resource that the suite writes has a name
// of its own, so that all cases can share one destination.
type SinkCase struct {
	Spec engine.Spec
	// Open makes a new session on the same destination.
	Open func(t *testing.T) engine.SinkSession
	// Rows returns what a reader of the target sees now, in canonical encoding of
	// the schema's fields in order; none if the target is not there.
	Rows func(t *testing.T, target *engine.Target) [][]byte
	// Skip are columns of [Values] that the sink can't hold under the policy
	// "fail"; the reason is told in the sink's documentation.
	Skip []string
	// Options are passed to Plan.
	Options json.RawMessage
}

// RunSink runs the conformance suite of sinks.
func RunSink(t *testing.T, c SinkCase) {
	t.Helper()
	t.Run("spec is honest", func(t *testing.T) { sinkSpec(t, c) })
	for _, w := range c.Spec.Writes {
		if w == engine.WriteMerge {
			// Changes are exercised by RunChangeSink.
			continue
		}
		t.Run(string(w), func(t *testing.T) {
			t.Run("values of every kind arrive", func(t *testing.T) { sinkValues(t, c, w) })
			t.Run("an empty input", func(t *testing.T) { sinkEmpty(t, c, w) })
			t.Run("a wide row", func(t *testing.T) { sinkWide(t, c, w) })
			t.Run("two splits at once", func(t *testing.T) { sinkParallel(t, c, w) })
			t.Run("an epoch that fails leaves nothing", func(t *testing.T) { sinkFails(t, c, w) })
			t.Run("a damaged batch is noticed", func(t *testing.T) { sinkDamaged(t, c, w) })
			t.Run("an older run leaves nothing", func(t *testing.T) { sinkOlderRun(t, c, w) })
			t.Run("a stale claim leaves nothing", func(t *testing.T) { sinkStaleClaim(t, c, w) })
			t.Run("a new session goes on at the ledger", func(t *testing.T) { sinkResumed(t, c, w) })
			t.Run("the destination knows the route", func(t *testing.T) { sinkAdopted(t, c, w) })
			t.Run("a plan that does not follow is void", func(t *testing.T) { sinkFollows(t, c, w) })
			t.Run("a plan that is worked on stays", func(t *testing.T) { sinkRefrozen(t, c, w) })
			t.Run("a publish needs every split", func(t *testing.T) { sinkIncomplete(t, c, w) })
		})
	}
	if slices.Contains(c.Spec.Writes, engine.WriteReplace) {
		t.Run("replace shows the old rows until the publish", func(t *testing.T) { sinkReplace(t, c) })
	}
	if slices.Contains(c.Spec.Writes, engine.WriteUpsert) {
		t.Run("upsert takes the last row of a key", func(t *testing.T) { sinkUpsert(t, c) })
	}
	if slices.Contains(c.Spec.Writes, engine.WriteDelete) {
		t.Run("delete deletes by key", func(t *testing.T) { sinkDelete(t, c) })
	}
	if slices.Contains(c.Spec.Writes, engine.WriteAppend) {
		t.Run("append leaves out what its window has", func(t *testing.T) { sinkWindow(t, c) })
		t.Run("appended rows that stand are not forgotten", func(t *testing.T) { sinkStanding(t, c) })
	}
}

func (c SinkCase) open(t *testing.T) engine.SinkSession {
	t.Helper()
	s := c.Open(t)
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	return s
}

// name makes a resource name that no other case uses.
func (c SinkCase) name(w engine.WriteMode) string {
	return "suite." + string(w) + "_" + uuid.NewString()[:8]
}

func (c SinkCase) plan(w engine.WriteMode, ordinal int64) sinkPlan {
	return sinkPlan{schema: small(), resource: c.name(w), write: w, run: uuid.Must(uuid.NewV7()), ordinal: ordinal}
}

// small is the schema of most cases: a key, a cursor, a text.
func small() schema.Schema {
	return schema.Schema{Key: []string{"id"}, Fields: []schema.Field{
		{Name: "id", Type: schema.Type{Kind: schema.Int64}},
		{Name: "u", Type: schema.Type{Kind: schema.Int64}, Nullable: true},
		{Name: "v", Type: schema.Type{Kind: schema.String}, Nullable: true},
	}}
}

// records makes a record of rows (id, u, v).
func records(t *testing.T, rows ...[3]any) arrow.RecordBatch {
	t.Helper()
	s := small()
	b := array.NewRecordBuilder(memory.NewGoAllocator(), s.Arrow())
	defer b.Release()
	for _, r := range rows {
		b.Field(0).(*array.Int64Builder).Append(int64(r[0].(int)))
		b.Field(1).(*array.Int64Builder).Append(int64(r[1].(int)))
		b.Field(2).(*array.StringBuilder).Append(r[2].(string))
	}
	rec := b.NewRecordBatch()
	t.Cleanup(rec.Release)
	return rec
}

func (c SinkCase) canonical(t *testing.T, recs ...arrow.RecordBatch) [][]byte {
	t.Helper()
	s := small()
	var out [][]byte
	for _, rec := range recs {
		rows, err := CanonicalRows(&s, rec)
		require.NoError(t, err)
		out = append(out, rows...)
	}
	return out
}

// expect is what a run of the mode leaves of rows in an empty target.
func expect(w engine.WriteMode, rows [][]byte) [][]byte {
	if w == engine.WriteDelete {
		return nil
	}
	return rows
}

func sinkSpec(t *testing.T, c SinkCase) {
	t.Helper()
	s := c.open(t)
	require.NotEmpty(t, s.Identity())
	require.Equal(t, s.Identity(), c.open(t).Identity(), "the identity is stable")
	require.Contains(t, []string{"effectively-once", "at-least-once"}, c.Spec.Delivery)
	for _, w := range []engine.WriteMode{engine.WriteReplace, engine.WriteAppend, engine.WriteUpsert, engine.WriteDelete, engine.WriteMerge} {
		if slices.Contains(c.Spec.Writes, w) {
			continue
		}
		p := &engine.SourcePlan{Resource: engine.Resource{Name: "suite.x", Path: []string{"suite", "x"}, Schema: small()}, Splits: []engine.Split{{ID: "suite.x/0.0"}}}
		_, err := s.Plan(t.Context(), engine.TargetRequest{Route: c.route(s), RunID: uuid.NewString(), Ordinal: 1, Plan: p, Read: engine.ReadFull, Write: w, Options: c.Options})
		require.Equal(t, engine.Permanent, engine.ClassOf(err), "write mode %s is not advertised: %v", w, err)
	}
}

func sinkValues(t *testing.T, c SinkCase, w engine.WriteMode) {
	t.Helper()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	t.Cleanup(func() { mem.AssertSize(t, 0) })
	s, all, err := Values(mem)
	require.NoError(t, err)
	defer all.Release()
	var cols []arrow.Array
	kept := schema.Schema{Key: s.Key}
	for i, f := range s.Fields {
		if !slices.Contains(c.Skip, f.Name) {
			kept.Fields = append(kept.Fields, f)
			cols = append(cols, all.Column(i))
		}
	}
	rec := array.NewRecordBatch(kept.Arrow(), cols, all.NumRows())
	defer rec.Release()
	p := c.plan(w, 1)
	p.schema = kept
	r := c.begin(t, c.open(t), p)
	r.claim(r.split(0))
	none := rec.NewSlice(0, 0)
	defer none.Release()
	r.apply(r.split(0), true, rec, none)
	r.publish()
	rows, err := CanonicalRows(&kept, rec)
	require.NoError(t, err)
	RequireSameRows(t, expect(w, rows), c.Rows(t, r.target), "read back")
}

func sinkEmpty(t *testing.T, c SinkCase, w engine.WriteMode) {
	t.Helper()
	r := c.begin(t, c.open(t), c.plan(w, 1))
	r.claim(r.split(0))
	r.apply(r.split(0), true)
	r.publish()
	require.Empty(t, c.Rows(t, r.target))
}

func sinkWide(t *testing.T, c SinkCase, w engine.WriteMode) {
	t.Helper()
	r := c.begin(t, c.open(t), c.plan(w, 1))
	r.claim(r.split(0))
	rec := records(t, [3]any{1, 1, "narrow"}, [3]any{2, 1, strings.Repeat("wide \u00e9 ", 1<<20)})
	r.apply(r.split(0), true, rec)
	r.publish()
	RequireSameRows(t, expect(w, c.canonical(t, rec)), c.Rows(t, r.target), "a row of 8 MB")
}

func sinkParallel(t *testing.T, c SinkCase, w engine.WriteMode) {
	t.Helper()
	p := c.plan(w, 1)
	p.splits = 2
	r := c.begin(t, c.open(t), p)
	a, b := records(t, [3]any{1, 1, "a"}, [3]any{2, 1, "b"}), records(t, [3]any{3, 1, "c"})
	var wg sync.WaitGroup
	errs := make([]error, 2)
	ends := make([]*engine.EpochEnd, 2)
	receipts := make([]*engine.Receipt, 2)
	for i, rec := range []arrow.RecordBatch{a, b} {
		r.claim(r.split(i))
		e, end := r.epoch(r.split(i), 1, true, rec)
		ends[i] = end
		wg.Go(func() { receipts[i], errs[i] = r.s.Apply(t.Context(), e) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	for i, rc := range receipts {
		r.totals.Add(engine.Totals{Read: ends[i].Rows, Applied: rc.Applied, Digest: ends[i].Digest, ReadBack: rc.ReadBack, Bytes: ends[i].Bytes})
		r.artifacts = append(r.artifacts, rc.Artifacts...)
	}
	r.publish()
	RequireSameRows(t, expect(w, c.canonical(t, a, b)), c.Rows(t, r.target), "two splits")
}

func sinkFails(t *testing.T, c SinkCase, w engine.WriteMode) {
	t.Helper()
	r := c.begin(t, c.open(t), c.plan(w, 1))
	rec := records(t, [3]any{1, 1, "a"}, [3]any{2, 1, "b"})
	r.claim(r.split(0))
	e, _ := r.epoch(r.split(0), 1, true, rec, nil)
	_, err := r.s.Apply(t.Context(), e)
	require.ErrorIs(t, err, errNext, "the source's error comes back")

	ctx, cancel := context.WithCancel(t.Context())
	e, _ = r.epoch(r.split(0), 1, true, rec)
	next, calls := e.Next, 0
	e.Next = func(ctx context.Context) (*engine.Batch, error) {
		if calls++; calls == 2 {
			cancel()
		}
		return next(ctx)
	}
	_, err = r.s.Apply(ctx, e)
	require.Error(t, err, "a canceled epoch fails")
	require.Empty(t, c.Rows(t, r.target))

	require.Zero(t, r.claim(r.split(0)).Epoch)
	r.apply(r.split(0), true, rec)
	r.publish()
	RequireSameRows(t, expect(w, c.canonical(t, rec)), c.Rows(t, r.target), "after failures")
}

func sinkDamaged(t *testing.T, c SinkCase, w engine.WriteMode) {
	t.Helper()
	r := c.begin(t, c.open(t), c.plan(w, 1))
	r.claim(r.split(0))
	e, _ := r.epoch(r.split(0), 1, true, records(t, [3]any{1, 1, "a"}))
	next := e.Next
	e.Next = func(ctx context.Context) (*engine.Batch, error) {
		b, err := next(ctx)
		if b != nil {
			b.CRC++
		}
		return b, err
	}
	_, err := r.s.Apply(t.Context(), e)
	var mismatch *engine.MismatchError
	require.ErrorAs(t, err, &mismatch)
	require.Equal(t, "crc", mismatch.What)
	require.Empty(t, c.Rows(t, r.target))
}
