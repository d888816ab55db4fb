// Package control holds what the services of the control plane share: who acts,
// the errors that callers tell apart, and time. The services are its
// subpackages; each declares the small ports that it needs, which package store
// implements on PostgreSQL.
package control

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Role is what a member or key may do in its organization. Each role may do all
// that the ones before it may.
type Role string

// The roles. A viewer reads; an operator also runs, pauses, resets and tests; an
// admin also changes connections, pipelines, schedules, rules, members and keys.
const (
	RoleViewer   Role = "viewer"
	RoleOperator Role = "operator"
	RoleAdmin    Role = "admin"
)

// ActorKind is what kind of caller acts.
type ActorKind string

// The kinds of actors. ActorSystem is the control plane itself: schedules,
// sweeps, retention.
const (
	ActorUser           ActorKind = "user"
	ActorServiceAccount ActorKind = "service_account"
	ActorSystem         ActorKind = "system"
)

// Actor is who asks for something, and in which organization.
type Actor struct {
	Organization uuid.UUID
	Kind         ActorKind
	// ID is the member's or service account's id; uuid.Nil for the system.
	ID uuid.UUID
	// Key is the API key that the call came with; uuid.Nil without one.
	Key uuid.UUID
	// KeyHash is that of the key's text, for the database to compare.
	KeyHash []byte `json:"-"`
	Name    string
	Role    Role
	// Scopes narrow the role to named permissions; empty: all of the role's.
	Scopes []string
	// RequestID goes into the audit log.
	RequestID string
}

// System is the control plane acting in an organization.
func System(organization uuid.UUID) Actor {
	return Actor{Organization: organization, Kind: ActorSystem, Name: "tranship", Role: RoleAdmin}
}

// Clock is the time by which schedules, waits and expiries of requests are
// computed. Leases are computed by the database's clock alone (P22).
type Clock interface {
	Now() time.Time
	// Sleep returns at the time t, or with the context's error when that ends first.
	Sleep(ctx context.Context, until time.Time) error
}

// SystemClock is the system's clock.
type SystemClock struct{}

// Now implements [Clock].
func (SystemClock) Now() time.Time { return time.Now() }

// Sleep implements [Clock].
func (SystemClock) Sleep(ctx context.Context, until time.Time) error {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// NotFoundError tells that there is no such thing in the actor's organization,
// which is all that is told of another organization's things.
type NotFoundError struct {
	// Kind is the thing's kind, such as "pipeline"; Ref how it was named.
	Kind, Ref string
}

func (e *NotFoundError) Error() string { return fmt.Sprintf("there is no %s %q", e.Kind, e.Ref) }

// ConflictError tells that a thing is in a state in which this cannot be done.
type ConflictError struct {
	// Code is stable and short, such as "run_overlap"; it becomes the problem's type.
	Code string
	// State is the thing's state, where it has one.
	State   string
	Message string
	Hint    string
}

func (e *ConflictError) Error() string { return withHint(e.Message, e.Hint) }

// StaleVersionError tells that the thing changed since the caller read it.
type StaleVersionError struct {
	Kind, Ref string
	// Given is the version that the caller had, Current the one that stands.
	Given, Current int64
}

func (e *StaleVersionError) Error() string {
	return fmt.Sprintf("%s %q is at version %d, not %d: read it again and repeat the change", e.Kind, e.Ref, e.Current, e.Given)
}

// ForbiddenError tells that the actor's role or scopes do not allow something.
type ForbiddenError struct {
	// Permission is what was missing, Needs the least role that has it.
	Permission string
	Needs      Role
}

func (e *ForbiddenError) Error() string {
	return fmt.Sprintf("this needs the permission %s, which the role %s has", e.Permission, e.Needs)
}

// Problem is one thing that is wrong with a request or document.
type Problem struct {
	// Path is where in the document, such as "edges[1].cursor"; empty: the whole.
	Path    string `json:"path"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// InvalidError holds every problem that was found in a request.
type InvalidError struct{ Problems []Problem }

func (e *InvalidError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = withHint(strings.TrimPrefix(p.Path+": "+p.Message, ": "), p.Hint)
	}
	return strings.Join(lines, "\n")
}

// Invalid makes an [InvalidError] of one problem.
func Invalid(path, hint, format string, args ...any) error {
	return &InvalidError{Problems: []Problem{{Path: path, Message: fmt.Sprintf(format, args...), Hint: hint}}}
}

// UnavailableError tells that the database, or what stands in What, cannot be
// asked now; nothing was done.
type UnavailableError struct {
	// What cannot be reached; empty: the database.
	What string
	// RetryAfter is when asking again makes sense.
	RetryAfter time.Duration
	Err        error
}

func (e *UnavailableError) Error() string {
	return cmp.Or(e.What, "the database") + " cannot be reached: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }

// LimitError tells that a limit was reached.
type LimitError struct {
	// RetryAfter is when there is room again; 0: not by waiting.
	RetryAfter time.Duration
	Message    string
}

func (e *LimitError) Error() string { return e.Message }

func withHint(message, hint string) string {
	if hint == "" {
		return message
	}
	return message + " (" + hint + ")"
}

// UnauthenticatedError tells that a call carries no valid key or token. Reason is
// for the caller and gives away nothing about other keys.
type UnauthenticatedError struct {
	Reason string
	// Expired tells that it was valid once.
	Expired bool
}

func (e *UnauthenticatedError) Error() string { return e.Reason }
