package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/store/internal/db"
)

// audit writes a change down, in the transaction that makes it.
func audit(ctx context.Context, tx Tx, e control.AuditEntry) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make an audit entry's id: %w", err)
	}
	err = tx.Q().InsertAudit(ctx, db.InsertAuditParams{
		Organization: tx.Organization(), ID: id,
		ActorKind: string(e.Actor.Kind), ActorID: optional(e.Actor.ID), ActorKey: optional(e.Actor.Key),
		ActorName: e.Actor.Name, ActorRole: string(e.Actor.Role), RequestID: e.Actor.RequestID,
		Action: e.Action, Kind: e.Kind, Object: optional(e.Object), Before: document(e.Before), After: document(e.After),
	})
	if err != nil {
		return fmt.Errorf("write audit entry %s: %w", e.Action, err)
	}
	return nil
}

// optional is nil for the zero id.
func optional(id uuid.UUID) *uuid.UUID {
	if id == uuid.Nil {
		return nil
	}
	return &id
}

// document is nil, which is stored as NULL, for an empty one.
func document(b json.RawMessage) json.RawMessage {
	if len(b) == 0 {
		return nil
	}
	return b
}

// once records the context's idempotency key, with which the caller is about to
// make the object id of a kind, in the transaction that makes it. first is false
// if the same request made one before: existing is that, and the caller makes
// nothing. A key that was used for another request is refused with
// *control.ConflictError "idempotency_key_reused". Requests with the same key
// wait for each other. Without a key it is always the first.
func once(ctx context.Context, tx Tx, kind string, id uuid.UUID) (existing uuid.UUID, first bool, err error) {
	i, ok := control.IdempotencyOf(ctx)
	if !ok {
		return id, true, nil
	}
	q, organization := tx.Q(), tx.Organization()
	if err := q.LockIdempotencyKey(ctx, db.LockIdempotencyKeyParams{Organization: organization, Key: i.Key}); err != nil {
		return uuid.Nil, false, fmt.Errorf("lock idempotency key: %w", err)
	}
	used, err := q.GetIdempotency(ctx, db.GetIdempotencyParams{Organization: organization, Key: i.Key})
	if err != nil {
		return uuid.Nil, false, fmt.Errorf("read idempotency key: %w", err)
	}
	for _, u := range used {
		if !bytes.Equal(u.Hash, i.Hash) {
			return uuid.Nil, false, &control.ConflictError{
				Code: "idempotency_key_reused", Message: "the idempotency key was used for another request",
				Hint: "use a new key for each request, and the same one only to repeat it unchanged",
			}
		}
		if u.Kind == kind {
			return u.Object, false, nil
		}
	}
	err = q.InsertIdempotency(ctx, db.InsertIdempotencyParams{Organization: organization, Key: i.Key, Kind: kind, Hash: i.Hash, Object: id})
	if err != nil {
		return uuid.Nil, false, fmt.Errorf("record idempotency key: %w", err)
	}
	return id, true, nil
}
