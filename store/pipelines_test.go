package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/control/pipelines"
	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/control/secrets"
	"github.com/tranship-io/tranship/engine"
)

// planted is a secret that must not be found anywhere but encrypted.
const planted = "planted-s3cret-%&"

type endConfig struct {
	URL    string `json:"url,omitempty" secret:"true"`
	Schema string `json:"schema,omitempty"`
	SSH    *struct {
		Host     string `json:"host,omitempty"`
		Password string `json:"password,omitempty" secret:"true"`
	} `json:"ssh,omitempty"`
}

type testCatalog struct{}

func (testCatalog) SourceSpecs() []engine.Spec {
	return []engine.Spec{{Name: "db", Config: &endConfig{}, Reads: []engine.ReadMode{engine.ReadFull, engine.ReadIncremental}}}
}

func (testCatalog) SinkSpecs() []engine.Spec {
	return []engine.Spec{{Name: "db", Config: &endConfig{}, Writes: []engine.WriteMode{engine.WriteReplace, engine.WriteAppend, engine.WriteUpsert}}}
}

// services are those of this slice on one database.
type services struct {
	d           *DB
	a           control.Actor
	connections *connections.Service
	secrets     *secrets.Service
	resolver    secrets.Secrets
	pipelines   *pipelines.Service
}

func newServices(tb testing.TB, d *DB, key string) *services {
	tb.Helper()
	ring, err := secrets.NewMasterKeys(bytes.Repeat([]byte{7}, 32))
	require.NoError(tb, err)
	s := &services{d: d, a: control.System(newOrganization(tb, d, key))}
	s.resolver = secrets.Secrets{
		secrets.ProviderLocal: &secrets.Local{Store: d, Keyring: ring},
		secrets.ProviderEnv:   &secrets.Env{Lookup: func(string) (string, bool) { return planted, true }},
	}
	s.secrets = &secrets.Service{Store: d, Keyring: ring}
	s.connections = &connections.Service{Store: d, Catalog: testCatalog{}, Keyring: ring, Providers: s.resolver.Providers()}
	s.pipelines = &pipelines.Service{Store: d, Connections: d, Catalog: testCatalog{}, Drafts: s.connections, Secrets: s.resolver}
	return s
}

func (s *services) connection(tb testing.TB, name string, role connections.Role) connections.Connection {
	tb.Helper()
	c, err := s.connections.Create(tb.Context(), s.a, connections.Draft{Name: name, Role: role, Connector: "db",
		Config: json.RawMessage(`{"schema":"x"}`), Values: map[string]string{"url": "db://" + planted}})
	require.NoError(tb, err)
	return c
}

func graphOf(from, to string) pipelines.Graph {
	return pipelines.Graph{
		Nodes: []pipelines.Node{{ID: "a", Role: connections.Source, Connection: from}, {ID: "b", Role: connections.Sink, Connection: to}},
		Edges: []pipelines.Edge{{From: "a", To: "b", Resource: "public.orders"}},
	}
}

func TestConnections(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), newServices(t, newDB(t), "a")
	other := newServices(t, s.d, "b")
	c := s.connection(t, "shop", connections.Source)
	assert.EqualValues(t, 1, c.Version)
	assert.JSONEq(t, `{"schema":"x"}`, string(c.Config))

	got, err := s.connections.Get(ctx, s.a, "shop")
	require.NoError(t, err)
	assert.Equal(t, c, got)
	got, err = s.connections.Get(ctx, s.a, c.ID.String())
	require.NoError(t, err)
	assert.Equal(t, c, got)
	var missing *control.NotFoundError
	for _, ref := range []string{"nothing", c.ID.String(), "shop", "\x00", "a\xff"} {
		_, err = other.connections.Get(ctx, other.a, ref)
		require.ErrorAs(t, err, &missing, ref)
	}

	_, err = s.connections.Create(ctx, s.a, connections.Draft{Name: "shop", Role: connections.Source, Connector: "db"})
	var conflict *control.ConflictError
	require.ErrorAs(t, err, &conflict)
	assert.Equal(t, "name_taken", conflict.Code)
	other.connection(t, "shop", connections.Source)

	value, err := s.resolver.Resolve(ctx, s.a.Organization, c.Secrets["url"].Ref)
	require.NoError(t, err)
	assert.Equal(t, "db://"+planted, value)
	var unresolved *secrets.UnresolvedError
	_, err = s.resolver.Resolve(ctx, other.a.Organization, c.Secrets["url"].Ref)
	require.ErrorAs(t, err, &unresolved)

	// Kept by reference, then replaced by another secret: the old value ends.
	kept := connections.Draft{Name: "shop2", Role: connections.Source, Connector: "db", Secrets: map[string]secrets.Ref{"url": c.Secrets["url"].Ref}}
	c2, err := s.connections.Update(ctx, s.a, "shop", 1, kept)
	require.NoError(t, err)
	assert.EqualValues(t, 2, c2.Version)
	assert.Equal(t, "SHOP_URL", c2.Secrets["url"].Variable)
	var stale *control.StaleVersionError
	_, err = s.connections.Update(ctx, s.a, "shop2", 1, kept)
	require.ErrorAs(t, err, &stale)
	assert.EqualValues(t, 2, stale.Current)
	_, err = s.secrets.Put(ctx, s.a, "own", planted, 0)
	require.NoError(t, err)
	kept.Secrets["url"] = "local:own"
	_, err = s.connections.Update(ctx, s.a, "shop2", 2, kept)
	require.NoError(t, err)
	_, err = s.resolver.Resolve(ctx, s.a.Organization, c.Secrets["url"].Ref)
	require.ErrorAs(t, err, &unresolved, "the own secret ended")
	require.ErrorAs(t, s.secrets.Delete(ctx, s.a, "own", secrets.AnyVersion), &conflict)
	assert.Equal(t, "in_use", conflict.Code)
	kept.Secrets["url"] = "local:nothing"
	_, err = s.connections.Update(ctx, s.a, "shop2", 3, kept)
	var invalid *control.InvalidError
	require.ErrorAs(t, err, &invalid)
	assert.Equal(t, "secrets.url", invalid.Problems[0].Path)

	list, err := s.connections.Versions(ctx, s.a, "shop2", control.Page{Limit: 2})
	require.NoError(t, err)
	assert.Equal(t, []int64{3, 2}, []int64{list.Items[0].Version, list.Items[1].Version})
	list, err = s.connections.Versions(ctx, s.a, "shop2", control.Page{Limit: 2, After: list.Next})
	require.NoError(t, err)
	assert.Len(t, list.Items, 1)
	assert.Empty(t, list.Next)

	require.NoError(t, s.connections.Delete(ctx, s.a, "shop2", 3))
	require.ErrorAs(t, s.connections.Delete(ctx, s.a, "shop2", 0), &missing)
	require.NoError(t, s.secrets.Delete(ctx, s.a, "own", secrets.AnyVersion))
	again := s.connection(t, "shop2", connections.Source)
	assert.NotEqual(t, c.ID, again.ID)
}

func TestListsArePagedAndFiltered(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), newServices(t, newDB(t), "a")
	sink := s.connection(t, "zz", connections.Sink)
	for i := range 7 {
		c := s.connection(t, fmt.Sprintf("c%d", i), connections.Source)
		_, err := s.pipelines.Create(ctx, s.a, pipelines.Draft{Name: fmt.Sprintf("p%d", i), Graph: graphOf(c.Name, "zz")})
		require.NoError(t, err)
	}
	var names []string
	page := control.Page{Limit: 3}
	for {
		list, err := s.connections.List(ctx, s.a, connections.Filter{Role: connections.Source}, page)
		require.NoError(t, err)
		for _, c := range list.Items {
			names = append(names, c.Name)
		}
		if list.Next == "" {
			break
		}
		// What comes before the cursor later does not move the next page.
		s.connection(t, fmt.Sprintf("a%d", len(names)), connections.Source)
		page.After = list.Next
	}
	assert.Equal(t, []string{"c0", "c1", "c2", "c3", "c4", "c5", "c6"}, names)
	found, err := s.pipelines.List(ctx, s.a, pipelines.Filter{Connection: sink.ID}, control.Page{})
	require.NoError(t, err)
	assert.Len(t, found.Items, 7)
	found, err = s.pipelines.List(ctx, s.a, pipelines.Filter{Name: "p3"}, control.Page{})
	require.NoError(t, err)
	assert.Len(t, found.Items, 1)
	_, err = s.pipelines.List(ctx, s.a, pipelines.Filter{}, control.Page{After: "!"})
	require.Error(t, err)
}

func TestPipelineVersions(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), newServices(t, newDB(t), "a")
	src, sink := s.connection(t, "src", connections.Source), s.connection(t, "sink", connections.Sink)
	s.connection(t, "sink2", connections.Sink)
	p, err := s.pipelines.Create(ctx, s.a, pipelines.Draft{Name: "shop", Graph: graphOf("src", sink.ID.String())})
	require.NoError(t, err)
	assert.Equal(t, src.ID.String(), p.Current.Graph.Nodes[0].Connection)
	require.Len(t, p.Current.Routes, 1)
	assert.Equal(t, "shop", p.Current.Routes[0].Name)
	assert.Equal(t, p.Current.Routes[0].Hash, p.Current.Hash)

	// The same graph makes no version; a second route leaves the first one's name.
	same, err := s.pipelines.Update(ctx, s.a, "shop", 1, pipelines.Draft{Name: "shop", Graph: graphOf("src", "sink")})
	require.NoError(t, err)
	assert.Equal(t, p, same)
	g := graphOf("src", "sink")
	g.Nodes = append(g.Nodes, pipelines.Node{ID: "c", Role: connections.Sink, Connection: "sink2", Overlay: json.RawMessage(`{"schema":"y"}`)})
	g.Edges = append(g.Edges, pipelines.Edge{From: "a", To: "c", Pattern: "public.*"})
	p2, err := s.pipelines.Update(ctx, s.a, "shop", 1, pipelines.Draft{Name: "store", Graph: g})
	require.NoError(t, err)
	assert.EqualValues(t, 2, p2.Current.Number)
	require.Len(t, p2.Current.Routes, 2)
	assert.Equal(t, []string{"shop", "store/a->c"}, []string{p2.Current.Routes[0].Name, p2.Current.Routes[1].Name})
	assert.NotEqual(t, p.Current.Routes[0].Hash, p2.Current.Routes[0].Hash, "the document's name is part of the hash")

	one, err := s.pipelines.Version(ctx, s.a, "store", 1)
	require.NoError(t, err)
	assert.Equal(t, p.Current, one)
	var missing *control.NotFoundError
	_, err = s.pipelines.Version(ctx, s.a, "store", 3)
	require.ErrorAs(t, err, &missing)
	for _, change := range []string{`UPDATE pipeline_versions SET hash = 'x'`, `DELETE FROM pipeline_versions`, `DELETE FROM pipelines`} {
		require.Equal(t, "42501", code(s.d.Tx(ctx, s.a.Organization, func(ctx context.Context, tx Tx) error {
			_, err := tx.Exec(ctx, change)
			return err
		})), change)
	}

	paused, err := s.pipelines.SetPaused(ctx, s.a, "store", true)
	require.NoError(t, err)
	assert.True(t, paused.Paused)
	again, err := s.pipelines.SetPaused(ctx, s.a, "store", true)
	require.NoError(t, err)
	assert.Equal(t, paused.Version, again.Version)

	// A new pipeline of the old name cannot take the first one's history.
	other, err := s.pipelines.Create(ctx, s.a, pipelines.Draft{Name: "shop", Graph: graphOf("src", "sink")})
	require.NoError(t, err)
	assert.Equal(t, "shop/a->b", other.Current.Routes[0].Name)
	require.NoError(t, s.pipelines.Delete(ctx, s.a, "store", 0))
	require.ErrorAs(t, s.pipelines.Delete(ctx, s.a, "store", 0), &missing)
	third, err := s.pipelines.Create(ctx, s.a, pipelines.Draft{Name: "store", Graph: graphOf("src", "sink")})
	require.NoError(t, err)
	assert.Equal(t, "store", third.Current.Routes[0].Name)
	assert.NotEqual(t, p.ID, third.ID)
}

// Of writers from one version one wins, and the others learn which version stands.
func TestVersionsAreComparedAndSwapped(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), newServices(t, newDB(t), "a")
	s.connection(t, "src", connections.Source)
	s.connection(t, "sink", connections.Sink)
	_, err := s.pipelines.Create(ctx, s.a, pipelines.Draft{Name: "shop", Graph: graphOf("src", "sink")})
	require.NoError(t, err)
	const writers, rounds = 8, 5
	for round := range rounds {
		var wg sync.WaitGroup
		won := make([]bool, writers)
		for i := range writers {
			wg.Go(func() {
				g := graphOf("src", "sink")
				g.Edges[0].Where = fmt.Sprintf("round = %d and writer = %d", round, i)
				p, err := s.pipelines.Update(ctx, s.a, "shop", int64(round+1), pipelines.Draft{Name: "shop", Graph: g})
				var stale *control.StaleVersionError
				switch {
				case err == nil:
					won[i] = true
					assert.EqualValues(t, round+2, p.Current.Number)
				case errors.As(err, &stale):
					assert.EqualValues(t, round+2, stale.Current)
				default:
					assert.NoError(t, err)
				}
			})
		}
		wg.Wait()
		n := 0
		for _, w := range won {
			if w {
				n++
			}
		}
		require.Equal(t, 1, n, "round %d", round)
	}
	versions, err := s.pipelines.Versions(ctx, s.a, "shop", control.Page{})
	require.NoError(t, err)
	for i, v := range versions.Items {
		assert.EqualValues(t, rounds+1-i, v.Number)
	}
}

// A connection that a version takes up cannot end at the same moment.
func TestDeleteConnectionRacesWithItsUse(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), newServices(t, newDB(t), "a")
	s.connection(t, "sink", connections.Sink)
	for i := range 30 {
		name := fmt.Sprintf("src%d", i)
		s.connection(t, name, connections.Source)
		var wg sync.WaitGroup
		var deleted, created error
		wg.Go(func() { deleted = s.connections.Delete(ctx, s.a, name, 0) })
		wg.Go(func() {
			_, created = s.pipelines.Create(ctx, s.a, pipelines.Draft{Name: fmt.Sprintf("p%d", i), Graph: graphOf(name, "sink")})
		})
		wg.Wait()
		require.NotEqual(t, deleted == nil, created == nil, "delete: %v, create: %v", deleted, created)
		var conflict *control.ConflictError
		var invalid *control.InvalidError
		if deleted != nil {
			require.ErrorAs(t, deleted, &conflict)
			assert.Equal(t, "in_use", conflict.Code)
			continue
		}
		require.ErrorAs(t, created, &invalid)
	}
}

func TestIdempotentCreates(t *testing.T) {
	t.Parallel()
	s := newServices(t, newDB(t), "a")
	ctx := control.WithIdempotency(t.Context(), control.Idempotency{Key: "k", Hash: []byte("1")})
	d := connections.Draft{Name: "c", Role: connections.Source, Connector: "db", Values: map[string]string{"url": planted}}
	one, err := s.connections.Create(ctx, s.a, d)
	require.NoError(t, err)
	two, err := s.connections.Create(ctx, s.a, d)
	require.NoError(t, err)
	assert.Equal(t, one, two)
	var conflict *control.ConflictError
	_, err = s.connections.Create(control.WithIdempotency(t.Context(), control.Idempotency{Key: "k", Hash: []byte("2")}), s.a, d)
	require.ErrorAs(t, err, &conflict)
	assert.Equal(t, "idempotency_key_reused", conflict.Code)
}

const shopFile = `
version: 1
name: shop
source: {connector: db, url: "${SOURCE_URL}", ssh: {host: jump, password: "${SSH_PASSWORD}"}}
sink: {connector: db, url: "db://u:` + planted + `@h/d", schema: "${SCHEMA}"}
defaults: {read: incremental, write: upsert}
resources:
  - {name: public.orders, cursor: updated_at, lookback: 5m, where: "a = '$${b}'"}
  - {name: "public.x*", read: full, write: replace, exclude: [public.xy]}
settings: {slots: 3, verify: digest}
service: {retries: {attempts: 5}, time_limit: 2h}
`

func TestApply(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), newServices(t, newDB(t), "a")
	file := pipelines.File{Text: []byte(shopFile), Variables: map[string]string{"SOURCE_URL": "db://s:" + planted + "@h/d", "SSH_PASSWORD": planted, "SCHEMA": "replica"}}
	dry := file
	dry.DryRun = true
	_, changes, err := s.pipelines.Apply(ctx, s.a, dry)
	require.NoError(t, err)
	assert.Len(t, changes, 3)
	var missing *control.NotFoundError
	_, err = s.pipelines.Get(ctx, s.a, "shop")
	require.ErrorAs(t, err, &missing)

	p, changes, err := s.pipelines.Apply(ctx, s.a, file)
	require.NoError(t, err)
	for _, c := range changes {
		assert.Equal(t, pipelines.Created, c.Action, c.Name)
	}
	assert.Equal(t, "a = '${b}'", p.Current.Graph.Edges[0].Where)
	c, err := s.connections.Get(ctx, s.a, "shop-source")
	require.NoError(t, err)
	assert.JSONEq(t, `{"ssh":{"host":"jump"}}`, string(c.Config))
	assert.Equal(t, "SOURCE_URL", c.Secrets["url"].Variable)
	sink, err := s.connections.Get(ctx, s.a, "shop-sink")
	require.NoError(t, err)
	assert.JSONEq(t, `{"schema":"replica"}`, string(sink.Config))

	// Applied again nothing changes; another password changes no version.
	again, changes, err := s.pipelines.Apply(ctx, s.a, file)
	require.NoError(t, err)
	assert.Equal(t, p, again)
	for _, c := range changes {
		assert.Equal(t, pipelines.Unchanged, c.Action, c.Name)
	}
	rotated := file
	rotated.Variables = map[string]string{"SOURCE_URL": "db://s:other@h/d", "SSH_PASSWORD": planted, "SCHEMA": "replica"}
	again, _, err = s.pipelines.Apply(ctx, s.a, rotated)
	require.NoError(t, err)
	assert.Equal(t, p.Current, again.Current)
	c2, err := s.connections.Get(ctx, s.a, "shop-source")
	require.NoError(t, err)
	assert.Equal(t, c, c2)
	value, err := s.resolver.Resolve(ctx, s.a.Organization, c2.Secrets["url"].Ref)
	require.NoError(t, err)
	assert.Equal(t, "db://s:other@h/d", value)

	// What is exported means the same, here and to the command line.
	text, err := s.pipelines.Export(ctx, s.a, "shop", 0, "")
	require.NoError(t, err)
	assert.NotContains(t, string(text), planted)
	rotated.Text = text
	rotated.Variables["SHOP_SINK_URL"] = "db://u:" + planted + "@h/d"
	again, changes, err = s.pipelines.Apply(ctx, s.a, rotated)
	require.NoError(t, err, string(text))
	assert.Equal(t, p.Current, again.Current)
	for _, c := range changes {
		assert.Equal(t, pipelines.Unchanged, c.Action, c.Name)
	}

	file.Text = []byte(shopFile + "unknown: 1\n")
	var invalid *control.InvalidError
	_, _, err = s.pipelines.Apply(ctx, s.a, file)
	require.ErrorAs(t, err, &invalid)
	file.Text = bytes.Replace([]byte(shopFile), []byte("${SCHEMA}"), []byte("${SSH_PASSWORD}"), 1)
	_, _, err = s.pipelines.Apply(ctx, s.a, file)
	require.ErrorAs(t, err, &invalid)
	assert.Equal(t, "sink", invalid.Problems[0].Path)
}

// No row of any table, index or log of changes holds a secret (invariant 10).
func TestNoSecretInTheDatabase(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), newServices(t, newDB(t), "a")
	s.connection(t, "src", connections.Source)
	_, err := s.secrets.Put(ctx, s.a, "named", planted, secrets.AnyVersion)
	require.NoError(t, err)
	_, _, err = s.pipelines.Apply(ctx, s.a, pipelines.File{Text: []byte(shopFile), Variables: map[string]string{"SOURCE_URL": planted, "SSH_PASSWORD": planted, "SCHEMA": "x"}})
	require.NoError(t, err)
	// Drafts with a secret in the wrong place are refused, and do not repeat it.
	for _, d := range []connections.Draft{
		{Name: "n", Role: connections.Source, Connector: "db", Config: json.RawMessage(`{"url":"` + planted + `"}`)},
		{Name: "n", Role: connections.Source, Connector: "db", Config: json.RawMessage(`{"schema":"db://u:` + planted + `@h/d"}`)},
		{Name: "n", Role: connections.Source, Connector: "db", Secrets: map[string]secrets.Ref{"url": planted}},
		{Name: "n", Role: connections.Source, Connector: "db", Values: map[string]string{"schema": planted}},
	} {
		_, err := s.connections.Create(ctx, s.a, d)
		var invalid *control.InvalidError
		require.ErrorAs(t, err, &invalid)
		assert.NotContains(t, err.Error(), planted)
	}
	dump := dumpAll(t, s.d)
	require.Contains(t, dump, "shop-source", "the dump holds what it should")
	assert.NotContains(t, dump, planted)
	assert.NotContains(t, dump, fmt.Sprintf("%x", planted))
}

// dumpAll reads every row of every table as text.
func dumpAll(tb testing.TB, d *DB) string {
	tb.Helper()
	ctx := tb.Context()
	rows, err := d.app.Query(ctx, `SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = 'tranship'`)
	require.NoError(tb, err)
	var tables []string
	for rows.Next() {
		var name string
		require.NoError(tb, rows.Scan(&name))
		tables = append(tables, name)
	}
	require.NoError(tb, rows.Err())
	var out bytes.Buffer
	for _, name := range tables {
		rows, err := d.app.Query(ctx, `SELECT t::text FROM `+name+` t`)
		require.NoError(tb, err)
		for rows.Next() {
			var text string
			require.NoError(tb, rows.Scan(&text))
			out.WriteString(name + " " + text + "\n")
		}
		require.NoError(tb, rows.Err())
	}
	return out.String()
}

func TestForeignIDsAreNotThere(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	a := newServices(t, newDB(t), "a")
	b := newServices(t, a.d, "b")
	a.connection(t, "src", connections.Source)
	a.connection(t, "sink", connections.Sink)
	p, err := a.pipelines.Create(ctx, a.a, pipelines.Draft{Name: "shop", Graph: graphOf("src", "sink")})
	require.NoError(t, err)
	_, err = a.secrets.Put(ctx, a.a, "named", planted, 0)
	require.NoError(t, err)
	for name, try := range map[string]func() error{
		"pipeline":          func() error { _, err := b.pipelines.Get(ctx, b.a, p.ID.String()); return err },
		"pause":             func() error { _, err := b.pipelines.SetPaused(ctx, b.a, p.ID.String(), true); return err },
		"delete":            func() error { return b.pipelines.Delete(ctx, b.a, p.ID.String(), 0) },
		"version":           func() error { _, err := b.pipelines.Version(ctx, b.a, p.ID.String(), 1); return err },
		"delete connection": func() error { return b.connections.Delete(ctx, b.a, p.Current.Graph.Nodes[0].Connection, 0) },
		"secret":            func() error { _, err := b.secrets.Get(ctx, b.a, "named"); return err },
		"delete secret":     func() error { return b.secrets.Delete(ctx, b.a, "named", secrets.AnyVersion) },
		"store version":     func() error { _, err := b.d.PipelineVersion(ctx, b.a.Organization, p.ID, 1); return err },
	} {
		var missing *control.NotFoundError
		require.ErrorAs(t, try(), &missing, name)
	}
	_, err = b.pipelines.Create(ctx, b.a, pipelines.Draft{Name: "shop", Graph: p.Current.Graph})
	var invalid *control.InvalidError
	require.ErrorAs(t, err, &invalid)
	_, err = b.connections.Create(ctx, b.a, connections.Draft{Name: "c", Role: connections.Source, Connector: "db", Secrets: map[string]secrets.Ref{"url": "local:named"}})
	require.ErrorAs(t, err, &invalid)
	items, err := b.d.PipelineVersions(ctx, b.a.Organization, p.ID, control.Page{})
	require.NoError(t, err)
	assert.Empty(t, items.Items)
	assert.NotEqual(t, uuid.Nil, p.ID)
}

// A pipeline does not end under an open run, and no run begins once it ended or
// was paused, whichever comes first.
func TestPipelinesEndWithoutOpenRuns(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), newServices(t, newDB(t), "a")
	s.connection(t, "src", connections.Source)
	s.connection(t, "sink", connections.Sink)
	for i := range 10 {
		name := fmt.Sprintf("p%d", i)
		p, err := s.pipelines.Create(ctx, s.a, pipelines.Draft{Name: name, Graph: graphOf("src", "sink")})
		require.NoError(t, err)
		draft := runs.Draft{ID: uuid.Must(uuid.NewV7()), Compiled: runs.Compiled{ID: p.ID, Name: name, Number: 1}, Route: runs.Route{Key: "a->b", Name: name, Hash: p.Current.Hash}}
		var wg sync.WaitGroup
		var deleted, started error
		wg.Go(func() { deleted = s.pipelines.Delete(ctx, s.a, name, 0) })
		wg.Go(func() { _, started = s.d.InsertRuns(ctx, s.a, []runs.Draft{draft}, false) })
		wg.Wait()
		require.NotEqual(t, deleted == nil, started == nil, "delete: %v, start: %v", deleted, started)
		var conflict *control.ConflictError
		var missing *control.NotFoundError
		if deleted != nil {
			require.ErrorAs(t, deleted, &conflict)
			assert.Equal(t, "in_use", conflict.Code)
			assert.Equal(t, "requested", conflict.State)
			continue
		}
		require.ErrorAs(t, started, &missing)
	}
	p, err := s.pipelines.Create(ctx, s.a, pipelines.Draft{Name: "paused", Graph: graphOf("src", "sink")})
	require.NoError(t, err)
	_, err = s.pipelines.SetPaused(ctx, s.a, "paused", true)
	require.NoError(t, err)
	draft := runs.Draft{ID: uuid.Must(uuid.NewV7()), Compiled: runs.Compiled{ID: p.ID, Name: "paused", Number: 1}, Route: runs.Route{Key: "a->b", Name: "paused", Hash: "h"}}
	var conflict *control.ConflictError
	_, err = s.d.InsertRuns(ctx, s.a, []runs.Draft{draft}, false)
	require.ErrorAs(t, err, &conflict)
	assert.Equal(t, "pipeline_paused", conflict.Code)
}

// A reset is for resources that runs of the pipeline had, and not under a worker.
func TestResetResources(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), newServices(t, newDB(t), "a")
	s.pipelines.Cursors = s.d
	s.connection(t, "src", connections.Source)
	s.connection(t, "sink", connections.Sink)
	p, err := s.pipelines.Create(ctx, s.a, pipelines.Draft{Name: "shop", Graph: graphOf("src", "sink")})
	require.NoError(t, err)
	var invalid *control.InvalidError
	_, err = s.pipelines.Reset(ctx, s.a, "shop", []string{"public.orders"})
	require.ErrorAs(t, err, &invalid)

	state, route := s.d.State(s.a.Organization), engine.Route{Pipeline: "shop", Source: "src", Sink: "dst"}
	route.Installation, err = state.Installation(ctx)
	require.NoError(t, err)
	run, _, err := state.StartRun(ctx, engine.StartRequest{Route: route, Version: "1"})
	require.NoError(t, err)
	lease, err := state.Acquire(ctx, run.ID, 0, "worker", time.Minute)
	require.NoError(t, err)
	require.NoError(t, state.SavePlan(ctx, lease.Fence, &engine.RunPlan{Resources: []*engine.ResourcePlan{{
		Selection: engine.Selection{Resource: "public.orders"}, Source: &engine.SourcePlan{Splits: []engine.Split{{ID: "public.orders/0.0", Resource: "public.orders"}}}, Target: &engine.Target{},
	}}}, nil))
	require.NoError(t, s.d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `UPDATE runs SET pipeline = $1 WHERE id = $2`, p.ID, run.ID)
		return err
	}))
	var conflict *control.ConflictError
	_, err = s.pipelines.Reset(ctx, s.a, "shop", []string{"public.orders"})
	require.ErrorAs(t, err, &conflict)
	assert.Equal(t, "run_open", conflict.Code)
	require.NoError(t, state.EndAttempt(ctx, lease, nil))
	_, err = s.pipelines.Reset(ctx, s.a, "shop", []string{"public.orders", "public.nothing"})
	require.ErrorAs(t, err, &invalid)
	assert.Equal(t, "resources[1]", invalid.Problems[0].Path)
	names, err := s.pipelines.Reset(ctx, s.a, "shop", []string{"public.orders"})
	require.NoError(t, err)
	assert.Equal(t, []string{"public.orders"}, names)
	cursor, err := state.Cursor(ctx, route, "public.orders")
	require.NoError(t, err)
	assert.True(t, cursor.Reset)
}

// After a rotation all secrets are wrapped under the new key, those of every
// organization, and the old one may go.
func TestMasterKeyRotation(t *testing.T) {
	t.Parallel()
	ctx, a := t.Context(), newServices(t, newDB(t), "a")
	b := newServices(t, a.d, "b")
	for _, s := range []*services{a, b} {
		_, err := s.secrets.Put(ctx, s.a, "one", planted, 0)
		require.NoError(t, err)
		s.connection(t, "c", connections.Source)
	}
	before, after := bytes.Repeat([]byte{7}, 32), bytes.Repeat([]byte{8}, 32)
	both, err := secrets.NewMasterKeys(after, before)
	require.NoError(t, err)
	n, err := (&secrets.Local{Store: a.d, Keyring: both}).Rewrap(ctx)
	require.NoError(t, err)
	assert.Equal(t, 4, n)
	only, err := secrets.NewMasterKeys(after)
	require.NoError(t, err)
	local := &secrets.Local{Store: a.d, Keyring: only}
	for _, s := range []*services{a, b} {
		value, err := local.Resolve(ctx, s.a.Organization, "local:one")
		require.NoError(t, err)
		assert.Equal(t, planted, value)
	}
}
