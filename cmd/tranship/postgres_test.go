package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// builtin is a place whose commands know every connector that is built in.
type builtin struct{ *place }

func (r builtin) run(args ...string) int {
	r.t.Helper()
	r.out, r.err = &buffer{}, &buffer{}
	a := r.app()
	a.catalog = catalog.New(r.out)
	return a.main(context.Background(), r.args(args))
}

func (r builtin) write(text string) {
	r.t.Helper()
	require.NoError(r.t, os.WriteFile(filepath.Join(r.dir, "pipeline.yaml"), []byte(text), 0o600))
}

func query[T any](t *testing.T, dsn, sql string) T {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	var v T
	require.NoError(t, conn.QueryRow(context.Background(), sql).Scan(&v))
	return v
}

func exec(t *testing.T, dsn, sql string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(context.Background(), sql)
	require.NoError(t, err)
}

const shop = `
	CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, password text, active bool NOT NULL);
	INSERT INTO customers SELECT i, 'c' || i, 'secret' || i, i % 3 > 0 FROM generate_series(1, 300) i;
	CREATE TABLE orders (id bigint PRIMARY KEY, customer int REFERENCES customers, amount numeric(12,2), updated_at timestamptz NOT NULL DEFAULT now());
	INSERT INTO orders SELECT i, i % 300 + 1, i * 1.25, timestamptz '2024-01-01' + i * interval '1 minute' FROM generate_series(1, 5000) i;
	CREATE VIEW summary AS SELECT customer, count(*) FROM orders GROUP BY 1;`

// The way of the README: init, check, plan, run, change, run again.
func TestPostgresToPostgres(t *testing.T) {
	t.Parallel()
	srv := pgtest.Shared(t)
	r := builtin{newPlace(t)}
	r.env["SOURCE_URL"], r.env["SINK_URL"] = pgtest.NewDatabase(t, srv), pgtest.NewDatabase(t, srv)
	exec(t, r.env["SOURCE_URL"], shop)

	require.Equal(t, exitOK, r.run("init", "--name", "shop", "--source", "postgres", "--sink", "postgres", "--resource", "public.*"), r.err)
	require.Equal(t, exitOK, r.run("check"), "%s%s", r.out, r.err)
	require.Equal(t, exitOK, r.run("discover"), r.err)
	assert.Contains(t, r.out.String(), "public.summary")

	r.write(`version: 1
name: shop
source: {connector: postgres, url: "${SOURCE_URL}"}
sink: {connector: postgres, url: "${SINK_URL}", schema: replica}
defaults: {read: full, write: replace}
resources:
  - {name: public.orders, read: incremental, write: upsert, cursor: updated_at, lookback: 5m, key: [id]}
  - {name: public.customers, columns: {exclude: [password]}, where: "active"}
settings: {slots: 2, memory: 256MiB, consistency: chunked, verify: digest}
`)
	require.Equal(t, exitOK, r.run("inspect", "public.orders"), r.err)
	assert.Contains(t, r.out.String(), "updated_at")
	require.Equal(t, exitOK, r.run("plan"), "%s%s", r.out, r.err)
	assert.Contains(t, r.out.String(), "CREATE TABLE")
	assert.Zero(t, query[int](t, r.env["SINK_URL"], `SELECT count(*) FROM pg_namespace WHERE nspname IN ('replica', 'tranship')`), "plan changes nothing")

	require.Equal(t, exitOK, r.run("run"), "%s%s", r.out, r.err)
	assert.Equal(t, 5000, query[int](t, r.env["SINK_URL"], "SELECT count(*) FROM replica.orders"))
	assert.Equal(t, 200, query[int](t, r.env["SINK_URL"], "SELECT count(*) FROM replica.customers"))
	assert.Zero(t, query[int](t, r.env["SINK_URL"], "SELECT count(*) FROM information_schema.columns WHERE table_schema = 'replica' AND column_name = 'password'"))

	exec(t, r.env["SOURCE_URL"], "UPDATE orders SET amount = 0, updated_at = '2030-01-01' WHERE id <= 10; INSERT INTO orders (id, updated_at) VALUES (5001, '2030-01-01')")
	require.Equal(t, exitOK, r.run("plan"), r.err)
	assert.Contains(t, r.out.String(), "going on from the last run")
	require.Equal(t, exitOK, r.run("run"), "%s%s", r.out, r.err)
	assert.Equal(t, 5001, query[int](t, r.env["SINK_URL"], "SELECT count(*) FROM replica.orders"))
	assert.Equal(t, 10, query[int](t, r.env["SINK_URL"], "SELECT count(*) FROM replica.orders WHERE amount = 0"))

	require.Equal(t, exitOK, r.run("reset", "public.orders"), r.err)
	require.Equal(t, exitOK, r.run("plan"), r.err)
	assert.NotContains(t, r.out.String(), "going on from the last run")
}

func TestPostgresToFiles(t *testing.T) {
	t.Parallel()
	r := builtin{newPlace(t)}
	r.env["SOURCE_URL"] = pgtest.NewDatabase(t, pgtest.Shared(t))
	exec(t, r.env["SOURCE_URL"], shop)
	for _, format := range []string{"parquet", "jsonl", "csv"} {
		r.write(fmt.Sprintf(`version: 1
name: files-%[1]s
source: {connector: postgres, url: "${SOURCE_URL}"}
sink: {connector: files, path: '%[2]s/%[1]s', format: %[1]s}
resources: [{name: 'public.*'}]
settings: {verify: digest}
`, format, r.dir))
		require.Equal(t, exitOK, r.run("run"), "%s%s", r.out, r.err)
		assert.Equal(t, 2, strings.Count(r.out.String(), "= destination"), r.out)
		assert.FileExists(t, filepath.Join(r.dir, format, "public.orders", "manifest.json"))
	}
}

// Names that need quotes, by name and by pattern (case 09).
func TestNamesThatNeedQuotes(t *testing.T) {
	t.Parallel()
	srv := pgtest.Shared(t)
	r := builtin{newPlace(t)}
	r.env["SOURCE_URL"], r.env["SINK_URL"] = pgtest.NewDatabase(t, srv), pgtest.NewDatabase(t, srv)
	exec(t, r.env["SOURCE_URL"], `CREATE SCHEMA "s.t"; CREATE TABLE "s.t"."a.b"("Order Id" int PRIMARY KEY, "select" text, "q""t" int);
		INSERT INTO "s.t"."a.b" VALUES (1, 'x', 2); CREATE TABLE "s.t"."C*"(id int PRIMARY KEY); CREATE TABLE "s.t"."Cd"(id int PRIMARY KEY)`)
	for names, want := range map[string][]string{
		`'"s.t"."a.b"'`:                    {`"s.t"."a.b"`},
		`'"s.t".*', exclude: ['"s.t".C*']`: {`"s.t"."a.b"`},
		`'"s.t"."C*"'`:                     {`"s.t"."C*"`},
		`'*'`:                              {`"s.t"."a.b"`, `"s.t"."C*"`, `"s.t".Cd`},
	} {
		r.write("version: 1\nname: quoted\nsource: {connector: postgres, url: '${SOURCE_URL}'}\nsink: {connector: postgres, url: '${SINK_URL}'}\nresources: [{name: " + names + "}]\n")
		require.Equal(t, exitOK, r.run("discover", "--selected", "--json"), "%s: %s", names, r.err)
		var found []struct {
			Name string `json:"name"`
		}
		require.NoError(t, json.Unmarshal([]byte(r.out.String()), &found))
		var got []string
		for _, f := range found {
			got = append(got, f.Name)
		}
		assert.ElementsMatch(t, want, got, names)
	}
	r.write("version: 1\nname: quoted\nsource: {connector: postgres, url: '${SOURCE_URL}'}\nsink: {connector: postgres, url: '${SINK_URL}'}\nresources: [{name: '*'}]\n")
	require.Equal(t, exitOK, r.run("run"), "%s%s", r.out, r.err)
	assert.Equal(t, 1, query[int](t, r.env["SINK_URL"], `SELECT "Order Id" FROM "s.t"."a.b"`))
}

// A wrong password is told without the password, in every place (invariant 10).
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	dsn := pgtest.NewDatabase(t, pgtest.Shared(t))
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	const password = "n0t-the-passw0rd"
	exec(t, dsn, fmt.Sprintf("CREATE ROLE %q LOGIN PASSWORD 'x'", "wrong_"+strings.TrimPrefix(u.Path, "/")))
	u.User = url.UserPassword("wrong_"+strings.TrimPrefix(u.Path, "/"), password)
	r := builtin{newPlace(t)}
	r.env["SOURCE_URL"] = u.String()
	r.write(`version: 1
name: wrong
source: {connector: postgres, url: "${SOURCE_URL}"}
sink: {connector: files, path: '` + r.dir + `/out'}
resources: [{name: public.orders}]
settings: {connect_timeout: 5s}
`)
	for _, command := range []string{"run", "run --json -v", "check", "check --json", "plan", "discover"} {
		code := r.run(strings.Fields(command)...)
		all := r.out.String() + r.err.String()
		assert.Equal(t, exitUsage, code, "%s: %s", command, all)
		assert.NotContains(t, all, password, command)
		assert.Contains(t, all, "password", command)
	}
	require.NoError(t, filepath.WalkDir(r.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		assert.NotContains(t, string(b), password, path)
		return err
	}))
}

func TestSampleToFiles(t *testing.T) {
	t.Parallel()
	r := builtin{newPlace(t)}
	r.write(`version: 1
name: sample
source: {connector: sample, rows: 500, splits: 4}
sink: {connector: files, path: '` + r.dir + `/out', format: jsonl}
resources: [{name: '*'}]
settings: {verify: digest}
`)
	require.Equal(t, exitOK, r.run("run"), "%s%s", r.out, r.err)
	assert.Contains(t, r.out.String(), "= destination")
}

func TestSampleToStdout(t *testing.T) {
	t.Parallel()
	r := builtin{newPlace(t)}
	r.write("version: 1\nname: out\nsource: {connector: sample, rows: 20}\nsink: {connector: stdout}\nresources: [{name: '*', write: append}]\n")
	require.Equal(t, exitOK, r.run("run"), "%s%s", r.out, r.err)
	rows := strings.Split(strings.TrimSpace(r.out.String()), "\n")
	assert.Zero(t, len(rows)%20, "only rows are on standard output")
	for _, row := range rows {
		assert.True(t, json.Valid([]byte(row)), row)
	}
	assert.Contains(t, r.err.String(), "of out: completed")
	assert.Equal(t, exitUsage, r.run("run", "--json"))
	assert.Contains(t, r.err.String(), "both --json and the sink stdout")
}
