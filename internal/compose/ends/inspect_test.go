package ends_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/control/inspections"
	"github.com/tranship-io/tranship/control/pipelines"
	"github.com/tranship-io/tranship/internal/compose/ends"
	"github.com/tranship-io/tranship/internal/pgtest"
)

// look asks for an inspection, lets the worker execute it, and returns it.
func (w *world) look(t *testing.T, r inspections.Request) inspections.Inspection {
	t.Helper()
	i, err := w.inspections.Start(t.Context(), w.a, r)
	require.NoError(t, err)
	assert.Equal(t, inspections.Requested, i.State)
	_, err = w.worker.Run(t.Context())
	require.NoError(t, err)
	w.worker.Wait()
	i, err = w.inspections.Get(t.Context(), w.a, i.ID)
	require.NoError(t, err)
	assert.NotContains(t, string(i.Result)+i.Error+i.Hint, "hush-hush")
	return i
}

func result[T any](t *testing.T, i inspections.Inspection) T {
	t.Helper()
	require.Equal(t, inspections.Succeeded, i.State, i.Error)
	var out T
	require.NoError(t, json.Unmarshal(i.Result, &out))
	return out
}

func TestInspections(t *testing.T) {
	t.Parallel()
	ctx, w := t.Context(), newWorld(t)
	source, target := pgtest.NewDatabase(t, pgtest.Shared(t)), pgtest.NewDatabase(t, pgtest.Shared(t))
	conn, err := pgx.Connect(ctx, source)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(ctx) })
	_, err = conn.Exec(ctx, `CREATE TABLE orders (id bigint PRIMARY KEY, updated_at timestamptz NOT NULL DEFAULT now(), n int); CREATE TABLE keyless (n int);
		INSERT INTO orders SELECT g, now(), g FROM generate_series(1, 100) g`)
	require.NoError(t, err)
	for name, url := range map[string]string{"src": source, "dst": target, "dead": "postgres://u:hush-hush@127.0.0.1:1/d"} {
		role := connections.Source
		if name == "dst" {
			role = connections.Sink
		}
		_, err := w.drafts.Create(ctx, w.a, connections.Draft{Name: name, Role: role, Connector: "postgres", Values: map[string]string{"url": url}})
		require.NoError(t, err)
	}

	tested := result[ends.Tested](t, w.look(t, inspections.Request{Kind: inspections.Test, Connection: "src"}))
	assert.True(t, tested.OK)
	assert.NotEmpty(t, tested.Identity)
	tested = result[ends.Tested](t, w.look(t, inspections.Request{Kind: inspections.Test, Connection: "dst"}))
	assert.True(t, tested.OK, "%v", tested.Findings)
	found := result[ends.Discovered](t, w.look(t, inspections.Request{Kind: inspections.Discover, Connection: "src", Pattern: "public.*"}))
	require.Len(t, found.Resources, 2)
	assert.Equal(t, "public.keyless", found.Resources[0].Name)
	ranked := result[ends.Ranked](t, w.look(t, inspections.Request{Kind: inspections.Columns, Connection: "src", Resource: "public.orders"}))
	assert.Equal(t, "updated_at", ranked.Columns[0].Column)
	assert.True(t, ranked.Columns[0].Eligible)
	lost := w.look(t, inspections.Request{Kind: inspections.Columns, Connection: "src", Resource: "public.ordres"})
	assert.Equal(t, inspections.Failed, lost.State)
	assert.Contains(t, lost.Error+lost.Hint, "public.orders")

	// A validation against live ends finds what structure cannot tell.
	edge := func(to, name string, change func(*pipelines.Edge)) pipelines.Edge {
		e := pipelines.Edge{From: "a", To: to, Resource: name}
		if change != nil {
			change(&e)
		}
		return e
	}
	g := pipelines.Graph{
		Nodes: []pipelines.Node{{ID: "a", Role: connections.Source, Connection: "src"}, {ID: "b", Role: connections.Sink, Connection: "dst"}, {ID: "c", Role: connections.Sink, Connection: "dst"}},
		Edges: []pipelines.Edge{
			edge("b", "public.orders", func(e *pipelines.Edge) { e.Target = "public.copy" }),
			edge("b", "public.keyless", func(e *pipelines.Edge) { e.Read, e.Write, e.Cursor = "incremental", "upsert", "n" }),
			edge("c", "public.orders", func(e *pipelines.Edge) { e.Target = "public.copy" }),
		},
	}
	_, err = w.pipelines.Create(ctx, w.a, pipelines.Draft{Name: "bad", Graph: g})
	require.NoError(t, err)
	v := result[ends.Validated](t, w.look(t, inspections.Request{Kind: inspections.Validate, Pipeline: "bad"}))
	assert.False(t, v.OK)
	at := map[string]string{}
	for _, p := range v.Problems {
		at[p.Path] = p.Message
	}
	assert.Contains(t, at["edges[1]"], "key")
	assert.Contains(t, at["edges[2]"], "public.copy")
	require.Len(t, v.Routes, 2)
	assert.Equal(t, "public.copy", v.Routes[0].Resources[0].Target)

	g = pipelines.Graph{Nodes: g.Nodes[:2], Edges: []pipelines.Edge{edge("b", "public.order", nil)}}
	_, err = w.pipelines.Create(ctx, w.a, pipelines.Draft{Name: "missing", Graph: g})
	require.NoError(t, err)
	v = result[ends.Validated](t, w.look(t, inspections.Request{Kind: inspections.Validate, Pipeline: "missing"}))
	require.Len(t, v.Problems, 1)
	assert.Equal(t, "edges[0]", v.Problems[0].Path)
	assert.Contains(t, v.Problems[0].Hint, "public.orders")

	list, err := w.inspections.List(ctx, w.a, inspections.Filter{Kind: inspections.Validate}, control.Page{Limit: 1})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	list, err = w.inspections.List(ctx, w.a, inspections.Filter{Kind: inspections.Validate}, control.Page{Limit: 5, After: list.Next})
	require.NoError(t, err)
	assert.Len(t, list.Items, 1)

	for _, r := range []inspections.Request{
		{Kind: "x"}, {Kind: inspections.Test}, {Kind: inspections.Columns, Connection: "src"}, {Kind: inspections.Discover, Connection: "dst"},
		{Kind: inspections.Validate, Connection: "src"}, {Kind: inspections.Test, Connection: "src", Overlay: []byte(`{"url":"x"}`)},
	} {
		_, err := w.inspections.Start(ctx, w.a, r)
		var invalid *control.InvalidError
		require.ErrorAs(t, err, &invalid, "%v", r)
	}
	tested = result[ends.Tested](t, w.look(t, inspections.Request{Kind: inspections.Test, Connection: "dead"}))
	assert.False(t, tested.OK)
	assert.Equal(t, "error", tested.Findings[0].Level)
}

// TestInspectionsTellNoSecrets asks for what has the name of a password, which the
// messages would repeat.
func TestInspectionsTellNoSecrets(t *testing.T) {
	t.Parallel()
	ctx, w := t.Context(), newWorld(t)
	source := pgtest.NewDatabase(t, pgtest.Shared(t))
	conn, err := pgx.Connect(ctx, source)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(ctx) })
	role := "reader_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	_, err = conn.Exec(ctx, `CREATE ROLE `+role+` LOGIN PASSWORD 'hush-hush-own'; CREATE TABLE orders (id bigint PRIMARY KEY)`)
	require.NoError(t, err)
	u, err := url.Parse(source)
	require.NoError(t, err)
	u.User = url.UserPassword(role, "hush-hush-own")
	for name, d := range map[string]connections.Draft{
		"whole": {Role: connections.Source, Values: map[string]string{"url": u.String()}},
		"dst":   {Role: connections.Sink, Values: map[string]string{"url": source}},
	} {
		d.Name, d.Connector = name, "postgres"
		_, err := w.drafts.Create(ctx, w.a, d)
		require.NoError(t, err)
	}
	failed := w.look(t, inspections.Request{Kind: inspections.Columns, Connection: "whole", Resource: "public.hush-hush-own"})
	require.Equal(t, inspections.Failed, failed.State)
	require.Contains(t, failed.Error+failed.Hint, "***")
	_, err = w.pipelines.Create(ctx, w.a, pipelines.Draft{Name: "p", Graph: pipelines.Graph{
		Nodes: []pipelines.Node{{ID: "a", Role: connections.Source, Connection: "whole"}, {ID: "b", Role: connections.Sink, Connection: "dst"}},
		Edges: []pipelines.Edge{{From: "a", To: "b", Resource: "public.hush-hush-own"}},
	}})
	require.NoError(t, err)
	v := result[ends.Validated](t, w.look(t, inspections.Request{Kind: inspections.Validate, Pipeline: "p"}))
	require.Len(t, v.Problems, 1)
	require.Contains(t, v.Problems[0].Message+v.Problems[0].Hint, "***")
}
