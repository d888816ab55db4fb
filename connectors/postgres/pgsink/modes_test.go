package pgsink

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
)

func TestUpsertLastRowOfAKeyWins(t *testing.T) {
	t.Parallel()
	for name, arrow := range map[string]bool{"wire": false, "arrow": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.exec(b.src, `CREATE TABLE t (a text, id int, s text, j json)`,
				`INSERT INTO t VALUES ('k', 1, 'first', '{}'), ('k', 2, 'x', NULL), ('k', 1, 'second', '{}'), ('l', 1, 'y', '[1]'), ('k', 1, 'third', '{"z":1}')`)
			res := b.discover("public.t")
			res.Schema.Key = []string{"a", "id"}
			s := b.open(b.to)
			_, r := b.replicate(s, job{resource: res, write: engine.WriteUpsert, arrow: arrow}, "")
			require.EqualValues(t, 3, r.Applied)
			require.EqualValues(t, 2, r.Superseded)
			require.Equal(t, []string{`(k,1,third,"{""z"":1}")`, `(k,2,x,)`, `(l,1,y,[1])`}, b.text(b.dst, "SELECT * FROM t ORDER BY a, id"))
			b.exec(b.src, `UPDATE t SET s = 'later' WHERE id = 2`)
			_, r = b.replicate(s, job{resource: res, write: engine.WriteUpsert, arrow: arrow}, "WHERE id = 2")
			require.EqualValues(t, 1, r.Applied)
			require.EqualValues(t, 3, b.count(b.dst, "SELECT count(*) FROM t"))
			require.EqualValues(t, 1, b.count(b.dst, "SELECT count(*) FROM t WHERE s = 'later'"))
		})
	}
}

func TestUpsertNeedsAUniqueIndex(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := simple(b, 3)
	b.exec(b.dst, `CREATE TABLE t (id int, s text)`, `CREATE UNIQUE INDEX ON t (id) WHERE s = 'x'`)
	s := b.open(b.to)
	_, err := b.plan(s, job{resource: res, write: engine.WriteUpsert})
	require.ErrorContains(t, err, `CREATE UNIQUE INDEX ON "public"."t" ("id")`)
	b.exec(b.dst, `CREATE UNIQUE INDEX ON t (id) INCLUDE (s)`)
	b.replicate(s, job{resource: res, write: engine.WriteUpsert}, "")
	require.EqualValues(t, 3, b.count(b.dst, "SELECT count(*) FROM t"))

	none := res
	none.Schema.Key = nil
	_, err = b.plan(s, job{resource: none, write: engine.WriteUpsert})
	require.ErrorContains(t, err, "needs a key")
}

func TestNullInTheKeyIsNamed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(b.src, `CREATE TABLE t (id int, s text)`, `INSERT INTO t VALUES (1, 'a'), (NULL, 'b')`)
	res := b.discover("public.t")
	res.Schema.Key = []string{"id"}
	s := b.open(b.to)
	p := b.start(s, job{resource: res, write: engine.WriteUpsert})
	_, err := b.apply(s, p, b.rows(p, "", 10))
	var value *engine.ValueError
	require.ErrorAs(t, err, &value)
	require.Equal(t, "id", value.Column)
	require.Zero(t, b.count(b.dst, "SELECT count(*) FROM t"))
}

func TestDelete(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(b.src, `CREATE TABLE t (id int, s text)`, `INSERT INTO t VALUES (2, 'a'), (3, NULL), (3, 'twice'), (99, 'not there')`)
	res := b.discover("public.t")
	res.Schema.Key = []string{"id"}
	s := b.open(b.to)
	_, err := b.plan(s, job{resource: res, write: engine.WriteDelete})
	require.ErrorContains(t, err, "does not exist")
	b.exec(b.dst, `CREATE TABLE t (id bigint, other text)`, `INSERT INTO t SELECT g, 'x' FROM generate_series(1, 5) g`)
	_, r := b.replicate(s, job{resource: res, write: engine.WriteDelete}, "")
	require.EqualValues(t, 3, r.Applied)
	require.EqualValues(t, 1, r.Superseded)
	require.Equal(t, []string{"(1)", "(4)", "(5)"}, b.text(b.dst, "SELECT id FROM t ORDER BY id"))
}

func TestAppendLeavesOutWhatItsWindowHasAlready(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(b.src, `CREATE TABLE ev (id int PRIMARY KEY, u timestamptz)`, `INSERT INTO ev VALUES (1, '2024-05-09 13:28:27.031153+00')`)
	res := b.discover("public.ev")
	s := b.open(b.to)
	inc := job{resource: res, read: engine.ReadIncremental, write: engine.WriteAppend}
	b.replicate(s, inc, "")
	require.EqualValues(t, 1, b.count(b.dst, `SELECT count(*) FROM pg_indexes WHERE tablename = 'ev'`), "the window is looked up by an index")
	inc.window = &engine.Window{Cursor: "u", UpTo: "2024-05-09 13:28:27.031153+00"}
	_, r := b.replicate(s, inc, "")
	require.EqualValues(t, 1, r.Skipped)
	require.Zero(t, r.Applied)
	// A late commit below the mark, and one a microsecond after it (cases 11, 12).
	b.exec(b.src, `INSERT INTO ev VALUES (2, '2024-05-09 13:28:27.031153+00'), (3, '2024-05-09 13:28:27.031154+00')`)
	_, r = b.replicate(s, inc, "")
	require.EqualValues(t, 1, r.Skipped)
	require.EqualValues(t, 2, r.Applied)
	require.Equal(t, b.text(b.src, "SELECT * FROM ev ORDER BY id"), b.text(b.dst, "SELECT * FROM ev ORDER BY id"))

	res.Schema.Key = nil
	inc.resource = res
	p, err := b.plan(s, inc)
	require.NoError(t, err)
	require.True(t, p.RememberWindow, "rows without key can't be looked up here")
	require.Nil(t, p.Window)
}

func TestStagedAppendBecomesVisibleAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := simple(b, 100)
	b.exec(b.dst, `CREATE TABLE t (id int, s text)`, `INSERT INTO t VALUES (1000, 'old')`)
	s := b.open(b.to)
	p := b.start(s, job{resource: res, write: engine.WriteAppend, consistency: engine.ConsistencySnapshot, lineage: true})
	require.True(t, p.Staged)
	r, err := b.apply(s, p, b.rows(p, "", 10))
	require.NoError(t, err)
	require.EqualValues(t, 1, b.count(b.dst, "SELECT count(*) FROM t"))
	_, err = b.publish(s, p, r)
	require.NoError(t, err)
	require.EqualValues(t, 101, b.count(b.dst, "SELECT count(*) FROM t"))
	require.EqualValues(t, 100, b.count(b.dst, "SELECT count(*) FROM t WHERE _tranship_run_id = '"+p.RunID+"' AND _tranship_loaded_at > now() - interval '1 hour'"))
}

func TestLineageInEveryMode(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := simple(b, 10)
	s := b.open(b.to)
	for i, w := range []engine.WriteMode{engine.WriteReplace, engine.WriteReplace, engine.WriteUpsert, engine.WriteAppend} {
		target := "t"
		if w == engine.WriteAppend {
			target = "appended"
		}
		p, _ := b.replicate(s, job{resource: res, write: w, lineage: true, target: "public." + target}, "")
		require.EqualValues(t, 10, b.count(b.dst, "SELECT count(*) FROM "+target+" WHERE _tranship_run_id = '"+p.RunID+"'"), i)
		require.Zero(t, b.count(b.dst, `SELECT count(*) FROM pg_attrdef WHERE adrelid = '`+target+`'::regclass`), "no default stays")
	}
}

func TestIdentityAndGeneratedColumns(t *testing.T) {
	t.Parallel()
	ddl := []string{`CREATE TABLE parent(id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, w int, h int, area int GENERATED ALWAYS AS (w*h) STORED)`,
		`CREATE TABLE child(id int PRIMARY KEY, parent_id int REFERENCES parent)`,
		`CREATE TABLE only_id(id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY)`}
	for name, c := range map[string]struct{ made, arrow bool }{"same DDL, wire": {true, false}, "same DDL, arrow": {true, true}, "new tables, wire": {false, false}, "new tables, arrow": {false, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.exec(b.src, ddl...)
			b.exec(b.src, `INSERT INTO parent(w,h) VALUES (2,3),(4,5),(6,7)`, `DELETE FROM parent WHERE id < 3`, `INSERT INTO child VALUES (10,3)`,
				`INSERT INTO only_id DEFAULT VALUES`, `INSERT INTO only_id DEFAULT VALUES`, `INSERT INTO only_id DEFAULT VALUES`, `DELETE FROM only_id WHERE id = 2`)
			if c.made {
				b.exec(b.dst, ddl...)
			}
			s := b.open(b.to)
			for _, table := range []string{"public.parent", "public.child", "public.only_id"} {
				p, _ := b.replicate(s, job{resource: b.discover(table), write: engine.WriteReplace, arrow: c.arrow}, "")
				require.Empty(t, p.Warnings)
			}
			require.Equal(t, []string{"(3,6,7,42)"}, b.text(b.dst, "SELECT * FROM parent"))
			require.Equal(t, []string{"(10,3)"}, b.text(b.dst, "SELECT * FROM child"))
			require.Equal(t, []string{"(1)", "(3)"}, b.text(b.dst, "SELECT * FROM only_id ORDER BY id"))
			b.exec(b.src, `UPDATE parent SET w = 8 WHERE id = 3`)
			b.replicate(s, job{resource: b.discover("public.parent"), write: engine.WriteUpsert, arrow: c.arrow}, "")
			b.replicate(s, job{resource: b.discover("public.only_id"), write: engine.WriteUpsert, arrow: c.arrow}, "")
			require.Equal(t, []string{"(3,8,7,56)"}, b.text(b.dst, "SELECT * FROM parent"))
			require.EqualValues(t, 4, b.count(b.dst, "INSERT INTO only_id DEFAULT VALUES RETURNING id"), "the next value is a new one")
			require.EqualValues(t, 4, b.count(b.dst, "INSERT INTO parent (w, h) VALUES (1, 1) RETURNING id"))
			require.Equal(t, []string{"(a,a)"}, b.text(b.dst, `SELECT (SELECT attidentity FROM pg_attribute WHERE attrelid = 'parent'::regclass AND attname = 'id'),
				(SELECT attidentity FROM pg_attribute WHERE attrelid = 'only_id'::regclass AND attname = 'id')`))
		})
	}
}

func TestNamesThatNeedCare(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(b.src, `CREATE SCHEMA "s.t"`, `CREATE TABLE "s.t"."a.b"("Order Id" int PRIMARY KEY, "select" text, "q""t" int, "per%cent" int)`, `INSERT INTO "s.t"."a.b" VALUES (1, 'x', 2, 3)`)
	long := strings.Repeat("t", 62)
	for i, end := range []string{"a", "b"} {
		b.exec(b.src, `CREATE TABLE `+long+end+` (id int PRIMARY KEY, s text)`, `INSERT INTO `+long+end+` SELECT g, 'x' FROM generate_series(1, `+itoa(1000*(i+1))+`) g`)
	}
	s := b.open(b.to)
	for _, w := range []engine.WriteMode{engine.WriteReplace, engine.WriteReplace, engine.WriteUpsert} {
		b.replicate(s, job{resource: b.discover(`"s.t"."a.b"`), write: w}, "")
		require.Equal(t, []string{"(1,x,2,3)"}, b.text(b.dst, `SELECT "Order Id", "select", "q""t", "per%cent" FROM "s.t"."a.b"`))
	}
	// Two tables whose names differ in the last of 63 bytes, both open at a time.
	one := b.start(s, job{resource: b.discover("public." + long + "a"), write: engine.WriteReplace})
	two := b.start(s, job{resource: b.discover("public." + long + "b"), write: engine.WriteReplace})
	loaded := map[*planned]*engine.Receipt{}
	for _, p := range []*planned{one, two} {
		r, err := b.apply(s, p, b.rows(p, "", 100))
		require.NoError(t, err)
		loaded[p] = r
	}
	for p, r := range loaded {
		_, err := b.publish(s, p, r)
		require.NoError(t, err)
		require.Equal(t, r.Applied, b.count(b.dst, "SELECT count(*) FROM "+p.Name))
	}
	require.Zero(t, b.count(b.dst, `SELECT count(*) FROM pg_class WHERE relname LIKE '\_tranship\_%' AND relkind = 'r' AND relnamespace = 'public'::regnamespace`))
}

func TestLongColumnNamesStayApart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res := simple(b, 1)
	long := strings.Repeat("k", 70)
	res.Schema.Fields[0].Name, res.Schema.Fields[1].Name = long+"_alpha", long+"_beta"
	res.Schema.Key = []string{long + "_alpha"}
	p, err := b.plan(b.open(b.to), job{resource: res, write: engine.WriteReplace})
	require.NoError(t, err)
	require.Equal(t, long+"_alpha", p.Columns[0].Source)
	require.NotEqual(t, p.Columns[0].Name, p.Columns[1].Name)
	require.LessOrEqual(t, len(p.Columns[0].Name), maxName)
}

func TestTwoResourcesOneTarget(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(b.src, `CREATE SCHEMA a`, `CREATE SCHEMA b`, `CREATE TABLE a.t (id int)`, `CREATE TABLE b.t (id int)`)
	b.options["schema"] = "replica"
	s := b.open(b.to)
	_, err := b.plan(s, job{resource: b.discover("a.t"), write: engine.WriteReplace, others: []string{"a.t", "b.t"}})
	require.ErrorContains(t, err, "a.t and b.t")
	one, err := b.plan(s, job{resource: b.discover("a.t"), write: engine.WriteReplace, target: "replica.x"})
	require.NoError(t, err)
	two, err := b.plan(s, job{resource: b.discover("b.t"), write: engine.WriteReplace, target: "replica.x"})
	require.NoError(t, err)
	_, err = s.Prepare(b.ctx, one.Target)
	require.NoError(t, err)
	_, err = s.Prepare(b.ctx, two.Target)
	require.ErrorContains(t, err, "both be written to table replica.x")
}
