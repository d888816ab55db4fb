package enginetest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
)

// ChangeCase is a sink of changes under test.
type ChangeCase struct {
	SinkCase
	// Encode gives a batch the form that the target was planned with; nil if the sink
	// takes changes as Arrow records.
	Encode func(t *testing.T, target *engine.Target, b *engine.Batch) *engine.Batch
}

// RunChangeSink runs the conformance suite of sinks of changes.
func RunChangeSink(t *testing.T, c ChangeCase) {
	t.Helper()
	t.Run("rows and changes are merged at publish", func(t *testing.T) { changesMerged(t, c) })
	t.Run("changes of a published table", func(t *testing.T) { changesApplied(t, c) })
	t.Run("a truncate empties the table", func(t *testing.T) { changesTruncated(t, c) })
	t.Run("a moved row with unknown columns is read again", func(t *testing.T) { changesMoved(t, c) })
	t.Run("a publish knows how far the stream is", func(t *testing.T) { changesBehind(t, c) })
	t.Run("a stale claim leaves nothing", func(t *testing.T) { changesStale(t, c) })
	t.Run("an older run leaves nothing", func(t *testing.T) { changesOlderRun(t, c) })
	t.Run("the cursors of stream and members", func(t *testing.T) { changesCursors(t, c) })
}

// delta is one change of the suite's table (id, u, v).
type delta struct {
	op     engine.Op
	row    [3]any
	unsent uint64
}

// changeRun is a run of one member and its stream.
type changeRun struct {
	*sinkRun
	c      ChangeCase
	stream *engine.Target
	plan2  *engine.ResourcePlan
	claim2 int64
	epoch2 int64
}

const streamSplit = engine.StreamResource + "/0.0"

// begin begins a run; rows says whether the member's rows are read by it.
func (c ChangeCase) begin(t *testing.T, pipeline, resource string, ordinal int64, rows bool) *changeRun {
	t.Helper()
	s := c.open(t)
	route := c.route(s)
	route.Pipeline = pipeline
	source := &engine.SourcePlan{Resource: engine.Resource{Name: resource, Path: []string{resource}, Kind: "table", Schema: small(), Rows: -1, Bytes: -1},
		Consistency: engine.ConsistencyAligned, NextCursor: json.RawMessage(`{"v":1}`), Rows: -1, Bytes: -1}
	if c.Encode != nil {
		source.Wire = c.Spec.Wire
	}
	if rows {
		source.Splits = []engine.Split{{ID: resource + "/0.0", Resource: resource, Descriptor: json.RawMessage(`0`)}}
	}
	run := uuid.Must(uuid.NewV7()).String()
	target, err := s.Plan(t.Context(), engine.TargetRequest{Route: route, RunID: run, Ordinal: ordinal, Plan: source, Read: engine.ReadCDC,
		Write: engine.WriteMerge, Verify: engine.VerifyCounts, Schema: engine.SchemaEvolve, Others: []string{resource}, Options: c.Options})
	require.NoError(t, err)
	changes, ok := s.(engine.ChangeSink)
	require.True(t, ok, "a sink that merges is an engine.ChangeSink")
	stream, err := changes.PlanStream(t.Context(), engine.StreamTargetRequest{Route: route, RunID: run, Ordinal: ordinal, Members: []*engine.Target{target}})
	require.NoError(t, err)
	require.Equal(t, engine.StreamResource, stream.Resource)
	require.False(t, stream.Staged)
	fencer, ok := s.(engine.Fencer)
	require.True(t, ok)
	r := &changeRun{c: c, stream: stream, sinkRun: &sinkRun{t: t, s: s, fencer: fencer, target: target, claims: map[string]int64{}, epochs: map[string]int64{}}}
	r.plan = &engine.ResourcePlan{Selection: engine.Selection{Resource: resource}, Read: engine.ReadCDC, Write: engine.WriteMerge, Source: source, Target: target}
	r.plan2 = &engine.ResourcePlan{Selection: engine.Selection{Resource: engine.StreamResource}, Read: engine.ReadCDC, Target: stream,
		Stream: &engine.StreamPlan{Members: []string{resource}},
		Source: &engine.SourcePlan{Rows: -1, Bytes: -1, Splits: []engine.Split{{ID: streamSplit, Resource: engine.StreamResource, Descriptor: json.RawMessage(`0`)}}}}
	r.plan.From, r.plan2.From = r.cursors()
	for range 2 {
		for _, x := range []*engine.Target{stream, target} {
			_, err := s.Prepare(t.Context(), x)
			require.NoError(t, err)
		}
	}
	for range 2 {
		require.NoError(t, fencer.BeginRun(t.Context(), []*engine.Target{stream, target}))
	}
	for range 2 {
		require.NoError(t, fencer.Freeze(t.Context(), stream, r.plan2))
		require.NoError(t, fencer.Freeze(t.Context(), target, r.plan))
	}
	r.claimStream()
	return r
}

func (r *changeRun) claimStream() {
	r.t.Helper()
	r.claim2++
	_, err := r.fencer.Claim(r.t.Context(), r.stream, streamSplit, r.claim2)
	require.NoError(r.t, err)
}

// cursors are what the destination has beside the fences of member and stream.
func (r *changeRun) cursors() (member, stream json.RawMessage) {
	r.t.Helper()
	adopter, ok := r.s.(engine.Adopter)
	require.True(r.t, ok)
	found, err := adopter.Adopt(r.t.Context(), r.target.Route)
	require.NoError(r.t, err)
	for _, a := range found {
		for _, x := range a.Resources {
			switch x.Resource {
			case r.target.Resource:
				member = x.Cursor
			case engine.StreamResource:
				stream = x.Cursor
			}
		}
	}
	return member, stream
}

// load stages the member's rows as its only split.
func (r *changeRun) load(rows ...[3]any) {
	r.t.Helper()
	r.claim(r.split(0))
	e, end := r.epoch(r.split(0), 1, true)
	e.Next = r.batches(end, r.encode(records(r.t, rows...), nil))
	rc, err := r.s.Apply(r.t.Context(), e)
	require.NoError(r.t, err)
	r.totals.Add(engine.Totals{Read: end.Rows, Applied: rc.Applied, Superseded: rc.Superseded, Skipped: rc.Skipped, Bytes: end.Bytes, Digest: end.Digest, ReadBack: rc.ReadBack})
}

func (r *changeRun) encode(rec arrow.RecordBatch, changes []delta) *engine.Batch {
	r.t.Helper()
	s := small()
	b, err := batchOf(r.target.Resource, &s, rec)
	require.NoError(r.t, err)
	for i, d := range changes {
		b.Ops = append(b.Ops, d.op)
		b.Sequence = append(b.Sequence, int64(i))
		b.Unchanged = append(b.Unchanged, []uint64{d.unsent})
	}
	if changes != nil {
		b.Commits = []engine.Commit{{Position: "0000000000000001", At: time.Unix(1, 0).UTC()}}
	}
	if r.c.Encode != nil {
		b = r.c.Encode(r.t, r.target, b)
	}
	return b
}

// batches hands batches over and sums them up.
func (r *changeRun) batches(end *engine.EpochEnd, list ...*engine.Batch) func(context.Context) (*engine.Batch, error) {
	return func(ctx context.Context) (*engine.Batch, error) {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if len(list) == 0 {
			return nil, io.EOF
		}
		b := list[0]
		list = list[1:]
		end.Rows += int64(b.Rows)
		end.Bytes += b.Bytes
		end.Digest.Add(b.Digest)
		var crc [4]byte
		binary.BigEndian.PutUint32(crc[:], b.CRC)
		end.CRC = integrity.CRC(end.CRC, crc[:])
		if b.Ops != nil {
			end.Members = map[string]engine.Totals{b.Resource: {Read: end.Rows, Bytes: end.Bytes, Digest: end.Digest}}
		}
		return b, nil
	}
}

// change makes the stream's next epoch.
func (r *changeRun) change(changes ...delta) (*engine.Epoch, *engine.EpochEnd) {
	r.t.Helper()
	rows := make([][3]any, len(changes))
	for i, d := range changes {
		rows[i] = d.row
	}
	end := &engine.EpochEnd{Position: json.RawMessage(`{"at":` + string(rune('0'+r.epoch2+1)) + `}`)}
	var list []*engine.Batch
	if len(changes) > 0 {
		list = append(list, r.encode(records(r.t, rows...), changes))
	}
	return &engine.Epoch{Targets: map[string]*engine.Target{r.target.Resource: r.target}, Stream: r.stream, Split: streamSplit, Claim: r.claim2,
		Number: r.epoch2 + 1, Next: r.batches(end, list...), End: func() engine.EpochEnd { return *end }}, end
}

// follow applies an epoch of changes and checks the receipt (P6).
func (r *changeRun) follow(changes ...delta) {
	r.t.Helper()
	e, end := r.change(changes...)
	rc, err := r.s.Apply(r.t.Context(), e)
	require.NoError(r.t, err)
	r.epoch2++
	require.Equal(r.t, end.Rows, rc.Applied+rc.Superseded+rc.Skipped+rc.SetAside, "P6: rows add up: %+v", rc)
	require.Equal(r.t, end.CRC, rc.CRC, "the chained CRC")
	if len(changes) > 0 {
		m := rc.Members[r.target.Resource]
		require.Equal(r.t, end.Rows, m.Applied+m.Superseded+m.Skipped+m.SetAside, "P6: the member's rows add up: %+v", m)
	}
	_, at := r.cursors()
	require.True(r.t, engine.SameJSON(end.Position, at), "each epoch stores its end as the stream's cursor: %s", at)
}

// merge publishes the member after the stream's last epoch.
func (r *changeRun) merge() error {
	r.t.Helper()
	r.claim(engine.PublishSplit(r.target.Resource))
	p := r.publication()
	if len(p.Splits) > 0 {
		p.Stream = &engine.StreamPoint{Target: r.stream, Split: streamSplit, Epoch: r.epoch2}
	}
	_, err := r.s.Publish(r.t.Context(), p)
	return err
}

// has compares the target with rows.
func (r *changeRun) has(what string, rows ...[3]any) {
	r.t.Helper()
	RequireSameRows(r.t, r.c.canonical(r.t, records(r.t, rows...)), r.c.Rows(r.t, r.target), what)
}

const (
	unsentU = 1 << 1
	unsentV = 1 << 2
	onlyKey = unsentU | unsentV
)

// merged is a published table of the rows 1, 2, 14 and 5.
func (c ChangeCase) merged(t *testing.T) *changeRun {
	t.Helper()
	name := c.name(engine.WriteMerge)
	r := c.begin(t, name, name, 1, true)
	r.load([3]any{1, 1, "one"}, [3]any{2, 1, "two"}, [3]any{3, 1, "three"}, [3]any{4, 1, "four"})
	r.follow(delta{op: engine.OpUpdate, row: [3]any{2, 20, ""}, unsent: unsentV}, delta{op: engine.OpDelete, row: [3]any{3, 0, ""}, unsent: onlyKey})
	require.Empty(t, c.Rows(t, r.target), "nothing is visible before the publish")
	r.follow(delta{op: engine.OpDelete, row: [3]any{4, 0, ""}, unsent: onlyKey}, delta{op: engine.OpMove, row: [3]any{14, 2, "moved"}},
		delta{op: engine.OpInsert, row: [3]any{5, 1, "five"}}, delta{op: engine.OpUpdate, row: [3]any{5, 2, ""}, unsent: unsentV})
	require.NoError(t, r.merge())
	return r
}

func changesMerged(t *testing.T, c ChangeCase) {
	t.Helper()
	r := c.merged(t)
	r.has("merged", [3]any{1, 1, "one"}, [3]any{2, 20, "two"}, [3]any{14, 2, "moved"}, [3]any{5, 2, "five"})
}

func changesApplied(t *testing.T, c ChangeCase) {
	t.Helper()
	r := c.merged(t)
	r.follow(delta{op: engine.OpDelete, row: [3]any{2, 0, ""}, unsent: onlyKey}, delta{op: engine.OpMove, row: [3]any{12, 21, ""}, unsent: unsentV},
		delta{op: engine.OpInsert, row: [3]any{2, 7, "another life"}}, delta{op: engine.OpUpdate, row: [3]any{2, 8, ""}, unsent: unsentV},
		delta{op: engine.OpDelete, row: [3]any{5, 0, ""}, unsent: onlyKey})
	r.has("changed", [3]any{1, 1, "one"}, [3]any{12, 21, "two"}, [3]any{2, 8, "another life"}, [3]any{14, 2, "moved"})
	r.follow()
	r.claimStream()
	r.follow(delta{op: engine.OpUpdate, row: [3]any{1, 9, ""}, unsent: unsentV}, delta{op: engine.OpUpdate, row: [3]any{1, 9, "last"}})
	r.has("changed again", [3]any{1, 9, "last"}, [3]any{12, 21, "two"}, [3]any{2, 8, "another life"}, [3]any{14, 2, "moved"})
}

func changesTruncated(t *testing.T, c ChangeCase) {
	t.Helper()
	r := c.merged(t)
	r.follow(delta{op: engine.OpInsert, row: [3]any{30, 1, "before"}}, delta{op: engine.OpTruncate, row: [3]any{0, 0, ""}, unsent: onlyKey | 1},
		delta{op: engine.OpInsert, row: [3]any{31, 1, "after"}})
	r.has("truncated", [3]any{31, 1, "after"})
}

func changesMoved(t *testing.T, c ChangeCase) {
	t.Helper()
	name := c.name(engine.WriteMerge)
	r := c.begin(t, name, name, 1, true)
	// What is staged under the new key is another row's life.
	r.load([3]any{1, 1, "one"}, [3]any{2, 1, "two"})
	r.follow(delta{op: engine.OpDelete, row: [3]any{2, 0, ""}, unsent: onlyKey}, delta{op: engine.OpDelete, row: [3]any{1, 0, ""}, unsent: onlyKey},
		delta{op: engine.OpMove, row: [3]any{2, 5, ""}, unsent: unsentV})
	if err := r.merge(); err != nil {
		require.ErrorIs(t, err, engine.ErrStagingLost)
		require.Empty(t, c.Rows(t, r.target))
		return
	}
	// A sink that knows where the row was takes what is staged there.
	r.has("a moved row", [3]any{2, 5, "one"})
}

func changesBehind(t *testing.T, c ChangeCase) {
	t.Helper()
	name := c.name(engine.WriteMerge)
	r := c.begin(t, name, name, 1, true)
	r.load([3]any{1, 1, "one"})
	r.follow()
	r.epoch2++ // State has an epoch that the destination has not
	require.ErrorIs(t, r.merge(), engine.ErrLedgerBehind)
	require.Empty(t, c.Rows(t, r.target))
	r.epoch2--
	require.NoError(t, r.merge())
	r.has("published", [3]any{1, 1, "one"})
}

func changesStale(t *testing.T, c ChangeCase) {
	t.Helper()
	r := c.merged(t)
	before := c.Rows(t, r.target)
	e, _ := r.change(delta{op: engine.OpInsert, row: [3]any{40, 1, "stale"}})
	r.claimStream()
	_, err := r.s.Apply(t.Context(), e)
	requireStale(t, err, "claim")
	RequireSameRows(t, before, c.Rows(t, r.target), "after a stale claim")
}

func changesOlderRun(t *testing.T, c ChangeCase) {
	t.Helper()
	old := c.merged(t)
	before := c.Rows(t, old.target)
	e, _ := old.change(delta{op: engine.OpInsert, row: [3]any{40, 1, "stale"}})
	next := c.begin(t, old.target.Route.Pipeline, old.target.Resource, 2, false)
	// It is alive and does not know it yet; its session may have been ended (P5).
	_, err := old.s.Apply(t.Context(), e)
	require.Error(t, err)
	require.Equal(t, engine.Retryable, engine.ClassOf(err), "%v", err)
	requireStale(t, old.fencer.BeginRun(t.Context(), []*engine.Target{old.stream, old.target}), "ordinal")
	RequireSameRows(t, before, c.Rows(t, old.target), "after an older run")
	require.NoError(t, next.merge())
	next.follow(delta{op: engine.OpUpdate, row: [3]any{1, 50, ""}, unsent: unsentV})
	next.has("the next run goes on", [3]any{1, 50, "one"}, [3]any{2, 20, "two"}, [3]any{14, 2, "moved"}, [3]any{5, 2, "five"})
}

func changesCursors(t *testing.T, c ChangeCase) {
	t.Helper()
	r := c.merged(t)
	member, stream := r.cursors()
	require.True(t, engine.SameJSON(json.RawMessage(`{"v":1}`), member), "a published member has its cursor: %s", member)
	require.NotEmpty(t, stream)
	again := c.begin(t, r.target.Route.Pipeline, r.target.Resource, 2, true)
	member, kept := again.cursors()
	require.Empty(t, member, "a member whose rows are read again stands no more")
	require.True(t, engine.SameJSON(stream, kept), "the stream follows on: %s", kept)
}
