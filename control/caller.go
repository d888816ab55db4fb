package control

import (
	"context"
	"sync/atomic"
)

// caller is who a request comes from, and whether the database confirmed it.
type caller struct {
	Actor
	confirmed *atomic.Bool
}

type callerKey struct{}

// WithCaller returns the context of a request that comes from an actor who showed
// a key or token. Stores check in every transaction of such a context, with its
// first statement, that the key is not revoked and that the actor still exists and
// has the role; if not, the transaction fails with *UnauthenticatedError or
// *RoleChangedError.
func WithCaller(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, callerKey{}, caller{a, &atomic.Bool{}})
}

// CallerOf returns who a request comes from; ok is false outside of requests.
func CallerOf(ctx context.Context) (a Actor, ok bool) {
	c, ok := ctx.Value(callerKey{}).(caller)
	return c.Actor, ok
}

// ConfirmCaller notes that a transaction has checked the context's caller.
func ConfirmCaller(ctx context.Context) {
	if c, ok := ctx.Value(callerKey{}).(caller); ok {
		c.confirmed.Store(true)
	}
}

// CallerConfirmed tells whether a transaction has checked the context's caller.
func CallerConfirmed(ctx context.Context) bool {
	c, ok := ctx.Value(callerKey{}).(caller)
	return ok && c.confirmed.Load()
}

// RoleChangedError tells that the actor has a lesser role now than its key or
// token says. The request may be tried again with that one.
type RoleChangedError struct{ Role Role }

func (e *RoleChangedError) Error() string {
	return "the caller's role is " + string(e.Role) + " now"
}
