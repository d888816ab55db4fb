package pgsource_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
)

const events = `CREATE TABLE events (id int, at date NOT NULL, t text, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM ('2024-02-01') TO ('2024-03-01') PARTITION BY HASH (id);
CREATE TABLE events_2a PARTITION OF events_2 FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE events_2b PARTITION OF events_2 FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE TABLE events_3 (t text, gone int, at date NOT NULL, id int NOT NULL);
ALTER TABLE events_3 DROP COLUMN gone;
ALTER TABLE events ATTACH PARTITION events_3 FOR VALUES FROM ('2024-03-01') TO ('2024-04-01');
CREATE TABLE events_0 PARTITION OF events DEFAULT;
INSERT INTO events SELECT i, '2024-01-01'::date + i % 91, repeat('x', i % 200) FROM generate_series(1, 4000) i;
ANALYZE events`

func TestPartitionedTable(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(events)
	s := d.open()
	res, err := s.Discover(context.Background(), []string{"public.*"})
	require.NoError(t, err)
	require.Len(t, res, 1, "partitions are part of their table")
	require.Equal(t, "partitioned table", res[0].Kind)
	require.Equal(t, []string{"id", "at"}, res[0].Schema.Key)
	require.Equal(t, int64(4000), res[0].Rows)
	require.Positive(t, res[0].Bytes)

	for _, consistency := range []engine.Consistency{engine.ConsistencySnapshot, engine.ConsistencyChunked} {
		req := full("public.events", splitBytes(50_000))
		req.Consistency = consistency
		p := plan(t, s, req)
		require.Greater(t, len(p.Splits), 5)
		for _, o := range []readOptions{{batch: 5000, limit: 1}, {wire: engine.WirePostgresCopy}} {
			w := readAll(t, s, p, req.Selection, o)
			require.Len(t, w.rows, 4000)
			requireUnique(t, column(w.rows, 0))
		}
	}

	// A role with rights on the parent alone can't read partitions by themselves.
	role := open(t, d.role("parent", "GRANT SELECT ON events TO %s"))
	req := full("public.events", snapshot, splitBytes(50_000))
	p := plan(t, role, req)
	require.Len(t, readAll(t, role, p, req.Selection, readOptions{batch: 5000, limit: 1}).rows, 4000)

	// A partition that is emptied meanwhile is noticed.
	chunked := plan(t, s, full("public.events", splitBytes(50_000)))
	other := d.open()
	require.NoError(t, s.Close(context.Background()))
	require.NoError(t, role.Close(context.Background()))
	d.exec("TRUNCATE events_2a")
	require.ErrorIs(t, readErr(t, other, chunked, chunked.Splits[3], nil), engine.ErrSnapshotLost)

	one := full("public.events_1", snapshot)
	require.NotEmpty(t, readAll(t, other, plan(t, other, one), one.Selection, readOptions{}).rows)
}

func TestViewsAndForeignTables(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(numbers)
	u, err := url.Parse(d.url)
	require.NoError(t, err)
	pass, _ := u.User.Password()
	d.exec(fmt.Sprintf(`CREATE VIEW v AS SELECT id, t, n FROM numbers WHERE id > 1000;
		CREATE MATERIALIZED VIEW m AS SELECT * FROM numbers; CREATE UNIQUE INDEX ON m (id);
		CREATE EXTENSION postgres_fdw;
		CREATE SERVER self FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '%s', port '%s', dbname '%s');
		CREATE USER MAPPING FOR CURRENT_USER SERVER self OPTIONS (user '%s', password '%s');
		CREATE FOREIGN TABLE f (id int, t text) SERVER self OPTIONS (table_name 'numbers');
		CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child (x int) INHERITS (parent);
		INSERT INTO parent VALUES (1); INSERT INTO child VALUES (2, 2)`,
		u.Hostname(), u.Port(), u.Path[1:], u.User.Username(), pass))
	s := d.open()
	for name, c := range map[string]struct {
		kind        string
		rows        int
		consistency engine.Consistency
	}{
		"public.v":      {"view", 4000, engine.ConsistencySnapshot},
		"public.m":      {"materialized view", 5000, engine.ConsistencySnapshot},
		"public.f":      {"foreign table", 5000, engine.ConsistencySnapshot},
		"public.parent": {"table", 1, engine.ConsistencyChunked},
		"public.child":  {"table", 1, engine.ConsistencySnapshot},
	} {
		t.Run(name, func(t *testing.T) {
			req := full(name)
			p := plan(t, s, req)
			require.Equal(t, c.kind, p.Resource.Kind)
			require.Equal(t, c.consistency, p.Consistency)
			for _, o := range []readOptions{{}, {wire: engine.WirePostgresCopy, batch: 10_000, limit: 1}} {
				require.Len(t, readAll(t, s, p, req.Selection, o).rows, c.rows)
			}
		})
	}
	t.Run("view with a key", func(t *testing.T) {
		req := full("public.v", key("id"))
		p := plan(t, s, req)
		require.Equal(t, engine.ConsistencyChunked, p.Consistency)
		require.Len(t, readAll(t, s, p, req.Selection, readOptions{batch: 10_000, limit: 1}).rows, 4000)
	})
	t.Run("refresh waits for the snapshot", func(t *testing.T) {
		_, err := d.conn.Exec(context.Background(), "SET lock_timeout = '100ms'; REFRESH MATERIALIZED VIEW m")
		require.ErrorContains(t, err, "lock timeout")
	})
	t.Run("incremental", func(t *testing.T) {
		r := newRoute(t, s, "public.v", "id", key("id"))
		require.Len(t, r.run(readOptions{}), 4000)
		require.Contains(t, fmt.Sprint(r.plan.Warnings), "of a view it can't be known")
	})
}

func TestDiscover(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE SCHEMA "s.t"; CREATE TABLE "s.t"."a.b" ("Order Id" int PRIMARY KEY, "select" text, "q""t" int);
		INSERT INTO "s.t"."a.b" VALUES (1, 'x', 2);
		CREATE TYPE mood AS ENUM ('sad', 'ok');
		CREATE TABLE shop (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, w numeric(12,2) NOT NULL DEFAULT 1.5, m mood,
			d numeric(14,2) GENERATED ALWAYS AS (w * 2) STORED, r int4range, at timestamptz DEFAULT now());
		COMMENT ON TABLE shop IS 'what is sold'; COMMENT ON COLUMN shop.w IS 'weight';
		CREATE TABLE "Shop" (x int); CREATE TEMP TABLE scratch (x int)`)
	s := d.open()
	ctx := context.Background()
	names := func(patterns ...string) (out []string) {
		res, err := s.Discover(ctx, patterns)
		require.NoError(t, err)
		for _, r := range res {
			out = append(out, r.Name)
		}
		return out
	}
	require.Equal(t, []string{"public.Shop", "public.shop", `"s.t"."a.b"`}, names())
	require.Equal(t, []string{"public.Shop", "public.shop"}, names("public.*"))
	require.Equal(t, []string{"public.Shop", "public.shop"}, names("public.?hop"))
	require.Equal(t, []string{"public.shop"}, names("shop"))
	require.Equal(t, []string{`"s.t"."a.b"`}, names(`"s.t".*`))
	require.Equal(t, []string{`"s.t"."a.b"`, "public.Shop", "public.shop"}, names(`"s.t"."a.b"`, "*.?hop"))
	require.Empty(t, names("public.nothing", "nothing.*"))
	for _, bad := range []string{"", "a.b.c", `"a`, "a..b", `a"b`} {
		_, err := s.Discover(ctx, []string{bad})
		requireClass(t, engine.Permanent, err, "can't be read")
	}

	res, err := s.Discover(ctx, []string{"public.shop"})
	require.NoError(t, err)
	shop := res[0].Schema
	require.Equal(t, "what is sold", shop.Comment)
	require.Equal(t, []string{"id"}, shop.Key)
	id, w, m, g, r := shop.Fields[0], shop.Fields[1], shop.Fields[2], shop.Fields[3], shop.Fields[4]
	require.Equal(t, "always", id.Identity)
	require.False(t, id.Nullable)
	require.Equal(t, "numeric(12,2)", w.Native.Type)
	require.Equal(t, "weight", w.Comment)
	require.Equal(t, "1.5", w.Default)
	require.Equal(t, []string{"sad", "ok"}, m.Type.Labels)
	require.Equal(t, "public.mood", m.Native.Type)
	require.True(t, m.Nullable)
	require.True(t, g.Generated)
	require.Empty(t, g.Default)
	require.Equal(t, "int4range", r.Native.Type)

	// Case 09 d: names with dots, quotes and keywords.
	req := full(`"s.t"."a.b"`)
	p := plan(t, s, req)
	require.Equal(t, []string{"Order Id", "select", `q"t`}, p.Resource.Schema.Names())
	require.Equal(t, [][]string{{"1", "x", "2"}}, readAll(t, s, p, req.Selection, readOptions{}).rows)
}
