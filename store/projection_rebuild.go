package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/projection"
)

// Rebuild implements [projection.Reader].
func (p *Projection) Rebuild(ctx context.Context, a control.Actor, id uuid.UUID) (out projection.Rebuild, err error) {
	err = p.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		var first bool
		if out.ID, first, err = once(ctx, tx, "rebuild", id); err != nil {
			return err
		}
		if first {
			if err := rebuild(ctx, tx, a, id); err != nil {
				return err
			}
		}
		out.Waiting, err = tx.Q().CountWaitingRuns(ctx, a.Organization)
		return err
	})
	return out, err
}

// rebuild empties the read models and passes all facts on again, as if no process
// had seen them: whichever is there folds them, and a crash leaves the rest to
// others.
func rebuild(ctx context.Context, tx Tx, a control.Actor, id uuid.UUID) error {
	q, organization := tx.Q(), tx.Organization()
	lacking, err := q.LackingFacts(ctx, organization)
	if err != nil {
		return fmt.Errorf("look for dropped facts: %w", err)
	}
	if lacking > 0 {
		return &control.ConflictError{
			Code: "facts_dropped", Message: fmt.Sprintf("retention has dropped the facts of %d runs, so their history cannot be made anew", lacking),
		}
	}
	// Relays come before history in the order of locks.
	if err := q.RelayAgain(ctx, organization); err != nil {
		return fmt.Errorf("pass all facts on again: %w", err)
	}
	if err := q.ResetHistory(ctx, organization); err != nil {
		return fmt.Errorf("empty the history: %w", err)
	}
	if err := errors.Join(q.ResetResources(ctx, organization), q.ResetCosts(ctx, organization), q.ResetMetrics(ctx, organization), q.ResetDailyMetrics(ctx, organization)); err != nil {
		return fmt.Errorf("empty the read models: %w", err)
	}
	if err := audit(ctx, tx, control.AuditEntry{Actor: a, Action: "metrics.rebuild", Kind: "metrics", Object: id}); err != nil {
		return err
	}
	tx.Hint(Hint{Kind: HintFacts, Organization: organization})
	return arm(ctx, tx)
}

// Waiting implements [projection.Reader].
func (p *Projection) Waiting(ctx context.Context, a control.Actor) (n int64, err error) {
	err = p.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		n, err = tx.Q().CountWaitingRuns(ctx, a.Organization)
		return err
	})
	return n, err
}
