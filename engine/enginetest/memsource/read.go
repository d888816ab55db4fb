package memsource

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/gate"
	"github.com/tranship-io/tranship/engine/enginetest/memrow"
	"github.com/tranship-io/tranship/engine/integrity"
)

// position is where a read goes on: after the row with this cursor and ord.
type position struct {
	Cursor int64 `json:"cursor,omitempty"`
	After  int64 `json:"after"`
	// Nulls is true once the rows without a cursor are counted.
	Nulls bool `json:"nulls,omitempty"`
	// LSN is the end of the log when the last snapshot was taken, for a piece that is
	// read beside a change stream: whatever the snapshots saw is in the log before.
	LSN int64 `json:"lsn,omitempty"`
}

// fetched is what one visit of a read to the database brings.
type fetched struct {
	rows  []Row
	nulls int
	last  bool
}

// Read implements [engine.SourceSession]. Every batch is read in a transaction
// of its own (chunked), or in the session's snapshot.
func (s *Session) Read(ctx context.Context, req engine.ReadRequest, out engine.Writer) (engine.ReadResult, error) {
	if req.Members != nil {
		return s.stream(ctx, req, out)
	}
	var d descriptor
	if err := json.Unmarshal(req.Split.Descriptor, &d); err != nil {
		return engine.ReadResult{}, engine.Bugf("split %q: read its descriptor: %w", req.Split.ID, err)
	}
	r := &reading{s: s, req: req, d: d, pos: position{Cursor: math.MinInt64, After: math.MinInt64}, cursor: -1}
	if len(req.From) > 0 {
		if err := json.Unmarshal(req.From, &r.pos); err != nil {
			return engine.ReadResult{}, engine.Permanentf("reset the resource", "split %q: read its position: %w", req.Split.ID, err)
		}
	}
	sch := &req.Plan.Resource.Schema
	for _, k := range sch.Key {
		r.key = append(r.key, sch.Index(k))
	}
	if d.Cursor != "" {
		r.cursor = sch.Index(d.Cursor)
		var next cursor
		if err := json.Unmarshal(req.Plan.NextCursor, &next); err != nil {
			return engine.ReadResult{}, engine.Bugf("split %q: read the plan's cursor: %w", req.Split.ID, err)
		}
		r.mark = next.Mark
	}
	for {
		f, err := r.fetch(ctx)
		if err != nil {
			return engine.ReadResult{}, err
		}
		if err := r.write(ctx, f, out); err != nil {
			return engine.ReadResult{}, err
		}
		pos, err := json.Marshal(r.pos)
		if err != nil {
			return engine.ReadResult{}, fmt.Errorf("encode position: %w", err)
		}
		if f.last {
			return engine.ReadResult{Done: true, End: pos}, nil
		}
		switch err := out.Mark(ctx, pos); {
		case errors.Is(err, engine.ErrBoundary):
			return engine.ReadResult{}, nil
		case err != nil:
			return engine.ReadResult{}, err
		}
	}
}

// reading is one Read under way.
type reading struct {
	s      *Session
	req    engine.ReadRequest
	d      descriptor
	key    []int
	cursor int
	mark   int64
	pos    position
	seq    uint64
}

func (r *reading) fetch(ctx context.Context) (fetched, error) {
	for {
		f, ok, err := r.try(ctx)
		if err != nil || ok {
			return f, err
		}
		// The snapshot misses what the alignment point saw: another one (P16).
		select {
		case <-time.After(following):
		case <-ctx.Done():
			return f, context.Cause(ctx)
		}
	}
}

// try fetches in one snapshot; false if that is not aligned.
func (r *reading) try(ctx context.Context) (f fetched, ok bool, err error) {
	call := gate.Call{Op: "source.fetch", Subject: fmt.Sprintf("%s@%d", r.req.Split.ID, r.req.Claim)}
	err = r.s.gate(ctx, call, func() error {
		db := r.s.db
		db.mu.Lock()
		defer db.mu.Unlock()
		if err := r.s.alive(); err != nil {
			return err
		}
		at := db.version
		if r.req.Plan.Consistency == engine.ConsistencyAligned {
			if !r.s.aligned(r.d.Point) {
				return nil
			}
			r.pos.LSN = db.lsn
		}
		ok = true
		if r.d.Snapshot != "" {
			var ok bool
			if at, ok = r.s.snapshots[r.d.Snapshot]; !ok {
				return fmt.Errorf("read split %q: %w", r.req.Split.ID, engine.ErrSnapshotLost)
			}
		}
		f = r.next(db.tables[r.req.Plan.Resource.Name].at(at))
		return nil
	})
	return f, ok, err
}

// next takes the rows of the next batch out of the table's.
func (r *reading) next(rows []Row) fetched {
	f := fetched{last: true}
	type place struct {
		cursor int64
		row    Row
	}
	var mine []place
	for _, row := range rows {
		p := place{row: row, cursor: math.MinInt64}
		at := row.Ord
		if r.cursor >= 0 {
			v, ok := memrow.Int(memrow.Field(row.Wire, r.cursor))
			if !ok {
				if r.d.CountNull && !r.pos.Nulls {
					f.nulls++
				}
				continue
			}
			p.cursor, at = v, v
		}
		if at <= r.d.Lo && r.d.Lo != math.MinInt64 || at > r.d.Hi {
			continue
		}
		if c := cmp.Compare(p.cursor, r.pos.Cursor); c < 0 || c == 0 && row.Ord <= r.pos.After && len(r.req.From)+int(r.seq) > 0 {
			continue
		}
		mine = append(mine, p)
	}
	slices.SortFunc(mine, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.cursor, b.cursor), cmp.Compare(a.row.Ord, b.row.Ord))
	})
	var bytes int64
	for _, p := range mine {
		n := int64(len(p.row.Wire))
		if len(f.rows) > 0 && (bytes+n > r.req.BatchBytes || r.s.db.opt.BatchRows > 0 && len(f.rows) >= r.s.db.opt.BatchRows) {
			f.last = false
			break
		}
		bytes += n
		f.rows = append(f.rows, p.row)
		r.pos.Cursor, r.pos.After = p.cursor, p.row.Ord
	}
	r.pos.Nulls = true
	return f
}

// write makes a batch of what was fetched and hands it over.
func (r *reading) write(ctx context.Context, f fetched, out engine.Writer) error {
	r.seq++
	b := &engine.Batch{Resource: r.req.Plan.Resource.Name, Seq: r.seq - 1, Skipped: f.nulls}
	var rows []Row
	for _, row := range f.rows {
		if r.cursor >= 0 && (r.req.Remember || r.req.Skip != nil) {
			field := memrow.Field(row.Wire, r.cursor)
			id := memrow.ID(memrow.Pick(row.Wire, r.key), field)
			// What the next window reads again is remembered, applied now or before (P15).
			if v, _ := memrow.Int(field); r.req.Remember && v > r.mark {
				b.Seen = append(b.Seen, id)
			}
			if _, applied := r.req.Skip[id]; applied {
				b.Skipped++
				continue
			}
		}
		rows = append(rows, row)
	}
	b.Rows = len(rows)
	if b.Rows == 0 && b.Skipped == 0 {
		return nil
	}
	for _, row := range rows {
		b.Bytes += int64(len(row.Wire))
		b.Digest.AddRow(row.Wire)
	}
	if r.req.Wire == "" {
		b.Bytes *= arrowFactor
	}
	if err := out.Reserve(ctx, b.Bytes); err != nil {
		return err
	}
	if err := r.fill(b, rows); err != nil {
		out.Unreserve(b.Bytes)
		return err
	}
	return out.Write(ctx, b)
}

// arrowFactor is how much larger than their canonical encoding rows may be as
// columns: a bit and an offset a value, and decimals of 32 bytes for a few digits.
const arrowFactor = 4

func (r *reading) fill(b *engine.Batch, rows []Row) error {
	if b.Rows == 0 {
		return nil
	}
	switch r.req.Wire {
	case memrow.Wire:
		b.Wire = make([]byte, 0, b.Bytes)
		for _, row := range rows {
			b.Wire = append(b.Wire, row.Wire...)
		}
		b.CRC = integrity.CRC(0, b.Wire)
	case "":
		rec, err := record(r.s.db.opt.Memory, &r.req.Plan.Resource.Schema, rows)
		if err != nil {
			return fmt.Errorf("split %q: %w", r.req.Split.ID, err)
		}
		b.Record = rec
		b.CRC = integrity.RecordCRC(rec)
	default:
		return engine.Bugf("split %q: wire format %q was never offered", r.req.Split.ID, r.req.Wire)
	}
	return nil
}
