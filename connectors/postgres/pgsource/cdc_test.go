package pgsource_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/internal/pgtest"
)

// changeWriter keeps the changes that it is given, as texts, up to the last mark.
type changeWriter struct {
	t        *testing.T
	reserved int64
	most     int64
	// limit is how many marks with rows are passed before ErrBoundary; 0: no boundary.
	limit      int
	pos        engine.Position
	kept       int
	rows, open []string
	batches    int
	// hook, if not nil, is called at each Keep.
	hook func(pos engine.Position)
}

func (w *changeWriter) Reserve(ctx context.Context, n int64) error {
	w.reserved += n
	w.most = max(w.most, w.reserved)
	return ctx.Err()
}

func (w *changeWriter) Unreserve(n int64) { w.reserved -= n }

var opNames = map[engine.Op]string{engine.OpInsert: "+", engine.OpUpdate: "=", engine.OpDelete: "-", engine.OpMove: ">", engine.OpTruncate: "0"}

func (w *changeWriter) Write(_ context.Context, b *engine.Batch) error {
	w.reserved -= b.Bytes
	w.batches++
	require.Equal(w.t, integrity.CRC(0, b.Wire), b.CRC)
	require.Len(w.t, b.Ops, b.Rows)
	require.Len(w.t, b.Sequence, b.Rows)
	require.NotEmpty(w.t, b.Commits)
	require.Zero(w.t, b.Commits[0].Row)
	buf := b.Wire
	for i := range b.Rows {
		n, err := pgcopy.TupleLen(buf, int(binary.BigEndian.Uint16(buf)))
		require.NoError(w.t, err)
		w.open = append(w.open, opNames[b.Ops[i]]+strings.TrimPrefix(b.Resource, "public.")+text(buf[:n], b, i))
		buf = buf[n:]
	}
	require.Empty(w.t, buf)
	b.Release()
	return nil
}

// text writes a tuple: _ for unsent, \N for NULL, integers as such.
func text(tuple []byte, b *engine.Batch, row int) string {
	var out strings.Builder
	at := 2
	for i := range int(binary.BigEndian.Uint16(tuple)) {
		n := int(int32(binary.BigEndian.Uint32(tuple[at:])))
		at += 4
		switch {
		case len(b.Unchanged) > row && len(b.Unchanged[row]) > 0 && b.Unchanged[row][i/64]&(1<<(i%64)) != 0:
			out.WriteString(" _")
		case n < 0:
			out.WriteString(` \N`)
		case n == 4:
			fmt.Fprintf(&out, " %d", int32(binary.BigEndian.Uint32(tuple[at:])))
		case n > 20:
			fmt.Fprintf(&out, " %s…%d", tuple[at:at+3], n)
		default:
			fmt.Fprintf(&out, " %s", tuple[at:at+n])
		}
		at += max(n, 0)
	}
	return out.String()
}

func (w *changeWriter) Mark(_ context.Context, pos engine.Position) error {
	had := len(w.open) > 0
	w.pos, w.rows, w.open = pos, append(w.rows, w.open...), nil
	if had && w.limit > 0 {
		if w.limit--; w.limit == 0 {
			return engine.ErrBoundary
		}
	}
	return nil
}

func (w *changeWriter) Keep(ctx context.Context, pos engine.Position) error {
	w.kept++
	err := w.Mark(ctx, pos)
	if w.hook != nil {
		w.hook(pos)
	}
	return err
}

// changes is a stream over some tables of a test's database.
type changes struct {
	*db
	s       engine.SourceSession
	req     engine.StreamRequest
	plan    *engine.SourcePlan
	stream  *engine.StreamPlan
	members map[string]engine.MemberRead
	claim   int64
}

func (d *db) stream(initial engine.Initial, write engine.WriteMode, tables ...string) *changes {
	d.t.Helper()
	c := &changes{db: d, s: d.open(), members: map[string]engine.MemberRead{}}
	c.req.Route = engine.Route{Installation: d.url, Pipeline: "p"}
	for _, name := range tables {
		req := engine.PlanRequest{Selection: engine.Selection{Resource: name, Initial: initial}, Read: engine.ReadCDC, Write: write, Slots: 2, SplitBytes: 64 << 10}
		p := plan(d.t, c.s, req)
		c.req.Members = append(c.req.Members, engine.StreamMember{Selection: req.Selection, Write: write, Plan: p})
	}
	d.t.Cleanup(c.drop)
	c.prepare()
	return c
}

func (c *changes) streamer() engine.Streamer { return c.s.(engine.Streamer) }

func (c *changes) prepare() {
	c.t.Helper()
	var err error
	c.plan, c.stream, err = c.streamer().PlanStream(c.t.Context(), c.req)
	require.NoError(c.t, err)
	require.NoError(c.t, c.streamer().PrepareStream(c.t.Context(), c.req, c.plan, c.stream))
	c.plan.Splits[0].ID = engine.StreamResource + "/0.0"
	for _, m := range c.req.Members {
		c.members[m.Plan.Resource.Name] = engine.MemberRead{Selection: m.Selection, Plan: m.Plan, Wire: engine.WirePostgresCopy}
	}
}

func (c *changes) drop() {
	ctx := context.Background()
	_ = c.s.Close(ctx)
	conn, err := pgx.Connect(ctx, c.url)
	require.NoError(c.t, err)
	defer func() { _ = conn.Close(ctx) }()
	require.Eventually(c.t, func() bool {
		_, err := conn.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()`)
		return err == nil
	}, 10*time.Second, 50*time.Millisecond)
}

func (c *changes) read(ctx context.Context, w *changeWriter, change ...func(*engine.ReadRequest)) (engine.ReadResult, error) {
	c.claim++
	w.t = c.t
	req := engine.ReadRequest{Split: c.plan.Splits[0], Claim: c.claim, Plan: c.plan, From: w.pos, BatchBytes: 64 << 10, Members: c.members}
	for _, f := range change {
		f(&req)
	}
	return c.s.Read(ctx, req, w)
}

// catchUp reads to the end, in a session of its own, and returns the changes.
func (c *changes) catchUp(w *changeWriter) []string {
	c.t.Helper()
	require.NoError(c.t, c.s.Close(c.t.Context()))
	c.s = c.db.open()
	w.rows = nil
	res, err := c.read(c.t.Context(), w)
	require.NoError(c.t, err)
	require.True(c.t, res.Done)
	require.Empty(c.t, res.Replan)
	w.rows, w.open, w.pos = append(w.rows, w.open...), nil, res.End
	require.Zero(c.t, w.reserved)
	return w.rows
}

func TestChanges(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE doc (id int PRIMARY KEY, body text, n int); ALTER TABLE doc ALTER body SET STORAGE EXTERNAL;
		CREATE TABLE whole (id int PRIMARY KEY, body text, n int); ALTER TABLE whole ALTER body SET STORAGE EXTERNAL; ALTER TABLE whole REPLICA IDENTITY FULL;
		CREATE TABLE other (id int PRIMARY KEY)`)
	c := d.stream(engine.InitialNone, engine.WriteMerge, "public.doc", "public.whole")
	require.Len(t, c.stream.Statements, 2)
	w := &changeWriter{}
	require.Empty(t, c.catchUp(w))
	d.exec(`INSERT INTO doc VALUES (1, repeat('x', 3000), 0), (2, NULL, 1); INSERT INTO other VALUES (1)`)
	d.exec(`UPDATE doc SET n = 5 WHERE id = 1; UPDATE doc SET id = 10 WHERE id = 1; UPDATE doc SET body = NULL WHERE id = 10; DELETE FROM doc WHERE id = 2`)
	require.Equal(t, []string{
		"+doc 1 xxx…3000 0", `+doc 2 \N 1`, "=doc 1 _ 5", "-doc 1 _ _", ">doc 10 _ 5", `=doc 10 \N 5`, "-doc 2 _ _",
	}, c.catchUp(w))
	d.exec(`INSERT INTO whole VALUES (1, repeat('x', 3000), 0); UPDATE whole SET n = 1; UPDATE whole SET id = 2; DELETE FROM whole`)
	require.Equal(t, []string{
		"+whole 1 xxx…3000 0", "=whole 1 xxx…3000 1", "-whole 1 _ _", ">whole 2 xxx…3000 1", "-whole 2 xxx…3000 1",
	}, c.catchUp(w))
	// What is rolled back never was, and a savepoint is a part of its transaction.
	d.exec(`BEGIN; INSERT INTO doc VALUES (3, 'a', 0); ROLLBACK; BEGIN; SAVEPOINT s; INSERT INTO doc VALUES (4, 'a', 0); ROLLBACK TO s; INSERT INTO doc VALUES (5, 'b', 0); RELEASE s; COMMIT; TRUNCATE doc, other`)
	require.Equal(t, []string{"+doc 5 b 0", "0doc _ _ _"}, c.catchUp(w))
	require.Empty(t, c.catchUp(w))
	info, err := c.streamer().Streams(t.Context())
	require.NoError(t, err)
	require.Len(t, info, 1)
	require.Equal(t, "p", info[0].Pipeline)
	require.NoError(t, c.s.Close(t.Context()))
	again := d.open().(engine.Streamer)
	require.Eventually(t, func() bool { return again.DropStream(t.Context(), info[0].Name) == nil }, 10*time.Second, 50*time.Millisecond)
	info, err = again.Streams(t.Context())
	require.NoError(t, err)
	require.Empty(t, info)
}

// TestChangesResume stops a read at every mark, inside of transactions too, and
// goes on in another session: each change comes once.
func TestChangesResume(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE a (id int PRIMARY KEY, pad text); CREATE TABLE b (id int PRIMARY KEY, pad text)`)
	c := d.stream(engine.InitialNone, engine.WriteMerge, "public.a", "public.b")
	d.exec(`INSERT INTO a SELECT g, repeat('p', 100) FROM generate_series(1, 5000) g`)
	d.exec(`BEGIN; INSERT INTO b SELECT g, repeat('p', 100) FROM generate_series(1, 3000) g; UPDATE a SET pad = 'q' WHERE id % 2 = 0; DELETE FROM b WHERE id > 2990; COMMIT`)
	all := &changeWriter{}
	want := c.catchUp(all)
	require.Len(t, want, 5000+3000+2500+10)
	require.Greater(t, all.batches, 10, "a transaction that is larger than a batch is cut")
	require.LessOrEqual(t, all.most, int64(65<<10))

	w := &changeWriter{}
	var got []string
	for range 1000 {
		w.limit, w.rows, w.open = 3, nil, nil
		res, err := c.read(t.Context(), w)
		require.NoError(t, err)
		got = append(got, w.rows...)
		if res.Done {
			got = append(got, w.open...)
			break
		}
		require.NoError(t, c.s.Close(t.Context()))
		c.s = d.open()
	}
	require.ElementsMatch(t, want, got)
	per := func(rows []string, table string) (out []string) {
		for _, r := range rows {
			if strings.HasPrefix(r[1:], table) {
				out = append(out, r)
			}
		}
		return out
	}
	for _, table := range []string{"a", "b"} {
		require.Equal(t, per(want, table), per(got, table), "the order of a table's changes")
	}
}

// TestChangesIdle is case 19: the slot follows what other tables write, but never
// passes what is not stored.
func TestChangesIdle(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE quiet (id int PRIMARY KEY); CREATE TABLE noise (pad text)`)
	c := d.stream(engine.InitialNone, engine.WriteMerge, "public.quiet")
	behind := func() int64 {
		return value[int64](d, `SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::int8 FROM pg_replication_slots WHERE database = current_database() AND slot_type = 'logical'`)
	}
	w := &changeWriter{}
	ctx, cancel := context.WithCancel(t.Context())
	w.hook = func(pos engine.Position) { require.NoError(t, c.streamer().Acknowledge(ctx, c.plan.Splits[0], pos)) }
	done := make(chan error, 1)
	go func() {
		_, err := c.read(ctx, w, func(r *engine.ReadRequest) { r.Follow = true })
		done <- err
	}()
	noisy := d.connect()
	for range 10 {
		_, err := noisy.Exec(t.Context(), `INSERT INTO noise SELECT repeat(md5(g::text), 100) FROM generate_series(1, 2000) g`)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return behind() < 16<<20 }, 20*time.Second, 100*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)

	// Nothing is acknowledged that was not stored: it is read again.
	w.hook = nil
	d.exec(`INSERT INTO quiet VALUES (1)`)
	pos := w.pos
	w.rows, w.open = nil, nil
	require.Equal(t, []string{"+quiet 1"}, c.catchUp(w))
	end := w.pos
	w.pos = pos
	require.Equal(t, []string{"+quiet 1"}, c.catchUp(w))
	require.NoError(t, c.streamer().Acknowledge(t.Context(), c.plan.Splits[0], end))
	var at struct {
		LSN string `json:"lsn"`
	}
	require.NoError(t, json.Unmarshal(end, &at))
	require.Eventually(t, func() bool {
		return value[bool](d, `SELECT confirmed_flush_lsn >= $1::pg_lsn FROM pg_replication_slots WHERE database = current_database() AND slot_type = 'logical'`, at.LSN)
	}, 10*time.Second, 50*time.Millisecond)
	lag, err := c.streamer().Lag(t.Context(), pos)
	require.NoError(t, err)
	require.Positive(t, lag.Bytes)
	_, err = c.read(t.Context(), &changeWriter{pos: pos})
	require.ErrorIs(t, err, engine.ErrPositionLost, "what was acknowledged is gone")
}

// TestSlotGone is case 18: never a quiet new slot at another position.
// TestChangesWithoutStandby: while commits wait for a synchronous standby that is
// away, a read of what has committed ends nevertheless.
func TestChangesWithoutStandby(t *testing.T) {
	t.Parallel()
	d := &db{t: t, url: pgtest.NewDatabase(t, pgtest.StartT(t, pgtest.Config{}))}
	d.conn = d.connect()
	d.exec(`CREATE TABLE t (id int PRIMARY KEY)`)
	c := d.stream(engine.InitialNone, engine.WriteMerge, "public.t")
	d.exec(`ALTER SYSTEM SET synchronous_standby_names = 'away'`)
	d.exec(`SELECT pg_reload_conf()`)
	require.Eventually(t, func() bool { return value[string](d, `SHOW synchronous_standby_names`) == "away" }, 20*time.Second, 20*time.Millisecond)
	d.exec(`SET synchronous_commit = 'local'`)
	defer func() { // else dropping the database waits for the standby
		d.exec(`ALTER SYSTEM RESET synchronous_standby_names`)
		d.exec(`SELECT pg_reload_conf()`)
	}()
	d.exec(`INSERT INTO t VALUES (1)`)
	require.Equal(t, []string{"+t 1"}, c.catchUp(&changeWriter{}))
}

func TestSlotGone(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE t (id int PRIMARY KEY)`)
	c := d.stream(engine.InitialNone, engine.WriteMerge, "public.t")
	w := &changeWriter{}
	c.catchUp(w)
	require.NoError(t, c.s.Close(t.Context()))
	require.Eventually(t, func() bool {
		_, err := d.conn.Exec(t.Context(), `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()`)
		return err == nil
	}, 10*time.Second, 50*time.Millisecond)
	c.s = d.open()
	_, err := c.read(t.Context(), w)
	require.ErrorIs(t, err, engine.ErrPositionLost)
	require.ErrorContains(t, err, "is gone")
	require.Contains(t, engine.HintOf(err), "resync")
	c.req.Cursor = w.pos
	_, _, err = c.streamer().PlanStream(t.Context(), c.req)
	require.ErrorIs(t, err, engine.ErrPositionLost)
}

func TestChangesOfOtherStructure(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE t (id int PRIMARY KEY, a int, b int)`)
	c := d.stream(engine.InitialNone, engine.WriteMerge, "public.t")
	w := &changeWriter{}
	d.exec(`INSERT INTO t VALUES (1, 2, 3)`)
	d.exec(`ALTER TABLE t DROP COLUMN a; INSERT INTO t VALUES (2, 4); ALTER TABLE t ADD COLUMN c int; INSERT INTO t VALUES (3, 5, 6)`)
	res, err := c.read(t.Context(), w)
	require.NoError(t, err)
	require.Contains(t, res.Replan, "column c")
	require.Equal(t, []string{"+t 1 2 3", "+t 2 _ 4"}, append(w.rows, w.open...))
	// The next plan goes on from there.
	c.req.Cursor = res.End
	p := plan(t, c.s, engine.PlanRequest{Selection: c.req.Members[0].Selection, Read: engine.ReadCDC, Write: engine.WriteMerge, Cursor: json.RawMessage(`{"v":1}`)})
	c.req.Members[0].Plan, c.req.Members[0].Follows = p, true
	c.prepare()
	w = &changeWriter{}
	require.Equal(t, []string{"+t 3 5 6"}, c.catchUp(w))
}

// hexOf is how a writer shows an integer.
func hexOf(number string) string {
	n, _ := strconv.Atoi(number)
	return fmt.Sprintf("%08x", n)
}

// TestAlignedPieces reads a table in pieces while it changes, and merges both as
// a sink does: a key that a change has touched is as the changes left it.
func TestAlignedPieces(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE t (id int PRIMARY KEY, n int, pad text); INSERT INTO t SELECT g, 0, repeat('p', 200) FROM generate_series(1, 3000) g; ANALYZE t`)
	// What is open while the point is taken belongs to the stream.
	d.exec(`UPDATE t SET n = 1 WHERE id <= 10`)
	c := d.stream(engine.InitialAligned, engine.WriteMerge, "public.t")
	p := c.req.Members[0].Plan
	require.Greater(t, len(p.Splits), 3)
	require.Equal(t, engine.ConsistencyAligned, p.Consistency)
	var ends []engine.Position
	rows := map[string]string{}
	for i, split := range p.Splits {
		d.exec(`UPDATE t SET n = n + 1 WHERE id % 7 = $1`, i)
		d.exec(`DELETE FROM t WHERE id = $1`, 1000+i)
		d.exec(`UPDATE t SET id = id + 10000 WHERE id = $1`, 2000+i)
		split.ID = fmt.Sprintf("public.t/0.%d", i)
		pw := &writer{t: t, plan: p}
		res, err := c.s.Read(t.Context(), engine.ReadRequest{Split: split, Claim: 1, Plan: p, Selection: c.req.Members[0].Selection, Wire: engine.WirePostgresCopy, BatchBytes: 16 << 10}, pw)
		require.NoError(t, err)
		require.True(t, res.Done)
		ends = append(ends, res.End)
		for _, r := range pw.rows {
			rows[r[0]] = strings.Join(r[:2], " ")
		}
	}
	settled, err := c.streamer().Settled(nil, ends)
	require.NoError(t, err)
	require.False(t, settled)
	w := &changeWriter{}
	for _, r := range c.catchUp(w) {
		f := strings.Fields(r)
		switch r[0] {
		case '-':
			delete(rows, hexOf(f[1]))
		default:
			rows[hexOf(f[1])] = hexOf(f[1]) + " " + hexOf(f[2])
		}
	}
	settled, err = c.streamer().Settled(w.pos, ends)
	require.NoError(t, err)
	require.True(t, settled)
	want := map[string]string{}
	found, err := d.conn.Query(t.Context(), `SELECT id::text, n::text FROM t`)
	require.NoError(t, err)
	var id, n string
	_, err = pgx.ForEachRow(found, []any{&id, &n}, func() error { want[hexOf(id)] = hexOf(id) + " " + hexOf(n); return nil })
	require.NoError(t, err)
	require.Equal(t, want, rows)
}
