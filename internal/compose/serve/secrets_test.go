package serve_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/control/pipelines"
	"github.com/tranship-io/tranship/internal/compose/serve"
)

// collector takes what is sent by OTLP.
type collector struct {
	mu   sync.Mutex
	seen map[string][]byte
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		if z, err := gzip.NewReader(r.Body); err == nil {
			body = z
		}
	}
	text, _ := io.ReadAll(body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[r.URL.Path] = append(c.seen[r.URL.Path], text...)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// locked is a buffer for many writers.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// TestSecretsOfExecutedRuns executes a run between databases with passwords, one
// whose destination refuses its password, and one whose destination is not there,
// and looks for the passwords in facts, receipts, logs, traces, metrics, and all
// tables (invariant 10).
func TestSecretsOfExecutedRuns(t *testing.T) {
	sink := &collector{seen: map[string][]byte{}}
	otlp := httptest.NewServer(sink)
	t.Cleanup(otlp.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp.URL)
	i := newInstallation(t)
	log := &locked{}
	p := i.serve(func(c *serve.Config) {
		c.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	conn, err := pgx.Connect(t.Context(), i.target)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `CREATE TABLE orders AS SELECT n AS id, 'order ' || n AS note FROM generate_series(1, 500) n`)
	require.NoError(t, err)

	const planted = "pl4nted&secret"
	own := "mover_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	_, err = conn.Exec(t.Context(), `CREATE ROLE `+own+` LOGIN SUPERUSER PASSWORD '`+planted+`-own'`)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), `REASSIGN OWNED BY `+own+` TO CURRENT_USER; DROP OWNED BY `+own+`; DROP ROLE `+own)
		require.NoError(t, err)
		_ = conn.Close(context.Background())
	})
	at := func(user, password, host, database string) string {
		u, err := url.Parse(i.target)
		require.NoError(t, err)
		u.User = url.UserPassword(user, password)
		if host != "" {
			u.Host = host
		}
		if database != "" {
			u.Path = "/" + database
		}
		return u.String()
	}
	source := i.end("from", connections.Source, at(own, planted+"-own", "", ""))
	for name, c := range map[string]struct{ url, state string }{
		"fine":     {at(own, planted+"-own", "", ""), "completed"},
		"refused":  {at("nobody_here", planted+"-refused", "", ""), "failed"},
		"nothing":  {at(own, planted+"-nothing", "127.0.0.1:1", ""), "failed"},
		"database": {at(own, planted+"-own", "", "no_such_database"), "failed"},
	} {
		target := i.end("to-"+name, connections.Sink, c.url)
		var g pipelines.Graph
		require.NoError(t, json.Unmarshal(fmt.Appendf(nil, `{"nodes":[{"id":"a","role":"source","connection":%q},{"id":"b","role":"sink","connection":%q}],
			"edges":[{"from":"a","to":"b","resource":"public.orders","write":"replace","target":%q}],
			"settings":{"connect_timeout":"1s","retry":{"give_up":"1s","attempts":1}},"service":{"retries":{"attempts":1}}}`, source, target, "public.copy_"+name), &g))
		_, err := i.pipes.Create(t.Context(), i.actor, pipelines.Draft{Name: name, Graph: g})
		require.NoError(t, err)
		r := i.until(p, i.start(p, name).ID)
		require.Equal(t, c.state, r.State, "%s: %s", name, r.Error)
		if c.state == "failed" {
			require.NotEmpty(t, r.Error)
		}
	}
	p.close(t) // what waits is sent

	// Encrypted values aside, the database has no secret either.
	control, err := pgx.Connect(t.Context(), i.url)
	require.NoError(t, err)
	defer func() { _ = control.Close(context.Background()) }()
	rows, err := control.Query(t.Context(), `SELECT c.oid::regclass::text FROM pg_class c WHERE c.relnamespace = 'tranship'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition`)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Greater(t, len(tables), 30)
	places := map[string]string{"the log": log.b.String()}
	for _, table := range tables {
		var text string
		require.NoError(t, control.QueryRow(t.Context(), `SELECT coalesce(string_agg(t::text, E'\n'), '') FROM `+table+` t`).Scan(&text))
		places["table "+table] = text
	}
	require.Contains(t, places["table tranship.facts"], "run.failed")
	require.Contains(t, places["the log"], "outcome=failed")
	require.NotEmpty(t, sink.seen["/v1/traces"])
	require.NotEmpty(t, sink.seen["/v1/metrics"])
	require.Contains(t, string(sink.seen["/v1/traces"]), "attempt")
	for path, body := range sink.seen {
		places["OTLP "+path] = string(body)
	}
	for place, text := range places {
		for _, form := range []string{planted, url.QueryEscape(planted), url.PathEscape(planted)} {
			// Whole tables and logs would drown the message.
			require.NotContains(t, around(text, form), form, "%s has a secret", place)
		}
	}
}

// around is where a text has another one.
func around(text, form string) string {
	at := strings.Index(text, form)
	if at < 0 {
		return ""
	}
	return text[max(0, at-200):min(len(text), at+len(form)+100)]
}

// end makes a connection to a PostgreSQL database.
func (i *installation) end(name string, role connections.Role, url string) string {
	i.t.Helper()
	c, err := i.conns.Create(i.t.Context(), i.actor, connections.Draft{Name: name, Role: role, Connector: "postgres",
		Config: json.RawMessage(`{}`), Values: map[string]string{"url": url}})
	require.NoError(i.t, err)
	return c.ID.String()
}
