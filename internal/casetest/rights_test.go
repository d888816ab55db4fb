package casetest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// role makes a role for one test and returns the database's URL for it.
func (d *db) role(name, grants string) string {
	d.t.Helper()
	u, err := url.Parse(d.url)
	require.NoError(d.t, err)
	role := name + "_" + strings.TrimPrefix(u.Path, "/")[max(0, len(u.Path)-11):]
	database := `"` + strings.TrimPrefix(u.Path, "/") + `"`
	admin := d.url
	const password = "s3cret-of-the-role"
	d.exec(`CREATE ROLE ` + role + ` LOGIN PASSWORD '` + password + `'`)
	d.exec(strings.NewReplacer("ROLE", role, "DATABASE_NAME", database).Replace(grants))
	d.t.Cleanup(func() {
		c, err := pgx.Connect(context.Background(), admin)
		require.NoError(d.t, err)
		_, err = c.Exec(context.Background(), "DROP OWNED BY "+role+" CASCADE; DROP ROLE "+role)
		require.NoError(d.t, errors.Join(err, c.Close(context.Background())))
	})
	u.User = url.UserPassword(role, password)
	return u.String()
}

// as runs f with the URLs of other roles.
func (p *place) as(src, dst string, f func()) {
	p.t.Helper()
	oldSrc, oldDst := p.src.url, p.dst.url
	if src != "" {
		p.src.url = src
	}
	if dst != "" {
		p.dst.url = dst
	}
	f()
	p.src.url, p.dst.url = oldSrc, oldDst
}

// TestSpareSchemaRights: where the schema exists, no right on the database is needed.
func TestSpareSchemaRights(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.src.exec(`CREATE TABLE t(id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a'), (2, 'b')`)
	reader := p.src.role("reader", "GRANT SELECT ON t TO ROLE")
	writer := p.dst.role("writer", "CREATE SCHEMA replica AUTHORIZATION ROLE; REVOKE CREATE, TEMPORARY ON DATABASE DATABASE_NAME FROM PUBLIC; GRANT TEMPORARY ON DATABASE DATABASE_NAME TO ROLE")
	p.as(reader, writer, func() {
		sink := `{connector: postgres, url: "${SINK_URL}", schema: replica}`
		for _, mode := range []string{"replace", "replace", "upsert"} {
			p.must(doc(sink, digest, "{name: public.t, write: "+mode+"}"))
			require.EqualValues(t, 2, p.dst.count("SELECT count(*) FROM replica.t"))
		}
		p.must(doc(sink, digest, "{name: public.t, write: append, read: incremental, cursor: id, target: replica.t2}"))
		require.EqualValues(t, 2, p.dst.count("SELECT count(*) FROM replica.t2"))
		// Where the schema is missing, the message says what is needed.
		message := p.fails(doc(`{connector: postgres, url: "${SINK_URL}", schema: nowhere}`, quick, "{name: public.t}"))
		require.Contains(t, message, "nowhere")
		require.Contains(t, message, "CREATE")
	})
}

// TestBadInputRights: missing rights are named, with the statement that grants them.
func TestBadInputRights(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.src.exec(`CREATE TABLE t(id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a')`)
	p.dst.exec(`CREATE TABLE t(id int PRIMARY KEY, v text); INSERT INTO t VALUES (7, 'old'); CREATE SCHEMA ledger`)
	nobody := p.src.role("nobody", "SELECT 1")
	p.as(nobody, "", func() {
		message := p.fails(doc(toPostgres, quick, "{name: public.t}"))
		require.Contains(t, message, "public.t")
		require.Contains(t, message, "GRANT SELECT")
	})
	guest := p.dst.role("guest", "GRANT USAGE, CREATE ON SCHEMA ledger TO ROLE; GRANT SELECT ON t TO ROLE")
	p.as("", guest, func() {
		for _, mode := range []string{"replace", "append", "upsert"} {
			message := p.fails(doc(`{connector: postgres, url: "${SINK_URL}", ledger_schema: ledger}`, quick, "{name: public.t, write: "+mode+"}"))
			require.Contains(t, message, "public.t", mode)
			require.Regexp(t, "(?i)permission|right|owner|grant", message, mode)
		}
	})
	require.Equal(t, []string{"(7,old)"}, p.dst.text("SELECT * FROM t"))
}

// TestSparePassword: a password is in no error, log, receipt or state file, also
// when connecting fails.
func TestSparePassword(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.src.exec(`CREATE TABLE t(id int PRIMARY KEY); INSERT INTO t VALUES (1)`)
	const wrong = "hunter2-is-wrong"
	secrets := []string{wrong, p.src.password, p.dst.password}
	said := ""
	for _, spoil := range []func(u *url.URL){
		func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), wrong) },
		func(u *url.URL) { u.Host = "127.0.0.1:1" },
		func(u *url.URL) { u.Path = "/no_such_database" },
		func(u *url.URL) { u.RawQuery = "sslmode=sometimes" },
	} {
		for _, end := range []string{"source", "sink"} {
			bad, err := url.Parse(p.src.url)
			require.NoError(t, err)
			spoil(bad)
			src, dst := bad.String(), ""
			if end == "sink" {
				src, dst = "", bad.String()
			}
			p.as(src, dst, func() {
				said += p.fails(doc(toPostgres, quick, "{name: public.t}")) + "\n"
			})
		}
	}
	p.must(doc(toPostgres, digest, "{name: public.t}"))
	said += p.log.String()
	for _, s := range secrets {
		require.NotEmpty(t, s)
		require.NotContains(t, said, s)
	}
	require.Contains(t, said, "password authentication failed")
	require.NoError(t, filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := os.ReadFile(path)
		for _, s := range secrets {
			require.False(t, bytes.Contains(body, []byte(s)), path)
		}
		return err
	}))
	for _, s := range secrets {
		for _, table := range []string{"fence", "ledger"} {
			require.Zero(t, p.dst.count("SELECT count(*) FROM _tranship."+table+" r WHERE r::text LIKE '%"+s+"%'"))
		}
	}
}
