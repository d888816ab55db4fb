// Command api serves the API behind API Gateway.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/tranship-io/tranship/api/server"
	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/access"
	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/control/inspections"
	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/control/pipelines"
	"github.com/tranship-io/tranship/control/projection"
	"github.com/tranship-io/tranship/control/schedules"
	"github.com/tranship-io/tranship/control/secrets"
	"github.com/tranship-io/tranship/internal/awsadapter/invoke"
	"github.com/tranship-io/tranship/internal/compose/cloud"
	"github.com/tranship-io/tranship/internal/compose/cloud/entry"
	"github.com/tranship-io/tranship/internal/compose/cloud/plane"
	"github.com/tranship-io/tranship/internal/compose/cloud/vault"
)

// factsPause is between two requests that wait for a run's facts: a wait of 5 s is
// billed, so that one after the other would be a function that always runs.
const factsPause = 2 * time.Second

// version is set by the build.
var version = "dev"

func main() {
	cloud.Main("api", func(ctx context.Context, f *cloud.Function) (cloud.Handler[events.APIGatewayProxyRequest, events.APIGatewayProxyResponse], error) {
		p, err := plane.Open(ctx, f, 1)
		if err != nil {
			return nil, err
		}
		h, err := wire(ctx, p)
		if err != nil {
			return nil, err
		}
		return h.handle, nil
	})
}

// errNotMigrated is told to callers; what has to be done is in the log.
var errNotMigrated = errors.New("the installation is being deployed")

// ready checks that the database is as this program needs it. Callers come again
// if it is not, since a deployment is under way or has failed half-way.
func ready(p *plane.Plane) func(context.Context) error {
	return func(ctx context.Context) error {
		err := p.DB.Ready(ctx)
		var conflict *control.ConflictError
		if errors.As(err, &conflict) {
			p.Log.ErrorContext(ctx, "the database is not as this program needs it", "error", err)
			return errNotMigrated
		}
		return err
	}
}

// wire makes the API of its services.
func wire(ctx context.Context, p *plane.Plane) (*handler, error) {
	v := vault.Open(p.Function, p.DB)
	var guard notify.Guard
	p.Env.JSON("TRANSHIP_WEBHOOKS", &guard)
	e, err := entry.Open(ctx, p.Function)
	if err != nil {
		return nil, err
	}
	who, err := access.New(access.Config{Store: p.DB.Access(), Signer: e.Signer, OIDC: e.OIDC})
	if err != nil {
		return nil, fmt.Errorf("read TRANSHIP_OIDC: %w", err)
	}
	clock, specs := control.SystemClock{}, catalog.New(io.Discard)
	drafts := &connections.Service{Store: p.DB, Catalog: specs, Keyring: v.Keyring, Providers: v.Secrets.Providers()}
	h, err := server.New(server.Config{
		Services: server.Services{
			Access: who, Connectors: specs, Connections: drafts, Runs: p.Runs,
			Secrets:   &secrets.Service{Store: p.DB, Keyring: v.Keyring},
			Pipelines: &pipelines.Service{Store: p.DB, Connections: p.DB, Catalog: specs, Drafts: drafts, Secrets: v.Secrets, Cursors: p.DB, Platform: p.Platform},
			Inspections: &inspections.Service{Store: p.DB, Connections: p.DB, Pipelines: p.DB, Catalog: specs,
				Starter: invoke.NewInspections(p.AWS, p.Env.Need("TRANSHIP_INSPECT_FUNCTION"), p.Log)},
			Schedules:     &schedules.Service{Store: p.DB.Schedules(), Scheduler: p.Calendar(), Clock: clock},
			Notifications: &notify.Service{Store: p.DB.Notifications(), Vault: p.DB, Keyring: v.Keyring, Guard: guard, Clock: clock},
			Metrics:       &projection.Service{Reader: p.DB.Projection(), Clock: clock},
		},
		Ready: ready(p), FactsPause: factsPause, Version: version, Log: p.Log,
	})
	if err != nil {
		return nil, err
	}
	return &handler{plane: p, api: h}, nil
}
