package pgsource

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

// Read reads the rows of a split; see engine.SourceSession. Rows of a key range and
// of an incremental window come in the order of the key, with a position after
// every batch; a block range has positions every few megabytes; what is read
// whole has one at its end. A canceled read is gone from the server within two seconds.
func (s *Session) Read(ctx context.Context, req engine.ReadRequest, out engine.Writer) (engine.ReadResult, error) {
	if req.Members != nil {
		return s.readStream(ctx, req, out)
	}
	d, err := parseDescriptor(req.Split)
	if err != nil {
		return engine.ReadResult{}, err
	}
	pos, err := parsePosition(req.Split.ID, d, req.From)
	if err != nil {
		return engine.ReadResult{}, err
	}
	if pos.End {
		return engine.ReadResult{Done: true, End: req.From}, nil
	}
	if d.Holder != "" {
		if _, err := s.holderOf(ctx, d); err != nil {
			return engine.ReadResult{}, err
		}
	}
	conn, err := s.takeReader(ctx, pgconf.Role{Name: req.Split.ID, Claim: req.Claim})
	if err != nil {
		return engine.ReadResult{}, err
	}
	r := &read{s: s, conn: conn, req: &req, d: d, pos: pos, out: out}
	err = r.run(ctx)
	if err == nil {
		s.giveReader(r.conn)
		return engine.ReadResult{Done: true, End: encode(position{End: true, Seen: pos.Seen})}, nil
	}
	if errors.Is(err, engine.ErrBoundary) {
		// The end of an attempt is no fault of the connection's.
		if r.recover() {
			s.giveReader(r.conn)
		}
		return engine.ReadResult{}, nil
	}
	r.abandon()
	return engine.ReadResult{}, s.explain(&req, err)
}

// explain adds the split to an error and classifies what is not.
func (s *Session) explain(req *engine.ReadRequest, err error) error {
	var lost *snapshotError
	if errors.As(err, &lost) || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("read %s: %w", req.Split.ID, pgconf.Classify(err))
}

// read is one Read call.
type read struct {
	s    *Session
	conn *readerConn
	req  *engine.ReadRequest
	d    *descriptor
	pos  *position
	out  engine.Writer
	fill *filler
	// stream and hijacked are the bare connection while rows are copied.
	stream   *stream
	hijacked *pgconn.HijackedConn
}

func (r *read) run(ctx context.Context) error {
	if err := r.conn.endOlderClaims(ctx, r.s.opt.RunID, r.req.Split.ID, r.req.Claim); err != nil {
		return err
	}
	if err := r.s.begin(ctx, r.conn, r.d, r.req); err != nil {
		return err
	}
	if r.d.Aligned != nil {
		if err := r.alignSnapshot(ctx); err != nil {
			return err
		}
	}
	asText, err := r.textColumns()
	if err != nil {
		return err
	}
	rows, err := newRowWatch(r.d, r.req, asText)
	if err != nil {
		return err
	}
	if r.fill, err = newFiller(r.s, r.req, asText, rows, r.out); err != nil {
		return err
	}
	defer r.fill.close()
	if err := r.countNulls(ctx); err != nil {
		return err
	}
	list, err := newPieces(ctx, r.conn, r.d, r.pos, r.req, asText)
	if err != nil {
		return err
	}
	ordered := len(r.d.Order) > 0
	// Without a key, rows with equal cursors can't be told apart, so a position
	// between them would lose or double some: only the end is one.
	resumable := r.d.Way != byCursor || len(r.req.Plan.Resource.Schema.Key) > 0
	r.fill.wrote = func(ctx context.Context, key []keyValue) error {
		if !ordered || !resumable {
			return nil
		}
		return r.out.Mark(ctx, encode(position{Key: key, Seen: r.pos.Seen}))
	}
	if err := r.copyAll(ctx, list); err != nil {
		return err
	}
	if ordered || r.d.Way == whole {
		return r.out.Mark(ctx, encode(position{End: true, Seen: r.pos.Seen}))
	}
	return nil
}

// textColumns tells which columns are selected as text: those that the sink asked
// for, or, for columns in memory, those that no logical type can hold.
func (r *read) textColumns() ([]bool, error) {
	s := &r.req.Plan.Resource.Schema
	asText := make([]bool, len(s.Fields))
	if r.req.Wire == "" {
		for i, f := range s.Fields {
			asText[i] = f.Type.Kind == schema.Unknown
		}
		return asText, nil
	}
	if r.req.Wire != engine.WirePostgresCopy {
		return nil, engine.Bugf("%s: the postgres source does not speak the wire format %q", r.req.Split.ID, r.req.Wire)
	}
	for _, name := range r.req.AsText {
		i := s.Index(name)
		if i < 0 {
			return nil, engine.Bugf("%s: column %q is asked for as text but is not in the plan", r.req.Split.ID, name)
		}
		asText[i] = true
	}
	return asText, nil
}

// countNulls counts the rows that the order leaves out, in the read's own
// snapshot: NULL cursors are skipped by policy and counted (P6); NULL keys are an error.
func (r *read) countNulls(ctx context.Context) error {
	name := resourceName(r.d.Schema, r.d.Name)
	from := qualified(r.d.Schema, r.d.Name)
	if r.d.Kind == kindTable {
		from = "ONLY " + from
	}
	filter := userFilter(r.req.Selection.Where)
	switch {
	case r.d.Way == byCursor && r.d.Cursor.Nulls && len(r.req.From) == 0:
		res, err := r.conn.results(ctx, "SELECT count(*) FROM "+from+" WHERE "+
			joinConditions([]string{pgconf.QuoteIdent(r.d.Cursor.Column) + " IS NULL", filter}))
		if err != nil {
			return fmt.Errorf("count rows of %s without a cursor: %w", name, err)
		}
		if r.fill.skipped = int(number(res[0].Rows[0][0])); r.fill.skipped > 0 {
			r.fill.policies = []engine.PolicyCount{{Column: r.d.Cursor.Column, Policy: engine.PolicySkip, Reason: "NULL cursor", Count: int64(r.fill.skipped)}}
		}
	case r.d.Way == byKeys && r.d.Unproved && r.d.Last:
		nulls := make([]string, len(r.d.Order))
		for i, c := range r.d.Order {
			nulls[i] = pgconf.QuoteIdent(c) + " IS NULL"
		}
		res, err := r.conn.results(ctx, "SELECT EXISTS (SELECT FROM "+from+" WHERE "+
			joinConditions([]string{"(" + strings.Join(nulls, " OR ") + ")", filter})+")")
		if err != nil {
			return fmt.Errorf("look for rows of %s without a key: %w", name, err)
		}
		if string(res[0].Rows[0][0]) == "t" {
			return engine.Permanentf("give a key whose columns hold no NULL, or filter such rows out with where",
				"%s: the key given for it (%s) is NULL in a row", name, strings.Join(r.d.Order, ", "))
		}
	}
	return nil
}

// copyAll runs the pieces on the bare connection, the next one always on its way.
func (r *read) copyAll(ctx context.Context, list *pieces) error {
	// pgconn may be reading in the background after a slow write: what it reads
	// would be missing here.
	if err := r.conn.pc.SyncConn(ctx); err != nil {
		return err
	}
	hijacked, err := r.conn.pc.Hijack()
	if err != nil {
		return err
	}
	st := newStream(hijacked.Conn, r.s.cfg.Stall())
	r.stream, r.hijacked = st, hijacked
	stop := context.AfterFunc(ctx, func() { _ = hijacked.Conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	cur, ok := list.take()
	if ok {
		if err := st.send(cur.sql); err != nil {
			return err
		}
	}
	for ok {
		next, more := list.take()
		if more {
			if err := st.send(next.sql); err != nil {
				return err
			}
		}
		if err := r.copyPiece(ctx, st, cur); err != nil {
			return err
		}
		cur, ok = next, more
	}
	if err := r.fill.flush(ctx); err != nil {
		return err
	}
	if err := st.send("COMMIT"); err != nil {
		return err
	}
	if _, err := st.copyOut(ctx, r.fill); err != nil {
		return err
	}
	if !stop() {
		return context.Cause(ctx)
	}
	return r.handBack()
}

func (r *read) copyPiece(ctx context.Context, st *stream, p piece) error {
	r.fill.begin(p)
	rows, err := st.copyOut(ctx, r.fill)
	if err != nil {
		return err
	}
	// What the transport confirms: the server's own count, and the end marker.
	if !r.fill.trailer || rows != r.fill.piece {
		return engine.Retryablef("the copy ended after %d rows, the server sent %d", r.fill.piece, rows)
	}
	if p.end == nil {
		return nil
	}
	if err := r.fill.flush(ctx); err != nil {
		return err
	}
	if r.d.Way == whole {
		return nil
	}
	return r.out.Mark(ctx, encode(p.end))
}

// handBack makes the connection, which has no transaction open, one of pgconn's again.
func (r *read) handBack() error {
	if err := r.hijacked.Conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	r.hijacked.TxStatus = 'I'
	pc, err := pgconn.Construct(r.hijacked)
	if err != nil {
		return err
	}
	r.conn, r.stream = &readerConn{pc: pc}, nil
	return nil
}

// recover cancels what still runs after a boundary and keeps the connection; it
// gives it up if that takes too long.
func (r *read) recover() bool {
	if r.stream == nil {
		// The boundary came with the last position: everything is received.
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	r.stream.stall = endTimeout
	err := r.conn.pc.CancelRequest(ctx)
	if err == nil {
		err = r.stream.drain(ctx)
	}
	if err == nil {
		err = r.stream.send("ROLLBACK")
	}
	if err == nil {
		_, err = r.stream.copyOut(ctx, &nowhere{})
	}
	if err == nil {
		err = r.handBack()
	}
	if err != nil {
		_ = r.conn.pc.Conn().Close() // the server ends the session either way
	}
	return err == nil
}

// abandon ends a read in the middle: the statement is canceled, in case the server
// computes without sending, and the connection closed.
func (r *read) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	_ = r.conn.pc.CancelRequest(ctx) // closing ends it too, later
	_ = r.conn.pc.Conn().Close()     // the server ends the session either way
}
