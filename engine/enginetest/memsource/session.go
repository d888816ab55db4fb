package memsource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"sort"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/gate"
	"github.com/tranship-io/tranship/engine/enginetest/memrow"
	"github.com/tranship-io/tranship/engine/schema"
)

// Spec implements [engine.Source].
func (s *Source) Spec() engine.Spec {
	spec := engine.Spec{
		Name: "mem", Title: "In-memory tables", Summary: "Versioned tables for simulations and conformance suites.",
		Reads:         []engine.ReadMode{engine.ReadFull, engine.ReadIncremental, engine.ReadCDC},
		Consistencies: []engine.Consistency{engine.ConsistencyChunked, engine.ConsistencySnapshot},
	}
	if !s.DB.opt.NoWire {
		spec.Wire = []engine.WireFormat{memrow.Wire}
	}
	return spec
}

// Open implements [engine.Source].
func (s *Source) Open(ctx context.Context, _ engine.Config, _ engine.OpenOptions) (engine.SourceSession, error) {
	out := &Session{db: s.DB, gate: s.Gate}
	if out.gate == nil {
		out.gate = gate.Open
	}
	err := out.gate(ctx, gate.Call{Op: "source.open"}, func() error {
		s.DB.mu.Lock()
		defer s.DB.mu.Unlock()
		s.DB.sessions++
		out.id = s.DB.sessions
		out.snapshots = map[string]int64{}
		s.DB.live[out] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Session is a connection to the database.
type Session struct {
	db   *DB
	gate gate.Func
	id   int64

	// Under db.mu: the snapshots that the session holds; nil once it is over.
	snapshots map[string]int64
	serial    int
}

var _ engine.SourceSession = (*Session)(nil)

// Identity implements [engine.SourceSession].
func (s *Session) Identity() string { return s.db.opt.Identity }

// Close implements [engine.SourceSession]. A process that dies closes its
// session in the same way: the server notices.
func (s *Session) Close(context.Context) error {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.snapshots = nil
	delete(s.db.live, s)
	return nil
}

func (s *Session) alive() error {
	if s.snapshots == nil {
		return engine.Retryablef("the connection to %s is closed", s.db.opt.Identity)
	}
	return nil
}

// Discover implements [engine.SourceSession].
func (s *Session) Discover(ctx context.Context, patterns []string) ([]engine.Resource, error) {
	var out []engine.Resource
	err := s.gate(ctx, gate.Call{Op: "source.discover"}, func() error {
		s.db.mu.Lock()
		defer s.db.mu.Unlock()
		if err := s.alive(); err != nil {
			return err
		}
		for name, t := range s.db.tables {
			match := len(patterns) == 0
			for _, p := range patterns {
				ok, err := path.Match(p, name)
				if err != nil {
					return engine.Permanentf("correct the pattern", "pattern %q: %w", p, err)
				}
				match = match || ok
			}
			if match {
				out = append(out, s.resource(t))
			}
		}
		return nil
	})
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, err
}

func (s *Session) resource(t *table) engine.Resource {
	rows := t.at(s.db.version)
	var n int64
	for _, r := range rows {
		n += int64(len(r.Wire))
	}
	return engine.Resource{Name: t.name, Path: []string{t.name}, Kind: "table", Schema: t.schema, Rows: int64(len(rows)), Bytes: n}
}

// descriptor is a split as the session planned it: the rows with Lo < ord ≤ Hi,
// or for incremental reads with the cursor in (Lo, Hi].
type descriptor struct {
	Lo       int64  `json:"lo"`
	Hi       int64  `json:"hi"`
	Snapshot string `json:"snapshot,omitempty"`
	Cursor   string `json:"cursor,omitempty"`
	// CountNull makes the split count the rows without a cursor.
	CountNull bool `json:"count_null,omitempty"`
	// Version is the database's when the split was planned.
	Version int64 `json:"version"`
	// Point is the alignment point of a member of the change stream.
	Point int64 `json:"point,omitempty"`
}

// PlannedAt returns the database's version at which a plan was made.
func PlannedAt(p *engine.SourcePlan) int64 {
	var d descriptor
	if len(p.Splits) == 0 || json.Unmarshal(p.Splits[0].Descriptor, &d) != nil {
		return 0
	}
	return d.Version
}

// cursor is what a route carries from run to run: the next window starts above
// Mark, and rows up to UpTo may have been applied (P15).
type cursor struct {
	Mark int64 `json:"mark"`
	UpTo int64 `json:"up_to"`
}

// Plan implements [engine.SourceSession].
func (s *Session) Plan(ctx context.Context, req engine.PlanRequest) (*engine.SourcePlan, error) {
	return s.gated(ctx, req, s.plan)
}

func (s *Session) gated(ctx context.Context, req engine.PlanRequest, plan func(engine.PlanRequest) (*engine.SourcePlan, error)) (*engine.SourcePlan, error) {
	var out *engine.SourcePlan
	err := s.gate(ctx, gate.Call{Op: "source.plan", Subject: req.Resource}, func() error {
		s.db.mu.Lock()
		defer s.db.mu.Unlock()
		if err := s.alive(); err != nil {
			return err
		}
		var err error
		out, err = plan(req)
		return err
	})
	return out, err
}

func (s *Session) plan(req engine.PlanRequest) (*engine.SourcePlan, error) {
	t := s.db.tables[req.Resource]
	if t == nil {
		return nil, engine.Permanentf("discover lists what there is", "resource %q does not exist", req.Resource)
	}
	if len(req.Include)+len(req.Exclude) > 0 || req.Where != "" {
		return nil, engine.Permanentf("replicate whole tables", "resource %q: this source has no column choice and no filters", req.Resource)
	}
	out := &engine.SourcePlan{Resource: s.resource(t), Consistency: req.Consistency}
	out.Rows, out.Bytes = out.Resource.Rows, out.Resource.Bytes
	if len(req.Key) > 0 {
		out.Resource.Schema.Key = req.Key
	}
	if !s.db.opt.NoWire {
		out.Wire = []engine.WireFormat{memrow.Wire}
	}
	switch req.Read {
	case engine.ReadFull:
		return out, s.planFull(t, req, out)
	case engine.ReadIncremental:
		return out, s.planIncremental(t, req, out)
	case engine.ReadCDC:
		return out, s.planCDC(t, req, out)
	}
	return nil, engine.Permanentf("", "resource %q: this source has no %s reads", req.Resource, req.Read)
}

func (s *Session) planFull(t *table, req engine.PlanRequest, out *engine.SourcePlan) error {
	if out.Consistency == "" {
		out.Consistency = engine.ConsistencyChunked
		if !t.keyed {
			out.Consistency = engine.ConsistencySnapshot
		}
	}
	snapshot := ""
	if out.Consistency == engine.ConsistencySnapshot {
		if !req.HolderLives {
			return engine.Permanentf("choose consistency chunked", "resource %q: no process lives long enough to hold a snapshot (P12)", t.name)
		}
		s.serial++
		snapshot = fmt.Sprintf("%d-%d", s.id, s.serial)
		s.snapshots[snapshot] = s.db.version
	}
	rows := t.at(s.db.version)
	ords := make([]int64, len(rows))
	for i, r := range rows {
		ords[i] = r.Ord
	}
	out.Coverage = "all rows"
	var err error
	out.Splits, err = s.cut(t, ords, descriptor{Lo: math.MinInt64, Hi: math.MaxInt64, Snapshot: snapshot})
	return err
}

func (s *Session) planIncremental(t *table, req engine.PlanRequest, out *engine.SourcePlan) error {
	col := t.schema.Index(req.Selection.Cursor)
	if col < 0 || t.schema.Fields[col].Type.Kind != schema.Int64 {
		return engine.Permanentf("name an int64 column", "resource %q: %q cannot be a cursor", t.name, req.Selection.Cursor)
	}
	var from cursor
	from.Mark, from.UpTo = math.MinInt64, math.MinInt64
	if req.Cursor != nil {
		if err := json.Unmarshal(req.Cursor, &from); err != nil {
			return engine.Permanentf("reset the resource", "resource %q: read its cursor: %w", t.name, err)
		}
		out.Window = &engine.Window{Cursor: req.Selection.Cursor, UpTo: fmt.Sprint(from.UpTo)}
	}
	// P15: sessions that are open now may commit below the upper bound later.
	upper := s.db.clock
	mark := upper
	for tx := range s.db.open {
		mark = min(mark, tx.start-1)
	}
	next, err := json.Marshal(cursor{Mark: mark, UpTo: upper})
	if err != nil {
		return fmt.Errorf("encode cursor: %w", err)
	}
	out.NextCursor = next
	var values []int64
	for _, r := range t.at(s.db.version) {
		if v, ok := memrow.Int(memrow.Field(r.Wire, col)); ok && v > from.Mark && v <= upper {
			values = append(values, v)
		}
	}
	slices.Sort(values)
	out.Coverage = "rows whose cursor is the time of their transaction"
	out.Splits, err = s.cut(t, slices.Compact(values), descriptor{Lo: from.Mark, Hi: upper, Cursor: req.Selection.Cursor})
	return err
}

// cut makes splits of about SplitRows values each that cover (d.Lo, d.Hi].
func (s *Session) cut(t *table, values []int64, d descriptor) ([]engine.Split, error) {
	var out []engine.Split
	var failed error
	add := func(lo, hi int64, rows int) {
		p := d
		p.Lo, p.Hi, p.Version = lo, hi, s.db.version
		p.CountNull = d.Cursor != "" && len(out) == 0
		body, err := json.Marshal(p)
		failed = errors.Join(failed, err)
		out = append(out, engine.Split{ID: fmt.Sprintf("%s/%d", t.name, len(out)), Resource: t.name, Descriptor: body, Rows: int64(rows), Bytes: -1})
	}
	lo, step := d.Lo, s.db.opt.SplitRows
	for len(values) > step {
		hi := values[step-1]
		add(lo, hi, step)
		lo, values = hi, values[step:]
	}
	add(lo, d.Hi, len(values))
	return out, failed
}
