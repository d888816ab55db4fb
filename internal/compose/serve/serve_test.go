package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/pipelines"
	"github.com/tranship-io/tranship/control/secrets"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/internal/compose/serve"
	"github.com/tranship-io/tranship/internal/pgtest"
	"github.com/tranship-io/tranship/store"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// installation is a control database, a destination, and processes that serve.
type installation struct {
	t           *testing.T
	folder      string
	url, target string
	db          *store.DB
	actor       control.Actor
	cat         *catalog.Catalog
	conns       *connections.Service
	pipes       *pipelines.Service
	key         string
}

// process is one process that serves, as a goroutine.
type process struct {
	address string
	stop    func()
	ended   chan error
}

func newInstallation(t *testing.T) *installation {
	t.Helper()
	s := pgtest.Shared(t)
	i := &installation{t: t, folder: t.TempDir(), url: pgtest.NewDatabase(t, s), target: pgtest.NewDatabase(t, s), cat: catalog.New(io.Discard)}
	return i
}

// serve starts a process; the first one migrates and makes the organization.
func (i *installation) serve(change func(*serve.Config)) *process {
	i.t.Helper()
	ready := make(chan string, 1)
	c := serve.Config{
		Listen: "127.0.0.1:0", DatabaseURL: i.url, Folder: i.folder, BootstrapKeyFile: filepath.Join(i.folder, "key"),
		Lease: 2 * time.Second, AttemptTime: time.Minute, Catalog: i.cat, Version: "test", Lookup: os.LookupEnv,
		Log: slog.New(slog.NewTextHandler(logTo{i.t}, nil)), Ready: func(a string) { ready <- a },
	}
	if change != nil {
		change(&c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{stop: cancel, ended: make(chan error, 1)}
	go func() { p.ended <- serve.Run(ctx, c) }()
	i.t.Cleanup(func() { p.close(i.t) })
	select {
	case p.address = <-ready:
	case err := <-p.ended:
		p.ended = nil
		i.t.Fatal("serve ended:", err)
	case <-time.After(time.Minute):
		i.t.Fatal("serve is not ready")
	}
	if i.db == nil {
		i.open()
	}
	return p
}

func (p *process) close(t *testing.T) {
	t.Helper()
	p.stop()
	if p.ended != nil {
		require.NoError(t, <-p.ended)
		p.ended = nil
	}
}

type logTo struct{ t *testing.T }

func (l logTo) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// open lets the test use the services that the API will be in front of.
func (i *installation) open() {
	i.t.Helper()
	ctx := i.t.Context()
	key, err := os.ReadFile(filepath.Join(i.folder, "key"))
	require.NoError(i.t, err)
	i.key = strings.TrimSpace(string(key))
	i.db, err = store.Open(ctx, store.Config{URL: i.url})
	require.NoError(i.t, err)
	i.t.Cleanup(i.db.Close)
	var who struct{ Organization uuid.UUID }
	conn, err := pgx.Connect(ctx, i.url)
	require.NoError(i.t, err)
	require.NoError(i.t, conn.QueryRow(ctx, `SELECT id FROM tranship.organizations`).Scan(&who.Organization))
	require.NoError(i.t, conn.Close(ctx))
	i.actor = control.System(who.Organization)
	ring, err := secrets.ReadKeyFile(filepath.Join(i.folder, "master.key"))
	require.NoError(i.t, err)
	resolver := secrets.Secrets{secrets.ProviderLocal: &secrets.Local{Store: i.db, Keyring: ring}}
	i.conns = &connections.Service{Store: i.db, Catalog: i.cat, Keyring: ring, Providers: resolver.Providers()}
	i.pipes = &pipelines.Service{Store: i.db, Connections: i.db, Catalog: i.cat, Drafts: i.conns, Secrets: resolver}
}

// pipeline makes a pipeline from the sample source into the target database.
func (i *installation) pipeline(name string, rows int, write string) {
	i.t.Helper()
	ctx := i.t.Context()
	src, err := i.conns.Create(ctx, i.actor, connections.Draft{Name: name + "-from", Role: connections.Source, Connector: "sample",
		Config: json.RawMessage(fmt.Sprintf(`{"rows":%d,"splits":4}`, rows))})
	require.NoError(i.t, err)
	dst, err := i.conns.Create(ctx, i.actor, connections.Draft{Name: name + "-to", Role: connections.Sink, Connector: "postgres",
		Config: json.RawMessage(`{}`), Values: map[string]string{"url": i.target}})
	require.NoError(i.t, err)
	var g pipelines.Graph
	require.NoError(i.t, json.Unmarshal(fmt.Appendf(nil, `{"nodes":[{"id":"a","role":"source","connection":%q},{"id":"b","role":"sink","connection":%q}],
		"edges":[{"from":"a","to":"b","resource":"sample.orders","write":%q,"target":%q}],"settings":{"slots":2}}`,
		src.ID, dst.ID, write, "public."+name), &g))
	_, err = i.pipes.Create(ctx, i.actor, pipelines.Draft{Name: name, Graph: g})
	require.NoError(i.t, err)
}

// call sends a request and decodes the answer.
func (i *installation) call(p *process, method, path, body string, into any) int {
	i.t.Helper()
	req, err := http.NewRequestWithContext(i.t.Context(), method, "http://"+p.address+path, strings.NewReader(body))
	require.NoError(i.t, err)
	req.Header.Set("Authorization", "Bearer "+i.key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(i.t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(i.t, err)
	if into != nil {
		require.NoError(i.t, json.Unmarshal(text, into), string(text))
	}
	if res.StatusCode >= 400 {
		i.t.Log(method, path, res.Status, string(text))
	}
	return res.StatusCode
}

// text returns what a path answers.
func (i *installation) text(p *process, path string) string {
	i.t.Helper()
	res, err := http.Get("http://" + p.address + path)
	require.NoError(i.t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(i.t, err)
	return string(text)
}

type run struct {
	ID       string `json:"id"`
	Pipeline string `json:"pipeline"`
	State    string `json:"state"`
	Error    string `json:"error"`
	Attempts int    `json:"attempts"`
	LastFact int64  `json:"last_fact"`
	Rows     int64  `json:"rows_written"`
}

func (i *installation) start(p *process, name string) run {
	i.t.Helper()
	var list struct{ Items []run }
	require.Equal(i.t, http.StatusAccepted, i.call(p, "POST", "/v1/runs", fmt.Sprintf(`{"pipeline":%q}`, name), &list))
	require.Len(i.t, list.Items, 1)
	return list.Items[0]
}

// until follows the run's facts until it is over.
func (i *installation) until(p *process, id string) run {
	i.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	after := int64(0)
	for time.Now().Before(deadline) {
		var facts struct {
			Items []struct {
				Number int64
				Type   string
			}
			Next *int64
		}
		require.Equal(i.t, http.StatusOK, i.call(p, "GET", fmt.Sprintf("/v1/runs/%s/facts?after=%d&wait=5s", id, after), "", &facts))
		for _, f := range facts.Items {
			require.Equal(i.t, after+1, f.Number, "facts have no gaps")
			after = f.Number
		}
		if facts.Next == nil {
			var r run
			require.Equal(i.t, http.StatusOK, i.call(p, "GET", "/v1/runs/"+id, "", &r))
			require.Equal(i.t, after, r.LastFact)
			return r
		}
	}
	i.t.Fatal("run", id, "does not end")
	return run{}
}

func (i *installation) count(table string) (rows, distinct int64) {
	i.t.Helper()
	conn, err := pgx.Connect(i.t.Context(), i.target)
	require.NoError(i.t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	require.NoError(i.t, conn.QueryRow(i.t.Context(), "SELECT count(*), count(DISTINCT id) FROM "+pgx.Identifier{"public", table}.Sanitize()).Scan(&rows, &distinct))
	return rows, distinct
}

func TestARunFromTheAPIToItsReceipt(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	p := i.serve(nil)
	i.pipeline("shop", 5000, "replace")
	r := i.start(p, "shop")
	require.Equal(t, "shop", r.Pipeline)
	r = i.until(p, r.ID)
	require.Equal(t, "completed", r.State, r.Error)
	rows, distinct := i.count("shop")
	require.EqualValues(t, 5000, rows)
	require.EqualValues(t, 5000, distinct)
	var receipt struct {
		State     string
		Resources []struct {
			Rows int64 `json:"rows_written"`
		}
	}
	require.Equal(t, http.StatusOK, i.call(p, "GET", "/v1/runs/"+r.ID+"/receipt", "", &receipt))
	require.Equal(t, "completed", receipt.State)
	require.EqualValues(t, 5000, receipt.Resources[0].Rows)
	var resources struct {
		Items []struct{ Resource, State string }
	}
	require.Equal(t, http.StatusOK, i.call(p, "GET", "/v1/runs/"+r.ID+"/resources", "", &resources))
	require.Len(t, resources.Items, 1)
	require.Equal(t, "published", resources.Items[0].State)
	require.Contains(t, i.text(p, "/metrics"), `tranship_attempts_total{`)
	require.Equal(t, http.StatusConflict, i.call(p, "POST", "/v1/runs/"+r.ID+"/cancel", "", nil))
	require.Equal(t, http.StatusNotFound, i.call(p, "GET", "/v1/runs/"+uuid.NewString(), "", nil))
}

// TestAStopHandsOver: what a stopped process does goes on in another one, and its
// run has no failed attempt.
func TestAStopHandsOver(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	first := i.serve(nil)
	i.pipeline("shop", 400_000, "append")
	r := i.start(first, "shop")
	require.Eventually(t, func() bool {
		i.call(first, "GET", "/v1/runs/"+r.ID, "", &r)
		return r.State == "running"
	}, 30*time.Second, 20*time.Millisecond)
	second := i.serve(nil)
	first.close(t)
	r = i.until(second, r.ID)
	require.Equal(t, "completed", r.State, r.Error)
	rows, distinct := i.count("shop")
	require.EqualValues(t, 400_000, rows)
	require.EqualValues(t, 400_000, distinct)
}

// TestCancel is case 24: a canceled run ends within 10 s whatever it does, no
// session of it is left at the destination, what it wrote stays out, a second
// cancel changes nothing, and the next run completes.
func TestCancel(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	p := i.serve(func(c *serve.Config) { c.Lease = time.Minute })
	i.pipeline("slow", 3_000_000, "replace")
	r := i.start(p, "slow")
	require.Eventually(t, func() bool {
		i.call(p, "GET", "/v1/runs/"+r.ID, "", &r)
		return r.Rows > 0
	}, 30*time.Second, 20*time.Millisecond)
	asked := time.Now()
	require.Equal(t, http.StatusAccepted, i.call(p, "POST", "/v1/runs/"+r.ID+"/cancel", "", nil))
	require.Equal(t, http.StatusAccepted, i.call(p, "POST", "/v1/runs/"+r.ID+"/cancel", "", nil))
	r = i.until(p, r.ID)
	require.Equal(t, "canceled", r.State)
	require.Less(t, time.Since(asked), 10*time.Second)
	require.Zero(t, i.sessions(r.ID), "canceled means that no session of the run is left (P22)")
	require.Equal(t, http.StatusAccepted, i.call(p, "POST", "/v1/runs/"+r.ID+"/cancel", "", &r))
	require.Equal(t, "canceled", r.State)

	// One that waits for a worker never begins.
	i.pipeline("small", 10, "replace")
	busy := i.serve(func(c *serve.Config) { c.Workers = -1 })
	p.close(t)
	r = i.start(busy, "small")
	require.Equal(t, http.StatusAccepted, i.call(busy, "POST", "/v1/runs/"+r.ID+"/cancel", "", &r))
	require.Equal(t, "canceled", r.State)
	require.Zero(t, r.Attempts)
	again := i.serve(nil)
	r = i.until(again, i.start(again, "small").ID)
	require.Equal(t, "completed", r.State)
	rows, _ := i.count("small")
	require.EqualValues(t, 10, rows)
}

// TestCancelOfALostWorkersRun: a cancel does not wait for the end of a long lease
// that nobody renews any more (P22).
func TestCancelOfALostWorkersRun(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	p := i.serve(func(c *serve.Config) { c.Lease = time.Minute })
	i.pipeline("shop", 10, "replace")
	require.Equal(t, "completed", i.until(p, i.start(p, "shop").ID).State)
	p.close(t)

	// Somebody begins a run and is never heard of again.
	idle := i.serve(func(c *serve.Config) { c.Workers = -1 })
	r := i.start(idle, "shop")
	commands, err := i.db.Admit(t.Context(), 1, dispatch.Admission{PerOrganization: 10, Expiry: time.Minute})
	require.NoError(t, err)
	require.Len(t, commands, 1)
	mine, err := i.db.Accept(t.Context(), commands[0], "lost", time.Hour)
	require.NoError(t, err)
	require.True(t, mine)
	st := i.db.RunState(i.actor.Organization, commands[0].Run)
	known, err := st.ListRuns(t.Context(), "shop", 10)
	require.NoError(t, err)
	_, _, err = st.StartRun(t.Context(), engine.StartRequest{Route: known[len(known)-1].Route, Version: known[0].Version})
	require.NoError(t, err)
	_, err = st.Acquire(t.Context(), commands[0].Run, 0, "lost", time.Hour)
	require.NoError(t, err)

	working := i.serve(func(c *serve.Config) { c.Lease = time.Minute })
	asked := time.Now()
	require.Equal(t, http.StatusAccepted, i.call(working, "POST", "/v1/runs/"+r.ID+"/cancel", "", nil))
	r = i.until(working, r.ID)
	require.Equal(t, "canceled", r.State)
	require.Less(t, time.Since(asked), 10*time.Second)
}

// sessions counts a run's sessions at the destination.
func (i *installation) sessions(run string) (n int) {
	i.t.Helper()
	conn, err := pgx.Connect(i.t.Context(), i.target)
	require.NoError(i.t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	require.NoError(i.t, conn.QueryRow(i.t.Context(), `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'tranship/%'`).Scan(&n))
	return n
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	p := i.serve(nil)
	i.pipeline("slow", 1_000_000, "append")
	r := i.start(p, "slow")
	require.Eventually(t, func() bool {
		i.call(p, "GET", "/v1/runs/"+r.ID, "", &r)
		return r.Rows > 0
	}, 30*time.Second, 20*time.Millisecond)
	require.Equal(t, http.StatusAccepted, i.call(p, "POST", "/v1/runs/"+r.ID+"/pause", "", nil))
	r = i.reach(p, r.ID, "paused")
	require.Equal(t, http.StatusConflict, i.call(p, "POST", "/v1/runs", `{"pipeline":"slow"}`, nil), "a paused run keeps others off its route")
	require.Equal(t, http.StatusAccepted, i.call(p, "POST", "/v1/runs/"+r.ID+"/resume", "", nil))
	r = i.until(p, r.ID)
	require.Equal(t, "completed", r.State, r.Error)
	rows, distinct := i.count("slow")
	require.EqualValues(t, 1_000_000, rows)
	require.EqualValues(t, 1_000_000, distinct)
}

func (i *installation) reach(p *process, id, state string) (r run) {
	i.t.Helper()
	require.Eventually(i.t, func() bool {
		i.call(p, "GET", "/v1/runs/"+id, "", &r)
		return r.State == state
	}, 30*time.Second, 20*time.Millisecond, "run %s does not become %s", id, state)
	return r
}

// TestIdle: a process with nothing to do sends its database nothing (invariant 14).
func TestIdle(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	p := i.serve(nil)
	i.pipeline("shop", 100, "replace")
	r := i.until(p, i.start(p, "shop").ID)
	require.Equal(t, "completed", r.State)
	conn, err := pgx.Connect(t.Context(), i.url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	newest := func() (at time.Time) {
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT max(greatest(query_start, state_change, backend_start)) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'tranship serve'`).Scan(&at))
		return at
	}
	// At rest within a few rounds; then nothing for longer than any of them.
	require.Eventually(t, func() bool {
		var armed bool
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT armed FROM tranship.arming`).Scan(&armed))
		return !armed && time.Since(newest()) > 2*time.Second
	}, time.Minute, 100*time.Millisecond)
	before := newest()
	time.Sleep(12 * time.Second)
	require.Equal(t, before, newest(), "a query was sent by an idle process")
}

// TestALostDatabase: while the database is away requests get 503 with Retry-After,
// and nothing is half-done; once it is back everything goes on.
func TestALostDatabase(t *testing.T) {
	t.Parallel()
	server := pgtest.StartT(t, pgtest.Config{})
	i := newInstallation(t)
	i.url = pgtest.NewDatabase(t, server)
	p := i.serve(nil)
	i.pipeline("shop", 300_000, "append")
	r := i.start(p, "shop")
	i.reach(p, r.ID, "running")
	require.NoError(t, server.Shutdown())
	for range 3 {
		require.Equal(t, http.StatusServiceUnavailable, i.call(p, "POST", "/v1/runs", `{"pipeline":"shop"}`, nil))
		require.Equal(t, http.StatusServiceUnavailable, i.call(p, "GET", "/v1/runs/"+r.ID, "", nil))
	}
	require.NoError(t, server.Restart(t.Context()))
	require.Eventually(t, func() bool { return i.call(p, "GET", "/v1/runs/"+r.ID, "", nil) == http.StatusOK }, 30*time.Second, 100*time.Millisecond)
	r = i.until(p, r.ID)
	require.Equal(t, "completed", r.State, r.Error)
	rows, distinct := i.count("shop")
	require.EqualValues(t, 300_000, rows)
	require.EqualValues(t, 300_000, distinct)
}
