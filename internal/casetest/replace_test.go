package casetest

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/internal/pgtest"
)

// poll asks for a number every 50 ms in a session of its own and returns, once
// stopped, the different answers in order.
func (d *db) poll(sql string) (stop func() []int64) {
	d.t.Helper()
	conn := d.connect()
	var mu sync.Mutex
	var seen []int64
	done, ended := make(chan struct{}), make(chan struct{})
	ask := func() {
		var n int64
		if err := conn.QueryRow(context.Background(), sql).Scan(&n); err != nil {
			n = -1
		}
		mu.Lock()
		if len(seen) == 0 || seen[len(seen)-1] != n {
			seen = append(seen, n)
		}
		mu.Unlock()
	}
	ask()
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				ask()
				return
			case <-time.After(50 * time.Millisecond):
				ask()
			}
		}
	}()
	return func() []int64 {
		close(done)
		<-ended
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

// pace is a filter that the source's rows pass through, and that a test can make
// wait or fail at a row, while the document stays what it is.
const pace = `CREATE FUNCTION pace(id int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RETURN true; END $$;`

func (d *db) paceWaitsAfter(id string) {
	d.t.Helper()
	d.exec(`CREATE OR REPLACE FUNCTION pace(id int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN IF id > ` + id + ` THEN PERFORM pg_sleep(600); END IF; RETURN true; END $$`)
}

func (d *db) paceFailsAt(id string) {
	d.t.Helper()
	d.exec(`CREATE OR REPLACE FUNCTION pace(id int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN IF id = ` + id + ` THEN RAISE EXCEPTION 'row % can not be read', id USING ERRCODE = 'data_exception'; END IF; RETURN true; END $$`)
}

// streams makes ordered reads come from the index, row by row, so that those
// before a failing row are on their way when it fails.
func (d *db) streams() {
	d.t.Helper()
	d.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET enable_seqscan = off', current_database());
		EXECUTE format('ALTER DATABASE %I SET enable_bitmapscan = off', current_database()); END $$`)
}

func (d *db) paceRuns() {
	d.t.Helper()
	d.exec(`CREATE OR REPLACE FUNCTION pace(id int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RETURN true; END $$`)
}

// TestCase23FailedReplace: a replace that fails leaves the old rows visible and
// whole at every moment, whatever fails; one of an empty source empties.
func TestCase23FailedReplace(t *testing.T) {
	t.Parallel()
	if os.Getenv(pgtest.EnvURL) != "" {
		t.Log("the source is a server of this test's own, whatever the other tests use")
	}
	srv := pgtest.StartT(t, pgtest.Config{})
	p := placeOn(t, pgtest.NewDatabase(t, srv), pgtest.NewDatabase(t, pgtest.Shared(t)))
	p.src.exec(pace + `CREATE TABLE r(id int PRIMARY KEY, v text, pad text);
		INSERT INTO r SELECT i, 'v' || i, repeat('x', 1000) FROM generate_series(1, 1000) i`)
	p.dst.exec(`CREATE TABLE r(id int PRIMARY KEY, v varchar(10), pad text)`)
	document := doc(toPostgres, quick+", schema_policy: freeze", "{name: public.r, where: pace(id)}")
	p.must(document)
	stop := p.dst.poll("SELECT count(*) FROM r")
	same := func() {
		t.Helper()
		require.EqualValues(t, 1000, p.dst.count("SELECT count(*) FROM r WHERE v = 'v' || id AND length(pad) = 1000"))
	}

	// (a) The source's port is closed.
	require.NoError(t, srv.Shutdown())
	message := p.fails(document)
	require.Contains(t, message, "open source")
	require.Contains(t, message, "127.0.0.1")
	same()
	require.NoError(t, srv.Restart(t.Context()))
	p.src.conn = p.src.connect()

	// (b) The source is killed after 500 rows.
	p.src.paceWaitsAfter("500")
	go func() {
		conn := p.src.connect()
		for {
			var n int
			err := conn.QueryRow(context.Background(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'").Scan(&n)
			if err != nil || n > 0 {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		_ = srv.Kill()
	}()
	message = p.fails(document)
	require.Contains(t, message, "public.r")
	same()
	require.NoError(t, srv.Restart(t.Context()))
	p.src.conn = p.src.connect()
	p.src.paceRuns()

	// (c) Row 900 cannot be converted.
	p.src.exec("UPDATE r SET v = 'much too long for it' WHERE id = 900")
	message = p.fails(document)
	for _, word := range []string{"public.r", `"v"`, "id=900", "much too long", "10"} {
		require.Contains(t, message, word)
	}
	same()
	p.src.exec("UPDATE r SET v = 'v900' WHERE id = 900")

	// It is resumed, and leaves no staging.
	p.must(document)
	same()
	p.noStaging()
	require.Equal(t, []int64{1000}, stop(), "the poll never saw anything else")

	// (d) The source is empty.
	stop = p.dst.poll("SELECT count(*) FROM r")
	p.src.exec("DELETE FROM r")
	out := p.must(document)
	require.EqualValues(t, 0, out.receipt(t).RowsWritten)
	require.Equal(t, []int64{1000, 0}, stop())
	p.noStaging()
}

// TestCase23IncrementalWithoutChanges: it leaves the count as it is.
func TestCase23IncrementalWithoutChanges(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.src.exec(`CREATE TABLE r(id int PRIMARY KEY, u timestamptz); INSERT INTO r SELECT i, '2024-01-01' FROM generate_series(1, 100) i`)
	for _, write := range []string{"upsert", "append"} {
		document := doc(toPostgres, digest, "{name: public.r, read: incremental, cursor: u, write: "+write+", target: public."+write+"_r}")
		p.must(document)
		stop := p.dst.poll("SELECT count(*) FROM " + write + "_r")
		for range 2 {
			p.must(document)
		}
		require.Equal(t, []int64{100}, stop())
	}
}

// TestCase23Files: a failed replace of files leaves the old manifest, whose files
// are all there; the next one removes what both left.
func TestCase23Files(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.src.exec(pace + `CREATE TABLE r(id int PRIMARY KEY, v text); INSERT INTO r SELECT i, repeat('x', 1000) FROM generate_series(1, 1000) i`)
	document := doc(p.toFiles("parquet"), quick, "{name: public.r, where: pace(id)}")
	p.must(document)
	before := p.rows("parquet", "public.r")
	p.src.exec("UPDATE r SET v = 'new'")
	p.src.paceFailsAt("900")
	message := p.fails(document, smallSteps)
	require.Contains(t, message, "public.r")
	require.Contains(t, message, "row 900 can not be read")
	require.Equal(t, before, p.rows("parquet", "public.r"))
	p.src.paceRuns()
	p.must(document)
	for _, r := range p.rows("parquet", "public.r") {
		require.Equal(t, "new", r["v"])
	}
	p.onlyListed("parquet", "public.r")
	p.src.exec("DELETE FROM r")
	p.must(document)
	require.Empty(t, p.rows("parquet", "public.r"))
	p.onlyListed("parquet", "public.r")
}
