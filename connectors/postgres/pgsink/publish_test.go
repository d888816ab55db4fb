package pgsink

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/engine"
)

// poll counts the target's rows all the time until stopped, and returns the
// different counts in the order in which they were first seen (case 23).
func (b *bench) poll(sql string) (stop func() []int64) {
	b.Helper()
	conn := b.connect(b.to)
	ctx, cancel := context.WithCancel(b.ctx)
	var seen []int64
	var failure error
	var wg sync.WaitGroup
	look := func() bool {
		var n int64
		if failure = conn.QueryRow(b.ctx, sql).Scan(&n); failure != nil {
			return false
		}
		if len(seen) == 0 || seen[len(seen)-1] != n {
			seen = append(seen, n)
		}
		return true
	}
	// The first look comes before anything is done, the last one after all of it.
	look()
	wg.Go(func() {
		for ctx.Err() == nil && look() {
			time.Sleep(2 * time.Millisecond)
		}
		if failure == nil {
			look()
		}
	})
	b.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return func() []int64 {
		cancel()
		wg.Wait()
		require.NoError(b, failure)
		return seen
	}
}

// target is a table with everything on it that a swap has to keep.
func richTarget(b *bench) {
	role := "reader_" + hash(b.to)[:8]
	b.exec(b.dst, `CREATE TABLE public.other (id int PRIMARY KEY)`, `INSERT INTO other VALUES (1)`,
		`CREATE TABLE public.t (id int GENERATED ALWAYS AS IDENTITY, name text DEFAULT 'x', amount int CHECK (amount >= 0), code serial,
			other_id int REFERENCES other, twice int GENERATED ALWAYS AS (amount * 2) STORED, CONSTRAINT "the key" PRIMARY KEY (id), CONSTRAINT "uni q" UNIQUE (name, amount))`,
		`CREATE INDEX "by name" ON t (lower(name)) WHERE amount > 5`,
		`COMMENT ON TABLE t IS 'a comment'`, `COMMENT ON INDEX "by name" IS 'index comment'`, `COMMENT ON COLUMN t.name IS 'column comment'`,
		`ALTER TABLE t REPLICA IDENTITY FULL`, `ALTER TABLE t SET (fillfactor = 77)`, `ALTER TABLE t ALTER name SET STORAGE EXTERNAL`,
		`CREATE ROLE `+role, `GRANT SELECT ON t TO `+role+` WITH GRANT OPTION`, `GRANT USAGE ON SEQUENCE t_id_seq TO `+role,
		`INSERT INTO t (name, amount) SELECT 'old' || g, g FROM generate_series(1, 1000) g`)
	b.Cleanup(func() {
		_, _ = b.dst.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role)
	})
}

func describe(b *bench) []string {
	var all []string
	for _, q := range []string{
		`SELECT pg_get_indexdef(indexrelid) AS d, obj_description(indexrelid, 'pg_class') FROM pg_index WHERE indrelid = 'public.t'::regclass ORDER BY d`,
		`SELECT conname, contype, pg_get_constraintdef(oid), convalidated FROM pg_constraint WHERE conrelid = 'public.t'::regclass ORDER BY 1`,
		`SELECT attname, format_type(atttypid, atttypmod), attnotnull, attidentity, attgenerated, attstorage, pg_get_expr(d.adbin, d.adrelid), col_description(attrelid, attnum)
			FROM pg_attribute LEFT JOIN pg_attrdef d ON adrelid = attrelid AND adnum = attnum WHERE attrelid = 'public.t'::regclass AND attnum > 0 ORDER BY attnum`,
		`SELECT relreplident, reloptions, obj_description(oid, 'pg_class'), relpersistence, (SELECT array_agg(a::text ORDER BY a::text) FROM aclexplode(relacl) a) FROM pg_class WHERE oid = 'public.t'::regclass`,
		`SELECT relname, (SELECT array_agg(a::text ORDER BY a::text) FROM aclexplode(relacl) a WHERE grantee <> relowner) FROM pg_class WHERE relkind = 'S' AND relnamespace = 'public'::regnamespace ORDER BY 1`,
		`SELECT pg_get_serial_sequence('public.t', 'id'), pg_get_serial_sequence('public.t', 'code')`,
	} {
		all = append(all, b.text(b.dst, q)...)
	}
	return all
}

func sourceForRich(b *bench, rows int) engine.Resource {
	b.exec(b.src, `CREATE TABLE public.t (id int PRIMARY KEY, name text, amount int, other_id int)`,
		fmt.Sprintf(`INSERT INTO t SELECT g, 'new' || g, g, 1 FROM generate_series(1, %d) g`, rows))
	return b.discover("public.t")
}

func TestSwapKeepsEverythingOfTheTarget(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	richTarget(b)
	before := describe(b)
	seen := b.poll("SELECT count(*) FROM public.t")
	s := b.open(b.to)
	p, _ := b.replicate(s, job{resource: sourceForRich(b, 2500), write: engine.WriteReplace}, "")
	require.Contains(t, p.Technique, "swapped")
	require.Equal(t, []int64{1000, 2500}, seen(), "old rows until the commit, then the new ones")
	require.Equal(t, before, describe(b))
	require.EqualValues(t, 2500, b.count(b.dst, `SELECT sum((twice = amount * 2 AND name = 'new' || id)::int) FROM t`))
	// Identity goes on behind the loaded rows, the serial where it was.
	require.EqualValues(t, 2501, b.count(b.dst, `INSERT INTO t (name, amount) VALUES ('next', 1) RETURNING id`))
	require.Greater(t, b.count(b.dst, `SELECT code FROM t WHERE name = 'next'`), int64(1000))
	// And once more, over the swapped table.
	p, _ = b.replicate(s, job{resource: b.discover("public.t"), write: engine.WriteReplace}, "WHERE id <= 10")
	require.Contains(t, p.Technique, "swapped")
	require.Equal(t, before, describe(b))
	require.EqualValues(t, 2502, b.count(b.dst, `INSERT INTO t (name, amount) VALUES ('next', 1) RETURNING id`))
}

func TestReplaceWhereOthersDependOnTheTable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ddl       string
		technique string
		survives  string
	}{
		"view":        {`CREATE VIEW v AS SELECT count(*) AS n FROM t`, "merged", `SELECT n FROM v`},
		"foreign key": {`CREATE TABLE child (t_id int REFERENCES t DEFERRABLE); INSERT INTO child VALUES (1), (5)`, "merged", `SELECT 3 FROM child HAVING count(*) = 2`},
		"cascade":     {`CREATE TABLE child (t_id int REFERENCES t ON DELETE CASCADE); INSERT INTO child VALUES (1), (5)`, "merged", `SELECT 3 FROM child HAVING count(*) = 2`},
		"publication": {`CREATE PUBLICATION p FOR TABLE t`, "merged", `SELECT 3 FROM pg_publication_tables WHERE tablename = 't'`},
		"policy":      {`CREATE POLICY p ON t USING (true); ALTER TABLE t ENABLE ROW LEVEL SECURITY`, "merged", `SELECT 3 FROM pg_policy`},
		"trigger": {`CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()`,
			"merged", `SELECT 3 FROM pg_trigger WHERE tgname = 'g'`},
		"row type": {`CREATE FUNCTION rt(t) RETURNS int LANGUAGE sql AS 'SELECT 1'`, "merged", `SELECT 3 FROM pg_proc WHERE proname = 'rt'`},
		"keyless view": {`ALTER TABLE t DROP CONSTRAINT t_pkey; CREATE VIEW v AS SELECT count(*) AS n FROM t`,
			"exchanged", `SELECT n FROM v`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.exec(b.src, `CREATE TABLE t (id int PRIMARY KEY, s text, j json)`,
				`INSERT INTO t VALUES (1, 'one', '{}'), (5, 'changed', '{"a":1}'), (7, 'new', NULL)`)
			b.exec(b.dst, `CREATE TABLE t (id int PRIMARY KEY, s text, j json)`,
				`INSERT INTO t VALUES (1, 'one', '{}'), (5, 'five', '{}'), (6, 'gone', NULL), (8, 'gone', NULL)`, c.ddl)
			oid := b.count(b.dst, `SELECT 't'::regclass::oid::int8`)
			seen := b.poll("SELECT count(*) FROM t")
			p, _ := b.replicate(b.open(b.to), job{resource: b.discover("public.t"), write: engine.WriteReplace}, "")
			require.Equal(t, []int64{4, 3}, seen())
			require.Contains(t, p.Technique, c.technique)
			require.Equal(t, b.text(b.src, "SELECT * FROM t ORDER BY id"), b.text(b.dst, "SELECT * FROM t ORDER BY id"))
			require.Equal(t, oid, b.count(b.dst, `SELECT 't'::regclass::oid::int8`), "the table is the same one")
			require.EqualValues(t, 3, b.count(b.dst, c.survives))
		})
	}
}

func TestReplaceRefusesToTouchOtherTablesRows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ ddl, says string }{
		"cascade":      {`CREATE TABLE child (t_id int REFERENCES t ON DELETE CASCADE); INSERT INTO child VALUES (2)`, "id=2"},
		"set null":     {`CREATE TABLE child (t_id int REFERENCES t ON DELETE SET NULL); INSERT INTO child VALUES (2)`, "id=2"},
		"no action":    {`CREATE TABLE child (t_id int REFERENCES t); INSERT INTO child VALUES (2)`, "(id)=(2)"},
		"other column": {`ALTER TABLE t ADD n int UNIQUE; CREATE TABLE child (n int REFERENCES t (n) ON DELETE CASCADE); UPDATE t SET n = id; INSERT INTO child VALUES (2)`, "id=2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.exec(b.src, `CREATE TABLE t (id int PRIMARY KEY)`, `INSERT INTO t VALUES (1)`)
			b.exec(b.dst, `CREATE TABLE t (id int PRIMARY KEY)`, `INSERT INTO t VALUES (1), (2)`, c.ddl)
			s := b.open(b.to)
			p := b.start(s, job{resource: b.discover("public.t"), write: engine.WriteReplace})
			r, err := b.apply(s, p, b.rows(p, "", 10))
			require.NoError(t, err)
			_, err = b.publish(s, p, r)
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, "child")
			require.Equal(t, engine.Permanent, engine.ClassOf(err))
			require.EqualValues(t, 2, b.count(b.dst, "SELECT count(*) FROM t"))
			require.EqualValues(t, 1, b.count(b.dst, "SELECT count(*) FROM child"))
			require.NoError(t, s.Abort(b.ctx, p.Target))
			require.Zero(t, b.count(b.dst, `SELECT count(*) FROM pg_class WHERE relname LIKE '\_tranship\_%' AND relnamespace = 'public'::regnamespace`))
		})
	}
}

func TestReplaceWithoutUsableKeyIsRefusedBeforeAnythingIsRead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(b.src, `CREATE TABLE t (id int, n int)`)
	b.exec(b.dst, `CREATE TABLE t (id int PRIMARY KEY, n int)`, `CREATE TABLE child (t_id int REFERENCES t)`)
	_, err := b.plan(b.open(b.to), job{resource: b.discover("public.t"), write: engine.WriteReplace})
	require.ErrorContains(t, err, "child")
	require.Equal(t, engine.Permanent, engine.ClassOf(err))
}

func TestPublishIsDoneOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(b.src, `CREATE TABLE t (id int PRIMARY KEY)`, `INSERT INTO t SELECT generate_series(1, 10)`)
	s := b.open(b.to)
	p := b.start(s, job{resource: b.discover("public.t"), write: engine.WriteReplace, cursor: `{"mark": "x"}`})
	r, err := b.apply(s, p, b.rows(p, "", 3))
	require.NoError(t, err)
	first, err := b.publish(s, p, r)
	require.NoError(t, err)
	require.False(t, first.AlreadyDone)
	b.exec(b.dst, `INSERT INTO t VALUES (11)`)

	// P8: a late redelivery neither swaps again nor makes an empty staging.
	late := b.open(b.to)
	_, err = late.Prepare(b.ctx, p.Target)
	require.NoError(t, err)
	require.NoError(t, late.BeginRun(b.ctx, []*engine.Target{p.Target}))
	require.NoError(t, late.Freeze(b.ctx, p.Target, p.plan))
	pub := b.publication(p, 2)
	again, err := late.Publish(b.ctx, pub)
	require.NoError(t, err)
	require.True(t, again.AlreadyDone)
	require.Equal(t, first.Applied, again.Applied)
	require.EqualValues(t, 10, again.Published.Applied)
	require.EqualValues(t, 11, b.count(b.dst, "SELECT count(*) FROM t"))
	require.Zero(t, b.count(b.dst, `SELECT count(*) FROM pg_class WHERE relname LIKE '\_tranship\_%' AND relnamespace = 'public'::regnamespace`))

	found, err := late.Adopt(b.ctx, b.route)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.True(t, found[0].Resources[0].Published)
	require.JSONEq(t, `{"mark": "x"}`, string(found[0].Resources[0].Cursor))
}

func TestPublishNeedsEverySplit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(b.src, `CREATE TABLE t (id int PRIMARY KEY)`, `INSERT INTO t SELECT generate_series(1, 10)`)
	s := b.open(b.to)
	p := b.start(s, job{resource: b.discover("public.t"), write: engine.WriteReplace, splits: []string{"a", "b"}})
	r, err := b.apply(s, p, b.rows(p, "", 3))
	require.NoError(t, err)
	_, err = b.publish(s, p, r)
	require.ErrorContains(t, err, "split b is not done")
	require.ErrorIs(t, err, engine.ErrStagingLost)

	_, err = s.Claim(b.ctx, p.Target, "b", 1)
	require.NoError(t, err)
	_, err = s.Apply(b.ctx, epoch(p, "b", 1, 1, true, nil))
	require.NoError(t, err)
	// Somebody has removed rows behind the ledger's back.
	b.exec(b.dst, "DELETE FROM "+qualified("public", stagingName(p.Target, "t"))+" WHERE id = 3")
	_, err = b.publish(s, p, r)
	require.ErrorIs(t, err, engine.ErrStagingLost)
}

func TestDuplicateAndNullKeysAreNamed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(b.src, `CREATE TABLE t (id int, s text)`, `INSERT INTO t VALUES (1, 'a'), (2, 'b'), (2, 'c')`,
		`CREATE TABLE n (id int, s text)`, `INSERT INTO n VALUES (1, 'a'), (NULL, 'b')`)
	s := b.open(b.to)
	for name, says := range map[string]string{"public.t": "id=2", "public.n": "id=NULL"} {
		res := b.discover(name)
		res.Schema.Key = []string{"id"}
		p := b.start(s, job{resource: res, write: engine.WriteReplace})
		r, err := b.apply(s, p, b.rows(p, "", 10))
		require.NoError(t, err)
		_, err = b.publish(s, p, r)
		var value *engine.ValueError
		require.ErrorAs(t, err, &value)
		require.Equal(t, says, value.Key)
		require.Equal(t, engine.Permanent, engine.ClassOf(err))
	}
}

func TestALongReaderDelaysPublishButNotOtherReaders(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(b.src, `CREATE TABLE t (id int PRIMARY KEY)`, `INSERT INTO t SELECT generate_series(1, 10)`)
	b.exec(b.dst, `CREATE TABLE t (id int PRIMARY KEY)`)
	s := b.open(b.to)
	p := b.start(s, job{resource: b.discover("public.t"), write: engine.WriteReplace})
	r, err := b.apply(s, p, b.rows(p, "", 10))
	require.NoError(t, err)
	long, err := pgconf.Connect(b.ctx, &pgconf.Config{URL: b.to}, engine.OpenOptions{}, pgconf.Role{Name: "long"})
	require.NoError(t, err)
	b.exec(long, "BEGIN", "SELECT count(*) FROM t")
	time.AfterFunc(3*time.Second, func() { _ = long.Close(context.Background()) })
	var slowest time.Duration
	stop := make(chan struct{})
	reader := b.connect(b.to)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				began := time.Now()
				_, _ = reader.Exec(b.ctx, "SELECT count(*) FROM t")
				slowest = max(slowest, time.Since(began))
				time.Sleep(10 * time.Millisecond)
			}
		}
	})
	_, err = b.publish(s, p, r)
	close(stop)
	wg.Wait()
	require.NoError(t, err)
	require.Less(t, slowest, ddlLock+time.Second, "P8: readers queue behind us for no longer than one try")
	require.EqualValues(t, 10, b.count(b.dst, "SELECT count(*) FROM t"))
}
