package pgsource_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
)

// route runs incremental reads one after the other into a pretended append target
// that leaves out what it has of the window, by (key, cursor), and stores the
// cursor as the engine does.
type route struct {
	t       *testing.T
	s       engine.SourceSession
	req     engine.PlanRequest
	cursor  json.RawMessage
	target  map[string]int // rows by all their values
	skipped int
	read    int
	plan    *engine.SourcePlan
}

func newRoute(t *testing.T, s engine.SourceSession, resource, cursor string, change ...func(*engine.PlanRequest)) *route {
	t.Helper()
	req := engine.PlanRequest{Selection: engine.Selection{Resource: resource, Cursor: cursor},
		Read: engine.ReadIncremental, Write: engine.WriteAppend, Slots: 2, HolderLives: true}
	for _, c := range change {
		c(&req)
	}
	return &route{t: t, s: s, req: req, target: map[string]int{}}
}

// run makes one run and returns the target's ids, each as often as it is there.
func (r *route) run(o readOptions) []string {
	r.t.Helper()
	r.req.Cursor = r.cursor
	r.plan = plan(r.t, r.s, r.req)
	w := readAll(r.t, r.s, r.plan, r.req.Selection, o)
	r.skipped, r.read = w.skipped, len(w.rows)
	for _, row := range w.rows {
		id := fmt.Sprint(row)
		if r.plan.Window != nil && r.target[id] > 0 {
			continue
		}
		r.target[id]++
	}
	r.cursor = r.plan.NextCursor
	var ids []string
	for row, n := range r.target {
		var id string
		_, err := fmt.Sscanf(row, "[%s", &id)
		require.NoError(r.t, err)
		for range n {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (r *route) stored() (mark, upTo string) {
	var c struct {
		Mark *string `json:"mark"`
		UpTo *string `json:"up_to"`
	}
	require.NoError(r.t, json.Unmarshal(r.cursor, &c))
	deref := func(s *string) string {
		if s == nil {
			return "none"
		}
		return *s
	}
	return deref(c.Mark), deref(c.UpTo)
}

// Case 11: the cursor keeps microseconds, and a run without changes doubles nothing.
func TestCursorKeepsMicroseconds(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{"timestamptz", "timestamp"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			d := newDB(t)
			// The server's zone is not UTC.
			d.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = ''America/New_York''', current_database()); END $$`)
			d.exec(`CREATE TABLE ev (id int PRIMARY KEY, u ` + typ + `)`)
			d.exec(`INSERT INTO ev VALUES (1, '2024-05-09 13:28:27.031153+00')`)
			r := newRoute(t, d.open(), "public.ev", "u")
			require.Equal(t, []string{"1"}, r.run(readOptions{}))
			mark, upTo := r.stored()
			require.Contains(t, upTo, "2024-05-09 13:28:27.031153")
			require.Equal(t, upTo, mark)
			require.Equal(t, []string{"1"}, r.run(readOptions{}))
			d.exec(`INSERT INTO ev VALUES (2, '2024-05-09 13:28:27.031154+00')`)
			require.Equal(t, []string{"1", "2"}, r.run(readOptions{}))
			_, upTo = r.stored()
			require.Contains(t, upTo, "2024-05-09 13:28:27.031154")
		})
	}
}

// Case 12 and P15: rows of transactions that commit after a run with an earlier time.
func TestLateCommitsAreFound(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, c := range []struct {
		name   string
		typ    string
		before string // in the open transaction, before the other row
		after  string // in it, after run 1
		commit string
	}{
		{"open transaction", "timestamptz", "INSERT INTO ord VALUES (1, now())", "SELECT 1", "COMMIT"},
		{"savepoint", "timestamptz", "SAVEPOINT a; INSERT INTO ord VALUES (1, now()); RELEASE a; SAVEPOINT b", "SELECT 1", "COMMIT"},
		{"begun before, written after", "timestamptz", "SELECT 1", "INSERT INTO ord VALUES (1, now())", "COMMIT"},
		{"prepared", "timestamptz", "INSERT INTO ord VALUES (1, now()); PREPARE TRANSACTION 'late'", "", "COMMIT PREPARED 'late'"},
		{"without zone", "timestamp", "INSERT INTO ord VALUES (1, now())", "SELECT 1", "COMMIT"},
		{"date", "date", "INSERT INTO ord VALUES (1, now())", "SELECT 1", "COMMIT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newDB(t)
			if c.name == "without zone" {
				d.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = ''Asia/Tokyo''', current_database()); END $$`)
			}
			d.conn = d.connect()
			d.exec(`CREATE TABLE ord (id int PRIMARY KEY, u ` + c.typ + `)`)
			late := d.connect()
			_, err := late.Exec(ctx, "BEGIN")
			require.NoError(t, err)
			_, err = late.PgConn().Exec(ctx, c.before).ReadAll()
			require.NoError(t, err)
			time.Sleep(1100 * time.Millisecond)
			d.exec(`INSERT INTO ord VALUES (2, now())`)
			r := newRoute(t, d.open(), "public.ord", "u")
			require.Equal(t, []string{"2"}, r.run(readOptions{}))
			require.Equal(t, []string{"2"}, r.run(readOptions{}), "a run in between changes nothing")
			if c.after != "" {
				_, err = late.Exec(ctx, c.after)
				require.NoError(t, err)
			}
			_, err = late.Exec(ctx, c.commit)
			require.NoError(t, err)
			require.Equal(t, []string{"1", "2"}, r.run(readOptions{}))
			require.Equal(t, []string{"1", "2"}, r.run(readOptions{}))
			require.NotContains(t, r.plan.Coverage, "prepared transactions are open")
		})
	}
}

// Case 13: equal dates, NULL cursors, and a day larger than a batch.
func TestDateCursor(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE daily (id int PRIMARY KEY, day date); INSERT INTO daily VALUES (1, '2024-03-01'), (2, '2024-03-01')`)
	r := newRoute(t, d.open(), "public.daily", "day")
	require.Equal(t, []string{"1", "2"}, r.run(readOptions{}))
	require.Zero(t, r.skipped)
	d.exec(`INSERT INTO daily VALUES (3, '2024-03-01'), (4, NULL)`)
	require.Equal(t, []string{"1", "2", "3"}, r.run(readOptions{}))
	require.Equal(t, 1, r.skipped)
	d.exec(`INSERT INTO daily VALUES (5, '2024-03-02')`)
	require.Equal(t, []string{"1", "2", "3", "5"}, r.run(readOptions{}))
	require.Equal(t, 1, r.skipped)

	d.exec(`TRUNCATE daily; INSERT INTO daily SELECT i, '2024-04-01' FROM generate_series(1, 1000) i`)
	for _, o := range []readOptions{{batch: 2000, limit: 1}, {batch: 2000, limit: 1, wire: engine.WirePostgresCopy}} {
		r = newRoute(t, d.open(), "public.daily", "day")
		require.Len(t, r.run(o), 1000)
		require.Less(t, len(r.cursor), 200)
	}
}

// NULL cursors are counted once, also when the read is cut or finds nothing else.
func TestNullCursorsAreCountedOnce(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE n (id int PRIMARY KEY, u int); INSERT INTO n SELECT i, NULL FROM generate_series(1, 7) i`)
	r := newRoute(t, d.open(), "public.n", "u")
	require.Empty(t, r.run(readOptions{}))
	require.Equal(t, 7, r.skipped)
	d.exec(`INSERT INTO n SELECT i, i FROM generate_series(100, 999) i`)
	require.Len(t, r.run(readOptions{batch: 1000, limit: 1}), 900)
	require.Equal(t, 7, r.skipped)
	r = newRoute(t, d.open(), "public.n", "u", where("id > 5"))
	require.Len(t, r.run(readOptions{wire: engine.WirePostgresCopy, batch: 1000, limit: 1}), 900)
	require.Equal(t, 2, r.skipped)
}

// A run that finds nothing keeps the cursor; 0 and the empty string are values.
func TestCursorValuesAndEmptyRuns(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	source := d.open()
	for _, c := range []struct{ typ, first, second, third string }{
		{"int", "0", "9", "10"}, {"bigint", "-9007199254740993", "9007199254740993", "9007199254740994"},
		{"text", "", "a'b", "b\\"}, {"numeric", "0.00", "1.5", "12345678901234567890.123456789"}, {"float8", "0", "0.1", "1e300"},
		{"uuid", "00000000-0000-0000-0000-000000000000", "10000000-0000-0000-0000-000000000000", "f0000000-0000-0000-0000-000000000000"},
		{"bytea", "\\x", "\\x00", "\\xff"}, {"time", "00:00", "12:00:00.000001", "23:59"}, {"varchar(5)", "a", "b", "ccccc"},
		{"char(5)", "a", "b", "c"}, {"interval", "0", "1 day", "1 mon"}, {"boolean", "false", "true", "true"}, {"inet", "10.0.0.1/8", "10.0.0.9", "10.0.0.30"},
	} {
		t.Run(c.typ, func(t *testing.T) {
			d.exec(`DROP TABLE IF EXISTS v; CREATE TABLE v (id int PRIMARY KEY, u ` + c.typ + `)`)
			r := newRoute(t, source, "public.v", "u")
			require.Empty(t, r.run(readOptions{}))
			mark, upTo := r.stored()
			require.Equal(t, []string{"none", "none"}, []string{mark, upTo})
			insert := func(id int, v string) { d.exec(fmt.Sprintf(`INSERT INTO v VALUES (%d, '%s')`, id, quoted(v))) }
			insert(1, c.first)
			require.Equal(t, []string{"1"}, r.run(readOptions{}))
			first := string(r.cursor)
			require.Equal(t, []string{"1"}, r.run(readOptions{}))
			require.Equal(t, first, string(r.cursor))
			insert(2, c.second)
			insert(3, c.third)
			require.Equal(t, []string{"1", "2", "3"}, r.run(readOptions{batch: 1, limit: 1}))
			before := string(r.cursor)
			d.exec(`DELETE FROM v`)
			require.Equal(t, []string{"1", "2", "3"}, r.run(readOptions{}))
			require.Equal(t, before, string(r.cursor), "a run with 0 rows does not reset the cursor")
			insert(4, c.third)
			require.Equal(t, []string{"1", "2", "3", "4"}, r.run(readOptions{}))
		})
	}
}

func quoted(s string) string {
	out := ""
	for _, c := range s {
		if c == '\'' {
			out += "'"
		}
		out += string(c)
	}
	return out
}

// Values beyond all others don't stop the cursor.
func TestInfiniteCursors(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	source := d.open()
	for _, c := range []struct{ typ, special, first, second string }{
		{"timestamptz", "infinity", "2024-01-01", "2024-01-02"}, {"timestamp", "infinity", "2024-01-01", "2024-01-02"},
		{"date", "infinity", "2024-01-01", "2024-01-02"}, {"float8", "NaN", "1", "2"}, {"numeric", "NaN", "1", "2"},
	} {
		t.Run(c.typ, func(t *testing.T) {
			d.exec(`DROP TABLE IF EXISTS v; CREATE TABLE v (id int PRIMARY KEY, u ` + c.typ + `)`)
			d.exec(fmt.Sprintf(`INSERT INTO v VALUES (1, '%s'), (2, '%s')`, c.special, c.first))
			r := newRoute(t, source, "public.v", "u")
			require.Equal(t, []string{"1", "2"}, r.run(readOptions{}))
			d.exec(fmt.Sprintf(`INSERT INTO v VALUES (3, '%s')`, c.second))
			require.Equal(t, []string{"1", "2", "3"}, r.run(readOptions{}))
			d.exec(`DELETE FROM v WHERE id <> 1`)
			require.Equal(t, []string{"1", "2", "3"}, r.run(readOptions{}))
		})
	}
}

func TestLookback(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE v (id int PRIMARY KEY, u timestamptz NOT NULL, n int NOT NULL); INSERT INTO v VALUES (1, '2024-01-01 12:00Z', 1)`)
	r := newRoute(t, d.open(), "public.v", "u", lookback(5*time.Minute))
	r.run(readOptions{})
	mark, upTo := r.stored()
	require.Equal(t, "2024-01-01 11:55:00+00", mark)
	require.Equal(t, "2024-01-01 12:00:00+00", upTo)
	d.exec(`INSERT INTO v VALUES (2, '2024-01-01 11:56Z', 1), (3, '2024-01-01 11:54Z', 1)`)
	require.Equal(t, []string{"1", "2"}, r.run(readOptions{}))
	require.Equal(t, &engine.Window{Cursor: "u", UpTo: "2024-01-01 12:00:00+00"}, r.plan.Window)

	n := newRoute(t, d.open(), "public.v", "n", lookback(5*time.Minute))
	n.run(readOptions{})
	require.Contains(t, fmt.Sprint(n.plan.Warnings), "lookback is a time span and means nothing")
}

// A read can go on in the middle of a window, after the last (cursor, key).
func TestIncrementalResumesInTheMiddle(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE v (a text, b uuid, u timestamptz, PRIMARY KEY (a, b));
		INSERT INTO v SELECT 'k' || i % 7, gen_random_uuid(), '2024-01-01'::timestamptz + (i / 10) * interval '1.000001 second' FROM generate_series(1, 3000) i`)
	for _, o := range []readOptions{{batch: 3000, limit: 1}, {batch: 3000, limit: 1, wire: engine.WirePostgresCopy}} {
		r := newRoute(t, d.open(), "public.v", "u")
		r.req.Slots = 1
		p := plan(t, r.s, r.req)
		w := readAll(t, r.s, p, r.req.Selection, o)
		require.Len(t, w.rows, 3000)
		requireUnique(t, column(w.rows, 1))
		require.Greater(t, w.marks, 20)
	}
}

func TestKeylessIncremental(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE log (id int, u int); INSERT INTO log VALUES (1, 1), (2, 1), (3, 2)`)
	r := newRoute(t, d.open(), "public.log", "u")
	require.Equal(t, []string{"1", "2", "3"}, r.run(readOptions{batch: 1, limit: 1}))
	require.Contains(t, fmt.Sprint(r.plan.Warnings), "without a key")
	require.Equal(t, []string{"1", "2", "3"}, r.run(readOptions{}))
	require.Zero(t, r.read)
	require.Nil(t, r.plan.Window)
	d.exec(`INSERT INTO log VALUES (4, 3)`)
	require.Equal(t, []string{"1", "2", "3", "4"}, r.run(readOptions{}))
}

// Sinks that can't look for themselves get row hashes, and give them back.
func TestWindowByRowHashes(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE daily (id int PRIMARY KEY, day date, note text);
		INSERT INTO daily SELECT i, CASE WHEN i <= 500 THEN '2024-03-01'::date ELSE '2024-03-02' END FROM generate_series(1, 700) i`)
	for _, wire := range []engine.WireFormat{"", engine.WirePostgresCopy} {
		s := d.open()
		r := newRoute(t, s, "public.daily", "day")
		p := plan(t, s, r.req)
		w := readAll(t, s, p, r.req.Selection, readOptions{remember: true, wire: wire, batch: 2000, limit: 1})
		require.Len(t, w.rows, 700)
		require.Len(t, w.seen, 200, "the rows of the last day")

		d.exec(`INSERT INTO daily SELECT i, '2024-03-02' FROM generate_series(701, 710) i`)
		skip := map[engine.RowID]struct{}{}
		for _, id := range w.seen {
			skip[id] = struct{}{}
		}
		r.req.Cursor = p.NextCursor
		p = plan(t, s, r.req)
		w = readAll(t, s, p, r.req.Selection, readOptions{remember: true, wire: wire, skip: skip, batch: 500, limit: 1})
		require.Len(t, w.rows, 10)
		require.Equal(t, 200, w.skipped)
		require.Len(t, w.seen, 210)
		d.exec(`DELETE FROM daily WHERE id > 700`)
	}
}

// What a run can't see is said, never silently missing (P15).
func TestCoverage(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE v (id bigserial PRIMARY KEY, u timestamptz NOT NULL DEFAULT now(), app timestamptz, day date)`)
	s := d.open()
	warnings := func(cursor string) string {
		r := newRoute(t, s, "public.v", cursor)
		r.run(readOptions{})
		return fmt.Sprint(r.plan.Warnings, r.plan.Coverage)
	}
	require.Contains(t, warnings("u"), "are found by the next run")
	require.NotContains(t, warnings("u"), "no default")
	require.Contains(t, warnings("app"), "no default that sets it to the transaction's time")
	require.Contains(t, warnings("id"), "is no time")

	role := d.role("plain", `GRANT SELECT ON v TO %s`)
	other := d.connect()
	_, err := other.Exec(context.Background(), "SELECT 1")
	require.NoError(t, err)
	r := newRoute(t, open(t, role), "public.v", "u")
	r.run(readOptions{})
	require.Contains(t, fmt.Sprint(r.plan.Warnings), "GRANT pg_read_all_stats")
}

func TestIncrementalRefusals(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE v (id int PRIMARY KEY, u timestamptz, j json, p point)`)
	s := d.open()
	for cursor, want := range map[string]string{"": "needs a cursor column", "nope": `no column "nope"`, "j": "has no order", "p": "has no order"} {
		r := newRoute(t, s, "public.v", cursor)
		_, err := s.Plan(context.Background(), r.req)
		requireClass(t, engine.Permanent, err, want)
	}
	r := newRoute(t, s, "public.v", "u")
	r.run(readOptions{})
	other := newRoute(t, s, "public.v", "id")
	other.req.Cursor = r.cursor
	_, err := s.Plan(context.Background(), other.req)
	requireClass(t, engine.Permanent, err, `of column "u"`, "reset the resource")
	r.req.Exclude = []string{"u"}
	_, err = s.Plan(context.Background(), r.req)
	requireClass(t, engine.Permanent, err, "is not selected")
}
