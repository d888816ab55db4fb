package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/operations"
	"github.com/tranship-io/tranship/store/internal/db"
)

var _ operations.Store = (*DB)(nil)

// RecordOperation implements [operations.Store].
func (d *DB) RecordOperation(ctx context.Context, i operations.Intent) (out operations.Operation, err error) {
	err = d.Tx(ctx, i.Organization, func(ctx context.Context, tx Tx) error {
		if out, err = recordOperation(ctx, tx, i); err != nil || !out.Open() {
			return err
		}
		return arm(ctx, tx)
	})
	return out, err
}

// recordOperation records an intent in a transaction that arms the sweep at its
// end, as open operations are work (P23).
func recordOperation(ctx context.Context, tx Tx, i operations.Intent) (operations.Operation, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return operations.Operation{}, fmt.Errorf("record an operation: %w", err)
	}
	hash := i.Hash()
	row, err := tx.Q().RecordOperation(ctx, db.RecordOperationParams{ID: id, Kind: i.Kind, Key: i.Key, Target: i.Target, Request: i.Request, Hash: hash})
	if errors.Is(err, pgx.ErrNoRows) {
		row, err = tx.Q().OperationOfKey(ctx, db.OperationOfKeyParams{Kind: i.Kind, Key: i.Key})
	}
	if err != nil {
		return operations.Operation{}, fmt.Errorf("record operation %s %s: %w", i.Kind, i.Key, err)
	}
	if !bytes.Equal(row.Hash, hash) {
		return operations.Operation{}, &control.ConflictError{Code: "operation_key_reused", State: row.State,
			Message: fmt.Sprintf("operation %s %s was recorded with another request", i.Kind, i.Key), Hint: "use another key for another effect"}
	}
	return operationOf(row), nil
}

// ClaimOperation implements [operations.Store].
func (d *DB) ClaimOperation(ctx context.Context, r operations.Ref, lease time.Duration) (out operations.Operation, ok bool, err error) {
	err = d.Tx(ctx, r.Organization, func(ctx context.Context, tx Tx) error {
		ok = false
		row, err := tx.Q().ClaimOperation(ctx, db.ClaimOperationParams{ID: r.ID, Lease: lease.Seconds()})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("claim operation %s: %w", r.ID, err)
		}
		out = operationOf(db.Operation{Organization: row.Organization, ID: row.ID, Kind: row.Kind, Key: row.Key, Request: row.Request, Hash: row.Hash, Target: row.Target,
			State: row.Was, Attempts: row.Attempts, NextAt: row.NextAt, Outcome: row.Outcome, Error: row.Error, CreatedAt: row.CreatedAt, ConcludedAt: row.ConcludedAt})
		ok = true
		return nil
	})
	return out, ok, err
}

// ConcludeOperation implements [operations.Store].
func (d *DB) ConcludeOperation(ctx context.Context, o operations.Operation, c operations.Conclusion) (out operations.Operation, ok bool, err error) {
	err = d.Tx(ctx, o.Organization, func(ctx context.Context, tx Tx) error {
		out, ok = o, false
		row, err := tx.Q().ConcludeOperation(ctx, db.ConcludeOperationParams{ID: o.ID, Attempts: int32(o.Attempts), State: string(c.State),
			Outcome: c.Outcome, Error: c.Error, Over: c.Over, Wait: c.Wait.Seconds()})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		out, ok = operationOf(row), err == nil
		return err
	})
	return out, ok, err
}

// OpenOperations implements [operations.Store].
func (d *DB) OpenOperations(ctx context.Context, organization uuid.UUID, kind, target string) (out []operations.Ref, err error) {
	err = d.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		ids, err := tx.Q().OpenOperations(ctx, db.OpenOperationsParams{Kind: kind, Target: target})
		out = nil
		for _, id := range ids {
			out = append(out, operations.Ref{Organization: organization, ID: id})
		}
		return err
	})
	return out, err
}

// DueOperations implements [operations.Store].
func (d *DB) DueOperations(ctx context.Context, kinds []string, limit int) (out []operations.Ref, err error) {
	err = d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().DueOperations(ctx, db.DueOperationsParams{Kinds: list(kinds), Most: int32(limit)})
		out = nil
		for _, r := range rows {
			out = append(out, operations.Ref{Organization: r.Organization, ID: r.ID})
		}
		return err
	})
	return out, err
}

// NextOperation implements [operations.Store].
func (d *DB) NextOperation(ctx context.Context, kinds []string) (wait time.Duration, open bool, err error) {
	err = d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		seconds, err := tx.Q().NextOperation(ctx, list(kinds))
		wait, open = time.Duration(seconds*float64(time.Second)), seconds >= 0
		return err
	})
	return wait, open, err
}

func operationOf(r db.Operation) operations.Operation {
	return operations.Operation{
		ID: r.ID, Intent: operations.Intent{Organization: r.Organization, Kind: r.Kind, Key: r.Key, Target: r.Target, Request: r.Request},
		State: operations.State(r.State), Attempts: int(r.Attempts), NextAt: moment(r.NextAt), Outcome: r.Outcome, Error: r.Error,
		CreatedAt: r.CreatedAt.UTC(), ConcludedAt: moment(r.ConcludedAt),
	}
}
