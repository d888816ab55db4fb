package store

import (
	"bytes"
	"context"
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
	"github.com/tranship-io/tranship/engine"
)

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
