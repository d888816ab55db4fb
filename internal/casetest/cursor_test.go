package casetest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/runner"
	"github.com/tranship-io/tranship/store/sqlite"
)

// cursor is what the state file carries for the resource of the last run.
func (p *place) cursor(o *outcome, resource string) string {
	p.t.Helper()
	s, err := sqlite.Open(p.t.Context(), p.state)
	require.NoError(p.t, err)
	defer func() { require.NoError(p.t, s.Close()) }()
	c, err := s.Cursor(context.Background(), o.Run.Route, resource)
	require.NoError(p.t, err)
	return string(c.Cursor)
}

// TestCase11Microseconds: a cursor keeps six digits and means the same instant
// in any zone of process, server and session.
func TestCase11Microseconds(t *testing.T) {
	t.Parallel()
	for _, typ := range []string{"timestamptz", "timestamp"} {
		for _, sink := range []string{"postgres", "parquet"} {
			t.Run(typ+" to "+sink, func(t *testing.T) {
				t.Parallel()
				p := newPlace(t)
				p.src.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = ''America/St_Johns''', current_database()); END $$`)
				p.src.conn = p.src.connect()
				zone := ""
				if typ == "timestamptz" {
					zone = "+00"
				}
				p.src.exec(`CREATE TABLE ev(id int PRIMARY KEY, u ` + typ + `); INSERT INTO ev VALUES (1,'2024-05-09 13:28:27.031153` + zone + `')`)
				document := doc(toPostgres, digest, "{name: public.ev, read: incremental, write: append, cursor: u}")
				has := func(want ...string) {
					t.Helper()
					require.Equal(t, want, p.dst.text("SELECT id FROM ev ORDER BY id"))
				}
				if sink == "parquet" {
					document = doc(p.toFiles(sink), digest, "{name: public.ev, read: incremental, write: append, cursor: u}")
					has = func(want ...string) {
						t.Helper()
						require.Equal(t, strings.Trim(strings.Join(want, ""), "()"), strings.Join(ids(p.rows(sink, "public.ev")), ")("))
					}
				}
				require.Contains(t, p.cursor(p.must(document), "public.ev"), "13:28:27.031153")
				has("(1)")
				out := p.must(document)
				require.EqualValues(t, 0, out.receipt(t).RowsWritten)
				require.Contains(t, p.cursor(out, "public.ev"), "13:28:27.031153")
				has("(1)")
				p.src.exec("INSERT INTO ev VALUES (2,'2024-05-09 13:28:27.031154" + zone + "')")
				out = p.must(document)
				require.Contains(t, p.cursor(out, "public.ev"), "13:28:27.031154")
				has("(1)", "(2)")
				p.must(document)
				has("(1)", "(2)")
				if sink == "postgres" {
					require.Equal(t, p.src.text("SELECT id, extract(epoch FROM u) FROM ev ORDER BY 1"), p.dst.text("SELECT id, extract(epoch FROM u) FROM ev ORDER BY 1"))
				}
			})
		}
	}
}

// TestCase13Ties: equal cursors of one day, added over several runs, and NULL.
func TestCase13Ties(t *testing.T) {
	t.Parallel()
	for _, sink := range []string{"postgres", "jsonl"} {
		t.Run(sink, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.src.exec(`CREATE TABLE daily(id int PRIMARY KEY, day date); INSERT INTO daily VALUES (1,'2024-03-01'),(2,'2024-03-01')`)
			to := toPostgres
			if sink != "postgres" {
				to = p.toFiles(sink)
			}
			document := doc(to, digest, "{name: public.daily, read: incremental, write: append, cursor: day}")
			has := func(want ...string) {
				t.Helper()
				if sink == "postgres" {
					require.Equal(t, "("+strings.Join(want, ")(")+")", strings.Join(p.dst.text("SELECT id FROM daily ORDER BY id"), ""))
				} else {
					require.Equal(t, want, ids(p.rows(sink, "public.daily")))
				}
			}
			p.must(document)
			has("1", "2")
			p.src.exec(`INSERT INTO daily VALUES (3,'2024-03-01'),(4,NULL)`)
			out := p.must(document)
			has("1", "2", "3")
			// Id 4 is counted as skipped for its NULL cursor, beside the two rows of
			// the window that are there already.
			r := out.receipt(t)
			require.EqualValues(t, 1, r.RowsWritten)
			require.Equal(t, r.RowsRead-1, r.RowsSkipped)
			require.Equal(t, map[string]int64{"day skip": 1}, counts(r))
			require.Equal(t, "NULL cursor", r.Policies[0].Reason)
			p.src.exec(`INSERT INTO daily VALUES (5,'2024-03-02')`)
			p.must(document)
			has("1", "2", "3", "5")
			p.must(document)
			has("1", "2", "3", "5")
		})
	}
}

// TestCase13OneDay: a thousand rows of one day in batches of about a hundred come
// once, and what is remembered stays small all the time.
func TestCase13OneDay(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.src.exec(`CREATE TABLE daily(id int PRIMARY KEY, day date, pad text);
		INSERT INTO daily SELECT i, '2024-03-01', repeat('x', 150) FROM generate_series(1, 1000) i`)
	for _, to := range []string{toPostgres, p.toFiles("parquet")} {
		document := doc(to, digest, "{name: public.daily, read: incremental, write: append, cursor: day}")
		done, sizes := make(chan struct{}), make(chan int64)
		go func() {
			var most int64
			for {
				var now int64
				for _, f := range []string{p.state, p.state + "-wal"} {
					if info, err := os.Stat(f); err == nil {
						now += info.Size()
					}
				}
				most = max(most, now)
				select {
				case <-done:
					sizes <- most
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
		}()
		for range 2 {
			out := p.must(document, smallSteps, func(o *runner.Options) { o.Settings.EpochTime = time.Nanosecond })
			require.Less(t, len(p.cursor(out, "public.daily")), 300)
		}
		close(done)
		require.Less(t, <-sizes, int64(8<<20))
		p.src.exec("INSERT INTO daily SELECT max(id) + 1, '2024-03-01', '' FROM daily")
		out := p.must(document)
		require.EqualValues(t, 1, out.receipt(t).RowsWritten)
	}
	require.EqualValues(t, 1001, p.dst.count("SELECT count(*) FROM daily"))
	require.EqualValues(t, 1001, p.dst.count("SELECT count(DISTINCT id) FROM daily"))
	require.Len(t, p.rows("parquet", "public.daily"), 1002)
}

// TestSpareCursors: a run with no rows and a failed one leave the cursor alone; 0
// is a value.
func TestSpareCursors(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.src.exec(`CREATE TABLE z(id int PRIMARY KEY, c int, s text); INSERT INTO z VALUES (1, 0, 'a')`)
	document := doc(toPostgres, quick+", schema_policy: freeze", "{name: public.z, read: incremental, write: append, cursor: c}")
	p.dst.exec("CREATE TABLE z(id int PRIMARY KEY, c int, s varchar(3))")
	zero := p.cursor(p.must(document), "public.z")
	require.Contains(t, zero, `"0"`)
	out := p.must(document)
	require.EqualValues(t, 0, out.receipt(t).RowsWritten)
	require.Equal(t, zero, p.cursor(out, "public.z"))
	p.src.exec("INSERT INTO z VALUES (2, 0, 'b'), (3, 5, 'c')")
	five := p.cursor(p.must(document), "public.z")
	require.Contains(t, five, `"5"`)
	// The source is emptied: nothing is read, and nothing is forgotten.
	p.src.exec("CREATE TABLE kept AS TABLE z; DELETE FROM z")
	out = p.must(document)
	require.Equal(t, five, p.cursor(out, "public.z"))
	require.EqualValues(t, 3, p.dst.count("SELECT count(*) FROM z"))
	p.src.exec("INSERT INTO z TABLE kept")

	// A failed attempt does not move the cursor; rows of it are not lost.
	p.src.exec("INSERT INTO z VALUES (4, 6, 'd'), (5, 7, 'too long'), (6, 8, 'e')")
	failed := p.run(document)
	require.ErrorContains(t, failed.err, "id=5")
	require.Equal(t, five, p.cursor(failed, "public.z"))
	p.src.exec("UPDATE z SET s = 'f' WHERE id = 5")
	out = p.must(document)
	require.Equal(t, []string{"(1)", "(2)", "(3)", "(4)", "(5)", "(6)"}, p.dst.text("SELECT id FROM z ORDER BY id"))
	require.Contains(t, p.cursor(out, "public.z"), `"8"`)
}

// TestSpareSameKeyTwice: a batch that holds one key twice upserts it once.
func TestSpareSameKeyTwice(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.src.exec(`CREATE TABLE log(n int PRIMARY KEY, id int NOT NULL, v text);
		INSERT INTO log SELECT i, i % 10, 'v' || i FROM generate_series(1, 1000) i`)
	out := p.must(doc(toPostgres, digest, "{name: public.log, read: incremental, write: upsert, cursor: n, key: [id]}"))
	require.EqualValues(t, 10, p.dst.count("SELECT count(*) FROM log"))
	r := out.receipt(t)
	require.Equal(t, []int64{1000, 10, 990}, []int64{r.RowsRead, r.RowsWritten, r.RowsSuperseded})
	require.EqualValues(t, 10, p.dst.count("SELECT count(*) FROM log WHERE n > 990 AND v = 'v' || n"), "the last one wins")
}

// late is a transaction that commits after a run with an earlier cursor.
type late struct{ before, after, commit string }

// TestCase12LateCommits: a row that becomes visible late is not lost, in any form
// of transaction and any way of writing, and none is doubled.
func TestCase12LateCommits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]late{
		"open transaction":              {"INSERT INTO ord VALUES (1, now())", "", "COMMIT"},
		"savepoint":                     {"SAVEPOINT a; INSERT INTO ord VALUES (1, now()); RELEASE a; SAVEPOINT b", "", "COMMIT"},
		"started before, written after": {"SELECT 1", "INSERT INTO ord VALUES (1, now())", "COMMIT"},
		"prepared":                      {"INSERT INTO ord VALUES (1, now()); PREPARE TRANSACTION 'late%d'", "", "COMMIT PREPARED 'late%d'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.src.exec("CREATE TABLE ord(id int PRIMARY KEY, u timestamptz)")
			gid := fmt.Sprint(time.Now().UnixNano())
			of := func(sql string) string { return strings.ReplaceAll(sql, "late%d", "late"+gid) }
			a := p.src.connect()
			for _, sql := range []string{"BEGIN", of(c.before)} {
				_, err := a.PgConn().Exec(t.Context(), sql).ReadAll()
				require.NoError(t, err)
			}
			time.Sleep(time.Second)
			p.src.exec("INSERT INTO ord VALUES (2, now())")
			entry := "{name: public.ord, read: incremental, cursor: u, write: %s, target: public.ord_%[1]s}"
			documents := []string{
				doc(toPostgres, digest, fmt.Sprintf(entry, "upsert")),
				strings.Replace(doc(toPostgres, digest, fmt.Sprintf(entry, "append")), "name: cases", "name: more", 1),
				doc(p.toFiles("parquet"), digest, "{name: public.ord, read: incremental, cursor: u, write: append}"),
			}
			all := func() {
				for _, d := range documents {
					p.must(d)
				}
			}
			has := func(want ...string) {
				t.Helper()
				for _, table := range []string{"ord_upsert", "ord_append"} {
					require.Equal(t, want, p.dst.text("SELECT id FROM "+table+" ORDER BY id"), table)
				}
				var files []string
				for _, id := range ids(p.rows("parquet", "public.ord")) {
					files = append(files, "("+id+")")
				}
				require.Equal(t, want, files)
			}
			all()
			has("(2)")
			all() // a run in between changes nothing
			has("(2)")
			for _, sql := range []string{of(c.after), of(c.commit)} {
				_, err := a.PgConn().Exec(t.Context(), sql).ReadAll()
				require.NoError(t, err)
			}
			want := []string{"(1)", "(2)"}
			all()
			has(want...)
			all()
			has(want...)
		})
	}
}

// TestCase12NotCovered: where the settings cannot see a late commit, the plan says
// so in words, and the receipt carries them.
func TestCase12NotCovered(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.src.exec("CREATE TABLE seq(id int PRIMARY KEY, n int); INSERT INTO seq VALUES (1, 1)")
	r := p.must(doc(toPostgres, digest, "{name: public.seq, read: incremental, cursor: n, write: upsert}")).receipt(t)
	require.Equal(t, engine.ReadIncremental, r.Read)
	require.Contains(t, strings.Join(append(r.Warnings, r.Coverage), " "), "not")
	require.NotEmpty(t, r.Coverage)
}
