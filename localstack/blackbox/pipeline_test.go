package blackbox

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pipe is a pipeline from a table to another place.
type pipe struct {
	*client
	name, id       string
	source, target string // database URLs
	rows           int
	write          string
	done           int // runs that completed, but the last
}

// times is how often each row is at the target after the runs done.
func (p *pipe) times() int {
	if p.write == "append" {
		return p.done + 1
	}
	return 1
}

// table makes a source with a table of n rows, each of about 240 bytes.
func table(t *testing.T, n int) string {
	t.Helper()
	url := newDatabase(t)
	_, err := connect(t, url).Exec(t.Context(), fmt.Sprintf(`CREATE TABLE orders (id int PRIMARY KEY, v text NOT NULL, at timestamptz NOT NULL DEFAULT now());
		INSERT INTO orders SELECT n, md5(n::text) || repeat('x', 200) FROM generate_series(1, %d) n; ANALYZE orders`, n))
	require.NoError(t, err)
	return url
}

// slowTarget makes the target beforehand, such that writing a row takes two
// milliseconds: a run of few rows lives long.
func slowTarget(t *testing.T, url, write string) {
	t.Helper()
	_, err := connect(t, url).Exec(t.Context(), `CREATE TABLE orders (id int, v text NOT NULL, at timestamptz NOT NULL);
		CREATE `+map[string]string{"append": "", "upsert": "UNIQUE"}[write]+` INDEX ON orders (id);
		CREATE FUNCTION rest() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.002); RETURN NEW; END $$;
		CREATE TRIGGER rest BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION rest()`)
	require.NoError(t, err)
}

// connection makes a connection.
func (c *client) connection(role, connector string, config map[string]any, secrets map[string]string) document {
	c.t.Helper()
	body := map[string]any{"name": name(c.t), "role": role, "connector": connector, "config": config}
	if len(secrets) > 0 {
		references := map[string]any{}
		for field, value := range secrets {
			secret := name(c.t)
			c.must(http.MethodPut, "/v1/secrets/"+secret, map[string]any{"value": value})
			references[field] = map[string]any{"provider": "local", "reference": secret}
		}
		body["secrets"] = references
	}
	return c.must(http.MethodPost, "/v1/connections", body)
}

func (c *client) postgres(role, url string) document {
	c.t.Helper()
	return c.connection(role, "postgres", map[string]any{}, map[string]string{"url": url})
}

// settings of a pipeline beside what every one has.
type settings struct {
	write    string         // empty: replace
	slow     bool           // each row takes the target two milliseconds; write is append then, if empty
	pipeline map[string]any // merged into settings
	service  map[string]any
}

// pipe makes a pipeline from PostgreSQL to PostgreSQL over a table of n rows.
func (c *client) pipe(n int, s settings) *pipe {
	c.t.Helper()
	p := &pipe{client: c, name: name(c.t), source: table(c.t, n), target: newDatabase(c.t), rows: n}
	if s.slow {
		if s.write == "" {
			s.write = "append"
		}
		slowTarget(c.t, p.target, s.write)
	}
	p.create(c.postgres("source", p.source), c.postgres("sink", p.target), s)
	return p
}

func (p *pipe) create(source, sink document, s settings) {
	p.t.Helper()
	if s.write == "" {
		s.write = "replace"
	}
	p.write = s.write
	edge := map[string]any{"from": "a", "to": "b", "resource": "public.orders", "write": s.write}
	all := map[string]any{"slots": 1, "verify": "digest"}
	for key, value := range s.pipeline {
		all[key] = value
	}
	body := map[string]any{
		"name": p.name, "settings": all,
		"graph": map[string]any{
			"nodes": []any{
				map[string]any{"id": "a", "role": "source", "connection": source.text("name")}, map[string]any{"id": "b", "role": "sink", "connection": sink.text("name")},
			},
			"edges": []any{edge},
		},
	}
	if s.service != nil {
		body["service"] = s.service
	}
	p.id = p.must(http.MethodPost, "/v1/pipelines", body).text("id")
}

// start requests a run and returns its id.
func (p *pipe) start() string {
	p.t.Helper()
	items := p.must(http.MethodPost, "/v1/runs", map[string]any{"pipeline": p.name}).items()
	require.Len(p.t, items, 1)
	return items[0].text("id")
}

func (c *client) run(id string) document {
	c.t.Helper()
	return c.must(http.MethodGet, "/v1/runs/"+id, nil)
}

// wait waits until a run is in one of the states; other ends fail the test.
func (c *client) wait(id string, patience time.Duration, states ...string) document {
	c.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		r := c.run(id)
		state := r.text("state")
		for _, s := range states {
			if s == state {
				return r
			}
		}
		ended := state == "completed" || state == "failed" || state == "canceled"
		if ended || time.Now().After(deadline) {
			c.report(id)
			require.Contains(c.t, states, state, "run %s: %v", id, r)
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// report shows what became of a run that went wrong.
func (c *client) report(id string) {
	c.t.Helper()
	for _, f := range c.facts(id) {
		c.t.Logf("fact %d %s %s %v", f.number("number"), f.text("at"), f.text("type"), f["data"])
	}
}

// facts are all facts of a run, by the cursor, and checks that none is missing.
func (c *client) facts(id string) []document {
	c.t.Helper()
	var all []document
	after := 0
	for {
		page := c.must(http.MethodGet, fmt.Sprintf("/v1/runs/%s/facts?after=%d&limit=100", id, after), nil)
		items := page.items()
		for _, f := range items {
			after++
			require.Equal(c.t, after, f.number("number"), "facts are numbered without gaps")
		}
		all = append(all, items...)
		if len(items) == 0 {
			return all
		}
	}
}

func count(facts []document, kind string) int {
	n := 0
	for _, f := range facts {
		if f.text("type") == kind {
			n++
		}
	}
	return n
}

// complete waits for a run's end and checks that each row is there once.
func (p *pipe) complete(id string, patience time.Duration) document {
	p.t.Helper()
	r := p.wait(id, patience, "completed")
	p.equal(1)
	return r
}

// resumed takes a run up again that failed and can go on: after three interruptions in
// a row without progress (P24) a person does so.
func (p *pipe) resumed(id string, r document) {
	p.t.Helper()
	if r.text("state") != "failed" {
		return
	}
	if r["resumable"] != true {
		p.report(id)
	}
	require.Equal(p.t, true, r["resumable"], "run %s: %v", id, r)
	p.must(http.MethodPost, "/v1/runs/"+id+"/resume", nil)
}

// equal checks the target against the source: each row n times.
func (p *pipe) equal(n int) {
	p.t.Helper()
	wrong := one[int](p.t, p.target, fmt.Sprintf(`SELECT count(*) FROM (SELECT k, count(o.id) AS n FROM generate_series(1, %d) k
		LEFT JOIN public.orders o ON o.id = k AND o.v = md5(k::text) || repeat('x', 200) GROUP BY k) x WHERE n <> $1`, p.rows), n)
	require.Zero(p.t, wrong, "keys that are not there %d times", n)
	require.Equal(p.t, n*p.rows, one[int](p.t, p.target, "SELECT count(*) FROM public.orders"))
}
