package pgsink

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
)

const manyTypes = `CREATE TABLE public.t (
	id int PRIMARY KEY, s text, v varchar(20), n numeric(12,2), u numeric, f float8, b bytea, d date, ts timestamp, tz timestamptz,
	j json, jb jsonb, a int[], ip inet, uu uuid, i interval, m mood, ma mood[], r int4range, c box)`

func fillTypes(b *bench, n int) {
	b.exec(b.src, `CREATE TYPE public.mood AS ENUM ('sad', 'ok', 'happy')`, manyTypes,
		`INSERT INTO t SELECT g, 'row ' || g, 'v' || g, g / 7.0, g / 7.0, g / 7.0, decode(md5(g::text), 'hex'), date '2024-01-01' + g, now(), now(),
			'{"a": 1}', '{"b": 1.50}', ARRAY[g, NULL], '10.0.0.1', gen_random_uuid(), '1 day 2 hours', 'ok', '{sad,happy}', int4range(g, g + 10), '((0,0),(1,1))'
			FROM generate_series(1, `+itoa(n)+`) g`,
		`UPDATE t SET s = NULL, f = 'NaN', u = 'NaN', ts = 'infinity', a = '{}' WHERE id = 1`)
}

func TestReplaceFirstLoad(t *testing.T) {
	t.Parallel()
	for name, arrow := range map[string]bool{"wire": false, "arrow": true} {
		for _, staging := range []string{StagingLogged, StagingUnlogged} {
			t.Run(name+" "+staging, func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				fillTypes(b, 1000)
				b.options["staging"] = staging
				s := b.open(b.to)
				_, r := b.replicate(s, job{resource: b.discover("public.t"), write: engine.WriteReplace, arrow: arrow}, "")
				require.EqualValues(t, 1000, r.Applied)
				require.Equal(t, b.text(b.src, "SELECT * FROM t ORDER BY id"), b.text(b.dst, "SELECT * FROM t ORDER BY id"))
				require.Equal(t, []string{"(p,t_pkey,p)"}, b.text(b.dst, `SELECT c.relpersistence, k.conname, k.contype FROM pg_class c
					JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype = 'p' WHERE c.oid = 'public.t'::regclass`))
				require.Equal(t, []string{"(NO)"}, b.text(b.dst, `SELECT is_nullable FROM information_schema.columns WHERE table_name = 't' AND column_name = 'id'`))
			})
		}
	}
}

func TestReplaceEmptySource(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(b.src, `CREATE TABLE t (id int PRIMARY KEY)`)
	b.exec(b.dst, `CREATE TABLE t (id int PRIMARY KEY)`, `INSERT INTO t SELECT generate_series(1, 1000)`)
	b.replicate(b.open(b.to), job{resource: b.discover("public.t"), write: engine.WriteReplace}, "")
	require.Zero(t, b.count(b.dst, "SELECT count(*) FROM t"))
}
