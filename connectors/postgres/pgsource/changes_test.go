package pgsource_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
)

// readErr reads a split once and returns the error.
func readErr(t *testing.T, s engine.SourceSession, p *engine.SourcePlan, split engine.Split, from engine.Position) error {
	t.Helper()
	w := &writer{t: t, plan: p}
	_, err := s.Read(context.Background(), engine.ReadRequest{Split: split, Plan: p, From: from, Wire: engine.WirePostgresCopy}, w)
	require.Zero(t, w.reserved)
	return err
}

// P12: what happens to a table between plan and read is noticed.
func TestChangesBetweenPlanAndRead(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	for _, c := range []struct {
		name, sql string
		// lost: a replace is planned anew. append says what others get: an error that
		// contains it, or nothing for a read that goes on.
		lost    bool
		permits bool
		message string
	}{
		{"truncate", "TRUNCATE numbers", true, true, "truncated or rewritten"},
		{"rewrite", "VACUUM FULL numbers", true, true, "truncated or rewritten"},
		{"drop and create", "DROP TABLE numbers; CREATE TABLE numbers (id int PRIMARY KEY, t text, n numeric(10,2), u timestamptz)", true, false, "made anew"},
		{"drop", "DROP TABLE numbers", true, false, "does not exist any more"},
		{"drop column", "ALTER TABLE numbers DROP COLUMN t", false, false, `column "t", which the run was planned with, was dropped`},
		{"rename column", "ALTER TABLE numbers RENAME COLUMN t TO x", false, false, `column "t"`},
		{"change type", "ALTER TABLE numbers ALTER COLUMN n TYPE numeric(12,2)", false, false, `column "n" is not of type numeric(10,2)`},
		{"add column", "ALTER TABLE numbers ADD COLUMN more int DEFAULT 1", false, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d.exec("DROP TABLE IF EXISTS numbers")
			d.exec(numbers)
			s := d.open()
			replace := plan(t, s, full("public.numbers", splitBytes(100_000)))
			appended := plan(t, s, full("public.numbers", write(engine.WriteAppend)))
			// One split is read before, so that the change comes in the middle.
			readSplit(t, s, replace, engine.Selection{}, replace.Splits[0], readOptions{})
			d.exec(c.sql)
			err := readErr(t, s, replace, replace.Splits[1], nil)
			switch {
			case c.lost:
				require.ErrorIs(t, err, engine.ErrSnapshotLost)
				require.ErrorContains(t, err, c.message)
			case c.message == "":
				require.NoError(t, err)
			default:
				requireClass(t, engine.Permanent, err, c.message, "--restart")
			}
			err = readErr(t, s, appended, appended.Splits[0], nil)
			if c.permits {
				require.NoError(t, err)
			} else {
				require.NotErrorIs(t, err, engine.ErrSnapshotLost)
				requireClass(t, engine.Permanent, err, c.message)
			}
			// A session opened by a later process sees the same.
			require.Equal(t, c.message == "", readErr(t, d.open(), replace, replace.Splits[1], nil) == nil)
		})
	}
}

func TestSnapshotIsOneMoment(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(numbers)
	s := d.open()
	req := full("public.numbers", snapshot, splitBytes(100_000))
	p := plan(t, s, req)
	require.Greater(t, len(p.Splits), 4)
	d.exec("DELETE FROM numbers WHERE id <= 1000; UPDATE numbers SET t = 'new' WHERE id = 1001; INSERT INTO numbers SELECT i, 'later' FROM generate_series(100001, 110000) i")
	w := readAll(t, s, p, req.Selection, readOptions{})
	require.Len(t, w.rows, 5000)
	requireUnique(t, column(w.rows, 0))
	require.NotContains(t, column(w.rows, 1), "new")

	// While the snapshot is held the table can't be emptied under it.
	_, err := d.conn.Exec(context.Background(), "SET lock_timeout = '100ms'; TRUNCATE numbers")
	require.ErrorContains(t, err, "lock timeout")
	require.NoError(t, s.Close(context.Background()))
	d.exec("TRUNCATE numbers")
}

// All resources share one snapshot, unless one was rewritten after it was taken.
func TestSnapshotOfSeveralTables(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE a (x int); CREATE TABLE b (x int); CREATE TABLE c (x int); CREATE VIEW v AS SELECT x FROM b;
		INSERT INTO a VALUES (1); INSERT INTO b VALUES (1); INSERT INTO c VALUES (1)`)
	s := d.open()
	rows := func(name string) []string {
		req := full(name)
		return column(readAll(t, s, plan(t, s, req), req.Selection, readOptions{}).rows, 0)
	}
	require.Equal(t, []string{"1"}, rows("public.a"))
	d.exec("UPDATE b SET x = 2; UPDATE c SET x = 2; TRUNCATE c; INSERT INTO c VALUES (3)")
	require.Equal(t, []string{"1"}, rows("public.b"), "as of the first table's snapshot")
	require.Equal(t, []string{"1"}, rows("public.v"))
	require.Equal(t, []string{"3"}, rows("public.c"), "an older snapshot would show nothing")
	d.exec("CREATE TABLE e (x int); INSERT INTO e VALUES (4); CREATE VIEW w AS SELECT x FROM c")
	require.Equal(t, []string{"4"}, rows("public.e"))
	require.Equal(t, []string{"3"}, rows("public.w"))
}

func TestLostSnapshot(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(numbers)
	s := d.open()
	p := plan(t, s, full("public.numbers", snapshot, splitBytes(100_000)))
	readSplit(t, s, p, engine.Selection{}, p.Splits[0], readOptions{})

	// Another process can't go on with it.
	err := readErr(t, d.open(), p, p.Splits[1], nil)
	require.ErrorIs(t, err, engine.ErrSnapshotLost)

	killed := value[int64](d, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'tranship/6666abcd/snapshot'`)
	require.Equal(t, int64(1), killed)
	require.Eventually(t, func() bool {
		err := readErr(t, s, p, p.Splits[1], nil)
		return err != nil
	}, 5*time.Second, 20*time.Millisecond)
	err = readErr(t, s, p, p.Splits[1], nil)
	require.ErrorIs(t, err, engine.ErrSnapshotLost)
	require.ErrorContains(t, err, "public.numbers")

	// A new plan takes a new one.
	p = plan(t, s, full("public.numbers", snapshot))
	require.Len(t, readAll(t, s, p, engine.Selection{}, readOptions{}).rows, 5000)
}

func TestSnapshotNeedsAHolder(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE log (t text); ALTER TABLE log ALTER t SET STORAGE EXTERNAL;
		INSERT INTO log SELECT repeat('x', 1000000) FROM generate_series(1, 30); CREATE VIEW v AS SELECT * FROM log; ANALYZE`)
	s := d.open()
	_, err := s.Plan(context.Background(), full("public.log", noHolder(500*time.Millisecond)))
	requireClass(t, engine.Permanent, err, "longer than one attempt", "give columns that identify a row as key")
	p := plan(t, s, full("public.log", noHolder(time.Minute)))
	require.Equal(t, engine.ConsistencySnapshot, p.Consistency)
	p = plan(t, s, full("public.v", noHolder(time.Second)))
	require.Contains(t, p.Warnings[0], "can't be estimated")
	_, err = s.Plan(context.Background(), full("public.log", func(r *engine.PlanRequest) { r.Consistency = engine.ConsistencyChunked }))
	requireClass(t, engine.Permanent, err, "has no key")
}
