package pgsource_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/postgres/pgsource"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/internal/pgtest"
)

// sessions counts what of a role of ours is left at the server.
func sessions(d *db, like string) int64 {
	return value[int64](d, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE $1 AND pid <> pg_backend_pid()`, like)
}

func requireGone(t *testing.T, d *db, like string) {
	t.Helper()
	require.Eventually(t, func() bool { return sessions(d, like) == 0 }, 2*time.Second, 20*time.Millisecond, "a session is left at the server")
}

// A canceled read ends at once here and within two seconds at the server, whether
// rows flow, the sink is slow, or the server computes without a word.
func TestCancel(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE big (id int PRIMARY KEY, t text); INSERT INTO big SELECT i, repeat('x', 1000) FROM generate_series(1, 50000) i;
		CREATE VIEW slow AS SELECT 1 AS x FROM (SELECT pg_sleep(60)) s`)
	for _, c := range []struct {
		name, resource string
		hook           func(ctx context.Context, n int) error
	}{
		{"slow sink", "public.big", func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }},
		{"server computes", "public.slow", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := d.open()
			p := plan(t, s, full(c.resource, snapshot))
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			w := &writer{t: t, plan: p}
			if c.hook != nil {
				w.hook = func(n int) error { return c.hook(ctx, n) }
			}
			time.AfterFunc(500*time.Millisecond, cancel)
			begin := time.Now()
			_, err := s.Read(ctx, engine.ReadRequest{Split: p.Splits[0], Plan: p, Wire: engine.WirePostgresCopy}, w)
			require.ErrorIs(t, err, context.Canceled)
			require.Less(t, time.Since(begin), 2500*time.Millisecond)
			require.Zero(t, w.reserved)
			requireGone(t, d, "tranship/%/public.%")
		})
	}
}

// A server that sends nothing, or goes away, gives an error that may be retried.
func TestServerHangsOrDies(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE VIEW slow AS SELECT 1 AS x FROM (SELECT pg_sleep(60)) s`)
	cfg, err := json.Marshal(map[string]any{"url": d.url, "stall_timeout": "300ms"})
	require.NoError(t, err)
	s := openWith(t, cfg)
	p := plan(t, s, full("public.slow"))
	requireClass(t, engine.Retryable, readErr(t, s, p, p.Splits[0], nil), "sent nothing for 300ms", "stall_timeout")
	requireGone(t, d, "tranship/%/public.slow%")

	s = d.open()
	p = plan(t, s, full("public.slow"))
	time.AfterFunc(300*time.Millisecond, func() {
		d.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'tranship/%/public.slow%' AND datname = current_database()`)
	})
	requireClass(t, engine.Retryable, readErr(t, s, p, p.Splits[0], nil), "57P01")
}

// Errors in the middle of a copy keep the server's words and class.
func TestErrorWhileReading(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE VIEW bad AS SELECT 1 / (i - 3000) AS x FROM generate_series(1, 5000) i`)
	s := d.open()
	p := plan(t, s, full("public.bad"))
	requireClass(t, engine.Permanent, readErr(t, s, p, p.Splits[0], nil), "public.bad/1", "division by zero")
	// The session is still of use.
	require.NotNil(t, plan(t, s, full("public.bad")))
	_, err := s.Plan(context.Background(), full("public.bad", key("x"), where("nonsense")))
	require.NoError(t, err, "a small table is not sampled")
	d.exec(numbers)
	_, err = s.Plan(context.Background(), full("public.numbers", where("nonsense > 1"), splitBytes(10_000)))
	requireClass(t, engine.Permanent, err, `filter "nonsense > 1"`)
}

// Invariant 11: rows of any width pass, and no more is reserved than a batch or a row.
func TestWideRows(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE wide (id int PRIMARY KEY, t text, b bytea);
		INSERT INTO wide SELECT i, CASE WHEN i % 5 = 0 THEN repeat('x', 20000000) ELSE repeat('y', i * 1000) END, '\x00ff' FROM generate_series(1, 12) i`)
	s := d.open()
	for _, req := range []engine.PlanRequest{full("public.wide"), full("public.wide", snapshot)} {
		p := plan(t, s, req)
		for _, c := range []struct {
			wire engine.WireFormat
			most int64
		}{{engine.WirePostgresCopy, 20_000_100}, {"", 60_001_000}} {
			w := &writer{t: t, plan: p}
			res, err := s.Read(context.Background(), engine.ReadRequest{Split: p.Splits[0], Plan: p, Wire: c.wire, BatchBytes: 1 << 20}, w)
			require.NoError(t, err)
			require.True(t, res.Done)
			require.Len(t, w.rows, 12)
			require.LessOrEqual(t, w.most, c.most)
			require.Zero(t, w.reserved)
		}
	}
}

// P5: a new claim ends what an older one left at the server.
func TestNewClaimEndsOlderOnes(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(numbers)
	s := d.open()
	p := plan(t, s, full("public.numbers"))
	frozen := make(chan struct{})
	held := make(chan error, 1)
	go func() {
		w := &writer{t: t, plan: p, hook: func(int) error { <-frozen; return nil }}
		_, err := s.Read(context.Background(), engine.ReadRequest{Split: p.Splits[0], Claim: 9, Plan: p, Wire: engine.WirePostgresCopy, BatchBytes: 1000}, w)
		held <- err
	}()
	require.Eventually(t, func() bool { return sessions(d, "tranship/%/public.numbers/1/9") == 1 }, 5*time.Second, 10*time.Millisecond)
	w := &writer{t: t, plan: p}
	_, err := d.open().Read(context.Background(), engine.ReadRequest{Split: p.Splits[0], Claim: 10, Plan: p, Wire: engine.WirePostgresCopy}, w)
	require.NoError(t, err)
	require.Len(t, w.rows, 5000)
	require.Zero(t, sessions(d, "tranship/%/public.numbers/1/9"))
	close(frozen)
	require.Error(t, <-held)
}

func TestRights(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE open_ (id int PRIMARY KEY, a text, secret text); INSERT INTO open_ VALUES (1, 'a', 's');
		CREATE TABLE closed (id int PRIMARY KEY); CREATE SCHEMA hidden; CREATE TABLE hidden.t (id int PRIMARY KEY)`)
	ctx := context.Background()
	s := open(t, d.role("some", `GRANT SELECT (id, a) ON open_ TO %[1]s; GRANT SELECT ON hidden.t TO %[1]s`))
	res, err := s.Discover(ctx, nil)
	require.NoError(t, err)
	require.Len(t, res, 1)
	require.Equal(t, []string{"id", "a"}, res[0].Schema.Names())
	_, err = s.Discover(ctx, []string{"public.closed"})
	requireClass(t, engine.Permanent, err, "public.closed", "GRANT SELECT ON")
	_, err = s.Plan(ctx, full("hidden.t"))
	requireClass(t, engine.Permanent, err, "hidden.t", `GRANT USAGE ON SCHEMA "hidden"`)
	_, err = s.Plan(ctx, full("public.open_"))
	requireClass(t, engine.Permanent, err, `may not read column "secret"`)
	for _, req := range []engine.PlanRequest{full("public.open_", exclude("secret")), full("public.open_", exclude("secret"), snapshot)} {
		p := plan(t, s, req)
		require.Equal(t, [][]string{{"1", "a"}}, readAll(t, s, p, req.Selection, readOptions{}).rows)
	}

	findings, err := s.(engine.ConnectionTester).TestConnection(ctx)
	require.NoError(t, err)
	text := fmt.Sprint(findings)
	require.Contains(t, text, "none of the 3 tables")
	require.Contains(t, text, "pg_read_all_stats")
	require.Contains(t, text, "the role may not use replication")
	findings, err = d.open().(engine.ConnectionTester).TestConnection(ctx)
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(findings), "all 3 tables and views in 2 schemas can be read")
	require.Contains(t, fmt.Sprint(findings), "max_slot_wal_keep_size is -1")
}

func TestRowSecurityIsToldOf(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE p (id int PRIMARY KEY); INSERT INTO p VALUES (1), (2); ALTER TABLE p ENABLE ROW LEVEL SECURITY; CREATE POLICY one ON p USING (id = 1)`)
	s := open(t, d.role("one", "GRANT SELECT ON p TO %s"))
	req := full("public.p")
	p := plan(t, s, req)
	require.Contains(t, strings.Join(p.Warnings, "; "), "row-level security applies")
	require.Len(t, readAll(t, s, p, req.Selection, readOptions{}).rows, 1)
}

func TestRankCursors(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE o (id bigserial PRIMARY KEY, created_at timestamptz DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now(),
		due_on date, doc json, note text)`)
	choices, err := d.open().(engine.CursorRanker).RankCursors(context.Background(), "public.o")
	require.NoError(t, err)
	var names []string
	for _, c := range choices {
		names = append(names, c.Column)
		require.NotEmpty(t, c.Reason)
		require.Equal(t, c.Column != "doc", c.Eligible)
	}
	require.Equal(t, []string{"updated_at", "created_at", "id"}, names[:3])
	require.Equal(t, "json", choices[len(choices)-1].Type)
}

// Every supported version is read by the same statements.
func TestVersions(t *testing.T) {
	for _, version := range []string{"13", "18"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			srv := pgtest.StartT(t, pgtest.Config{Version: version})
			d := &db{t: t, url: srv.URL("postgres")}
			d.conn = d.connect()
			d.exec(numbers)
			d.exec(events)
			d.exec(`CREATE TABLE keyless AS SELECT * FROM numbers`)
			s := d.open()
			for _, req := range []engine.PlanRequest{full("public.numbers", splitBytes(100_000)), full("public.numbers", snapshot, splitBytes(100_000)),
				full("public.keyless"), full("public.events", snapshot, splitBytes(50_000))} {
				want := 5000
				if req.Resource == "public.events" {
					want = 4000
				}
				p := plan(t, s, req)
				for _, o := range []readOptions{{}, {wire: engine.WirePostgresCopy, batch: 50_000}} {
					w := readAll(t, s, p, req.Selection, o)
					require.Len(t, w.rows, want)
				}
			}
			r := newRoute(t, s, "public.numbers", "u")
			require.Len(t, r.run(readOptions{}), 5000)
			require.NoError(t, s.Close(context.Background()))
			_, err := d.conn.Exec(context.Background(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
			require.NoError(t, err)
		})
	}
}

func TestDescriptorsOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(numbers)
	s := d.open()
	p := plan(t, s, full("public.numbers"))
	for _, raw := range []string{`{}`, `{"v":1,"way":"keys","oid":1,"schema":"a","name":"b"}`, `{"v":2}`, `{"v":1,"way":"x","oid":1,"schema":"a","name":"b"}`, `[`, `{"what":1}`} {
		split := p.Splits[0]
		split.Descriptor = json.RawMessage(raw)
		require.Error(t, readErr(t, s, p, split, nil))
	}
	for _, raw := range []string{`{"key":[]}x`, `{"key":[{}]}`, `{"key":[{"t":"1"},{"t":"2"}]}`, `{"block":-1}`, `[`} {
		requireClass(t, engine.Bug, readErr(t, s, p, p.Splits[0], engine.Position(raw)))
	}
	require.NoError(t, s.Close(context.Background()))
	_, err := s.Plan(context.Background(), full("public.numbers"))
	require.Error(t, err)
	_, err = pgsource.New().Open(context.Background(), engine.Config(`{"url": 3}`), engine.OpenOptions{})
	requireClass(t, engine.Permanent, err)
	require.NotErrorIs(t, err, context.Canceled)
}
