package casetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/runner"
	"github.com/tranship-io/tranship/store/sqlite"
)

// changesPlace is a place whose source may be streamed; slots keep a database from
// being dropped.
func changesPlace(t *testing.T) *place {
	t.Helper()
	p := newPlace(t)
	t.Cleanup(func() {
		ctx := context.Background()
		conn, err := pgx.Connect(ctx, p.src.url)
		require.NoError(t, err)
		defer func() { _ = conn.Close(ctx) }()
		require.Eventually(t, func() bool {
			_, err := conn.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()`)
			return err == nil
		}, 10*time.Second, 50*time.Millisecond)
	})
	return p
}

// cdc is a document that follows the changes of tables.
func cdc(entries ...string) string {
	for i, e := range entries {
		if !strings.HasPrefix(e, "{") {
			entries[i] = "{name: public." + e + ", read: cdc}"
		}
	}
	return doc(toPostgres, "split_size: 64KiB", entries...)
}

// same requires both ends to have the same rows in a table.
func (p *place) same(tables ...string) {
	p.t.Helper()
	for _, name := range tables {
		sql := "SELECT t FROM " + name + " t ORDER BY t::text"
		require.Equal(p.t, p.src.text(sql), p.dst.text(sql), name)
	}
}

func TestCase16UnchangedToast(t *testing.T) {
	t.Parallel()
	p := changesPlace(t)
	p.src.exec(`CREATE TABLE doc(id int PRIMARY KEY, body text, n int);
		ALTER TABLE doc ALTER body SET STORAGE EXTERNAL;
		CREATE TABLE whole(id int PRIMARY KEY, body text, n int);
		ALTER TABLE whole ALTER body SET STORAGE EXTERNAL; ALTER TABLE whole REPLICA IDENTITY FULL`)
	for _, table := range []string{"doc", "whole"} {
		p.src.exec(`INSERT INTO ` + table + ` SELECT 1, string_agg(md5(g::text),'' ORDER BY g), 0 FROM generate_series(1,625) g`)
	}
	document := cdc("doc", "whole")
	out := p.must(document)
	require.EqualValues(t, 1, out.receipt(t, "public.doc").RowsWritten)
	p.same("doc", "whole")
	for _, table := range []string{"doc", "whole"} {
		p.src.exec(`UPDATE ` + table + ` SET n = 1 WHERE id = 1`)
	}
	out = p.must(document)
	require.EqualValues(t, 1, out.receipt(t, "public.doc").RowsRead)
	for _, table := range []string{"doc", "whole"} {
		require.Equal(t, []string{"(1,20000,1ecb08bc48fca1f18e5fd577a7a92e9f)"}, p.dst.text(`SELECT n, length(body), md5(body) FROM `+table))
	}
	p.src.exec(`UPDATE doc SET body = NULL WHERE id = 1; INSERT INTO doc SELECT 2, body, 5 FROM whole; UPDATE doc SET n = 6 WHERE id = 2; UPDATE doc SET id = 3 WHERE id = 2`)
	p.must(document)
	p.same("doc", "whole")
	p.src.exec(`UPDATE doc SET id = 4 WHERE id = 3`)
	p.must(document)
	p.same("doc")
}

func TestCase17KeyChanges(t *testing.T) {
	t.Parallel()
	p := changesPlace(t)
	p.src.exec(`CREATE TABLE acct(id int PRIMARY KEY, v text, u int UNIQUE); INSERT INTO acct VALUES (1,'a',1)`)
	document := cdc("acct")
	p.must(document)
	p.src.exec(`UPDATE acct SET id=100 WHERE id=1`)
	p.src.exec(`BEGIN; INSERT INTO acct VALUES (2,'b',2); UPDATE acct SET id=3 WHERE id=2; DELETE FROM acct WHERE id=3; COMMIT`)
	p.must(document)
	require.Equal(t, []string{"(100,a,1)"}, p.dst.text("SELECT * FROM acct"))
	// Rows that exchange their keys, and values of another unique index.
	p.src.exec(`INSERT INTO acct VALUES (1,'x',10),(2,'y',20)`)
	p.must(document)
	p.src.exec(`BEGIN; UPDATE acct SET id = -1 WHERE id = 1; UPDATE acct SET id = 1 WHERE id = 2; UPDATE acct SET id = 2 WHERE id = -1; COMMIT`)
	p.must(document)
	p.same("acct")
	p.dst.exec(`CREATE UNIQUE INDEX IF NOT EXISTS acct_u ON acct (u)`)
	p.src.exec(`BEGIN; UPDATE acct SET u = NULL WHERE id = 1; UPDATE acct SET u = 10 WHERE id = 2; UPDATE acct SET u = 20 WHERE id = 1; COMMIT; INSERT INTO acct VALUES (7,'z',70)`)
	p.must(document)
	p.same("acct")
}

// TestCase18SlotLost: never success with nothing, never a quiet new slot.
func TestCase18SlotLost(t *testing.T) {
	t.Parallel()
	p := changesPlace(t)
	p.src.exec(`CREATE TABLE t(id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1), (2, 2)`)
	document := cdc("t")
	p.must(document)
	p.src.exec(`INSERT INTO t VALUES (3, 3), (4, 4), (5, 5); DELETE FROM t WHERE id = 1`)
	p.src.exec(`SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()`)
	says(t, p.fails(document), "replication slot", "is gone")
	require.EqualValues(t, 2, p.dst.count("SELECT count(*) FROM t"))
	p.must(document, func(o *runner.Options) { o.Settings.OnLost = engine.OnLostResync })
	p.same("t")
	p.src.exec(`UPDATE t SET v = 9 WHERE id = 2`)
	p.must(document)
	p.same("t")
}

func TestChangesThroughRuns(t *testing.T) {
	t.Parallel()
	p := changesPlace(t)
	p.src.exec(`CREATE TABLE parent (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, w int, h int, area int GENERATED ALWAYS AS (w*h) STORED);
		INSERT INTO parent(w,h) VALUES (2,3),(4,5),(6,7); CREATE TABLE pair (a int, b text, v numeric, PRIMARY KEY (a, b));
		INSERT INTO pair SELECT g % 10, 'k' || g, g FROM generate_series(1, 200) g;
		CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TABLE feel (id int PRIMARY KEY, m mood, ts timestamptz, j jsonb, n numeric(10,2))`)
	// The target has to compute what changes don't carry (case 04).
	says(t, p.fails(cdc("parent")), `column "area"`, "generated")
	p.dst.exec(`CREATE TABLE parent (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, w int, h int, area int GENERATED ALWAYS AS (w*h) STORED)`)
	document := cdc("parent", "pair", "feel")
	out := p.must(document)
	require.Contains(t, out.receipt(t, "public.pair").Coverage, "as of a position")
	p.same("parent", "pair", "feel")
	p.src.exec(`UPDATE parent SET w = 8 WHERE id = 3; DELETE FROM pair WHERE a = 3; UPDATE pair SET v = v * 1.5 WHERE a = 4; INSERT INTO feel VALUES (1, 'ok', 'infinity', '{"a": 1}', 1.50)`)
	out = p.must(document)
	require.EqualValues(t, 1, out.receipt(t, "public.parent").RowsWritten)
	p.same("parent", "pair", "feel")
	out = p.must(document)
	require.Zero(t, out.receipt(t, "public.pair").RowsRead)
	p.src.exec(`TRUNCATE pair; INSERT INTO pair VALUES (1, 'one', 'NaN')`)
	p.must(document)
	p.same("pair")
	// A column that is new, one that is gone, and a table that is added to a stream.
	p.src.exec(`ALTER TABLE pair ADD COLUMN c int; INSERT INTO pair VALUES (2, 'two', 2, 22); ALTER TABLE feel DROP COLUMN j; INSERT INTO feel VALUES (2, 'sad', now(), 3)`)
	p.must(document)
	p.same("pair")
	require.Equal(t, p.src.text("SELECT id, m, ts, n FROM feel ORDER BY id"), p.dst.text("SELECT id, m, ts, n FROM feel ORDER BY id"))
	p.src.exec(`CREATE TABLE late (id int PRIMARY KEY, v int); INSERT INTO late SELECT g, g FROM generate_series(1, 50) g; UPDATE pair SET c = 0`)
	document = cdc("parent", "pair", "feel", "late")
	out = p.must(document)
	require.EqualValues(t, 50, out.receipt(t, "public.late").RowsWritten)
	p.same("pair", "late")
	p.src.exec(`DELETE FROM late WHERE id < 10; UPDATE parent SET h = 1`)
	p.must(document)
	p.same("parent", "late")
	// One table is read again while the others go on.
	p.dst.exec(`DELETE FROM late`)
	state, err := sqlite.Open(t.Context(), p.state)
	require.NoError(t, err)
	require.NoError(t, state.ResetResource(t.Context(), out.Run.Route, "public.late"))
	require.NoError(t, state.Close())
	p.src.exec(`UPDATE pair SET c = 1`)
	p.must(document)
	p.same("pair", "late")
}

func TestChangesRefused(t *testing.T) {
	t.Parallel()
	p := changesPlace(t)
	p.src.exec(`CREATE TABLE keyless (id int); CREATE TABLE nothing (id int PRIMARY KEY); ALTER TABLE nothing REPLICA IDENTITY NOTHING;
		CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY); CREATE VIEW view AS SELECT 1 AS id; CREATE TABLE fine (id int PRIMARY KEY)`)
	says(t, p.fails(cdc("keyless")), "public.keyless", "no key")
	says(t, p.fails(cdc("nothing")), "public.nothing", "replica identity")
	says(t, p.fails(cdc("unlogged")), "public.unlogged", "unlogged")
	says(t, p.fails(cdc("view")), "public.view", "no changes")
	says(t, p.fails(cdc("{name: public.fine, read: cdc, where: id > 1}")), "where", "filtered")
	says(t, p.fails(cdc("{name: public.fine, read: cdc, write: replace}")), "merge")
	says(t, p.fails(cdc("{name: public.fine, write: merge}")), "read: cdc")
	says(t, p.fails(doc(toPostgres, digest, "{name: public.fine, read: cdc}")), "verify: counts")
	require.Zero(t, p.src.count("SELECT count(*) FROM pg_publication"))
}

// TestChangesFollowed: a run that follows brings changes as they come, is stopped at
// a safe position, and a plain run after it catches up and ends.
func TestChangesFollowed(t *testing.T) {
	t.Parallel()
	p := changesPlace(t)
	p.src.exec(`CREATE TABLE t(id int PRIMARY KEY, v int); INSERT INTO t SELECT g, g FROM generate_series(1, 100) g`)
	document := cdc("t")
	stop, ended := make(chan struct{}), make(chan *outcome, 1)
	go func() {
		ended <- p.run(document, func(o *runner.Options) { o.Continuous, o.Stop = true, stop })
	}()
	there := func(n int64) func() bool {
		return func() bool {
			return p.dst.count("SELECT count(to_regclass('t'))") == 1 && p.dst.count("SELECT count(*) FROM t") == n
		}
	}
	require.Eventually(t, there(100), 20*time.Second, 20*time.Millisecond)
	for i := range int64(5) {
		p.src.exec(fmt.Sprintf(`INSERT INTO t VALUES (%d, 0)`, 1000+i))
		require.Eventually(t, there(101+i), 10*time.Second, 10*time.Millisecond)
	}
	close(stop)
	out := <-ended
	require.NoError(t, out.err)
	require.Equal(t, engine.StatePaused, out.Run.State)
	p.src.exec(`DELETE FROM t WHERE id > 50`)
	p.must(document)
	p.same("t")
	p.must(document)
	p.same("t")
}

// storm makes random changes to a table from several sessions until it is stopped.
func storm(t *testing.T, p *place, sessions int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range sessions {
		conn := p.src.connect()
		r := rand.New(rand.NewPCG(7, uint64(i)))
		all.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(time.Duration(r.IntN(4)) * time.Millisecond)
				id := r.IntN(3000)
				sql := []string{
					fmt.Sprintf(`UPDATE t SET n = n + 1 WHERE id = %d`, id),
					fmt.Sprintf(`UPDATE t SET n = n + 1, body = repeat('%d', 3000) WHERE id = %d`, id%10, id),
					fmt.Sprintf(`DELETE FROM t WHERE id = %d`, id),
					fmt.Sprintf(`INSERT INTO t VALUES (%d, 0, repeat('z', 2500)) ON CONFLICT DO NOTHING`, id),
					fmt.Sprintf(`BEGIN; UPDATE t SET n = -n WHERE id = %d; SAVEPOINT s; DELETE FROM t WHERE id = %d; ROLLBACK TO s; INSERT INTO other VALUES (%d) ON CONFLICT DO NOTHING; COMMIT`, id, id+1, id),
					fmt.Sprintf(`UPDATE t SET id = %d WHERE id = %d AND NOT EXISTS (SELECT FROM t WHERE id = %[1]d)`, 3000+r.IntN(3000), id),
					fmt.Sprintf(`BEGIN; UPDATE t SET n = 0 WHERE id BETWEEN %d AND %d; ROLLBACK`, id, id+20),
				}[r.IntN(7)]
				if _, err := conn.PgConn().Exec(context.WithoutCancel(ctx), sql).ReadAll(); err != nil {
					_, _ = conn.PgConn().Exec(context.WithoutCancel(ctx), "ROLLBACK").ReadAll() // two that meet: one tries again
				}
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// TestAlignedUnderStorm reads a table while it changes all the time, in attempts
// of a few moments, and catches up: it is exact.
func TestAlignedUnderStorm(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{1, 3} {
		p := changesPlace(t)
		p.src.exec(`CREATE TABLE t (id int PRIMARY KEY, n int, body text); ALTER TABLE t ALTER body SET STORAGE EXTERNAL;
			INSERT INTO t SELECT g, 0, repeat('y', 2500) FROM generate_series(1, 3000) g; CREATE TABLE other (id int PRIMARY KEY); ANALYZE t`)
		stop := storm(t, p, 3)
		document := cdc("t", "other")
		bounded := func(o *runner.Options) {
			o.Settings.Slots, o.Settings.AttemptTime, o.Settings.SplitBytes = slots, 2*time.Second, 512<<10
			o.Settings.BatchBytes, o.Settings.EpochBytes = 16<<10, 256<<10
		}
		p.must(document, bounded)
		for range 3 {
			p.must(document, bounded)
		}
		stop()
		p.must(document, bounded)
		p.same("t", "other")
	}
}
