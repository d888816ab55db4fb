package pipelines_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/control/pipelines"
	"github.com/tranship-io/tranship/control/secrets"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/pipeline"
)

type endConfig struct {
	URL    string        `json:"url,omitempty" secret:"true"`
	Schema string        `json:"schema,omitempty"`
	Size   pipeline.Size `json:"size,omitempty"`
	Must   string        `json:"must" jsonschema:"required"`
}

type specs struct{}

func (specs) SourceSpecs() []engine.Spec {
	return []engine.Spec{{Name: "db", Config: &endConfig{}, Reads: []engine.ReadMode{engine.ReadFull, engine.ReadIncremental}}}
}

func (specs) SinkSpecs() []engine.Spec {
	return []engine.Spec{{Name: "db", Config: &endConfig{}, Writes: []engine.WriteMode{engine.WriteReplace, engine.WriteUpsert}}}
}

// memory has connections by name and id, and keeps what is applied.
type memory struct {
	pipelines.Store
	found    map[string]connections.Connection
	pipeline *pipelines.Pipeline
	sealed   map[string]secrets.Sealed
}

func (m *memory) Connection(_ context.Context, _ uuid.UUID, ref string) (connections.Connection, error) {
	if c, ok := m.found[ref]; ok {
		return c, nil
	}
	return connections.Connection{}, &control.NotFoundError{Kind: "connection", Ref: ref}
}

func (m *memory) Pipeline(context.Context, uuid.UUID, string) (pipelines.Pipeline, error) {
	if m.pipeline == nil {
		return pipelines.Pipeline{}, &control.NotFoundError{Kind: "pipeline"}
	}
	return *m.pipeline, nil
}

func (m *memory) Apply(_ context.Context, _ control.Actor, x pipelines.Applied) error {
	for _, c := range x.Connections {
		m.found[c.Connection.Name], m.found[c.Connection.ID.String()] = c.Connection, c.Connection
		for _, s := range c.Own {
			m.sealed[s.Name] = s
		}
	}
	if c := x.Pipeline; c != nil {
		v := pipelines.Version{Number: 1, Hash: c.Hash, Graph: c.Graph}
		for _, r := range c.Routes {
			r.Name = r.Names[0]
			v.Routes = append(v.Routes, r.Route)
		}
		m.pipeline = &pipelines.Pipeline{ID: c.ID, Name: c.Name, Version: x.Version + 1, Current: v}
	}
	return nil
}

func (m *memory) SealedSecret(_ context.Context, _ uuid.UUID, name string) (secrets.Sealed, error) {
	if s, ok := m.sealed[name]; ok {
		return s, nil
	}
	return secrets.Sealed{}, &control.NotFoundError{Kind: "secret", Ref: name}
}

func newMemory() *memory {
	m := &memory{found: map[string]connections.Connection{}, sealed: map[string]secrets.Sealed{}}
	for name, role := range map[string]connections.Role{"src": connections.Source, "dst": connections.Sink} {
		c := connections.Connection{ID: uuid.NewSHA1(uuid.Nil, []byte(name)), Name: name, Role: role, Connector: "db", Config: json.RawMessage(`{"must":"x"}`),
			Secrets: map[string]connections.Secret{"url": {Ref: "env:A", Variable: "A"}}}
		m.found[name], m.found[c.ID.String()] = c, c
	}
	return m
}

type secretStore struct {
	secrets.Store
	*memory
}

func (s secretStore) SealedSecret(ctx context.Context, o uuid.UUID, name string) (secrets.Sealed, error) {
	return s.memory.SealedSecret(ctx, o, name)
}

func service(tb testing.TB, m *memory) (*pipelines.Service, control.Actor) {
	tb.Helper()
	ring, err := secrets.NewMasterKeys(bytes.Repeat([]byte{3}, 32))
	require.NoError(tb, err)
	resolver := secrets.Secrets{secrets.ProviderLocal: &secrets.Local{Store: secretStore{memory: m}, Keyring: ring}}
	return &pipelines.Service{Store: m, Connections: m, Catalog: specs{}, Secrets: resolver,
		Drafts: &connections.Service{Catalog: specs{}, Keyring: ring, Providers: []string{secrets.ProviderLocal}}}, control.System(uuid.New())
}

// good is a graph without problems.
func good() pipelines.Graph {
	return pipelines.Graph{
		Nodes: []pipelines.Node{{ID: "a", Role: connections.Source, Connection: "src"}, {ID: "b", Role: connections.Sink, Connection: "dst"}},
		Edges: []pipelines.Edge{{From: "a", To: "b", Resource: "public.orders"}},
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*pipelines.Draft)
		paths  []string
	}{
		"good":                 {func(*pipelines.Draft) {}, nil},
		"name":                 {func(d *pipelines.Draft) { d.Name = "a/b" }, []string{"name"}},
		"no edges":             {func(d *pipelines.Draft) { d.Graph.Edges = nil }, []string{"nodes[0]", "nodes[1]", "edges"}},
		"empty":                {func(d *pipelines.Draft) { d.Graph = pipelines.Graph{} }, []string{"edges"}},
		"node id":              {func(d *pipelines.Draft) { d.Graph.Nodes[0].ID = "a b" }, []string{"nodes[0].id", "edges[0].from", "nodes[0]"}},
		"two of an id":         {func(d *pipelines.Draft) { d.Graph.Nodes = append(d.Graph.Nodes, d.Graph.Nodes[0]) }, []string{"nodes[2].id"}},
		"role":                 {func(d *pipelines.Draft) { d.Graph.Nodes[0].Role = "middle" }, []string{"nodes[0].role"}},
		"wrong role":           {func(d *pipelines.Draft) { d.Graph.Nodes[0].Connection = "dst" }, []string{"nodes[0].connection"}},
		"no connection":        {func(d *pipelines.Draft) { d.Graph.Nodes[0].Connection = "" }, []string{"nodes[0].connection"}},
		"unknown connection":   {func(d *pipelines.Draft) { d.Graph.Nodes[1].Connection = uuid.NewString() }, []string{"nodes[1].connection"}},
		"secret overlay":       {func(d *pipelines.Draft) { d.Graph.Nodes[1].Overlay = json.RawMessage(`{"url":"db://x"}`) }, []string{"nodes[1].overlay.url"}},
		"password in overlay":  {func(d *pipelines.Draft) { d.Graph.Nodes[1].Overlay = json.RawMessage(`{"schema":"db://u:pw12@h"}`) }, []string{"nodes[1].overlay.schema"}},
		"overlay is no object": {func(d *pipelines.Draft) { d.Graph.Nodes[1].Overlay = json.RawMessage(`[1]`) }, []string{"nodes[1].overlay"}},
		"unknown overlay key":  {func(d *pipelines.Draft) { d.Graph.Nodes[1].Overlay = json.RawMessage(`{"shcema":"x"}`) }, []string{"nodes[1].overlay.shcema"}},
		"wrong overlay value":  {func(d *pipelines.Draft) { d.Graph.Nodes[1].Overlay = json.RawMessage(`{"size":"big"}`) }, []string{"nodes[1].overlay.size"}},
		"overlay takes away":   {func(d *pipelines.Draft) { d.Graph.Nodes[0].Overlay = json.RawMessage(`{"must":null}`) }, []string{"nodes[0].connection"}},
		"edge to nowhere":      {func(d *pipelines.Draft) { d.Graph.Edges[0].To = "c" }, []string{"edges[0].to", "nodes[1]"}},
		"edge backwards":       {func(d *pipelines.Draft) { d.Graph.Edges[0].From, d.Graph.Edges[0].To = "b", "a" }, []string{"edges[0].from", "edges[0].to"}},
		"no resource":          {func(d *pipelines.Draft) { d.Graph.Edges[0].Resource = "" }, []string{"edges[0]"}},
		"resource and pattern": {func(d *pipelines.Draft) { d.Graph.Edges[0].Pattern = "x.*" }, []string{"edges[0].pattern"}},
		"pattern with target":  {func(d *pipelines.Draft) { d.Graph.Edges[0].Resource, d.Graph.Edges[0].Target = "x.*", "t" }, []string{"edges[0].target"}},
		"cursor is missing":    {func(d *pipelines.Draft) { d.Graph.Edges[0].Read = "incremental" }, []string{"edges[0].cursor"}},
		"cursor is too much":   {func(d *pipelines.Draft) { d.Graph.Edges[0].Cursor = "x" }, []string{"edges[0].cursor"}},
		"mode of the sink":     {func(d *pipelines.Draft) { d.Graph.Edges[0].Write = "append" }, []string{"edges[0].write"}},
		"unknown mode":         {func(d *pipelines.Draft) { d.Graph.Edges[0].Read = "sometimes" }, []string{"edges[0].read"}},
		"set aside where":      {func(d *pipelines.Draft) { d.Graph.Edges[0].Policies = &pipeline.Policies{Default: "set_aside"} }, []string{"edges[0].set_aside"}},
		"unknown policy":       {func(d *pipelines.Draft) { d.Graph.Defaults.Policies = &pipeline.Policies{Default: "hope"} }, []string{"defaults.policies.default"}},
		"key left out": {func(d *pipelines.Draft) {
			d.Graph.Edges[0].Key, d.Graph.Edges[0].Columns = []string{"id"}, &pipeline.Columns{Exclude: []string{"id"}}
		}, []string{"edges[0].columns"}},
		"twice": {func(d *pipelines.Draft) {
			d.Graph.Edges = append(d.Graph.Edges, pipelines.Edge{From: "a", To: "b", Resource: "x"}, d.Graph.Edges[0])
		}, []string{"edges[2].resource"}},
		"memory":  {func(d *pipelines.Draft) { d.Graph.Settings.Memory = 5 }, []string{"settings.memory"}},
		"verify":  {func(d *pipelines.Draft) { d.Graph.Settings.Verify = "trust" }, []string{"settings.verify"}},
		"compute": {func(d *pipelines.Draft) { d.Graph.Service.Compute = "abacus" }, []string{"service.compute"}},
		"all at once": {func(d *pipelines.Draft) {
			d.Name, d.Graph.Settings.Slots, d.Graph.Edges[0].Read, d.Graph.Nodes[1].Overlay = "", 999, "incremental", json.RawMessage(`{"x":1}`)
		}, []string{"name", "settings.slots", "edges[0].cursor", "nodes[1].overlay.x"}},
		"text that looks like a reference": {func(d *pipelines.Draft) {
			d.Graph.Edges[0].Where = "a = '${HOME}' or b = '${'"
			d.Graph.Nodes[1].Overlay = json.RawMessage(`{"schema":"${HOME}"}`)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, a := service(t, newMemory())
			d := pipelines.Draft{Name: "shop", Graph: good()}
			c.change(&d)
			problems, routes, err := s.Validate(t.Context(), a, d)
			require.NoError(t, err)
			var paths []string
			for _, p := range problems {
				paths = append(paths, p.Path)
				assert.NotEmpty(t, p.Message)
			}
			assert.ElementsMatch(t, c.paths, paths, "%v", problems)
			assert.Equal(t, len(c.paths) == 0, len(routes) > 0)
		})
	}
}

func TestRoutesAndHashes(t *testing.T) {
	t.Parallel()
	s, a := service(t, newMemory())
	hash := func(change func(*pipelines.Graph)) string {
		g := good()
		change(&g)
		problems, routes, err := s.Validate(t.Context(), a, pipelines.Draft{Name: "shop", Graph: g})
		require.NoError(t, err)
		require.Empty(t, problems)
		return routes[0].Hash
	}
	base := hash(func(*pipelines.Graph) {})
	assert.Equal(t, base, hash(func(g *pipelines.Graph) { g.Settings.Slots, g.Service.Retries.Attempts = 7, 9 }), "speed and service change no meaning")
	assert.NotEqual(t, base, hash(func(g *pipelines.Graph) { g.Edges[0].Where = "x" }))
	assert.NotEqual(t, base, hash(func(g *pipelines.Graph) { g.Nodes[1].Overlay = json.RawMessage(`{"schema":"y"}`) }))
	assert.Equal(t, hash(func(g *pipelines.Graph) { g.Nodes[1].Overlay = json.RawMessage(`{"schema":"y","size":5}`) }),
		hash(func(g *pipelines.Graph) { g.Nodes[1].Overlay = json.RawMessage(`{"size":5,"schema":"y"}`) }))
}

// Whatever is imported, it is refused with problems or stored; what is stored is
// exported, means the same, and holds no secret.
func FuzzApply(f *testing.F) {
	for _, text := range []string{
		"version: 1\nname: shop\nsource: {connector: db, url: \"${A}\", must: x}\nsink: {connector: db, must: y, url: \"db://u:${B}@h\"}\nresources: [{name: x.y}]\n",
		"version: 1\nname: shop\nsource: {connector: db, must: \"$${A}\"}\nsink: {connector: db, must: \"${C}\"}\nresources:\n- pattern: 'x.*'\n  where: \"${C} $${\"\n  columns: {exclude: [a]}\nservice: {time_limit: 1h}\n",
		"version: 1\nname: ${C}\nsource: &s {connector: db, must: z, size: 5MiB}\nsink: *s\ndefaults: {policies: {default: null}}\nresources: [{name: '\"a.b\".c', options: {a: [1, {b: 2}]}}]\n",
	} {
		f.Add(text, "hunter2hunter2", "plain")
	}
	f.Fuzz(func(t *testing.T, text, secret, plain string) {
		m := newMemory()
		s, a := service(t, m)
		file := pipelines.File{Text: []byte(text), Variables: map[string]string{"A": secret, "B": secret, "C": plain}}
		p, _, err := s.Apply(t.Context(), a, file)
		if err != nil {
			var invalid *control.InvalidError
			var conflict *control.ConflictError
			require.True(t, errors.As(err, &invalid) || errors.As(err, &conflict), "%v", err)
			return
		}
		again, changes, err := s.Apply(t.Context(), a, file)
		require.NoError(t, err)
		require.Equal(t, p, again)
		for _, c := range changes {
			require.Equal(t, pipelines.Unchanged, c.Action, fmt.Sprint(c.Kind, c.Name))
		}
		exported, err := s.Export(t.Context(), a, p.Name, 0, "")
		require.NoError(t, err)
		doc, err := pipeline.Parse(exported, pipeline.Options{Sources: specs{}.SourceSpecs(), Sinks: specs{}.SinkSpecs()})
		require.NoError(t, err, "%s", exported)
		require.Equal(t, p.Current.Hash, doc.Hash(), "%s", exported)
		kept, err := json.Marshal([]any{m.found, m.pipeline})
		require.NoError(t, err)
		if secret == "hunter2hunter2" && !bytes.Contains([]byte(text), []byte(secret)) && plain != secret {
			require.NotContains(t, string(kept)+string(exported), secret)
		}
	})
}
