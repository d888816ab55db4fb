package pgsource

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/connectors/postgres/pgoutput"
	"github.com/tranship-io/tranship/engine"
)

const (
	// keepBytes and keepTime: so much of the log may pass, or time with any of it,
	// until a position is stored that lets the server forget it (invariant 3, case 19).
	keepBytes = 8 << 20
	keepTime  = 10 * time.Second
	// statusTime is how often the server hears that we live; it ends silent streams
	// after wal_sender_timeout, usually 60 s.
	statusTime = 5 * time.Second
	// idleTime without a message means that the server has sent all that there is.
	idleTime = 20 * time.Millisecond
	// markTime bounds how long rows are collected into one batch while more come.
	markTime = 100 * time.Millisecond
)

// changeRead is one Read of a change stream.
type changeRead struct {
	s   *Session
	d   *streamDescriptor
	req *engine.ReadRequest
	out engine.Writer
	wal *walConn

	pos streamPosition
	// kept is the position that was stored last, as far as we know, keptAt when.
	kept   pgoutput.LSN
	keptAt time.Time
	// until is where the read has caught up; 0: it follows.
	until pgoutput.LSN

	dec     pgoutput.Decoder
	members map[string]*member
	tables  map[uint32]*member
	// reserved is the room for the rows that are collected, held of it is taken.
	reserved, held int64
	flushed        time.Time
	// dirty: rows were handed over that may not be stored yet.
	dirty bool

	// in is the transaction that is being received; skip are its first changes,
	// which were delivered before.
	in     *engine.Commit
	commit pgoutput.LSN
	count  int64
	skip   int64
}

func (s *Session) readStream(ctx context.Context, req engine.ReadRequest, out engine.Writer) (engine.ReadResult, error) {
	d, err := parseStream(req.Split)
	if err != nil {
		return engine.ReadResult{}, err
	}
	r := &changeRead{s: s, d: d, req: &req, out: out, members: map[string]*member{}, tables: map[uint32]*member{}, keptAt: time.Now(), flushed: time.Now()}
	r.pos = d.Start
	if len(req.From) > 0 {
		if err := decodeStrict(req.From, &r.pos); err != nil {
			return engine.ReadResult{}, engine.Bugf("split %s: its position can't be read: %w", req.Split.ID, err)
		}
	}
	r.kept = r.pos.LSN
	for _, name := range d.Tables {
		m, ok := req.Members[name]
		if !ok {
			return engine.ReadResult{}, engine.Bugf("split %s: the member %s is not in the plan", req.Split.ID, name)
		}
		if m.Wire != engine.WirePostgresCopy || len(m.AsText) > 0 {
			return engine.ReadResult{}, engine.Bugf("split %s: changes of %s are asked for in another form than binary COPY", req.Split.ID, name)
		}
		one := &member{name: name, read: m, since: d.Since[name]}
		for _, raw := range m.Reads {
			var p position
			if err := decodeStrict(raw, &p); err != nil {
				return engine.ReadResult{}, engine.Bugf("a piece's position can't be read: %w", err)
			}
			one.seen = max(one.seen, p.Seen)
		}
		if one.digest, err = pgcopy.NewDigester(m.Plan.Resource.Schema.Fields, make([]bool, len(m.Plan.Resource.Schema.Fields))); err != nil {
			return engine.ReadResult{}, err
		}
		r.members[name] = one
	}
	res, err := r.run(ctx)
	r.giveBack()
	if errors.Is(err, engine.ErrBoundary) {
		return engine.ReadResult{}, nil
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("read the change stream: %w", pgconf.Classify(err))
	}
	return res, err
}

func (r *changeRead) run(ctx context.Context) (engine.ReadResult, error) {
	if err := r.ready(ctx); err != nil {
		return engine.ReadResult{}, err
	}
	wal, replan, err := r.connect(ctx)
	if err != nil {
		return engine.ReadResult{}, err
	}
	r.wal = wal
	defer r.leave()
	if replan != "" {
		return engine.ReadResult{Done: true, End: encode(r.pos), Replan: replan}, nil
	}
	if r.until > 0 && r.pos.LSN >= r.until {
		return engine.ReadResult{Done: true, End: encode(r.pos)}, nil
	}
	var asked time.Time
	for {
		if ctx.Err() != nil {
			return engine.ReadResult{}, context.Cause(ctx)
		}
		if err := wal.tell(false, false); err != nil {
			return engine.ReadResult{}, err
		}
		got, ok, err := wal.next(idleTime)
		if err != nil {
			r.s.closeStream(r.d.Slot)
			return engine.ReadResult{}, err
		}
		switch {
		case !ok:
			if r.in != nil {
				continue // the rest of a transaction is on its way
			}
			if err := r.mark(ctx, true); err != nil {
				return engine.ReadResult{}, err
			}
			if time.Since(asked) > 100*time.Millisecond {
				asked = time.Now()
				if err := wal.tell(true, true); err != nil {
					return engine.ReadResult{}, err
				}
			}
			continue
		case got.data != nil:
			replan, err := r.message(ctx, got.data)
			if err != nil {
				return engine.ReadResult{}, err
			}
			if replan != "" {
				if err := r.flush(ctx); err != nil {
					return engine.ReadResult{}, err
				}
				if r.in != nil {
					r.pos.Commit, r.pos.Changes = r.commit, r.count
				}
				return engine.ReadResult{Done: true, End: encode(r.pos), Replan: replan}, nil
			}
		case r.in == nil:
			// All before it was sent, and there is no transaction open.
			r.move(max(r.pos.LSN, got.end))
			if got.reply {
				if err := wal.tell(true, false); err != nil {
					return engine.ReadResult{}, err
				}
			}
			if err := r.mark(ctx, false); err != nil {
				return engine.ReadResult{}, err
			}
		}
		if r.in == nil && r.until > 0 && r.pos.LSN >= r.until {
			if err := r.flush(ctx); err != nil {
				return engine.ReadResult{}, err
			}
			return engine.ReadResult{Done: true, End: encode(r.pos)}, nil
		}
	}
}

// connect goes on with the connection of the Read before, if that stopped where
// this one begins, or begins to stream anew.
func (r *changeRead) connect(ctx context.Context) (wal *walConn, replan string, err error) {
	r.s.mu.Lock()
	wal = r.s.wal[r.d.Slot]
	r.s.mu.Unlock()
	if wal != nil && wal.resume != nil && *wal.resume == r.pos {
		wal.mu.Lock()
		wal.reading = true
		wal.mu.Unlock()
		for _, t := range wal.tables {
			if m := r.members[r.d.Tables[t.OID]]; m != nil {
				r.tables[t.OID] = m
				if why := m.layout(t); why != "" {
					replan = why
				}
			}
		}
		return wal, replan, nil
	}
	r.s.closeStream(r.d.Slot)
	wal, err = r.s.openStream(ctx, r.d, r.req.Split, r.req.Claim, r.pos.LSN)
	if err == nil {
		wal.tables = map[uint32]*pgoutput.Table{}
		r.s.keepStream(r.d.Slot, wal)
	}
	return wal, "", err
}

// leave ends the use of the connection.
func (r *changeRead) leave() {
	r.wal.resume = nil
	if r.in == nil {
		at := r.pos
		r.wal.resume = &at
	}
	r.wal.release()
	if r.req.Claim == 0 {
		// Nobody comes back to an unclaimed read: the slot is free for others.
		r.s.closeStream(r.d.Slot)
	}
}

// ready makes sure that the slot still has what is asked for, and finds out where
// the read has caught up.
func (r *changeRead) ready(ctx context.Context) error {
	conn, err := r.s.take(ctx)
	if err != nil {
		return err
	}
	defer r.s.give(ctx, conn)
	var have *slot
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		have, err = findSlot(ctx, tx, r.d.Slot)
		return err
	})
	if err != nil {
		return err
	}
	if err := usable(r.d.Slot, have, r.pos.LSN); err != nil {
		return err
	}
	if r.req.Follow {
		return nil
	}
	// A message of ours forces the log out: what has committed before is in it then.
	// It needs no standby's word, for which a commit could wait without end.
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL synchronous_commit = 'local'"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "SELECT pg_catalog.pg_logical_emit_message(true, 'tranship', '')")
		return err
	})
	if err != nil && !pgconf.IsState(err, "42501") {
		return err
	}
	var until string
	if err := conn.QueryRow(ctx, "SELECT pg_catalog.pg_current_wal_flush_lsn()::text").Scan(&until); err != nil {
		return err
	}
	if r.until, err = pgoutput.ParseLSN(until); err != nil {
		return engine.Bugf("%w", err)
	}
	return nil
}

// message takes one message of the plugin's.
func (r *changeRead) message(ctx context.Context, data []byte) (replan string, err error) {
	msg, err := r.dec.Decode(data)
	if err != nil {
		return "", err
	}
	switch msg.Kind {
	case pgoutput.Begin:
		r.in, r.commit, r.count, r.skip = &engine.Commit{Position: msg.LSN.Sortable(), At: msg.At}, msg.LSN, 0, 0
		if r.pos.Commit == msg.LSN {
			r.skip = r.pos.Changes
		}
	case pgoutput.Commit:
		r.in = nil
		r.move(msg.End)
		return "", r.mark(ctx, false)
	case pgoutput.Relation:
		m := r.members[r.d.Tables[msg.Table.OID]]
		if m == nil {
			return "", nil
		}
		r.tables[msg.Table.OID], r.wal.tables[msg.Table.OID] = m, msg.Table
		return m.layout(msg.Table), nil
	case pgoutput.Insert:
		return "", r.row(ctx, msg, func(m *member) error { return m.add(engine.OpInsert, msg.New, nil, false, *r.in, r.count) })
	case pgoutput.Update:
		if m := r.tables[msg.OID]; m != nil && m.whole(r.commit) && msg.Old != nil && !msg.Full && r.count >= r.skip && !m.sameKey(msg.Old, msg.New) {
			if err := r.complete(ctx, m, msg.New); err != nil {
				return "", err
			}
		}
		return "", r.row(ctx, msg, func(m *member) error { return r.update(m, msg) })
	case pgoutput.Delete:
		return "", r.row(ctx, msg, func(m *member) error { return m.add(engine.OpDelete, msg.Old, nil, !msg.Full, *r.in, r.count) })
	case pgoutput.Truncate:
		for _, oid := range msg.OIDs {
			msg.OID, msg.Old, msg.New = oid, nil, nil
			if err := r.row(ctx, msg, func(m *member) error { return m.add(engine.OpTruncate, nil, nil, false, *r.in, r.count) }); err != nil {
				return "", err
			}
		}
	default:
	}
	return "", nil
}

// move notes that everything up to a place was delivered.
func (r *changeRead) move(to pgoutput.LSN) {
	r.pos.LSN = to
	if to > r.pos.Commit {
		r.pos.Commit, r.pos.Changes = 0, 0
	}
	if to >= r.pos.Seen {
		r.pos.Seen = 0
	}
}

// update adds a change of a row, or of its key, as the two halves that it has then.
func (r *changeRead) update(m *member, msg *pgoutput.Message) error {
	var fill []pgoutput.Field
	if msg.Full {
		fill = msg.Old
	} else if msg.Old != nil {
		// A key that lies outside of the row is sent with the old one alone.
		for _, i := range m.key {
			if j := m.from[i]; j >= 0 && j < len(msg.New) && j < len(msg.Old) && msg.New[j].Kind == pgoutput.Unsent {
				msg.New[j] = msg.Old[j]
			}
		}
	}
	if msg.Old == nil || m.sameKey(msg.Old, msg.New) {
		return m.add(engine.OpUpdate, msg.New, fill, false, *r.in, r.count)
	}
	if err := m.add(engine.OpDelete, msg.Old, nil, true, *r.in, r.count); err != nil {
		return err
	}
	return m.add(engine.OpMove, msg.New, fill, false, *r.in, r.count)
}

// row counts a change, makes room for it and adds it, unless it was delivered
// before or is older than what its member begins with.
func (r *changeRead) row(ctx context.Context, msg *pgoutput.Message, add func(*member) error) error {
	if r.in == nil {
		return engine.Bugf("the server sent a change outside of a transaction")
	}
	r.count++
	m := r.tables[msg.OID]
	if m == nil || r.count <= r.skip || r.commit < m.since {
		return nil
	}
	// Both halves of a change of a key may be as large as the row.
	need := 2*(size(msg.Old)+size(msg.New)) + 8*int64(len(m.from))
	if r.held > 0 && r.held+need > r.reserved {
		r.count--
		if err := r.flush(ctx); err != nil {
			return err
		}
		r.pos.Commit, r.pos.Changes = r.commit, r.count
		if err := r.out.Mark(ctx, encode(r.pos)); err != nil {
			return err
		}
		r.count++
	}
	if r.reserved < need {
		r.giveBack()
		n := max(r.req.BatchBytes, need, 64<<10)
		if err := r.out.Reserve(ctx, n); err != nil {
			return err
		}
		r.reserved = n
	}
	before := len(m.buf)
	if err := add(m); err != nil {
		return err
	}
	r.held += int64(len(m.buf) - before)
	return nil
}

// flush hands over what is collected.
func (r *changeRead) flush(ctx context.Context) error {
	r.flushed = time.Now()
	if r.held == 0 {
		r.giveBack()
		return nil
	}
	r.dirty = true
	r.out.Unreserve(r.reserved - r.held)
	r.reserved, r.held = 0, 0
	for _, m := range r.members {
		if b := m.batch(); b != nil {
			if err := r.out.Write(ctx, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// giveBack returns room that no rows took.
func (r *changeRead) giveBack() {
	if r.reserved > 0 {
		r.out.Unreserve(r.reserved)
		r.reserved, r.held = 0, 0
	}
}

// mark is called where no transaction is open; idle: nothing more is on its way.
func (r *changeRead) mark(ctx context.Context, idle bool) error {
	keep := r.pos.LSN-r.kept > keepBytes || r.pos.LSN > r.kept && time.Since(r.keptAt) > keepTime
	if !keep && !idle && r.held < r.req.BatchBytes/2 && time.Since(r.flushed) < markTime {
		return nil
	}
	if err := r.flush(ctx); err != nil {
		return err
	}
	if keep || idle && r.dirty {
		r.kept, r.keptAt, r.dirty = r.pos.LSN, time.Now(), false
		return r.out.Keep(ctx, encode(r.pos))
	}
	return r.out.Mark(ctx, encode(r.pos))
}

// keepStream remembers the connection of a slot, for acknowledgements.
func (s *Session) keepStream(slot string, w *walConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wal == nil {
		s.wal = map[string]*walConn{}
	}
	s.wal[slot] = w
}

// closeStream ends the connection of a slot, so that the slot is free.
func (s *Session) closeStream(slot string) {
	s.mu.Lock()
	w := s.wal[slot]
	delete(s.wal, slot)
	s.mu.Unlock()
	if w != nil {
		w.close()
	}
}

// Acknowledge implements engine.Acknowledger. It is told to the server by the
// stream's connection, or without one by moving the slot.
func (s *Session) Acknowledge(ctx context.Context, split engine.Split, pos engine.Position) error {
	d, err := parseStream(split)
	if err != nil {
		return err
	}
	var at streamPosition
	if err := decodeStrict(pos, &at); err != nil {
		return engine.Bugf("split %s: its position can't be read: %w", split.ID, err)
	}
	s.mu.Lock()
	w := s.wal[d.Slot]
	s.mu.Unlock()
	if w != nil && w.confirm(at.LSN) == nil {
		return nil
	}
	s.closeStream(d.Slot)
	conn, err := s.take(ctx)
	if err != nil {
		return err
	}
	defer s.give(ctx, conn)
	err = whenFree(ctx, func() error {
		_, err := conn.Exec(ctx, "SELECT pg_catalog.pg_replication_slot_advance(slot_name, $2::pg_catalog.pg_lsn) FROM pg_catalog.pg_replication_slots WHERE slot_name = $1 AND confirmed_flush_lsn < $2::pg_catalog.pg_lsn", d.Slot, at.LSN.String())
		return err
	})
	if err != nil {
		return pgconf.Classify(fmt.Errorf("confirm %s to the replication slot %q: %w", at.LSN, d.Slot, err))
	}
	return nil
}

// whenFree tries again while the server has not yet noticed that a connection of a
// slot has been closed.
func whenFree(ctx context.Context, do func() error) error {
	for try := 1; ; try++ {
		err := do()
		if err == nil || !pgconf.IsState(err, "55006") || try == 40 {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
