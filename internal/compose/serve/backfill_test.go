package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/control/pipelines"
	"github.com/tranship-io/tranship/internal/pgtest"
)

// TestBackfill: a part of an incremental resource is read again through the API;
// an append gets what it lacks and nothing twice.
func TestBackfill(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	p := i.serve(nil)
	connect := func(url string) *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	from := pgtest.NewDatabase(t, pgtest.Shared(t))
	src, dst := connect(from), connect(i.target)
	exec := func(conn *pgx.Conn, sql string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec(src, `CREATE TABLE ev (id int PRIMARY KEY, at date NOT NULL); INSERT INTO ev SELECT n, date '2026-01-01' + n FROM generate_series(0, 99) n`)
	var g pipelines.Graph
	require.NoError(t, json.Unmarshal(fmt.Appendf(nil, `{"nodes":[{"id":"a","role":"source","connection":%q},{"id":"b","role":"sink","connection":%q}],
		"edges":[{"from":"a","to":"b","resource":"public.ev","read":"incremental","cursor":"at","write":"append","target":"public.ev"}]}`,
		i.end("from", connections.Source, from), i.end("to", connections.Sink, i.target)), &g))
	_, err := i.pipes.Create(t.Context(), i.actor, pipelines.Draft{Name: "ev", Graph: g})
	require.NoError(t, err)
	rows := func() (n, distinct int) {
		t.Helper()
		require.NoError(t, dst.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT id) FROM ev`).Scan(&n, &distinct))
		return n, distinct
	}
	r := i.until(p, i.start(p, "ev").ID)
	require.Equal(t, "completed", r.State, r.Error)

	exec(dst, `DELETE FROM ev WHERE id BETWEEN 10 AND 19`)
	exec(src, `INSERT INTO ev VALUES (100, '2026-06-01'), (101, '2026-01-12')`)
	var list struct{ Items []run }
	require.Equal(t, http.StatusAccepted, i.call(p, "POST", "/v1/runs", `{"pipeline":"ev","backfill":[{"resource":"public.ev","from":"2026-01-11","to":"2026-01-15"}]}`, &list))
	r = i.until(p, list.Items[0].ID)
	require.Equal(t, "completed", r.State, r.Error)
	require.EqualValues(t, 6, r.Rows, "five that were lost, and one that came late")
	n, distinct := rows()
	require.Equal(t, []int{96, 96}, []int{n, distinct})

	require.Equal(t, http.StatusAccepted, i.call(p, "POST", "/v1/runs", `{"pipeline":"ev","backfill":[{"resource":"public.ev","from":"2026-01-01"}]}`, &list))
	r = i.until(p, list.Items[0].ID)
	require.Equal(t, "completed", r.State, r.Error)
	n, distinct = rows()
	require.Equal(t, []int{101, 101}, []int{n, distinct}, "what no run has read yet is the next run's")
	r = i.until(p, i.start(p, "ev").ID)
	require.Equal(t, "completed", r.State, r.Error)
	n, distinct = rows()
	require.Equal(t, []int{102, 102}, []int{n, distinct})

	for _, body := range []string{
		`{"pipeline":"ev","backfill":[{"resource":"public.ev"}]}`,
		`{"pipeline":"ev","backfill":[{"resource":"public.ev","from":"1"},{"resource":"public.ev","to":"1"}]}`,
		`{"pipeline":"ev","backfill":[{"resource":"public.ev","from":"1"}],"options":{"only":["public.ev"]}}`,
	} {
		require.Equal(t, http.StatusUnprocessableEntity, i.call(p, "POST", "/v1/runs", body, nil), body)
	}
	require.Equal(t, http.StatusAccepted, i.call(p, "POST", "/v1/runs", `{"pipeline":"ev","backfill":[{"resource":"public.ev","from":"monday"}]}`, &list))
	r = i.until(p, list.Items[0].ID)
	require.Equal(t, "failed", r.State)
	require.Contains(t, r.Error, "monday")
}
