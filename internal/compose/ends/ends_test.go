package ends_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/control/inspections"
	"github.com/tranship-io/tranship/control/pipelines"
	"github.com/tranship-io/tranship/control/secrets"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/memstate"
	"github.com/tranship-io/tranship/engine/runner"
	"github.com/tranship-io/tranship/internal/compose/ends"
	"github.com/tranship-io/tranship/internal/pgtest"
	"github.com/tranship-io/tranship/pipeline"
	"github.com/tranship-io/tranship/store"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// world is one organization with the services of pipelines.
type world struct {
	a         control.Actor
	catalog   *catalog.Catalog
	pipelines *pipelines.Service
	drafts    *connections.Service
	secrets   *secrets.Service
	resolver  *ends.Resolver

	inspections *inspections.Service
	worker      *inspections.Worker
}

func newWorld(t *testing.T) *world {
	t.Helper()
	d, err := store.Open(t.Context(), store.Config{URL: pgtest.NewDatabase(t, pgtest.Shared(t))})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	require.NoError(t, d.Migrate(t.Context()))
	organization := uuid.Must(uuid.NewV7())
	require.NoError(t, d.Tx(t.Context(), organization, func(ctx context.Context, tx store.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO organizations (id, key, name) VALUES ($1, 'a', 'a')`, organization)
		return err
	}))
	ring, err := secrets.NewMasterKeys(bytes.Repeat([]byte{1}, 32))
	require.NoError(t, err)
	resolve := secrets.Secrets{secrets.ProviderLocal: &secrets.Local{Store: d, Keyring: ring}}
	w := &world{a: control.System(organization), catalog: catalog.New(io.Discard)}
	w.secrets = &secrets.Service{Store: d, Keyring: ring}
	w.drafts = &connections.Service{Store: d, Catalog: w.catalog, Keyring: ring, Providers: resolve.Providers()}
	w.pipelines = &pipelines.Service{Store: d, Connections: d, Catalog: w.catalog, Drafts: w.drafts, Secrets: resolve, Cursors: d}
	w.resolver = &ends.Resolver{Store: d, Secrets: resolve, Catalog: w.catalog}
	w.inspections = &inspections.Service{Store: d, Connections: d, Pipelines: d, Catalog: w.catalog}
	w.worker = &inspections.Worker{Store: d, Clock: clock{}, Log: slog.New(slog.DiscardHandler),
		Executor: &ends.Inspector{GiveUp: time.Second, Resolver: w.resolver, State: func(o uuid.UUID) engine.State { return d.State(o) }}}
	return w
}

type clock struct{}

func (clock) Now() time.Time                         { return time.Now() }
func (clock) Sleep(context.Context, time.Time) error { return nil }

func (w *world) options(p *pipelines.Pipeline, key string) ends.Route {
	return ends.Route{Organization: w.a.Organization, Pipeline: p.ID, Name: p.Name, Number: p.Current.Number, Key: key}
}

// What the examples say survives: file, store, file. Where no plain value came
// from the environment, the stored route means to the byte what the file means to
// the command line.
func TestExamplesRoundTrip(t *testing.T) {
	t.Parallel()
	ctx, w := t.Context(), newWorld(t)
	files, err := filepath.Glob("../../../examples/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	variables := map[string]string{"SOURCE_URL": "postgres://u:hush-hush@h/d", "SINK_URL": "postgres://u:hush-hush@h/e", "BUCKET": "bucket"}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		p, _, err := w.pipelines.Apply(ctx, w.a, pipelines.File{Text: text, Variables: variables})
		require.NoError(t, err, file)
		exported, err := w.pipelines.Export(ctx, w.a, p.ID.String(), 0, "")
		require.NoError(t, err)
		assert.NotContains(t, string(exported), "hush-hush")

		original, err := pipeline.Parse(text, pipeline.Options{})
		require.NoError(t, err)
		back, err := pipeline.Parse(exported, pipeline.Options{Sources: w.catalog.SourceSpecs(), Sinks: w.catalog.SinkSpecs()})
		require.NoError(t, err, string(exported))
		assert.Equal(t, p.Current.Hash, back.Hash(), file)
		if !strings.Contains(string(text), "${BUCKET}") || !strings.Contains(string(text), "s3://") {
			assert.Equal(t, original.Hash(), p.Current.Hash, file)
		}
		assert.Equal(t, original.Name, p.Current.Routes[0].Name)

		again, changes, err := w.pipelines.Apply(ctx, w.a, pipelines.File{Text: exported, Variables: variables})
		require.NoError(t, err)
		assert.Equal(t, p, again)
		for _, c := range changes {
			assert.Equal(t, pipelines.Unchanged, c.Action, "%s %s", file, c.Name)
		}
	}
}

func TestStoredRouteRuns(t *testing.T) {
	t.Parallel()
	ctx, w := t.Context(), newWorld(t)
	dir := t.TempDir()
	text := "version: 1\nname: demo\nsource: {connector: sample, rows: 500}\nsink: {connector: files, path: \"" + dir + "/a\", format: jsonl}\n" +
		"resources: [{name: sample.orders}]\nsettings: {slots: 1, verify: digest}\n"
	p, _, err := w.pipelines.Apply(ctx, w.a, pipelines.File{Text: []byte(text)})
	require.NoError(t, err)
	run := func(p *pipelines.Pipeline, key, name string) {
		opt, err := w.resolver.Options(ctx, w.options(p, key), forget)
		require.NoError(t, err)
		assert.Equal(t, name, opt.Pipeline)
		opt.State = memstate.New(memstate.Options{})
		res, err := runner.Run(ctx, opt)
		require.NoError(t, err)
		assert.Equal(t, engine.StateCompleted, res.Receipt.State)
		assert.EqualValues(t, 500, res.Receipt.Resources[0].RowsWritten)
	}
	run(p, "source->sink", "demo")

	// A second sink is a route of its own; an overlay leads it elsewhere.
	g := p.Current.Graph
	g.Nodes = append(g.Nodes, pipelines.Node{ID: "copy", Role: connections.Sink, Connection: "demo-sink", Overlay: []byte(`{"path":"` + dir + `/b","format":"csv"}`)})
	g.Edges = append(g.Edges, pipelines.Edge{From: "source", To: "copy", Pattern: "sample.*", Exclude: []string{"sample.kinds"}})
	two, err := w.pipelines.Update(ctx, w.a, "demo", p.Version, pipelines.Draft{Name: "demo", Graph: g})
	require.NoError(t, err)
	run(&two, "source->copy", "demo/source->copy")
	run(&two, "source->sink", "demo")
	found, err := filepath.Glob(dir + "/b/*")
	require.NoError(t, err)
	assert.NotEmpty(t, found)

	// A connection that is gone by the time of the run is said to be.
	_, err = w.resolver.Options(ctx, ends.Route{Organization: uuid.New(), Pipeline: p.ID, Name: "demo", Number: 1, Key: "source->sink"}, forget)
	require.Error(t, err)
	assert.Equal(t, engine.Permanent, engine.ClassOf(err))
}

// What fails on its way to a run says why, and never with what.
func TestErrorsOfARouteHoldNoSecret(t *testing.T) {
	t.Parallel()
	ctx, w := t.Context(), newWorld(t)
	for name, url := range map[string]string{
		"dead": "postgres://u:hush-hush@127.0.0.1:1/d?connect_timeout=1", "broken": "postgres://u:hush-hush@h:port/d", "unlikely": "hush-hush",
	} {
		text := "version: 1\nname: " + name + "\nsource: {connector: postgres, url: \"${URL}\"}\nsink: {connector: stdout}\nresources: [{name: a.b, write: append}]\nsettings: {connect_timeout: 1s}\n"
		p, _, err := w.pipelines.Apply(ctx, w.a, pipelines.File{Text: []byte(text), Variables: map[string]string{"URL": url}})
		require.NoError(t, err)
		_, err = w.resolver.Options(ctx, w.options(p, "source->sink"), forget)
		require.Error(t, err)
		assert.NotContains(t, err.Error()+engine.HintOf(err), "hush-hush", name)
	}
}

func forget(...string) {}
