package serve

import (
	"context"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/api/server"
	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/control/inspections"
	"github.com/tranship-io/tranship/control/pipelines"
	"github.com/tranship-io/tranship/control/secrets"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/internal/compose/ends"
)

// pipes are the services of connections and pipelines, and the worker of
// inspections.
type pipes struct {
	secrets     *secrets.Service
	connections *connections.Service
	pipelines   *pipelines.Service
	inspections *inspections.Service
	worker      *inspections.Worker
	local       *secrets.Local
}

// rewrap wraps secrets that are under an older master key anew.
func (p *process) rewrap(ctx context.Context) {
	n, err := p.pipes.local.Rewrap(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		p.log.WarnContext(ctx, "wrap secrets under the current master key", "wrapped", n, "error", err)
	case n > 0:
		p.log.InfoContext(ctx, "secrets are wrapped under the current master key", "wrapped", n)
	}
}

// newPipes makes the services of what is stored in the process's database.
func (p *process) newPipes(keyring secrets.Keyring, resolver secrets.Secrets, routes *ends.Resolver) *pipes {
	x := &pipes{
		secrets:     &secrets.Service{Store: p.db, Keyring: keyring},
		local:       &secrets.Local{Store: p.db, Keyring: keyring},
		connections: &connections.Service{Store: p.db, Catalog: p.config.Catalog, Keyring: keyring, Providers: resolver.Providers()},
		inspections: &inspections.Service{Store: p.db, Connections: p.db, Pipelines: p.db, Catalog: p.config.Catalog},
	}
	x.pipelines = &pipelines.Service{Store: p.db, Connections: p.db, Catalog: p.config.Catalog, Drafts: x.connections, Secrets: resolver, Cursors: p.db}
	x.worker = &inspections.Worker{
		Store: p.db, Clock: control.SystemClock{}, Done: p.wake, Log: p.log,
		Executor: &ends.Inspector{Resolver: routes, State: func(organization uuid.UUID) engine.State { return p.db.State(organization) }},
	}
	return x
}

// serve puts the services into the API's.
func (x *pipes) serve(s *server.Services, catalog connections.Catalog) {
	s.Connectors, s.Secrets, s.Connections, s.Pipelines, s.Inspections = catalog, x.secrets, x.connections, x.pipelines, x.inspections
}
