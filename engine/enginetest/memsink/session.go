package memsink

import (
	"context"
	"fmt"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/gate"
	"github.com/tranship-io/tranship/engine/enginetest/memrow"
)

// Spec implements [engine.Sink].
func (s *Sink) Spec() engine.Spec {
	spec := engine.Spec{
		Name: "mem", Title: "In-memory tables", Summary: "Transactional tables for simulations and conformance suites.",
		Writes:   []engine.WriteMode{engine.WriteReplace, engine.WriteAppend, engine.WriteUpsert, engine.WriteDelete, engine.WriteMerge},
		Delivery: "effectively-once",
	}
	if !s.DB.opt.NoWire {
		spec.Wire = []engine.WireFormat{memrow.Wire}
	}
	return spec
}

// Open implements [engine.Sink].
func (s *Sink) Open(ctx context.Context, _ engine.Config, _ engine.OpenOptions) (engine.SinkSession, error) {
	out := &Session{db: s.DB, gate: s.Gate}
	if out.gate == nil {
		out.gate = gate.Open
	}
	err := out.gate(ctx, gate.Call{Op: "sink.open"}, func() error {
		s.DB.mu.Lock()
		defer s.DB.mu.Unlock()
		s.DB.sessions++
		out.id = s.DB.sessions
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Session is a connection to a destination.
type Session struct {
	db   *DB
	gate gate.Func
	// id is the owner that claims record.
	id int64
	// Under db.mu.
	closed bool
}

var (
	_ engine.SinkSession = (*Session)(nil)
	_ engine.Fencer      = (*Session)(nil)
	_ engine.Adopter     = (*Session)(nil)
)

// Identity implements [engine.SinkSession].
func (s *Session) Identity() string { return s.db.opt.Identity }

// Close implements [engine.SinkSession]. The server rolls back what is open.
func (s *Session) Close(context.Context) error {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.closed = true
	for x := range s.db.txns {
		if x.session == s {
			s.db.end(x)
		}
	}
	return nil
}

// do passes a gate with an effect under the destination's lock.
func (s *Session) do(ctx context.Context, op, subject string, effect func() error) error {
	return s.gate(ctx, gate.Call{Op: op, Subject: subject}, func() error {
		s.db.mu.Lock()
		defer s.db.mu.Unlock()
		if err := s.alive(nil); err != nil {
			return err
		}
		return effect()
	})
}

// Plan implements [engine.SinkSession].
func (s *Session) Plan(_ context.Context, req engine.TargetRequest) (*engine.Target, error) {
	t := target(req)
	switch req.Write {
	case engine.WriteReplace:
		t.Staged, t.Technique = true, "swap"
	case engine.WriteAppend:
		t.Technique = "append"
		if req.Plan.Consistency == engine.ConsistencySnapshot || req.Read == engine.ReadCDC && len(req.Plan.Splits) > 0 {
			// A lost snapshot must be able to begin anew (P12), and so must the initial
			// rows of a change stream's member.
			t.Staged, t.Technique = true, "append from staging"
		}
	case engine.WriteMerge:
		if req.Read != engine.ReadCDC {
			return nil, engine.Permanentf("write it by upsert", "resource %s: only changes are merged", t.Resource)
		}
		if len(t.Schema.Key) == 0 {
			return nil, engine.Permanentf("name a key", "resource %s: merge needs a key", t.Resource)
		}
		t.Technique = "merge"
		if len(req.Plan.Splits) > 0 {
			t.Staged, t.Technique = true, "merge of staging and changes, swap"
		}
	case engine.WriteUpsert, engine.WriteDelete:
		t.Technique = string(req.Write)
		if len(t.Schema.Key) == 0 {
			return nil, engine.Permanentf("name a key", "resource %s: %s needs a key", t.Resource, req.Write)
		}
	default:
		return nil, engine.Permanentf("", "resource %s: this sink has no write mode %s", t.Resource, req.Write)
	}
	if !s.db.opt.NoWire {
		for _, w := range req.Plan.Wire {
			if w == memrow.Wire {
				t.Wire = w
			}
		}
	}
	return t, nil
}

func target(req engine.TargetRequest) *engine.Target {
	t := &engine.Target{
		Route: req.Route, RunID: req.RunID, Ordinal: req.Ordinal, Generation: req.Generation,
		Resource: req.Plan.Resource.Name, Schema: req.Plan.Resource.Schema, Name: req.Target,
		Read: req.Read, Write: req.Write, Verify: req.Verify, Policies: req.Policies, SchemaRule: req.Schema,
		Window: req.Plan.Window, Options: req.Options,
	}
	if t.Name == "" {
		t.Name = t.Resource
	}
	for _, f := range t.Schema.Fields {
		t.Columns = append(t.Columns, engine.TargetColumn{Source: f.Name, Name: f.Name, Type: f.Type.String()})
	}
	return t
}

// Prepare implements [engine.SinkSession].
func (s *Session) Prepare(ctx context.Context, t *engine.Target) (*engine.Prepared, error) {
	out := &engine.Prepared{}
	err := s.do(ctx, "sink.prepare", t.Resource, func() error {
		db := s.db
		if t.Resource == engine.StreamResource {
			return nil
		}
		if _, ok := db.tables[t.Name]; !ok {
			db.tables[t.Name] = table{}
			out.Statements = append(out.Statements, "create "+t.Name)
		}
		publish, frozen := db.ledger[rowOf(t, engine.PublishSplit(t.Resource))]
		if !t.Staged || frozen && publish.Done && !db.opt.Broken.NoPublishRow {
			// P8: after the publish there is nothing to stage.
			return nil
		}
		if frozen && publish.generation == t.Generation && db.lost(t, publish) {
			return fmt.Errorf("prepare %s: %w", t.Resource, engine.ErrStagingLost)
		}
		name := stagingName(t)
		if _, ok := db.tables[name]; !ok {
			if frozen && publish.generation == t.Generation && !publish.Done {
				return fmt.Errorf("prepare %s: %w", t.Resource, engine.ErrStagingLost)
			}
			db.tables[name] = table{staging: true, unlogged: db.opt.Unlogged, fence: keyOf(t), run: t.RunID, ordinal: t.Ordinal, generation: t.Generation}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// lost tells whether ledger rows of the frozen plan are missing (P7).
func (db *DB) lost(t *engine.Target, publish ledgerRow) bool {
	return publish.splits != db.readRows(t, nil)
}

// readRows counts the ledger rows of the target's read splits and gives each to f.
func (db *DB) readRows(t *engine.Target, f func(ledgerRow)) int {
	n := 0
	for k, r := range db.ledger {
		if k.fence == keyOf(t) && k.run == t.RunID && k.split != engine.PublishSplit(t.Resource) && r.generation == t.Generation {
			n++
			if f != nil {
				f(r)
			}
		}
	}
	return n
}

// Abort implements [engine.SinkSession]. The resource's frozen rows of this
// generation go with its staging, so that nothing can be applied to it any more.
func (s *Session) Abort(ctx context.Context, t *engine.Target) error {
	return s.locking(ctx, gate.Call{Op: "sink.abort", Subject: t.Resource}, func() (bool, error) {
		db := s.db
		if err := s.alive(nil); err != nil {
			return false, err
		}
		if publish, ok := db.ledger[rowOf(t, engine.PublishSplit(t.Resource))]; ok && publish.Done {
			return false, nil
		}
		mine := func(x *txn) bool {
			return x.fence == keyOf(t) && x.target.RunID == t.RunID && x.target.Generation == t.Generation
		}
		if db.terminate(mine) {
			return true, nil
		}
		if plan := db.plans[planKey{fence: keyOf(t), run: t.RunID}]; plan != nil && plan.Generation == t.Generation {
			delete(db.plans, planKey{fence: keyOf(t), run: t.RunID})
		}
		for k, r := range db.ledger {
			if k.fence == keyOf(t) && k.run == t.RunID && r.generation == t.Generation {
				delete(db.ledger, k)
			}
		}
		delete(db.tables, stagingName(t))
		delete(db.deltas, stagingName(t))
		return false, nil
	})
}
