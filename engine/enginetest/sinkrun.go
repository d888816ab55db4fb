package enginetest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

// sinkRun plays the engine for one resource of one run: it calls a sink as the
// runner does, and keeps what State would keep.
type sinkRun struct {
	t      *testing.T
	s      engine.SinkSession
	fencer engine.Fencer
	target *engine.Target
	plan   *engine.ResourcePlan

	claims    map[string]int64
	epochs    map[string]int64
	totals    engine.Totals
	artifacts []engine.Artifact
}

// sinkPlan is what a run is made of.
type sinkPlan struct {
	schema   schema.Schema
	resource string
	write    engine.WriteMode
	read     engine.ReadMode
	run      uuid.UUID
	ordinal  int64
	splits   int
	window   *engine.Window
	cursor   json.RawMessage
	from     json.RawMessage
}

func (c SinkCase) route(s engine.SinkSession) engine.Route {
	return engine.Route{Installation: "0198c0de-0000-7000-8000-00000000000a", Pipeline: "conformance", Source: "mem://suite", Sink: s.Identity()}
}

// begin plans, prepares, begins and freezes, every step twice: it must not matter.
func (c SinkCase) begin(t *testing.T, s engine.SinkSession, p sinkPlan) *sinkRun {
	t.Helper()
	r := c.planned(t, s, p)
	r.start()
	return r
}

func (c SinkCase) planned(t *testing.T, s engine.SinkSession, p sinkPlan) *sinkRun {
	t.Helper()
	if p.splits == 0 {
		p.splits = 1
	}
	if p.read == "" {
		p.read = engine.ReadFull
	}
	if p.write == engine.WriteDelete && slices.Contains(c.Spec.Writes, engine.WriteUpsert) {
		c.makeTarget(t, s, p)
	}
	source := &engine.SourcePlan{Resource: engine.Resource{Name: p.resource, Path: []string{p.resource}, Kind: "table", Schema: p.schema, Rows: -1, Bytes: -1},
		Consistency: engine.ConsistencyChunked, Window: p.window, NextCursor: p.cursor, Rows: -1, Bytes: -1}
	for i := range p.splits {
		source.Splits = append(source.Splits, engine.Split{ID: fmt.Sprintf("%s/0.%d", p.resource, i), Resource: p.resource, Descriptor: json.RawMessage(fmt.Sprint(i))})
	}
	target, err := s.Plan(t.Context(), engine.TargetRequest{Route: c.route(s), RunID: p.run.String(), Ordinal: p.ordinal, Plan: source,
		Read: p.read, Write: p.write, Verify: engine.VerifyDigest, Schema: engine.SchemaEvolve, Others: []string{p.resource}, Options: c.Options})
	require.NoError(t, err)
	target.Window = p.window
	r := &sinkRun{t: t, s: s, target: target, claims: map[string]int64{}, epochs: map[string]int64{}}
	r.fencer, _ = s.(engine.Fencer)
	r.plan = &engine.ResourcePlan{Selection: engine.Selection{Resource: p.resource}, Read: p.read, Write: p.write, Source: source, Target: target, From: p.from}
	return r
}

// makeTarget makes the target that a run deletes from: a sink may refuse to
// delete where nothing is.
func (c SinkCase) makeTarget(t *testing.T, s engine.SinkSession, p sinkPlan) {
	t.Helper()
	route := c.route(s)
	route.Pipeline = "before conformance"
	source := &engine.SourcePlan{Resource: engine.Resource{Name: p.resource, Path: []string{p.resource}, Kind: "table", Schema: p.schema}, Consistency: engine.ConsistencyChunked}
	target, err := s.Plan(t.Context(), engine.TargetRequest{Route: route, RunID: uuid.NewString(), Ordinal: 1, Plan: source, Read: engine.ReadFull,
		Write: engine.WriteUpsert, Schema: engine.SchemaEvolve, Options: c.Options})
	require.NoError(t, err)
	_, err = s.Prepare(t.Context(), target)
	require.NoError(t, err)
}

func (r *sinkRun) start() {
	r.t.Helper()
	for range 2 {
		_, err := r.s.Prepare(r.t.Context(), r.target)
		require.NoError(r.t, err)
	}
	if r.fencer == nil {
		return
	}
	for range 2 {
		require.NoError(r.t, r.fencer.BeginRun(r.t.Context(), []*engine.Target{r.target}))
	}
	for range 2 {
		require.NoError(r.t, r.fencer.Freeze(r.t.Context(), r.target, r.plan))
	}
}

func (r *sinkRun) split(i int) string { return r.plan.Source.Splits[i].ID }

// claim claims a split with the next number, twice, and returns the ledger's row.
func (r *sinkRun) claim(split string) *engine.LedgerEntry {
	r.t.Helper()
	r.claims[split]++
	if r.fencer == nil {
		return &engine.LedgerEntry{Split: split, Claim: r.claims[split], Epoch: r.epochs[split]}
	}
	var e *engine.LedgerEntry
	for range 2 {
		var err error
		e, err = r.fencer.Claim(r.t.Context(), r.target, split, r.claims[split])
		require.NoError(r.t, err)
		require.Equal(r.t, r.claims[split], e.Claim)
	}
	for _, sp := range r.plan.Source.Splits {
		if sp.ID == split {
			require.True(r.t, engine.SameJSON(sp.Descriptor, e.Descriptor), "the ledger's descriptor of split %s is %s, not %s", split, e.Descriptor, sp.Descriptor)
		}
	}
	return e
}

// epoch makes an epoch of records; a nil record makes Next fail.
func (r *sinkRun) epoch(split string, number int64, done bool, recs ...arrow.RecordBatch) (*engine.Epoch, *engine.EpochEnd) {
	end := &engine.EpochEnd{Position: json.RawMessage(fmt.Sprintf(`{"after":%d}`, number)), Done: done}
	i := 0
	next := func(ctx context.Context) (*engine.Batch, error) {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if i == len(recs) {
			return nil, io.EOF
		}
		rec := recs[i]
		i++
		if rec == nil {
			return nil, errNext
		}
		b, err := batchOf(r.target.Resource, &r.plan.Source.Resource.Schema, rec)
		if err != nil {
			return nil, err
		}
		b.Seq = uint64(i - 1)
		end.Rows += int64(b.Rows)
		end.Bytes += b.Bytes
		end.Digest.Add(b.Digest)
		var crc [4]byte
		binary.BigEndian.PutUint32(crc[:], b.CRC)
		end.CRC = integrity.CRC(end.CRC, crc[:])
		return b, nil
	}
	return &engine.Epoch{Targets: map[string]*engine.Target{r.target.Resource: r.target}, Split: split, Claim: r.claims[split], Number: number,
		Next: next, End: func() engine.EpochEnd { return *end }}, end
}

var errNext = engine.Retryablef("the source went away")

func batchOf(resource string, s *schema.Schema, rec arrow.RecordBatch) (*engine.Batch, error) {
	d, err := integrity.RecordDigest(s, rec)
	if err != nil {
		return nil, err
	}
	// The batch borrows the record: the suite keeps it.
	b := &engine.Batch{Resource: resource, Rows: int(rec.NumRows()), Record: rec, Digest: d, CRC: integrity.RecordCRC(rec)}
	for i := range int(rec.NumCols()) {
		for _, buf := range rec.Column(i).Data().Buffers() {
			if buf != nil {
				b.Bytes += int64(buf.Len())
			}
		}
	}
	return b, nil
}

// apply applies the split's next epoch and checks the receipt (P6, P9).
func (r *sinkRun) apply(split string, done bool, recs ...arrow.RecordBatch) *engine.Receipt {
	r.t.Helper()
	number := r.epochs[split] + 1
	e, end := r.epoch(split, number, done, recs...)
	rc, err := r.s.Apply(r.t.Context(), e)
	require.NoError(r.t, err)
	r.epochs[split] = number
	require.Equal(r.t, end.Rows, rc.Applied+rc.Superseded+rc.Skipped+rc.SetAside, "P6: rows add up: %+v", rc)
	require.Equal(r.t, end.CRC, rc.CRC, "the chained CRC")
	step := engine.Totals{Read: end.Rows, Applied: rc.Applied, Superseded: rc.Superseded, Skipped: rc.Skipped, SetAside: rc.SetAside,
		Bytes: end.Bytes, Digest: end.Digest, ReadBack: rc.ReadBack, Policies: rc.Policies}
	r.totals.Add(step)
	r.artifacts = append(r.artifacts, rc.Artifacts...)
	return rc
}

// publication is what Publish is asked for.
func (r *sinkRun) publication() *engine.Publication {
	id := engine.PublishSplit(r.target.Resource)
	p := &engine.Publication{Target: r.target, Split: id, Claim: r.claims[id], Totals: r.totals, Artifacts: r.artifacts, From: r.plan.From, Cursor: r.plan.Source.NextCursor, ActivityAt: time.Now()}
	for _, s := range r.plan.Source.Splits {
		p.Splits = append(p.Splits, s.ID)
	}
	return p
}

// publish claims and publishes, twice: the second finds it done (P8).
func (r *sinkRun) publish() *engine.Receipt {
	r.t.Helper()
	r.claim(engine.PublishSplit(r.target.Resource))
	require.Equal(r.t, r.totals.Digest, r.totals.ReadBack, "P9: what is read back is what was read")
	rc, err := r.s.Publish(r.t.Context(), r.publication())
	require.NoError(r.t, err)
	again, err := r.s.Publish(r.t.Context(), r.publication())
	require.NoError(r.t, err)
	require.True(r.t, again.AlreadyDone, "a publish that is redelivered finds itself done")
	if again.Published != nil {
		require.Equal(r.t, r.totals.Read, again.Published.Read)
		require.Equal(r.t, r.totals.Digest, again.Published.Digest)
	}
	require.NoError(r.t, r.s.Abort(r.t.Context(), r.target), "an abort after the publish does nothing")
	return rc
}
