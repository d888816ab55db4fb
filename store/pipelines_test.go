package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/control/pipelines"
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
