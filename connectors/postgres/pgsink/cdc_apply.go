package pgsink

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
)

// The columns of the tables of changes beside the row's own.
const (
	changeKind   = "_tranship_kind"
	changeUnsent = "_tranship_unsent"
	changeFrom   = "_tranship_from_"
	changeMoved  = "_tranship_moved"
)

// applyStream applies an epoch of a change stream.
func (s *Session) applyStream(ctx context.Context, e *engine.Epoch) (*engine.Receipt, error) {
	d, err := s.detailOf(e.Stream)
	if err != nil {
		return nil, err
	}
	receipt := &engine.Receipt{Members: map[string]engine.Totals{}}
	folded, err := s.fold(ctx, e, receipt)
	if err != nil {
		return nil, err
	}
	err = s.with(ctx, duty(e.Stream, e.Split, e.Claim), func(c *conn) error {
		if err := s.record(ctx, c, e.Stream, d, e.Split, e.Claim); err != nil {
			return err
		}
		names := slices.Sorted(maps.Keys(folded))
		for _, name := range names {
			if err := s.makeChanges(ctx, c, e.Targets[name], folded[name]); err != nil {
				return err
			}
		}
		return inTx(ctx, c, 0, func() error {
			if len(names) > 0 {
				// The tables of changes have no statistics: rows are found by key.
				if _, err := c.Exec(ctx, "SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off"); err != nil {
					return classify(err, "prepare the epoch")
				}
			}
			for _, name := range names {
				t := e.Targets[name]
				live, err := s.holdMember(ctx, c, t)
				if err != nil {
					return err
				}
				w := &changeWriter{s: s, c: c, t: t, fold: folded[name], live: live, exchange: s.exchanges(t, false)}
				if w.d, err = s.detailOf(t); err != nil {
					return err
				}
				m := receipt.Members[name]
				if m, err = w.write(ctx, m); err != nil {
					return fmt.Errorf("apply changes of %s: %w", name, err)
				}
				receipt.Members[name] = m
			}
			receipt.Applied, receipt.Superseded, receipt.Skipped = 0, 0, 0
			for _, m := range receipt.Members {
				receipt.Applied += m.Applied
				receipt.Superseded += m.Superseded
				receipt.Skipped += m.Skipped
				receipt.Policies = append(receipt.Policies, m.Policies...)
			}
			return s.stepStream(ctx, c, e, d, receipt)
		})
	})
	if err != nil {
		return nil, fmt.Errorf("apply epoch %d of the change stream: %w", e.Number, s.overtaken(ctx, e.Stream, d, e.Split, e.Claim, err))
	}
	return receipt, nil
}

// fold pulls the epoch's batches and folds them by resource.
func (s *Session) fold(ctx context.Context, e *engine.Epoch, receipt *engine.Receipt) (map[string]*collapse, error) {
	folded := map[string]*collapse{}
	for {
		b, err := e.Next(ctx)
		if errors.Is(err, io.EOF) {
			return folded, nil
		}
		if err != nil {
			return nil, err
		}
		t := e.Targets[b.Resource]
		if t == nil || (b.Wire == nil) == (b.Record == nil) || b.Ops == nil {
			return nil, engine.Bugf("a batch of %s in a change stream that is none of its members', or has no changes", b.Resource)
		}
		crc := integrity.CRC(0, b.Wire)
		if b.Record != nil {
			crc = integrity.RecordCRC(b.Record)
		}
		if crc != b.CRC {
			return nil, &engine.MismatchError{Resource: b.Resource, Split: e.Split, What: "crc", Source: fmt.Sprintf("%08x", b.CRC), Destination: fmt.Sprintf("%08x", crc)}
		}
		receipt.CRC = integrity.CRC(receipt.CRC, binary.BigEndian.AppendUint32(nil, crc))
		receipt.Bytes += b.Bytes
		f := folded[b.Resource]
		if f == nil {
			d, err := s.detailOf(t)
			if err != nil {
				return nil, err
			}
			if f, err = newCollapse(t, d); err != nil {
				return nil, err
			}
			folded[b.Resource] = f
		}
		wire := b.Wire
		if b.Record != nil {
			if wire, err = f.encode(b.Record); err != nil {
				return nil, err
			}
		}
		if err := f.add(b, wire); err != nil {
			return nil, err
		}
		m := receipt.Members[b.Resource]
		m.Bytes += b.Bytes
		receipt.Members[b.Resource] = m
	}
}

// holdMember tells whether a member's rows are visible: then changes go to them,
// else they are kept apart until its publish, which this excludes while the epoch
// lasts. A member that was begun anew meanwhile makes the epoch stale (invariant 2).
func (s *Session) holdMember(ctx context.Context, c *conn, t *engine.Target) (live bool, err error) {
	if !t.Staged {
		return true, nil
	}
	k := keyOf(t)
	if _, err := c.Exec(ctx, "SELECT pg_advisory_xact_lock_shared($1)", k.lock()); err != nil {
		return false, classify(err, "hold the fence of %s", t.Resource)
	}
	var f fenceRow
	err = f.scan(c.QueryRow(ctx, `SELECT `+fenceColumns+` FROM `+s.ledger.fence()+` WHERE `+fenceWhere+` FOR SHARE`, k.installation, k.route, k.resource))
	if err != nil {
		return false, classify(err, "hold the fence of %s", t.Resource)
	}
	if err := f.stale(t); err != nil {
		return false, err
	}
	return f.PublishedRun == t.RunID, nil
}

// stepStream is step for a stream, whose place is also its cursor, with every epoch:
// what is applied to members that are published stands.
func (s *Session) stepStream(ctx context.Context, c *conn, e *engine.Epoch, d *detail, r *engine.Receipt) error {
	if err := s.step(ctx, c, e.Stream, d, e, r); err != nil {
		return err
	}
	pos := e.End().Position
	if len(pos) == 0 {
		return nil
	}
	k := keyOf(e.Stream)
	_, err := c.Exec(ctx, `UPDATE `+s.ledger.fence()+` SET cursor = $4::text::json, updated_at = now() WHERE `+fenceWhere, k.installation, k.route, k.resource, string(pos))
	return classify(err, "store the stream's cursor")
}

// changeTable is the session's temporary table for changes of a resource.
func changeTable(t *engine.Target) string { return "_tranship_c_" + hash(t.Resource)[:12] }

// writtenAt are the places of the columns that are written, among the plan's.
func (d *detail) writtenAt() []int {
	var at []int
	for i := range d.Columns {
		if !d.Columns[i].Generated {
			at = append(at, i)
		}
	}
	return at
}

// makeChanges makes the temporary table that an epoch's outcomes go through.
func (s *Session) makeChanges(ctx context.Context, c *conn, t *engine.Target, f *collapse) error {
	if len(f.outcomes) == 0 {
		return nil
	}
	d, err := s.detailOf(t)
	if err != nil {
		return err
	}
	var cols []string
	for _, i := range d.writtenAt() {
		cols = append(cols, ident(d.Columns[i].Name)+" "+d.Columns[i].load().SQL)
	}
	cols = append(cols, changeKind+" int2 NOT NULL", changeUnsent+" varbit")
	for i, k := range d.Key {
		cols = append(cols, fmt.Sprintf("%s%d %s", changeFrom, i, d.byName(k).load().SQL))
	}
	name := changeTable(t)
	sql := "CREATE TEMP TABLE " + name + " (" + strings.Join(cols, ", ") + ") ON COMMIT DELETE ROWS"
	if c.changes[name] == sql {
		return nil
	}
	if _, err := c.Exec(ctx, "DROP TABLE IF EXISTS pg_temp."+name+"; "+sql); err != nil {
		if code(err) == codeNoRights {
			return engine.Permanentf("run: GRANT TEMPORARY ON DATABASE … TO the sink's role", "write %s: changes have to go through a temporary table: %w", t.Resource, err)
		}
		return classify(err, "make the temporary table for changes of %s", t.Resource)
	}
	if c.changes == nil {
		c.changes = map[string]string{}
	}
	c.changes[name] = sql
	return nil
}

// changeWriter writes the outcomes of one member.
type changeWriter struct {
	s    *Session
	c    *conn
	t    *engine.Target
	d    *detail
	fold *collapse
	live bool
	// exchange: all rows that change are deleted before they are written, since two
	// of them exchange a value of another unique index.
	exchange bool
	// counts of the outcomes by kind.
	counts [4]int64
}

func (w *changeWriter) write(ctx context.Context, m engine.Totals) (engine.Totals, error) {
	m.Applied = w.fold.applied()
	m.Superseded = w.fold.rows - m.Applied
	if w.fold.truncated {
		if err := w.truncate(ctx); err != nil {
			return m, err
		}
	}
	if len(w.fold.outcomes) == 0 {
		return m, nil
	}
	if err := w.copyIn(ctx); err != nil {
		return m, err
	}
	if !w.live {
		return m, w.keepApart(ctx)
	}
	lost, err := w.merge(ctx)
	if code(err) == codeUnique && !w.exchange {
		return m, w.exchangeNext(ctx, err)
	}
	if lost > 0 {
		// Only a stream that began with the changes from now on meets such rows.
		m.Applied -= lost
		m.Skipped += lost
		m.Policies = append(m.Policies, engine.PolicyCount{Policy: engine.PolicySkip, Reason: "no such row to update", Count: lost})
	}
	return m, err
}

// truncate empties the target, or makes a publish begin anew: of pieces that are
// being read nobody can tell which rows were there before.
func (w *changeWriter) truncate(ctx context.Context) error {
	if !w.live {
		_, err := w.c.Exec(ctx, "DELETE FROM "+w.d.delta().sql()+"; COMMENT ON TABLE "+w.d.delta().sql()+" IS "+literal(deltaTruncated))
		return classify(err, "truncate what is kept apart of %s", w.t.Name)
	}
	var referred bool
	err := w.c.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_constraint WHERE contype = 'f' AND confrelid = to_regclass($1))", w.d.place().sql()).Scan(&referred)
	if err != nil {
		return classify(err, "truncate %s", w.t.Name)
	}
	sql := "TRUNCATE " + w.d.only()
	if referred {
		sql = "DELETE FROM " + w.d.only()
	}
	if _, err = w.c.Exec(ctx, sql); err != nil && code(err) == codeNoRights && !referred {
		return engine.Permanentf("run: GRANT TRUNCATE ON "+w.d.place().sql()+" TO the sink's role", "truncate %s: %w", w.t.Name, err)
	}
	return rowError(err, w.t.Resource, w.d.place())
}

// copyIn sends the outcomes to the temporary table.
func (w *changeWriter) copyIn(ctx context.Context) error {
	at := w.d.writtenAt()
	fields := len(at) + 2 + len(w.d.Key)
	buf := pgcopy.AppendHeader(nil)
	field := func(v []byte) {
		if v == nil {
			buf = binary.BigEndian.AppendUint32(buf, 0xffffffff)
			return
		}
		buf = append(binary.BigEndian.AppendUint32(buf, uint32(len(v))), v...)
	}
	for _, o := range w.fold.outcomes {
		w.counts[o.kind]++
		buf = binary.BigEndian.AppendUint16(buf, uint16(fields))
		for _, i := range at {
			field(o.fields[i])
		}
		buf = append(buf, 0, 0, 0, 2, 0, byte(o.kind))
		if o.unsent == nil {
			field(nil)
		} else {
			buf = appendBits(buf, at, o.unsent)
		}
		for i := range w.d.Key {
			if o.from == nil {
				field(nil)
			} else {
				field(o.from[w.fold.key[i]])
			}
		}
	}
	buf = pgcopy.AppendTrailer(buf)
	tag, err := w.c.PgConn().CopyFrom(ctx, bytes.NewReader(buf), "COPY pg_temp."+changeTable(w.t)+" FROM STDIN (FORMAT binary)")
	if err != nil {
		return rowError(err, w.t.Resource, w.d.place())
	}
	if n := int64(len(w.fold.outcomes)); tag.RowsAffected() != n {
		return &engine.MismatchError{Resource: w.t.Resource, What: "rows", Source: fmt.Sprint(n), Destination: fmt.Sprint(tag.RowsAffected())}
	}
	return nil
}

// appendBits appends a bit string with a bit for each written column.
func appendBits(buf []byte, at []int, set []uint64) []byte {
	n := (len(at) + 7) / 8
	buf = binary.BigEndian.AppendUint32(buf, uint32(4+n))
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(at)))
	start := len(buf)
	buf = append(buf, make([]byte, n)...)
	for j, i := range at {
		if bit(set, i) {
			buf[start+j/8] |= 0x80 >> (j % 8)
		}
	}
	return buf
}

// match joins target t and change s by key.
func (w *changeWriter) match(s string) string {
	on := make([]string, len(w.d.Key))
	for i, k := range w.d.Key {
		on[i] = "t." + ident(k) + " = " + w.d.byName(k).stored(s+ident(k))
	}
	return strings.Join(on, " AND ")
}

// matchFrom joins t and the row that a change s was.
func (w *changeWriter) matchFrom() string {
	on := make([]string, len(w.d.Key))
	for i, k := range w.d.Key {
		on[i] = "t." + ident(k) + " = " + w.d.byName(k).stored(fmt.Sprintf("s.%s%d", changeFrom, i))
	}
	return strings.Join(on, " AND ")
}

// exec runs a statement that must affect want rows; −1: any number.
func (w *changeWriter) exec(ctx context.Context, sql string, want int64) (int64, error) {
	tag, err := w.c.Exec(ctx, sql)
	if code(err) == codeUnique && !w.exchange {
		return 0, fmt.Errorf("write %s to %s: %w", w.t.Resource, w.d.place(), err)
	}
	if err != nil {
		return 0, rowError(err, w.t.Resource, w.d.place())
	}
	if n := tag.RowsAffected(); want >= 0 && n != want {
		return n, &engine.MismatchError{Resource: w.t.Resource, What: "rows", Source: fmt.Sprint(want), Destination: fmt.Sprintf("%d by: %s", n, sql)}
	}
	return tag.RowsAffected(), nil
}

// merge applies the outcomes to the target: rows that moved take with them what
// was not sent, then what is gone goes, then rows are updated and added. It
// returns how many rows to update there were not.
func (w *changeWriter) merge(ctx context.Context) (lost int64, err error) {
	from := "pg_temp." + changeTable(w.t) + " s"
	table := w.d.only()
	names := w.d.written()
	complete := func(kind int, match string) error {
		if w.counts[kind] == 0 {
			return nil
		}
		set := make([]string, 0, len(names)+1)
		for i, name := range names {
			back, _ := w.d.byName(name).readBack("t." + ident(name))
			set = append(set, fmt.Sprintf("%[1]s = CASE WHEN get_bit(s.%[2]s, %[3]d) = 1 THEN %[4]s ELSE s.%[1]s END", ident(name), changeUnsent, i, back))
		}
		set = append(set, fmt.Sprintf("%s = %d", changeKind, keyWhole))
		got, err := w.exec(ctx, "UPDATE "+from+" SET "+strings.Join(set, ", ")+" FROM "+table+" t WHERE "+match+fmt.Sprintf(" AND s.%s = %d", changeKind, kind), -1)
		lost += w.counts[kind] - got
		w.counts[keyWhole], w.counts[kind] = w.counts[keyWhole]+got, 0
		return err
	}
	if err := complete(keyMoved, w.matchFrom()); err != nil {
		return 0, err
	}
	gone := fmt.Sprintf(" AND s.%s = %d", changeKind, keyGone)
	if w.exchange {
		if err := complete(keyPart, w.match("s.")); err != nil {
			return 0, err
		}
		gone = ""
	}
	if w.counts[keyGone] > 0 || w.exchange {
		if _, err := w.exec(ctx, "DELETE FROM "+table+" t USING "+from+" WHERE "+w.match("s.")+gone, -1); err != nil {
			return 0, err
		}
	}
	if n := w.counts[keyPart]; n > 0 {
		set := []string{}
		for i, name := range names {
			if !slices.Contains(w.d.updated(), name) {
				continue
			}
			set = append(set, fmt.Sprintf("%[1]s = CASE WHEN get_bit(s.%[2]s, %[3]d) = 1 THEN t.%[1]s ELSE %[4]s END", ident(name), changeUnsent, i, w.d.byName(name).stored("s."+ident(name))))
		}
		got := n
		if len(set) > 0 {
			got, err = w.exec(ctx, "UPDATE "+table+" t SET "+strings.Join(set, ", ")+" FROM "+from+" WHERE "+w.match("s.")+fmt.Sprintf(" AND s.%s = %d", changeKind, keyPart), -1)
			if err != nil {
				return 0, err
			}
		}
		lost += n - got
	}
	if n := w.counts[keyWhole]; n > 0 {
		exprs := make([]string, len(names))
		for i, name := range names {
			exprs[i] = w.d.byName(name).stored("s." + ident(name))
		}
		set := []string{}
		for _, name := range w.d.updated() {
			set = append(set, ident(name)+" = EXCLUDED."+ident(name))
		}
		conflict := "DO NOTHING"
		want := int64(-1)
		if len(set) > 0 {
			conflict, want = "DO UPDATE SET "+strings.Join(set, ", "), n
		}
		sql := "INSERT INTO " + w.d.place().sql() + " (" + idents("", names) + ") OVERRIDING SYSTEM VALUE SELECT " + strings.Join(exprs, ", ") + " FROM " + from +
			fmt.Sprintf(" WHERE s.%s = %d", changeKind, keyWhole) + " ON CONFLICT (" + idents("", w.d.Key) + ") " + conflict
		if _, err := w.exec(ctx, sql, want); err != nil {
			return 0, err
		}
	}
	return lost, nil
}

// exchangeNext lets the epoch be tried again by deleting its rows first. Foreign
// keys that would change other rows with the deleted ones forbid that (P10).
func (w *changeWriter) exchangeNext(ctx context.Context, cause error) error {
	rollback(ctx, w.c)
	dep, err := w.s.dependentsOf(ctx, w.c, w.d.place())
	if err != nil {
		return err
	}
	for _, f := range dep.Incoming {
		if f.cascades() {
			return engine.Permanentf("make the unique constraint DEFERRABLE, or drop it at the destination",
				"rows of %s exchange a value of a unique index, and foreign key %s of %s forbids to delete them for a moment: %w", w.t.Name, f.Name, f.Child, cause)
		}
	}
	w.s.exchanges(w.t, true)
	return engine.Retryablef("rows of %s exchange a value of a unique index: trying again by deleting them first: %w", w.t.Name, cause)
}

// exchanges tells, and with set notes, that a resource's epochs delete first.
func (s *Session) exchanges(t *engine.Target, set bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if set {
		if s.exchanged == nil {
			s.exchanged = map[string]bool{}
		}
		s.exchanged[t.Resource] = true
	}
	return s.exchanged[t.Resource]
}

func (s *Session) dependentsOf(ctx context.Context, c *conn, at place) (*dependents, error) {
	target, err := s.readTable(ctx, c, at)
	if err != nil {
		return nil, err
	}
	if target == nil {
		return &dependents{}, nil
	}
	return s.inspect(ctx, c, target)
}
