package pgsource_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/connectors/postgres/pgsource"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// db is a test's own database with a connection to it.
type db struct {
	t    *testing.T
	url  string
	conn *pgx.Conn
}

func newDB(t *testing.T) *db {
	t.Helper()
	d := &db{t: t, url: pgtest.NewDatabase(t, pgtest.Shared(t))}
	d.conn = d.connect()
	return d
}

func (d *db) connect() *pgx.Conn {
	d.t.Helper()
	conn, err := pgx.Connect(context.Background(), d.url)
	require.NoError(d.t, err)
	d.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (d *db) exec(sql string, args ...any) {
	d.t.Helper()
	_, err := d.conn.Exec(context.Background(), sql, args...)
	require.NoError(d.t, err, sql)
}

func value[T any](d *db, sql string, args ...any) T {
	d.t.Helper()
	var v T
	require.NoError(d.t, d.conn.QueryRow(context.Background(), sql, args...).Scan(&v), sql)
	return v
}

func (d *db) open() engine.SourceSession { d.t.Helper(); return open(d.t, d.url) }

func open(t *testing.T, url string) engine.SourceSession {
	t.Helper()
	cfg, err := json.Marshal(map[string]any{"url": url, "stall_timeout": "20s"})
	require.NoError(t, err)
	return openWith(t, cfg)
}

func openWith(t *testing.T, cfg []byte) engine.SourceSession {
	t.Helper()
	s, err := pgsource.New().Open(context.Background(), engine.Config(cfg), engine.OpenOptions{
		RunID: "0192f0c1-2222-7333-8444-55556666abcd", Pipeline: "test", GiveUp: 5 * time.Second, Slots: 2})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// full is a request for a full read of a resource.
func full(resource string, change ...func(*engine.PlanRequest)) engine.PlanRequest {
	req := engine.PlanRequest{Selection: engine.Selection{Resource: resource}, Read: engine.ReadFull,
		Write: engine.WriteReplace, Slots: 2, HolderLives: true}
	for _, c := range change {
		c(&req)
	}
	return req
}

func snapshot(r *engine.PlanRequest) { r.Consistency = engine.ConsistencySnapshot }
func splitBytes(n int64) func(*engine.PlanRequest) {
	return func(r *engine.PlanRequest) { r.SplitBytes = n }
}
func where(w string) func(*engine.PlanRequest) { return func(r *engine.PlanRequest) { r.Where = w } }
func key(columns ...string) func(*engine.PlanRequest) {
	return func(r *engine.PlanRequest) { r.Key = columns }
}
func write(w engine.WriteMode) func(*engine.PlanRequest) {
	return func(r *engine.PlanRequest) { r.Write = w }
}
func exclude(columns ...string) func(*engine.PlanRequest) {
	return func(r *engine.PlanRequest) { r.Exclude = columns }
}
func include(columns ...string) func(*engine.PlanRequest) {
	return func(r *engine.PlanRequest) { r.Include = columns }
}
func lookback(d time.Duration) func(*engine.PlanRequest) {
	return func(r *engine.PlanRequest) { r.Lookback = d }
}
func noHolder(attempt time.Duration) func(*engine.PlanRequest) {
	return func(r *engine.PlanRequest) { r.HolderLives, r.AttemptTime = false, attempt }
}

func plan(t *testing.T, s engine.SourceSession, req engine.PlanRequest) *engine.SourcePlan {
	t.Helper()
	p, err := s.Plan(context.Background(), req)
	require.NoError(t, err)
	// What is stored is what is read with.
	b, err := json.Marshal(p)
	require.NoError(t, err)
	stored := &engine.SourcePlan{}
	require.NoError(t, json.Unmarshal(b, stored))
	return stored
}

// writer is an engine.Writer that keeps what it is given up to the last mark, as
// the engine would, and checks the contract.
type writer struct {
	t *testing.T
	// limit is how many marks are passed before ErrBoundary; 0: no boundary.
	limit int
	// hook runs before each batch is taken.
	hook func(n int) error
	plan *engine.SourcePlan

	mu       sync.Mutex
	reserved int64
	most     int64
	batches  int
	marks    int
	pos      engine.Position
	// rows are the fields of marked rows as text or hex; open those not marked yet.
	rows, open [][]string
	skipped    int
	seen       []engine.RowID
	digest     integrity.Digest
	bytes      int64
}

var _ engine.Writer = (*writer)(nil)

func (w *writer) Reserve(ctx context.Context, n int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reserved += n
	w.most = max(w.most, w.reserved)
	return ctx.Err()
}

func (w *writer) Unreserve(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reserved -= n
	if w.reserved < 0 {
		w.t.Errorf("more was given back than reserved: %d", w.reserved)
	}
}

func (w *writer) Write(ctx context.Context, b *engine.Batch) error {
	defer b.Release()
	defer w.Unreserve(b.Bytes)
	if w.hook != nil {
		if err := w.hook(w.batches); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if b.Seq != uint64(w.batches) {
		w.t.Errorf("batch %d has number %d", w.batches, b.Seq)
	}
	w.batches++
	if b.Record != nil {
		w.record(b)
	} else {
		w.wire(b)
	}
	w.skipped += b.Skipped
	w.seen = append(w.seen, b.Seen...)
	w.digest.Add(b.Digest)
	w.bytes += b.Bytes
	return nil
}

func (w *writer) wire(b *engine.Batch) {
	if crc := integrity.CRC(0, b.Wire); crc != b.CRC {
		w.t.Errorf("crc is %x, want %x", b.CRC, crc)
	}
	if int64(len(b.Wire)) != b.Bytes {
		w.t.Errorf("batch of %d bytes says %d", len(b.Wire), b.Bytes)
	}
	rows := 0
	for buf := b.Wire; len(buf) > 0; rows++ {
		n, err := pgcopy.TupleLen(buf, len(w.plan.Resource.Schema.Fields))
		if err != nil || n == 0 {
			w.t.Errorf("row %d of the batch can't be read: %v", rows, err)
			return
		}
		fields, err := pgcopy.SplitTuple(buf[:n], nil)
		if err != nil {
			w.t.Error(err)
			return
		}
		row := make([]string, len(fields))
		for i, f := range fields {
			row[i] = fmt.Sprintf("%x", f)
			if f == nil {
				row[i] = "NULL"
			}
		}
		w.open = append(w.open, row)
		buf = buf[n:]
	}
	if rows != b.Rows {
		w.t.Errorf("batch has %d rows, says %d", rows, b.Rows)
	}
}

func (w *writer) record(b *engine.Batch) {
	if crc := integrity.RecordCRC(b.Record); crc != b.CRC {
		w.t.Errorf("crc is %x, want %x", b.CRC, crc)
	}
	d, err := integrity.RecordDigest(&w.plan.Resource.Schema, b.Record)
	if err != nil {
		w.t.Error(err)
	}
	if d != b.Digest {
		w.t.Errorf("digest of the record is %s, the source says %s", d, b.Digest)
	}
	if int(b.Record.NumRows()) != b.Rows {
		w.t.Errorf("record has %d rows, batch says %d", b.Record.NumRows(), b.Rows)
	}
	for r := range int(b.Record.NumRows()) {
		row := make([]string, b.Record.NumCols())
		for c := range row {
			row[c] = b.Record.Column(c).ValueStr(r)
		}
		w.open = append(w.open, row)
	}
}

func (w *writer) Keep(ctx context.Context, pos engine.Position) error { return w.Mark(ctx, pos) }

func (w *writer) Mark(_ context.Context, pos engine.Position) error {
	w.pos = append(engine.Position(nil), pos...)
	w.rows, w.open = append(w.rows, w.open...), nil
	w.marks++
	if w.limit > 0 && w.marks%w.limit == 0 {
		return engine.ErrBoundary
	}
	return nil
}

// readOptions change how readSplit reads.
type readOptions struct {
	wire     engine.WireFormat
	asText   []string
	batch    int64
	limit    int
	skip     map[engine.RowID]struct{}
	remember bool
}

// readSplit reads a split to its end, going on after each boundary.
func readSplit(t *testing.T, s engine.SourceSession, p *engine.SourcePlan, sel engine.Selection, split engine.Split, o readOptions) *writer {
	t.Helper()
	w := &writer{t: t, plan: p, limit: o.limit}
	for range 100_000 {
		w.batches = 0
		res, err := s.Read(context.Background(), engine.ReadRequest{Split: split, Claim: 1, Plan: p, Selection: sel, From: w.pos,
			Wire: o.wire, AsText: o.asText, BatchBytes: o.batch, Skip: o.skip, Remember: o.remember}, w)
		require.NoError(t, err)
		w.open = nil
		if res.Done {
			require.Zero(t, w.reserved, "bytes still reserved")
			return w
		}
	}
	t.Fatal("the read never ends")
	return nil
}

// readAll reads every split and returns their rows together.
func readAll(t *testing.T, s engine.SourceSession, p *engine.SourcePlan, sel engine.Selection, o readOptions) *writer {
	t.Helper()
	all := &writer{t: t, plan: p}
	for _, split := range p.Splits {
		w := readSplit(t, s, p, sel, split, o)
		all.rows = append(all.rows, w.rows...)
		all.skipped += w.skipped
		all.seen = append(all.seen, w.seen...)
		all.digest.Add(w.digest)
		all.marks += w.marks
		all.bytes += w.bytes
	}
	return all
}

// column returns one column of rows.
func column(rows [][]string, i int) []string {
	out := make([]string, len(rows))
	for n, r := range rows {
		out[n] = r[i]
	}
	return out
}

// requireUnique fails on a row that came twice.
func requireUnique(t *testing.T, values []string) {
	t.Helper()
	seen := make(map[string]bool, len(values))
	for _, v := range values {
		require.False(t, seen[v], "%s came twice", v)
		seen[v] = true
	}
}

func requireClass(t *testing.T, want engine.Class, err error, contains ...string) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, want, engine.ClassOf(err), "%v", err)
	for _, c := range contains {
		require.ErrorContains(t, err, c)
	}
}

// role makes a role of the test's own that may log in, runs the statement for it,
// and returns the URL to connect as it.
func (d *db) role(name, grant string) string {
	d.t.Helper()
	role := strings.ToLower(name + "_" + rand.Text()[:8])
	quotedRole := pgx.Identifier{role}.Sanitize()
	d.exec("CREATE ROLE " + quotedRole + " LOGIN PASSWORD 'secret-of-role'")
	if grant != "" {
		d.exec(fmt.Sprintf(grant, quotedRole))
	}
	d.t.Cleanup(func() {
		ctx := context.Background()
		conn, err := pgx.Connect(ctx, d.url)
		require.NoError(d.t, err)
		defer func() { _ = conn.Close(ctx) }()
		_, err = conn.Exec(ctx, "DROP OWNED BY "+quotedRole+"; DROP ROLE "+quotedRole)
		require.NoError(d.t, err)
	})
	u, err := url.Parse(d.url)
	require.NoError(d.t, err)
	u.User = url.UserPassword(role, "secret-of-role")
	return u.String()
}
