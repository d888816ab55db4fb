package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"

	"github.com/google/uuid"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/tranship-io/tranship/api/server"
	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/access"
	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/control/projection"
	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/control/schedules"
	"github.com/tranship-io/tranship/control/secrets"
	"github.com/tranship-io/tranship/control/sweep"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/runner"
	"github.com/tranship-io/tranship/internal/compose/ends"
	"github.com/tranship-io/tranship/internal/compose/intake"
	"github.com/tranship-io/tranship/internal/compose/worker"
	"github.com/tranship-io/tranship/internal/embedpg"
	"github.com/tranship-io/tranship/store"
)

// process is all that runs beside the HTTP server.
type process struct {
	config  *Config
	log     *slog.Logger
	holder  string
	handler http.Handler

	own     *embedpg.Server
	db      *store.DB
	telling *telemetry
	hub     *hub
	pool    *worker.Pool
	loop    *sweep.Loop
	loops   *loops
	pipes   *pipes

	cancel context.CancelFunc
	wait   sync.WaitGroup
}

// begin reaches the database, migrates and bootstraps it, and starts the loops.
func begin(ctx context.Context, c *Config) (_ *process, err error) {
	p := &process{config: c, log: c.Log, hub: newHub()}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("name this process: %w", err)
	}
	p.holder = holderName(id.String()[24:])
	defer func() {
		if err != nil {
			err = errors.Join(err, p.end(context.WithoutCancel(ctx)))
		}
	}()
	url := c.DatabaseURL
	if url == "" {
		if p.own, url, err = startOwn(ctx, c); err != nil {
			return nil, err
		}
	}
	err = reachable(ctx, c.Log, func() error {
		var err error
		p.db, err = store.Open(ctx, store.Config{URL: url, MaxConns: int32(max(c.Workers, 0)*3 + 12), ApplicationName: "tranship serve", Logger: c.Log})
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := reachable(ctx, c.Log, func() error { return p.db.Migrate(ctx) }); err != nil {
		return nil, fmt.Errorf("migrate the database: %w", err)
	}
	if p.telling, err = newTelemetry(ctx, c.Version, func() int64 { return int64(p.live()) }); err != nil {
		return nil, err
	}
	if err := p.wire(ctx); err != nil {
		return nil, err
	}
	p.start()
	return p, nil
}

func (p *process) live() int {
	if p.pool == nil {
		return 0
	}
	return p.pool.Live()
}

// wire makes the services and the handler.
func (p *process) wire(ctx context.Context) error {
	c := p.config
	keyring, err := secrets.OpenKeyFile(c.MasterKeyFile)
	if err != nil {
		return err
	}
	derived, err := keyring.Derive(access.Purpose)
	if err != nil {
		return err
	}
	signer, err := access.NewSigner(derived)
	if err != nil {
		return err
	}
	entry, err := access.New(access.Config{Store: p.db.Access(), Signer: signer, OIDC: c.OIDC})
	if err != nil {
		return err
	}
	if c.BootstrapKeyFile != "" {
		var made bool
		err := reachable(ctx, c.Log, func() error {
			var err error
			made, err = entry.Bootstrap(ctx, c.Organization, c.Organization, func(text string) error { return access.WriteKeyFile(c.BootstrapKeyFile, text) })
			return err
		})
		if err != nil {
			return fmt.Errorf("make the first organization: %w", err)
		}
		if made {
			c.Log.InfoContext(ctx, "the first organization is made; its admin key is in the file", "organization", c.Organization, "file", c.BootstrapKeyFile)
		}
	}
	resolver := secrets.Secrets{
		secrets.ProviderEnv:   &secrets.Env{Lookup: c.Lookup},
		secrets.ProviderLocal: &secrets.Local{Store: p.db, Keyring: keyring},
	}
	routes := &ends.Resolver{Store: p.db, Secrets: resolver, Catalog: c.Catalog}
	p.pipes = p.newPipes(keyring, resolver, routes)
	p.pool = worker.New(worker.Config{
		Store: workerStore{p.db}, Holder: p.holder, Places: c.Workers, Lease: c.Lease, AttemptTime: c.AttemptTime, Memory: c.Memory,
		Ends: func(ctx context.Context, r runs.Run, organization uuid.UUID, learn func(secrets ...string)) (runner.Options, error) {
			return routes.Options(ctx, ends.Route{Organization: organization, Pipeline: r.Pipeline, Name: r.Title, Number: r.Number, Key: r.Route, Hash: r.Hash}, learn)
		},
		Random: rand.Float64, Freed: p.wake, Watch: p.telling.watch, Log: c.Log,
	})
	dispatcher := &dispatch.Dispatcher{Store: p.db, Queue: p.pool, Compute: p.pool,
		Admission: dispatch.Admission{PerOrganization: c.MaxRunning, Expiry: c.Lease}}
	p.loop = (&sweep.Loop{
		Sweeper: &sweep.Sweeper{Store: p.db, Log: c.Log}, Clock: control.SystemClock{}, Log: c.Log, Tasks: []sweep.Task{p.pipes.worker},
		Dispatch: func(ctx context.Context) error {
			p.telling.sweeps.Add(ctx, 1)
			// Facts that nobody was told of are passed on all the same.
			p.loops.projector.Nudge()
			if c.Workers < 0 {
				return nil
			}
			_, err := dispatcher.Dispatch(ctx)
			return err
		},
	}).Init()
	service := &runs.Service{Store: p.db, Pipelines: intake.Compiler{Store: p.db}, Waiter: p.hub, Clock: control.SystemClock{}}
	if err := p.makeLoops(service, resolver); err != nil {
		return err
	}
	services := server.Services{
		Access: entry, Runs: service,
		Schedules:     &schedules.Service{Store: p.db.Schedules(), Scheduler: scheduler{p.loops.schedules}, Clock: control.SystemClock{}},
		Notifications: &notify.Service{Store: p.db.Notifications(), Vault: p.db, Keyring: keyring, Guard: c.Webhooks, Clock: control.SystemClock{}},
		Metrics:       &projection.Service{Reader: p.db.Projection(), Prices: c.Prices, Clock: control.SystemClock{}},
	}
	p.pipes.serve(&services, c.Catalog)
	return p.serveAPI(services)
}

// workerStore gives a worker the engine's State of one run.
type workerStore struct{ *store.DB }

// RunState implements [worker.Store].
func (s workerStore) RunState(organization, run uuid.UUID) engine.State {
	return s.DB.RunState(organization, run)
}

func (p *process) serveAPI(services server.Services) error {
	entry := services.Access
	h, err := server.New(server.Config{
		Services: services, Authenticate: entry.Authenticate, Confirm: entry.Confirm,
		Version: p.config.Version, Log: p.log,
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", p.telling.handler)
	mux.Handle("/", otelhttp.NewHandler(h, "api", otelhttp.WithTracerProvider(p.telling.traces), otelhttp.WithMeterProvider(p.telling.metrics)))
	p.handler = mux
	return nil
}

// start runs the loops.
func (p *process) start() {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.wait.Go(func() { p.rewrap(ctx) })
	p.wait.Go(func() { p.loop.Run(ctx) })
	p.loops.start(ctx, p.wait.Go)
	p.wait.Go(func() { p.daily(ctx) })
	p.wait.Go(func() { p.db.Listen(ctx, p.connected, p.hint) })
}

func (p *process) wake() {
	if p.loop != nil {
		p.loop.Wake()
	}
}

// connected looks at everything: hints may have been lost (P25).
func (p *process) connected() {
	p.hub.wake(uuid.Nil)
	p.loops.all()
	p.wake()
}

func (p *process) hint(h store.Hint) {
	p.loops.hint(h)
	switch h.Kind {
	case store.HintFacts:
		p.hub.wake(h.Object)
	case store.HintDesired:
		p.pool.Nudge(h.Object)
		p.hub.wake(h.Object)
	case store.HintIntake, store.HintArmed:
		p.wake()
	}
}

// end hands over and stops everything that was started.
func (p *process) end(ctx context.Context) error {
	if p.pool != nil {
		p.pool.Close(p.config.Grace)
	}
	if p.cancel != nil {
		p.cancel()
	}
	p.wait.Wait()
	if p.pipes != nil {
		p.pipes.worker.Wait()
	}
	var errs []error
	if p.telling != nil {
		closing, cancel := context.WithTimeout(ctx, telemetryTime)
		errs = append(errs, p.telling.close(closing))
		cancel()
	}
	if p.db != nil {
		p.db.Close()
	}
	if p.own != nil {
		errs = append(errs, p.own.Stop())
	}
	return errors.Join(errs...)
}
