package pgsource_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
)

// P13: ranges and positions follow the server's order, whatever the key's type and collation.
func TestKeysOfAllTypes(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE EXTENSION citext; CREATE SCHEMA "odd.schema";
		CREATE COLLATION en (provider = icu, locale = 'en-US');
		CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
		CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
		CREATE DOMAIN posint AS int CHECK (VALUE > 0)`)
	s := d.open()
	for i, c := range []struct{ columns, key, rows string }{
		{"k bigint", "k", "i::bigint * 4000000000 - 3000000000000"},
		{"k smallint", "k", "i"},
		{"k oid", "k", "3000000000 + i"},
		{"k posint", "k", "i"},
		{`k text COLLATE "C"`, "k", "(ARRAY['a','B','ä','Z','_',' ','é''\"','日本'])[1 + i % 8] || i"},
		{"k text COLLATE en", "k", "(ARRAY['a','B','ä','Z','_',' ','é''\"','日本'])[1 + i % 8] || i"},
		{"k text COLLATE loose", "k", "(ARRAY['a','B','ä','Z'])[1 + i % 4] || i"},
		{"k citext", "k", "(ARRAY['a','B','ä','Z'])[1 + i % 4] || i"},
		{"k varchar(20)", "k", "'x' || i"},
		{"k char(20)", "k", "'x' || i"},
		{"k name", "k", "'x' || i"},
		{"k uuid", "k", "md5(i::text)::uuid"},
		{"k bytea", "k", "decode(md5(i::text), 'hex')"},
		{"k numeric", "k", "(i - 300) / 7.0"},
		{"k float8", "k", "(i - 300) / 7.0::float8"},
		{"k real", "k", "(i - 300) / 7.0::real"},
		{"k timestamptz", "k", "'2024-01-01'::timestamptz + i * interval '1.000001 s'"},
		{"k timestamp", "k", "'0044-03-15 BC'::timestamp + i * interval '1.000001 s'"},
		{"k date", "k", "'2024-01-01'::date - i"},
		{"k time", "k", "'00:00'::time + i * interval '1.000001 s'"},
		{"k interval", "k", "i * interval '1 day 1.5 s'"},
		{"k inet", "k", "'10.0.0.0'::inet + i"},
		{"k int4range", "k", "int4range(i, i + 10)"},
		{"k int[]", "k", "ARRAY[i % 7, i]"},
		{"k jsonb", "k", "jsonb_build_object('i', i)"},
		{"a mood, b int", "a, b", "(enum_range(NULL::mood))[1 + i % 3], i"},
		{"a int, b text COLLATE en, c uuid", "a, b, c", "i % 3, (ARRAY['a','B','ä','Z'])[1 + i % 4], md5(i::text)::uuid"},
		{`"select" int, "q""t" text`, `"q""t", "select"`, "i, i::text"},
	} {
		t.Run(c.columns, func(t *testing.T) {
			table := fmt.Sprintf(`"odd.schema"."t.%d"`, i)
			d.exec(fmt.Sprintf(`CREATE TABLE %s (%s, n int, pad text, PRIMARY KEY (%s)) WITH (fillfactor = 30);
				INSERT INTO %[1]s SELECT %[4]s, i, repeat('x', 50) FROM generate_series(1, 600) i ORDER BY md5(i::text); ANALYZE %[1]s`,
				table, c.columns, c.key, c.rows))
			req := full(table, splitBytes(30_000))
			p := plan(t, s, req)
			require.Greater(t, len(p.Splits), 3)
			n := len(p.Resource.Schema.Fields) - 2
			var digests []any
			for _, o := range []readOptions{{}, {batch: 3000, limit: 3}, {batch: 4000, limit: 4, wire: engine.WirePostgresCopy},
				{batch: 3000, limit: 3, wire: engine.WirePostgresCopy, asText: p.Resource.Schema.Names()[:n]}} {
				w := readAll(t, s, p, req.Selection, o)
				require.Len(t, w.rows, 600)
				requireUnique(t, column(w.rows, n))
				if o.asText == nil && o.wire == "" {
					digests = append(digests, w.digest)
				}
			}
			require.Len(t, slices.Compact(digests), 1)
		})
	}
}

func TestWhichKeyIsTaken(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`)
	s := d.open()
	for i, c := range []struct {
		ddl string
		key []string
	}{
		{"a int PRIMARY KEY, b int NOT NULL UNIQUE", []string{"a"}},
		{"a int, b int NOT NULL UNIQUE", []string{"b"}},
		{"a int NOT NULL, b int NOT NULL, c int NOT NULL, UNIQUE (a, b), UNIQUE (c)", []string{"c"}},
		{"a int, b int, PRIMARY KEY (b, a)", []string{"b", "a"}},
		{"a int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED", []string{"a"}},
		{"a int UNIQUE", nil},
		{"a int NOT NULL UNIQUE DEFERRABLE", nil},
		{"a int NOT NULL, b int; CREATE UNIQUE INDEX ON t%d (a) WHERE b > 0", nil},
		{"a int NOT NULL; CREATE UNIQUE INDEX ON t%d ((a + 1))", nil},
		{"a int NOT NULL, b int; CREATE UNIQUE INDEX ON t%d (a) INCLUDE (b)", []string{"a"}},
		{`a text NOT NULL COLLATE loose; CREATE UNIQUE INDEX ON t%d (a COLLATE "C")`, nil},
		{"a int4range NOT NULL, EXCLUDE USING gist (a WITH &&)", nil},
	} {
		ddl := c.ddl
		if before, after, ok := cutStatement(ddl); ok {
			ddl = before + ")" + fmt.Sprintf(after, i)
		} else {
			ddl += ")"
		}
		d.exec(fmt.Sprintf("CREATE TABLE t%d (", i) + ddl)
		res, err := s.Discover(context.Background(), []string{fmt.Sprintf("public.t%d", i)})
		require.NoError(t, err)
		require.Equal(t, c.key, res[0].Schema.Key, c.ddl)
	}
}

func cutStatement(s string) (before, after string, ok bool) {
	for i := range s {
		if s[i] == ';' {
			return s[:i], s[i:], true
		}
	}
	return s, "", false
}

func TestGivenKey(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE g (a int, b text, c numeric, pad text); CREATE INDEX ON g (a, b);
		INSERT INTO g SELECT i, 'b' || i, i, repeat('x', 100) FROM generate_series(1, 3000) i; ANALYZE g`)
	s := d.open()
	req := full("public.g", key("a", "b"), splitBytes(50_000))
	p := plan(t, s, req)
	require.Equal(t, engine.ConsistencyChunked, p.Consistency)
	require.Greater(t, len(p.Splits), 3)
	w := readAll(t, s, p, req.Selection, readOptions{batch: 3000, limit: 1})
	require.Len(t, w.rows, 3000)
	requireUnique(t, column(w.rows, 0))

	// Without an index that orders by it: one piece.
	byB := full("public.g", key("b"), splitBytes(50_000))
	p = plan(t, s, byB)
	require.Len(t, p.Splits, 1)
	require.Contains(t, p.Warnings[0], "no index has the key (b)")
	require.Len(t, readAll(t, s, p, byB.Selection, readOptions{batch: 3000, limit: 1}).rows, 3000)

	_, err := s.Plan(context.Background(), full("public.g", key("c")))
	requireClass(t, engine.Permanent, err, "no unique index proves the key")
	_, err = s.Plan(context.Background(), full("public.g", key("nope")))
	requireClass(t, engine.Permanent, err, `no column "nope"`)
	_, err = s.Plan(context.Background(), full("public.g", key("a", "a")))
	requireClass(t, engine.Permanent, err, "twice")

	fails := func(want ...string) {
		t.Helper()
		for _, wire := range []engine.WireFormat{"", engine.WirePostgresCopy} {
			p := plan(t, s, req)
			var failed error
			for _, split := range p.Splits {
				w := &writer{t: t, plan: p}
				if _, err := s.Read(context.Background(), engine.ReadRequest{Split: split, Plan: p, Wire: wire}, w); err != nil {
					failed = err
				}
			}
			requireClass(t, engine.Permanent, failed, want...)
		}
	}
	d.exec("INSERT INTO g VALUES (1500, 'b1500')")
	fails("is not unique", "a=1500, b=b1500")
	d.exec("UPDATE g SET a = NULL WHERE c IS NULL")
	fails("(a, b) is NULL in a row")
}
