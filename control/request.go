package control

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"
)

// AuditEntry is one change, written in the transaction that makes it.
type AuditEntry struct {
	Actor Actor
	// Action is "<kind>.<verb>", such as "pipeline.create".
	Action string
	Kind   string
	Object uuid.UUID
	// Before and After are the object's JSON, with references in the place of
	// secrets; nil where there is none.
	Before, After json.RawMessage
}

// Page asks for a part of a list.
type Page struct {
	// Limit is the greatest number of items; services bound it.
	Limit int
	// After is the cursor that the page before returned; empty: from the start.
	After string
}

// Idempotency is the key of a request that may be repeated. Stores record it in
// the transaction of the request's effect: the same key with the same hash then
// returns what the first one made, with another hash it is refused.
type Idempotency struct {
	Key string
	// Hash is a SHA-256 over operation and request.
	Hash []byte
}

type idempotencyKey struct{}

// WithIdempotency returns a context whose first create is recorded under the key.
func WithIdempotency(ctx context.Context, i Idempotency) context.Context {
	return context.WithValue(ctx, idempotencyKey{}, i)
}

// IdempotencyOf returns the context's key; ok is false without one.
func IdempotencyOf(ctx context.Context) (i Idempotency, ok bool) {
	i, ok = ctx.Value(idempotencyKey{}).(Idempotency)
	return i, ok
}
