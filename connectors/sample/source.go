package sample

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
)

const (
	// batchBytes is the size of a batch if the engine wishes none.
	batchBytes = 4 << 20
	// maxBatchRows bounds batches of narrow rows.
	maxBatchRows = 64 << 10
)

// epoch is updated_at of row 0; each row comes a second after the one before.
var epoch = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// session is an open sample source.
type session struct{ cfg Config }

var _ engine.SourceSession = (*session)(nil)

// part is a split's descriptor: rows with From ≤ number < To, numbered from 0.
type part struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// position is the number of the next row.
type position struct {
	Next int64 `json:"next"`
}

// cursor says how many rows an earlier run has seen.
type cursor struct {
	Rows int64 `json:"rows"`
}

// Identity implements engine.SourceSession.
func (s *session) Identity() string { return fmt.Sprintf("sample://%d", s.cfg.Seed) }

// Discover implements engine.SourceSession.
func (s *session) Discover(_ context.Context, patterns []string) ([]engine.Resource, error) {
	var found []engine.Resource
	for _, r := range s.resources() {
		match := len(patterns) == 0
		for _, p := range patterns {
			ok, err := path.Match(p, r.Name)
			if err != nil {
				return nil, engine.Permanentf("", "pattern %q: %w", p, err)
			}
			match = match || ok
		}
		if match {
			found = append(found, r)
		}
	}
	return found, nil
}

func (s *session) resource(name string) (engine.Resource, error) {
	for _, r := range s.resources() {
		if r.Name == name {
			return r, nil
		}
	}
	return engine.Resource{}, engine.Permanentf("the source has "+orders+" and "+kinds, "there is no resource %q", name)
}

// Plan implements engine.SourceSession.
func (s *session) Plan(_ context.Context, req engine.PlanRequest) (*engine.SourcePlan, error) {
	r, err := s.resource(req.Resource)
	if err != nil {
		return nil, err
	}
	if req.Where != "" {
		return nil, engine.Permanentf("leave where out", "%s: the sample source has no filter language", r.Name)
	}
	if req.Consistency != "" && req.Consistency != engine.ConsistencyChunked {
		return nil, engine.Permanentf("choose consistency: chunked", "%s: consistency %s is not offered", r.Name, req.Consistency)
	}
	if r, err = choose(r, req.Selection); err != nil {
		return nil, err
	}
	p := &engine.SourcePlan{
		Resource: r, Consistency: engine.ConsistencyChunked,
		Coverage: "every row: the data never changes",
	}
	from, to := int64(0), *s.cfg.Rows
	switch req.Read {
	case engine.ReadFull:
	case engine.ReadIncremental:
		if from, err = s.window(p, req); err != nil {
			return nil, err
		}
		if p.NextCursor, err = json.Marshal(cursor{Rows: max(to, from)}); err != nil {
			return nil, engine.Bugf("encode cursor: %w", err)
		}
	default:
		return nil, engine.Permanentf("choose read: full or incremental", "%s can't be read with mode %s", r.Name, req.Read)
	}
	n := max(to-from, 0)
	p.Rows, p.Bytes = n, n*s.rowBytes(r.Schema)
	splits := min(int64(s.cfg.Splits), max(n, 1))
	for i := range splits {
		d := part{From: from + n*i/splits, To: from + n*(i+1)/splits}
		raw, err := json.Marshal(d)
		if err != nil {
			return nil, engine.Bugf("encode split: %w", err)
		}
		p.Splits = append(p.Splits, engine.Split{
			ID: fmt.Sprintf("%s/%d", r.Name, i), Resource: r.Name, Descriptor: raw,
			Rows: d.To - d.From, Bytes: (d.To - d.From) * s.rowBytes(r.Schema),
		})
	}
	return p, nil
}

// window returns the first row of an incremental read and describes its overlap
// with earlier runs (P15).
func (s *session) window(p *engine.SourcePlan, req engine.PlanRequest) (int64, error) {
	if req.Selection.Cursor != "id" && req.Selection.Cursor != "updated_at" {
		return 0, engine.Permanentf("choose cursor: id or updated_at", "%s: column %q can't be a cursor", req.Resource, req.Selection.Cursor)
	}
	if len(req.Cursor) == 0 {
		return 0, nil
	}
	var c cursor
	if err := json.Unmarshal(req.Cursor, &c); err != nil || c.Rows < 0 {
		return 0, engine.Permanentf("reset the resource to read it anew", "%s: the stored cursor %s can't be read", req.Resource, req.Cursor)
	}
	from := s.overlap(c.Rows, req.Lookback)
	if from < c.Rows {
		last := c.Rows - 1
		upTo := fmt.Sprint(last + 1)
		if req.Selection.Cursor == "updated_at" {
			upTo = time.UnixMicro(stamp(last)).UTC().Format("2006-01-02T15:04:05.000000Z")
		}
		p.Window = &engine.Window{Cursor: req.Selection.Cursor, UpTo: upTo}
	}
	return from, nil
}

// overlap returns where a window of the given length before row end begins.
func (s *session) overlap(end int64, lookback time.Duration) int64 {
	return max(end-int64(lookback/time.Second), 0)
}

func stamp(row int64) int64 { return epoch + row*1_000_000 }

// rowID identifies a row with its cursor value.
func (s *session) rowID(resource string, row int64) engine.RowID {
	h := xxh3.Hash128Seed(binary.BigEndian.AppendUint64([]byte(resource), uint64(row)), s.cfg.Seed)
	return h.Bytes()
}

// Read implements engine.SourceSession.
func (s *session) Read(ctx context.Context, req engine.ReadRequest, out engine.Writer) (engine.ReadResult, error) {
	var d part
	if err := decode(req.Split.Descriptor, &d); err != nil {
		return engine.ReadResult{}, engine.Bugf("split %s: read its descriptor: %w", req.Split.ID, err)
	}
	at := position{Next: d.From}
	if len(req.From) > 0 {
		if err := decode(req.From, &at); err != nil || at.Next < d.From || at.Next > d.To {
			return engine.ReadResult{}, engine.Bugf("split %s: position %s is not in it", req.Split.ID, req.From)
		}
	}
	sch := &req.Plan.Resource.Schema
	g := newGenerator(s.cfg, req.Plan.Resource.Name, sch)
	defer g.release()
	hasher := integrity.NewHasher(sch)
	wish := req.BatchBytes
	if wish <= 0 {
		wish = batchBytes
	}
	rows := min(max(wish/s.rowBytes(*sch), 1), maxBatchRows)
	// Rows that the next run's window reads again.
	remember := s.overlap(*s.cfg.Rows, req.Selection.Lookback)
	for seq := uint64(0); at.Next < d.To; seq++ {
		if err := ctx.Err(); err != nil {
			return engine.ReadResult{}, err
		}
		end := min(at.Next+rows, d.To)
		reserved := (end - at.Next) * s.rowBytes(*sch)
		if err := out.Reserve(ctx, reserved); err != nil {
			return engine.ReadResult{}, err
		}
		b := &engine.Batch{Resource: req.Split.Resource, Seq: seq, Bytes: reserved}
		for row := at.Next; row < end; row++ {
			id := s.rowID(req.Split.Resource, row)
			if req.Remember && row >= remember {
				b.Seen = append(b.Seen, id)
			}
			if _, skip := req.Skip[id]; skip {
				b.Skipped++
				continue
			}
			g.add(row)
		}
		b.Record = g.record()
		b.Rows = int(b.Record.NumRows())
		b.CRC = integrity.RecordCRC(b.Record)
		digest, err := hasher.Rows(b.Record, 0, b.Rows)
		if err == nil {
			b.Digest = digest
			err = out.Write(ctx, b)
		} else {
			b.Release()
			out.Unreserve(reserved)
			err = engine.Bugf("split %s: %w", req.Split.ID, err)
		}
		if err != nil {
			return engine.ReadResult{}, err
		}
		at.Next = end
		pos, err := json.Marshal(at)
		if err != nil {
			return engine.ReadResult{}, engine.Bugf("encode position: %w", err)
		}
		if err := out.Mark(ctx, pos); err != nil {
			if errors.Is(err, engine.ErrBoundary) {
				return engine.ReadResult{Done: false}, nil
			}
			return engine.ReadResult{}, err
		}
	}
	return engine.ReadResult{Done: true}, nil
}

func decode(raw json.RawMessage, v any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

// Close implements engine.SourceSession.
func (s *session) Close(context.Context) error { return nil }
