package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/control/pipelines"
	"github.com/tranship-io/tranship/control/secrets"
	"github.com/tranship-io/tranship/internal/embedpg"
	"github.com/tranship-io/tranship/internal/pgtest"
	"github.com/tranship-io/tranship/store"
)

// chaos is the installation that is broken.
type chaos struct {
	options
	dir string

	mu  sync.Mutex // guards rng, tally and killed
	rng *rand.Rand
	// tally counts faults by kind; killed holds when which process died.
	tally  map[string]int
	killed []death

	receiver      *receiver
	control, data *pgtest.Server
	db            *store.DB
	actor         control.Actor
	key           string
	serves        [2]*served
	pipes         []*pipe
}

// death is when a process was killed, and what it held.
type death struct {
	at   time.Time
	runs []string
}

// pipe is one pipeline with what it has done.
type pipe struct {
	name, write string
	// completed are its runs, in order.
	completed []string
}

// served is a process of tranship serve.
type served struct {
	mu   sync.Mutex
	cmd  *exec.Cmd
	port int
	log  *os.File
	done chan struct{}
}

func (c *chaos) setup(ctx context.Context) error {
	c.tally = map[string]int{}
	var err error
	if c.receiver, err = listen(ctx); err != nil {
		return err
	}
	if c.control, err = pgtest.Start(ctx, pgtest.Config{}); err != nil {
		return err
	}
	if c.data, err = pgtest.Start(ctx, pgtest.Config{}); err != nil {
		return err
	}
	if err := c.control.CreateDatabase(ctx, "control"); err != nil {
		return err
	}
	for i := range c.serves {
		log, err := os.Create(filepath.Join(c.dir, fmt.Sprintf("serve%d.log", i)))
		if err != nil {
			return err
		}
		c.serves[i] = &served{port: 0, log: log}
		if err := c.begin(ctx, i); err != nil {
			return err
		}
	}
	if err := c.makePipelines(ctx); err != nil {
		return err
	}
	return c.makeRule(ctx)
}

// begin starts a process and waits until it answers.
func (c *chaos) begin(ctx context.Context, i int) error {
	s := c.serves[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.port == 0 {
		port, err := embedpg.FreePort(ctx)
		if err != nil {
			return err
		}
		s.port = port
	}
	// No context: the process outlives the call that starts it.
	cmd := exec.Command(c.binary, "serve", "--listen", fmt.Sprintf("127.0.0.1:%d", s.port), "--database", c.control.URL("control"),
		"--folder", c.dir, "--bootstrap-key-file", filepath.Join(c.dir, "key"), "--workers", "6", "--lease", c.lease.String(),
		"--attempt-time", "20s", "--memory", "64MiB", "--max-running", "200", "--webhook-allow", "127.0.0.0/8", "--webhook-http")
	cmd.Stdout, cmd.Stderr = s.log, s.log
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd, s.done = cmd, make(chan struct{})
	go func(done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(s.done)
	deadline := time.Now().Add(time.Minute)
	for {
		if code, _, err := c.request(ctx, s.port, http.MethodGet, "/healthz", "", ""); err == nil && code == http.StatusOK {
			return nil
		}
		select {
		case <-s.done:
			return fmt.Errorf("serve %d ended: see its log", i)
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("serve %d does not answer", i)
		}
	}
}

// request sends one request and returns status and body.
func (c *chaos) request(ctx context.Context, port int, method, path, body, idempotency string) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if idempotency != "" {
		req.Header.Set("Idempotency-Key", idempotency)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, text, err
}

// makePipelines makes tables at the source and pipelines of every write mode.
func (c *chaos) makePipelines(ctx context.Context) error {
	key, err := os.ReadFile(filepath.Join(c.dir, "key"))
	if err != nil {
		return err
	}
	c.key = strings.TrimSpace(string(key))
	for _, name := range []string{"source", "target"} {
		if err := c.data.CreateDatabase(ctx, name); err != nil {
			return err
		}
	}
	conn, err := pgx.Connect(ctx, c.data.URL("source"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if c.db, err = store.Open(ctx, store.Config{URL: c.control.URL("control"), MaxConns: 4}); err != nil {
		return err
	}
	own, err := pgx.Connect(ctx, c.control.URL("control"))
	if err != nil {
		return err
	}
	defer func() { _ = own.Close(context.WithoutCancel(ctx)) }()
	c.actor = control.System([16]byte{})
	if err := own.QueryRow(ctx, `SELECT id FROM tranship.organizations`).Scan(&c.actor.Organization); err != nil {
		return err
	}
	ring, err := secrets.ReadKeyFile(filepath.Join(c.dir, "master.key"))
	if err != nil {
		return err
	}
	resolver := secrets.Secrets{secrets.ProviderLocal: &secrets.Local{Store: c.db, Keyring: ring}}
	cat := catalog.New(io.Discard)
	conns := &connections.Service{Store: c.db, Catalog: cat, Keyring: ring, Providers: resolver.Providers()}
	pipes := &pipelines.Service{Store: c.db, Connections: c.db, Catalog: cat, Drafts: conns, Secrets: resolver}
	ids := map[string]string{}
	for name, role := range map[string]connections.Role{"source": connections.Source, "target": connections.Sink} {
		x, err := conns.Create(ctx, c.actor, connections.Draft{Name: name, Role: role, Connector: "postgres", Config: json.RawMessage(`{}`),
			Values: map[string]string{"url": c.data.URL(name)}})
		if err != nil {
			return fmt.Errorf("make connection %s: %w", name, err)
		}
		ids[name] = x.ID.String()
	}
	for i := range c.options.pipelines {
		p := &pipe{name: fmt.Sprintf("p%02d", i), write: []string{"replace", "append", "upsert"}[i%3]}
		_, err := conn.Exec(ctx, fmt.Sprintf(`CREATE TABLE %[1]s (id int PRIMARY KEY, v text NOT NULL);
			INSERT INTO %[1]s SELECT n, md5(n::text) || repeat('x', 200) FROM generate_series(1, %[2]d) n; ANALYZE %[1]s`, p.name, c.rows))
		if err != nil {
			return err
		}
		var g pipelines.Graph
		if err := json.Unmarshal(fmt.Appendf(nil, `{"nodes":[{"id":"a","role":"source","connection":%q},{"id":"b","role":"sink","connection":%q}],
			"edges":[{"from":"a","to":"b","resource":%q,"write":%q}],
			"settings":{"slots":2,"epoch_size":"128KiB","split_size":"256KiB","retry":{"give_up":"2s"},"connect_timeout":"2s"},
			"service":{"retries":{"attempts":100,"backoff":"200ms","max_backoff":"2s"}}}`, ids["source"], ids["target"], "public."+p.name, p.write), &g); err != nil {
			return err
		}
		if _, err := pipes.Create(ctx, c.actor, pipelines.Draft{Name: p.name, Graph: g}); err != nil {
			return fmt.Errorf("make pipeline %s: %w", p.name, err)
		}
		c.pipes = append(c.pipes, p)
	}
	return nil
}

// close stops everything.
func (c *chaos) close() {
	for _, s := range c.serves {
		if s == nil {
			continue
		}
		s.mu.Lock()
		if s.cmd != nil {
			_ = s.cmd.Process.Kill()
			<-s.done
		}
		_ = s.log.Close()
		s.mu.Unlock()
	}
	if c.db != nil {
		c.db.Close()
	}
	if c.receiver != nil {
		_ = c.receiver.server.Close()
	}
	for _, s := range []*pgtest.Server{c.control, c.data} {
		if s != nil {
			_ = s.Stop()
		}
	}
}
