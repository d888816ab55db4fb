package files

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/rowtext"
	"github.com/tranship-io/tranship/engine/schema"
)

const (
	run1 = "01900000-0000-7000-8000-000000000001"
	run2 = "01900000-0000-7000-8000-000000000002"
	run3 = "01900000-0000-7000-8000-000000000003"
)

// table is a resource for tests; a nil cell is NULL, others are in text form.
type table struct {
	name   string
	schema schema.Schema
	rows   [][]any
}

func field(name string, t schema.Type) schema.Field {
	return schema.Field{Name: name, Type: t, Nullable: true}
}

func key(name string) schema.Field {
	return schema.Field{Name: name, Type: schema.Type{Kind: schema.Int64}}
}

func kind(k schema.Kind) schema.Type { return schema.Type{Kind: k} }

func arrayOf(t schema.Type) schema.Type { return schema.Type{Kind: schema.Array, Elem: &t} }

// record makes the rows [from, to) as they travel.
func (tb *table) record(t testing.TB, from, to int) arrow.RecordBatch {
	t.Helper()
	b := array.NewRecordBuilder(memory.DefaultAllocator, tb.schema.Arrow())
	defer b.Release()
	for _, row := range tb.rows[from:to] {
		for i, v := range row {
			if v == nil {
				b.Field(i).AppendNull()
				continue
			}
			require.NoError(t, rowtext.ParseText(b.Field(i), tb.schema.Fields[i].Type, v.(string)))
		}
	}
	return b.NewRecordBatch()
}

// batchOf wraps a record as a source would.
func batchOf(t testing.TB, s *schema.Schema, resource string, rec arrow.RecordBatch) *engine.Batch {
	t.Helper()
	d, err := integrity.RecordDigest(s, rec)
	require.NoError(t, err)
	return &engine.Batch{
		Resource: resource, Rows: int(rec.NumRows()), Bytes: recordBytes(rec),
		Digest: d, CRC: integrity.RecordCRC(rec), Record: rec,
	}
}

func recordBytes(rec arrow.RecordBatch) int64 {
	var n int64
	var add func(d arrow.ArrayData)
	add = func(d arrow.ArrayData) {
		for _, b := range d.Buffers() {
			if b != nil {
				n += int64(b.Len())
			}
		}
		for _, c := range d.Children() {
			add(c)
		}
	}
	for _, c := range rec.Columns() {
		add(c.Data())
	}
	return n
}

// epochOf makes an epoch of ready batches.
func epochOf(target *engine.Target, split string, claim, number int64, batches ...*engine.Batch) *engine.Epoch {
	next := 0
	end := engine.EpochEnd{Done: true, Position: json.RawMessage(`{}`)}
	return &engine.Epoch{
		Targets: map[string]*engine.Target{target.Resource: target},
		Split:   split, Claim: claim, Number: number,
		Next: func(ctx context.Context) (*engine.Batch, error) {
			if next == len(batches) {
				return nil, io.EOF
			}
			b := batches[next]
			next++
			end.Rows += int64(b.Rows)
			end.Bytes += b.Bytes
			end.Digest.Add(b.Digest)
			end.CRC = integrity.CRC(end.CRC, binary.BigEndian.AppendUint32(nil, b.CRC))
			return b, nil
		},
		End: func() engine.EpochEnd { return end },
	}
}

// rig drives a session as the engine would.
type rig struct {
	t  testing.TB
	s  engine.SinkSession
	at time.Time
}

func openRig(t testing.TB, cfg map[string]any) *rig {
	t.Helper()
	raw, err := json.Marshal(cfg)
	require.NoError(t, err)
	s, err := NewSink().Open(t.Context(), engine.Config(raw), engine.OpenOptions{WorkDir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	return &rig{t: t, s: s, at: time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)}
}

func (r *rig) request(tb *table, run string, ordinal int64, write engine.WriteMode) engine.TargetRequest {
	return engine.TargetRequest{
		Route: engine.Route{Installation: "i-1", Pipeline: "shop", Source: "test://source", Sink: r.s.Identity()},
		RunID: run, Ordinal: ordinal, Write: write, Read: engine.ReadFull, Verify: engine.VerifyDigest,
		Plan: &engine.SourcePlan{Resource: engine.Resource{Name: tb.name, Schema: tb.schema}},
	}
}

func (r *rig) plan(req engine.TargetRequest) *engine.Target {
	r.t.Helper()
	target, err := r.s.Plan(r.t.Context(), req)
	require.NoError(r.t, err)
	_, err = r.s.Prepare(r.t.Context(), target)
	require.NoError(r.t, err)
	return target
}

// apply writes all rows of a table as one epoch in batches of at most size rows.
func (r *rig) apply(target *engine.Target, tb *table, size int) (*engine.Receipt, error) {
	r.t.Helper()
	return r.applyEpoch(target, tb, tb.name+"/0", 1, 1, size)
}

func (r *rig) applyEpoch(target *engine.Target, tb *table, split string, claim, number int64, size int) (*engine.Receipt, error) {
	r.t.Helper()
	var batches []*engine.Batch
	for from := 0; from < len(tb.rows); from += size {
		batches = append(batches, batchOf(r.t, &tb.schema, tb.name, tb.record(r.t, from, min(from+size, len(tb.rows)))))
	}
	return r.s.Apply(r.t.Context(), epochOf(target, split, claim, number, batches...))
}

func publication(target *engine.Target, at time.Time, receipts ...*engine.Receipt) *engine.Publication {
	p := &engine.Publication{
		Target: target, Split: engine.PublishSplit(target.Resource), Claim: 1, ActivityAt: at,
	}
	splits := map[string]bool{}
	for _, rc := range receipts {
		p.Totals.Applied += rc.Applied
		p.Totals.SetAside += rc.SetAside
		p.Artifacts = append(p.Artifacts, rc.Artifacts...)
		for _, a := range rc.Artifacts {
			if !splits[a.Split] {
				p.Splits = append(p.Splits, a.Split)
				splits[a.Split] = true
			}
		}
	}
	return p
}

func (r *rig) publish(target *engine.Target, receipts ...*engine.Receipt) *engine.Receipt {
	r.t.Helper()
	rc, err := r.s.Publish(r.t.Context(), publication(target, r.at, receipts...))
	require.NoError(r.t, err)
	return rc
}

// load runs a table through to its publish and returns the manifest.
func (r *rig) load(req engine.TargetRequest, tb *table, size int) *Manifest {
	r.t.Helper()
	target := r.plan(req)
	rc, err := r.apply(target, tb, size)
	require.NoError(r.t, err)
	r.publish(target, rc)
	return r.manifest(target)
}

func (r *rig) manifest(target *engine.Target) *Manifest {
	r.t.Helper()
	d, err := detailOf(target)
	require.NoError(r.t, err)
	m, _, err := r.s.(*session).readManifest(r.t.Context(), d.Folder)
	require.NoError(r.t, err)
	return m
}

// dataKeys lists the data files below a target's folder.
func (r *rig) dataKeys(target *engine.Target) []string {
	r.t.Helper()
	d, err := detailOf(target)
	require.NoError(r.t, err)
	keys := []string{}
	require.NoError(r.t, r.s.(*session).store.list(r.t.Context(), d.Folder, func(k string) error {
		rel := strings.TrimPrefix(k, d.Folder+"/")
		if isData(rel) || strings.Contains(rel, stagePrefix) {
			keys = append(keys, rel)
		}
		return nil
	}))
	return keys
}

// content returns a stored file's bytes.
func (r *rig) content(target *engine.Target, name string) []byte {
	r.t.Helper()
	d, err := detailOf(target)
	require.NoError(r.t, err)
	at, size, done, err := r.s.(*session).store.open(r.t.Context(), d.Folder+"/"+name)
	require.NoError(r.t, err)
	defer done()
	b, err := io.ReadAll(io.NewSectionReader(at, 0, size))
	require.NoError(r.t, err)
	return b
}

func valueError(t testing.TB, err error) *engine.ValueError {
	t.Helper()
	var v *engine.ValueError
	require.ErrorAs(t, err, &v)
	require.Equal(t, engine.Permanent, engine.ClassOf(err))
	return v
}

func mustConfig(t testing.TB, cfg map[string]any) engine.Config {
	t.Helper()
	raw, err := json.Marshal(cfg)
	require.NoError(t, err)
	return engine.Config(raw)
}

// requireText compares files byte by byte, JSON too: numbers must keep their digits.
func requireText(t testing.TB, want, got string) {
	t.Helper()
	if want != got {
		t.Fatalf("want:\n%s\ngot:\n%s", want, got)
	}
}
