package memsource

import (
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

var _ engine.Streamer = (*Session)(nil)

// streamPosition is a place in the log: after the transaction at LSN, and N changes
// of the next one.
type streamPosition struct {
	LSN int64 `json:"lsn"`
	N   int   `json:"n,omitempty"`
}

// Place is how far a stream's position is in the log: the last whole transaction.
func Place(pos engine.Position) int64 {
	var p streamPosition
	if len(pos) == 0 || json.Unmarshal(pos, &p) != nil {
		return 0
	}
	return p.LSN
}

// Whole tells whether a stream's position is between transactions.
func Whole(pos engine.Position) bool {
	var p streamPosition
	return len(pos) > 0 && json.Unmarshal(pos, &p) == nil && p.N == 0
}

// streamDescriptor is the stream's split: its slot, where it begins, and for each
// member the alignment point from which on its changes count.
type streamDescriptor struct {
	Slot   string           `json:"slot"`
	Start  streamPosition   `json:"start"`
	Points map[string]int64 `json:"points"`
}

func (s *Session) planCDC(t *table, req engine.PlanRequest, out *engine.SourcePlan) error {
	if !t.keyed {
		return engine.Permanentf("give it a key", "resource %q: changes need a key", t.name)
	}
	out.Consistency = engine.ConsistencyAligned
	out.NextCursor = json.RawMessage(`{"v":1}`)
	out.Coverage = "all rows, and all changes"
	if req.Cursor != nil || req.Initial == engine.InitialNone {
		return nil
	}
	var err error
	rows := t.at(s.db.version)
	ords := make([]int64, len(rows))
	for i, r := range rows {
		ords[i] = r.Ord
	}
	out.Splits, err = s.cut(t, ords, descriptor{Lo: math.MinInt64, Hi: math.MaxInt64})
	return err
}

// PlanStream implements [engine.Streamer].
func (s *Session) PlanStream(ctx context.Context, req engine.StreamRequest) (*engine.SourcePlan, *engine.StreamPlan, error) {
	out, plan := &engine.SourcePlan{Rows: -1, Bytes: -1, Splits: []engine.Split{{Rows: -1, Bytes: -1}}}, &engine.StreamPlan{}
	err := s.gate(ctx, gate.Call{Op: "source.planstream"}, func() error {
		s.db.mu.Lock()
		defer s.db.mu.Unlock()
		if err := s.alive(); err != nil {
			return err
		}
		out.Resource = engine.Resource{Name: engine.StreamResource, Path: []string{engine.StreamResource}, Kind: "change stream", Rows: -1, Bytes: -1}
		for _, m := range req.Members {
			plan.Members = append(plan.Members, m.Selection.Resource)
		}
		if req.Cursor != nil {
			return s.reachable(req.Route.Pipeline, Place(req.Cursor))
		}
		if _, ok := s.db.slots[req.Route.Pipeline]; !ok {
			plan.Statements = []string{"create slot " + req.Route.Pipeline}
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return out, plan, nil
}

// reachable tells whether the slot still has the changes after a place.
func (s *Session) reachable(slot string, from int64) error {
	confirmed, ok := s.db.slots[slot]
	if !ok {
		return engine.Permanentf("", "slot %q is gone: %w", slot, engine.ErrPositionLost)
	}
	if from < confirmed {
		return engine.Permanentf("", "slot %q stands at %d, beyond %d: %w", slot, confirmed, from, engine.ErrPositionLost)
	}
	return nil
}

// PrepareStream implements [engine.Streamer].
func (s *Session) PrepareStream(ctx context.Context, req engine.StreamRequest, plan *engine.SourcePlan, _ *engine.StreamPlan) error {
	return s.gate(ctx, gate.Call{Op: "source.preparestream"}, func() error {
		s.db.mu.Lock()
		defer s.db.mu.Unlock()
		if err := s.alive(); err != nil {
			return err
		}
		db, slot := s.db, req.Route.Pipeline
		if req.Cursor != nil {
			if err := s.reachable(slot, Place(req.Cursor)); err != nil {
				return err
			}
		} else if _, ok := db.slots[slot]; !ok {
			db.slots[slot], db.confirmed = db.lsn, 0
		}
		d := streamDescriptor{Slot: slot, Start: streamPosition{LSN: db.slots[slot]}, Points: map[string]int64{}}
		if req.Cursor != nil {
			// Inside a transaction too: what is applied of it is not applied again.
			if err := json.Unmarshal(req.Cursor, &d.Start); err != nil {
				return engine.Permanentf("reset the resources", "read the stream's cursor: %w", err)
			}
		}
		for _, m := range req.Members {
			name := m.Selection.Resource
			d.Points[name] = d.Start.LSN
			if m.Follows {
				continue // its rows stand as of the cursor
			}
			// The point: all that is in the log by now, visible or not. A log of changes
			// that an unfinished run has begun must not have a gap before it.
			if m.Write != engine.WriteAppend || req.Cursor == nil || m.Selection.Initial == engine.InitialNone {
				d.Points[name] = db.lsn
			}
			for i := range m.Plan.Splits {
				var piece descriptor
				if err := json.Unmarshal(m.Plan.Splits[i].Descriptor, &piece); err != nil {
					return engine.Bugf("split %q: read its descriptor: %w", m.Plan.Splits[i].ID, err)
				}
				piece.Point = db.lsn
				var err error
				if m.Plan.Splits[i].Descriptor, err = json.Marshal(piece); err != nil {
					return fmt.Errorf("encode a piece: %w", err)
				}
			}
		}
		var err error
		if plan.Splits[0].Descriptor, err = json.Marshal(d); err != nil {
			return fmt.Errorf("encode the stream's split: %w", err)
		}
		return nil
	})
}

// aligned tells whether a snapshot taken now sees all that the point saw; the caller
// holds db.mu.
func (s *Session) aligned(point int64) bool {
	return s.db.opt.Broken.NoAlign || !slices.ContainsFunc(s.db.log, func(l *logged) bool { return l.lsn <= point && !l.visible })
}

// Settled implements [engine.Streamer].
func (s *Session) Settled(pos engine.Position, reads []engine.Position) (bool, error) {
	if s.db.opt.Broken.AlwaysSettled {
		return true, nil
	}
	at := Place(pos)
	for _, r := range reads {
		var p position
		if err := json.Unmarshal(r, &p); err != nil {
			return false, engine.Bugf("read a piece's end: %w", err)
		}
		if at < p.LSN {
			return false, nil
		}
	}
	return true, nil
}

// Lag implements [engine.Streamer]; a transaction counts as a byte.
func (s *Session) Lag(_ context.Context, pos engine.Position) (engine.StreamLag, error) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	return engine.StreamLag{Bytes: s.db.lsn - Place(pos)}, nil
}

// Streams implements [engine.Streamer].
func (s *Session) Streams(context.Context) ([]engine.StreamInfo, error) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	var out []engine.StreamInfo
	for name, lsn := range s.db.slots {
		out = append(out, engine.StreamInfo{Name: name, Pipeline: name, Retained: s.db.lsn - lsn, State: "reserved"})
	}
	return out, nil
}

// DropStream implements [engine.Streamer].
func (s *Session) DropStream(_ context.Context, name string) error {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	delete(s.db.slots, name)
	return nil
}

// Acknowledge implements [engine.Acknowledger].
func (s *Session) Acknowledge(ctx context.Context, split engine.Split, pos engine.Position) error {
	var d streamDescriptor
	if err := json.Unmarshal(split.Descriptor, &d); err != nil {
		return engine.Bugf("split %q: read its descriptor: %w", split.ID, err)
	}
	return s.gate(ctx, gate.Call{Op: "source.acknowledge", Subject: string(pos)}, func() error {
		s.db.mu.Lock()
		defer s.db.mu.Unlock()
		if err := s.alive(); err != nil {
			return err
		}
		s.db.confirm(d.Slot, Place(pos))
		return nil
	})
}

// following is how long a followed stream waits before it looks again.
const following = 100 * time.Millisecond

// stream reads the log from a position.
func (s *Session) stream(ctx context.Context, req engine.ReadRequest, out engine.Writer) (engine.ReadResult, error) {
	r := &streaming{s: s, req: req, out: out}
	if err := json.Unmarshal(req.Split.Descriptor, &r.d); err != nil {
		return engine.ReadResult{}, engine.Bugf("split %q: read its descriptor: %w", req.Split.ID, err)
	}
	r.pos = r.d.Start
	if len(req.From) > 0 {
		r.pos = streamPosition{}
		if err := json.Unmarshal(req.From, &r.pos); err != nil {
			return engine.ReadResult{}, engine.Bugf("split %q: read its position: %w", req.Split.ID, err)
		}
	}
	r.kept = r.pos.LSN
	var target int64
	err := s.gate(ctx, gate.Call{Op: "source.stream", Subject: fmt.Sprintf("%s@%d", req.Split.ID, req.Claim)}, func() error {
		s.db.mu.Lock()
		defer s.db.mu.Unlock()
		if err := s.alive(); err != nil {
			return err
		}
		target = s.db.lsn
		return s.reachable(r.d.Slot, r.pos.LSN)
	})
	if err != nil {
		return engine.ReadResult{}, err
	}
	for {
		next, err := r.next(ctx)
		if err == nil && next != nil {
			err = r.transaction(ctx, next)
		} else if err == nil && req.Follow {
			err = r.wait(ctx)
		}
		switch {
		case errors.Is(err, engine.ErrBoundary):
			return engine.ReadResult{}, nil
		case err != nil:
			return engine.ReadResult{}, err
		case !req.Follow && r.pos.LSN >= target:
			return engine.ReadResult{Done: true, End: r.position()}, nil
		}
	}
}

// streaming is the state of one Read of a stream.
type streaming struct {
	s    *Session
	req  engine.ReadRequest
	out  engine.Writer
	d    streamDescriptor
	pos  streamPosition
	seq  uint64
	kept int64
}

func (r *streaming) position() engine.Position {
	pos, err := json.Marshal(r.pos)
	if err != nil {
		panic(err) // two numbers
	}
	return pos
}

// next fetches the transaction after the position; nil: there is none yet.
func (r *streaming) next(ctx context.Context) (*logged, error) {
	var out *logged
	call := gate.Call{Op: "source.receive", Subject: fmt.Sprintf("%s@%d", r.req.Split.ID, r.req.Claim)}
	err := r.s.gate(ctx, call, func() error {
		db := r.s.db
		db.mu.Lock()
		defer db.mu.Unlock()
		if err := r.s.alive(); err != nil {
			return err
		}
		if _, ok := db.slots[r.d.Slot]; !ok {
			return r.s.reachable(r.d.Slot, r.pos.LSN)
		}
		if int(r.pos.LSN) < len(db.log) {
			out = db.log[r.pos.LSN] // the first has number 1
			if db.opt.Broken.EagerAck {
				db.confirm(r.d.Slot, out.lsn)
			}
		}
		return nil
	})
	return out, err
}

func (r *streaming) wait(ctx context.Context) error {
	if err := r.out.Mark(ctx, r.position()); err != nil {
		return err
	}
	select {
	case <-time.After(following):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// transaction hands a transaction over, with marks inside if it is large.
func (r *streaming) transaction(ctx context.Context, l *logged) error {
	limit := max(r.s.db.opt.BatchRows, 1)
	for r.pos.N < len(l.changes) {
		n := r.pos.N + 1
		for n < len(l.changes) && (n-r.pos.N < limit || l.changes[n].Op == engine.OpMove) && l.changes[n].Table == l.changes[r.pos.N].Table {
			n++
		}
		if err := r.batch(ctx, l, r.pos.N, n); err != nil {
			return err
		}
		r.pos.N = n
		if n < len(l.changes) {
			if err := r.out.Mark(ctx, r.position()); err != nil {
				return err
			}
		}
	}
	r.pos = streamPosition{LSN: l.lsn}
	if r.pos.LSN >= r.kept+keepEvery {
		r.kept = r.pos.LSN
		return r.out.Keep(ctx, r.position())
	}
	return r.out.Mark(ctx, r.position())
}

// keepEvery is after how many transactions a position is stored at the latest.
const keepEvery = 5

// batch writes some changes of a transaction, all of one table.
func (r *streaming) batch(ctx context.Context, l *logged, from, to int) error {
	name := l.changes[from].Table
	m, ok := r.req.Members[name]
	if !ok || l.lsn <= r.d.Points[name] {
		return nil
	}
	b := &engine.Batch{Resource: name, Seq: r.seq, Rows: to - from,
		Commits: []engine.Commit{{Position: fmt.Sprintf("%016x", l.lsn), At: time.Unix(l.lsn, 0).UTC()}}}
	var rows []Row
	for i, c := range l.changes[from:to] {
		b.Ops = append(b.Ops, c.Op)
		b.Sequence = append(b.Sequence, int64(from+i))
		var unsent []uint64
		if c.Unsent != 0 {
			unsent = []uint64{c.Unsent}
		}
		b.Unchanged = append(b.Unchanged, unsent)
		b.Digest.AddRow(c.Wire)
		b.Bytes += int64(len(c.Wire))
		rows = append(rows, Row{Wire: c.Wire})
	}
	if m.Wire != memrow.Wire {
		return engine.Permanentf("", "resource %q: this source has changes in its wire format only", name)
	}
	if err := r.out.Reserve(ctx, b.Bytes); err != nil {
		return err
	}
	for _, row := range rows {
		b.Wire = append(b.Wire, row.Wire...)
	}
	b.CRC = integrity.CRC(0, b.Wire)
	r.seq++
	return r.out.Write(ctx, b)
}
