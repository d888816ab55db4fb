package memsink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/memrow"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

// Apply implements [engine.SinkSession].
func (s *Session) Apply(ctx context.Context, e *engine.Epoch) (*engine.Receipt, error) {
	t := e.Stream
	if t == nil {
		t = only(e.Targets)
	}
	subject := fmt.Sprintf("%s@%d#%d", e.Split, e.Claim, e.Number)
	var x *txn
	err := s.do(ctx, "sink.apply.begin", subject, func() error {
		x = s.db.begin(s, t, e.Split, e.Claim)
		return nil
	})
	if err != nil {
		return nil, err
	}
	early := false
	defer func() {
		if !early {
			s.rollback(x)
		}
	}()
	in := newIntake(t)
	in.members = e.Targets
	for {
		b, err := e.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if err := in.take(b, e.Split); err != nil {
			return nil, err
		}
		if err := s.do(ctx, "sink.apply.rows", subject, func() error { return s.alive(x) }); err != nil {
			return nil, err
		}
	}
	end := e.End()
	err = s.locking(ctx, call("sink.apply.fence", subject), func() (bool, error) { return x.fenced(e.Number) })
	if err != nil {
		return nil, err
	}
	rc := &engine.Receipt{Bytes: end.Bytes, CRC: in.crc, Verified: t.Verify == engine.VerifyDigest}
	commit := func() error {
		return s.do(ctx, "sink.apply.commit", subject, func() error {
			if err := s.alive(x); err != nil {
				return err
			}
			if e.Stream != nil {
				return s.db.commitChanges(x, e, end, in, rc)
			}
			return s.db.commitEpoch(x, e, end, in, rc)
		})
	}
	if s.db.opt.Broken.EarlyAnswer {
		// The answer is guessed, and the commit comes when it comes.
		early = true
		guess := *rc
		guess.Applied = end.Rows
		for _, r := range in.rows {
			guess.ReadBack.AddRow(r.Wire)
		}
		if e.Stream != nil {
			guess.Members = map[string]engine.Totals{}
			for name, part := range end.Members {
				guess.Members[name] = engine.Totals{Applied: part.Read - part.Skipped}
			}
		}
		go func() {
			_ = commit()
			s.rollback(x)
		}()
		return &guess, nil
	}
	if err := commit(); err != nil {
		return nil, err
	}
	return rc, nil
}

func (s *Session) rollback(x *txn) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	s.db.end(x)
}

func only(targets map[string]*engine.Target) *engine.Target {
	for _, t := range targets {
		return t
	}
	return nil
}

// commitEpoch is the commit of an epoch: its rows and its ledger row (P2).
func (db *DB) commitEpoch(x *txn, e *engine.Epoch, end engine.EpochEnd, in *intake, rc *engine.Receipt) error {
	t := x.target
	name := t.Name
	if t.Staged {
		name = stagingName(t)
	}
	tab, ok := db.tables[name]
	if !ok && !t.Staged {
		return engine.Permanentf("run again, which makes it", "apply to %s: the table does not exist", t.Name)
	}
	if !ok {
		return fmt.Errorf("apply to %s: %w", t.Resource, engine.ErrStagingLost)
	}
	rows := in.rows
	rc.Applied, rc.Superseded, rc.Skipped = int64(len(rows)), 0, 0
	switch t.Write {
	case engine.WriteUpsert, engine.WriteDelete:
		rows = lastOfKey(rows)
		rc.Superseded = rc.Applied - int64(len(rows))
		rc.Applied = int64(len(rows))
		tab.rows = without(tab.rows, rows)
	case engine.WriteAppend:
		if t.Window != nil && !t.Staged && !db.opt.Broken.NoWindow {
			rows = in.newInWindow(tab.rows)
			rc.Skipped = rc.Applied - int64(len(rows))
			rc.Applied = int64(len(rows))
		}
	}
	db.observe(x, e.Number, false, rows)
	if t.Write != engine.WriteDelete {
		tab.rows = append(tab.rows[:len(tab.rows):len(tab.rows)], rows...)
	}
	db.tables[name] = tab
	if !t.Staged {
		db.version++
	}
	if t.Verify == engine.VerifyDigest {
		// What is not there as it was read counts as it was read (P9).
		for _, r := range in.rows {
			rc.ReadBack.AddRow(r.Wire)
		}
	}
	row := db.ledger[x.row]
	row.Epoch, row.Position, row.Done = e.Number, end.Position, end.Done
	row.Totals.Add(engine.Totals{Read: end.Rows + end.Skipped, Applied: rc.Applied, Superseded: rc.Superseded,
		Skipped: rc.Skipped + end.Skipped, Bytes: end.Bytes, Digest: end.Digest, ReadBack: rc.ReadBack})
	db.ledger[x.row] = row
	db.end(x)
	return nil
}

// intake takes an epoch's batches as rows.
type intake struct {
	t      *engine.Target
	fields int
	key    []int
	hasher *integrity.Hasher
	rows   []Row
	crc    uint32
	// members and changes are a change stream's.
	members map[string]*engine.Target
	changes []change
	// Positions of the window's column, and the greatest value applied before.
	cursor int
	upTo   int64
}

func newIntake(t *engine.Target) *intake {
	in := &intake{t: t, fields: len(t.Schema.Fields), cursor: -1}
	for _, k := range t.Schema.Key {
		in.key = append(in.key, t.Schema.Index(k))
	}
	if t.Window != nil {
		in.cursor = t.Schema.Index(t.Window.Cursor)
		// A cursor that is no integer leaves nothing out.
		if f, ok := t.Schema.Field(t.Window.Cursor); ok && f.Type.Kind == schema.Int64 {
			in.upTo, _ = strconv.ParseInt(t.Window.UpTo, 10, 64)
		}
	}
	return in
}

// take checks a batch at the write boundary and cuts it into rows.
func (in *intake) take(b *engine.Batch, split string) error {
	var crc uint32
	if b.Record != nil {
		crc = integrity.RecordCRC(b.Record)
	} else {
		crc = integrity.CRC(0, b.Wire)
	}
	if crc != b.CRC {
		return &engine.MismatchError{Resource: b.Resource, Split: split, What: "crc",
			Source: fmt.Sprintf("%08x", b.CRC), Destination: fmt.Sprintf("%08x", crc)}
	}
	var chained [4]byte
	binary.BigEndian.PutUint32(chained[:], crc)
	in.crc = integrity.CRC(in.crc, chained[:])
	if b.Record != nil {
		if in.hasher == nil {
			in.hasher = integrity.NewHasher(&in.t.Schema)
		}
		for i := range b.Rows {
			wire, err := in.hasher.AppendRow(nil, b.Record, i)
			if err != nil {
				return engine.Permanentf("", "resource %s: %w", b.Resource, err)
			}
			in.add(wire)
		}
		return nil
	}
	fields, key := in.fields, in.key
	if b.Ops != nil {
		m := in.members[b.Resource]
		if m == nil {
			return engine.Bugf("split %s: changes of %s, which is no member", split, b.Resource)
		}
		fields, key = len(m.Schema.Fields), nil
		for _, k := range m.Schema.Key {
			key = append(key, m.Schema.Index(k))
		}
	}
	wire := append([]byte(nil), b.Wire...)
	for i := range b.Rows {
		row, rest, err := memrow.Cut(wire, fields)
		if err != nil {
			return engine.Bugf("resource %s split %s: %w", b.Resource, split, err)
		}
		wire = rest
		if b.Ops == nil {
			in.add(row)
			continue
		}
		c := change{resource: b.Resource, op: b.Ops[i], wire: row, key: memrow.Pick(row, key), sequence: b.Sequence[i]}
		if len(b.Unchanged) > 0 && len(b.Unchanged[i]) > 0 {
			c.unsent = b.Unchanged[i][0]
		}
		for _, commit := range b.Commits {
			if commit.Row <= i {
				c.commit = commit.Position
			}
		}
		in.changes = append(in.changes, c)
	}
	if len(wire) > 0 {
		return engine.Bugf("resource %s split %s: %d bytes beyond the batch's %d rows", b.Resource, split, len(wire), b.Rows)
	}
	return nil
}

func (in *intake) add(wire []byte) {
	in.rows = append(in.rows, Row{Wire: wire, Key: memrow.Pick(wire, in.key), Run: in.t.RunID})
}

// newInWindow leaves out the rows that earlier runs appended (P15).
func (in *intake) newInWindow(have []Row) []Row {
	id := func(r Row) string { return r.Key + string(memrow.Field(r.Wire, in.cursor)) }
	known := make(map[string]struct{}, len(have))
	for _, r := range have {
		known[id(r)] = struct{}{}
	}
	var out []Row
	for _, r := range in.rows {
		v, ok := memrow.Int(memrow.Field(r.Wire, in.cursor))
		if _, there := known[id(r)]; ok && there && v <= in.upTo {
			continue
		}
		out = append(out, r)
	}
	return out
}

// lastOfKey keeps the last row of every key.
func lastOfKey(rows []Row) []Row {
	at := make(map[string]int, len(rows))
	for i, r := range rows {
		at[r.Key] = i
	}
	var out []Row
	for i, r := range rows {
		if at[r.Key] == i {
			out = append(out, r)
		}
	}
	return out
}

// without returns the rows whose keys are not among those of others.
func without(rows, others []Row) []Row {
	gone := make(map[string]struct{}, len(others))
	for _, r := range others {
		gone[r.Key] = struct{}{}
	}
	out := make([]Row, 0, len(rows))
	for _, r := range rows {
		if _, ok := gone[r.Key]; !ok {
			out = append(out, r)
		}
	}
	return out
}
