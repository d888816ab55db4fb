// Command inspect looks at live systems: it tests connections, discovers what they
// have, and validates pipelines.
package main

import (
	"context"
	"io"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/inspections"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/internal/compose/cloud"
	"github.com/tranship-io/tranship/internal/compose/cloud/database"
	"github.com/tranship-io/tranship/internal/compose/cloud/vault"
	"github.com/tranship-io/tranship/internal/compose/ends"
)

func main() {
	cloud.Main("inspect", func(ctx context.Context, f *cloud.Function) (cloud.Handler[event, answer], error) {
		h, err := wire(ctx, f)
		if err != nil {
			return nil, err
		}
		return h.handle, nil
	})
}

func wire(ctx context.Context, f *cloud.Function) (*handler, error) {
	// One connection renews the claim while another one is read by.
	db, err := database.Open(ctx, f, database.Options{Connections: 2})
	if err != nil {
		return nil, err
	}
	routes := &ends.Resolver{Store: db, Secrets: vault.Open(f, db).Secrets, Catalog: catalog.New(io.Discard)}
	return &handler{db: db, log: f.Log, worker: &inspections.Worker{
		Store: db, Clock: control.SystemClock{}, Log: f.Log,
		Executor: &ends.Inspector{Resolver: routes, State: func(organization uuid.UUID) engine.State { return db.State(organization) }},
	}}, nil
}
