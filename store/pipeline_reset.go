package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/pipelines"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/store/internal/db"
)

var _ pipelines.Cursors = (*DB)(nil)

// ResetResources implements [pipelines.Cursors].
func (d *DB) ResetResources(ctx context.Context, a control.Actor, pipeline uuid.UUID, route string, resources []string) (known []string, err error) {
	what := fmt.Sprintf("reset resources of %q", route)
	err = d.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		t := &stateTx{Tx: tx, ctx: ctx, q: tx.Q()}
		names, err := each(resources, func(s string) (string, error) { return text(s), nil })
		if err != nil {
			return err
		}
		if known, err = t.q.KnownResources(ctx, db.KnownResourcesParams{Organization: tx.Organization(), Pipeline: pipeline, Names: names}); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		ends, err := t.q.RoutesNamed(ctx, db.RoutesNamedParams{Organization: tx.Organization(), Pipeline: route})
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		for _, r := range ends {
			if err := t.reset(what, db.LockRouteParams{Pipeline: route, Source: r.Source, Sink: r.Sink}, known); err != nil {
				return err
			}
		}
		e := control.AuditEntry{Actor: a, Action: "pipeline.reset", Kind: kindPipeline, Object: pipeline}
		if err := describe(&e, nil, &struct {
			Route     string   `json:"route"`
			Resources []string `json:"resources"`
		}{route, known}); err != nil {
			return err
		}
		return audit(ctx, tx, e)
	})
	if errors.Is(err, engine.ErrLocked) {
		return nil, &control.ConflictError{Code: "run_open", Message: fmt.Sprintf("a run of %q is at work", route), Hint: "wait until it ends, pause it, or cancel it"}
	}
	return known, err
}

// reset forgets the cursors of resources of an engine's route that no worker has.
func (t *stateTx) reset(what string, route db.LockRouteParams, resources []string) error {
	row, err := t.q.LockRoute(t.ctx, route)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	open, err := t.openRuns(row.ID, uuid.Nil)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := idle(what, open); err != nil {
		return err
	}
	for _, name := range resources {
		if err := t.q.ResetCursor(t.ctx, db.ResetCursorParams{Route: row.ID, Resource: name, ResetOrdinal: row.LastOrdinal}); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}
