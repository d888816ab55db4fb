// Package inspections looks at live systems for callers who do not wait: a
// connection is tested, its resources are discovered, the columns of one are
// ranked as cursors, or a pipeline is validated against its ends. A look is
// recorded when it is asked for, executed once by some process's worker, and its
// result kept until it expires. It is never repeated by itself: whoever asked
// asks again.
package inspections

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
)

// Kind is what is looked at.
type Kind string

// The kinds.
const (
	// Test opens a connection and asks what it finds out about itself.
	Test Kind = "test"
	// Discover lists the resources of a source.
	Discover Kind = "discover"
	// Columns ranks the columns of a resource as cursors.
	Columns Kind = "columns"
	// Validate plans every resource of a pipeline and changes nothing.
	Validate Kind = "validate"
)

// State is where an inspection stands.
type State string

// The states. Failed means that the look itself failed; what a test or a
// validation found out is in its result.
const (
	Requested State = "requested"
	Running   State = "running"
	Succeeded State = "succeeded"
	Failed    State = "failed"
)

// Inspection is one look.
type Inspection struct {
	ID    uuid.UUID `json:"id"`
	Kind  Kind      `json:"kind"`
	State State     `json:"state"`
	// Connection is set for all kinds but Validate, which has Pipeline and its
	// version's Number.
	Connection uuid.UUID `json:"connection,omitzero"`
	Pipeline   uuid.UUID `json:"pipeline,omitzero"`
	Number     int64     `json:"number,omitempty"`
	// Resource is whose columns are ranked, Pattern narrows Discover.
	Resource string `json:"resource,omitempty"`
	Pattern  string `json:"pattern,omitempty"`
	// Overlay is put over the connection's configuration.
	Overlay json.RawMessage `json:"overlay,omitempty"`
	// Result is set once it succeeded, Error and Hint once it failed.
	Result json.RawMessage `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
	Hint   string          `json:"hint,omitempty"`

	CreatedAt time.Time `json:"created_at"`
	// StartedAt and EndedAt are zero before it did so.
	StartedAt time.Time `json:"started_at,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Filter chooses inspections; empty fields choose all.
type Filter struct {
	Connection uuid.UUID
	Kind       Kind
	State      State
}

// Times of inspections.
const (
	// Keep is how long an inspection is there after it was asked for.
	Keep = 24 * time.Hour
	// Limit bounds one look.
	Limit = 5 * time.Minute
	// Lease is how long a look may go without a sign of life of its worker.
	Lease = time.Minute
)

// Claimed is an inspection that a worker owns.
type Claimed struct {
	Inspection
	Organization uuid.UUID
	// Claim is the fence of the inspection's outcome: a later claim has another.
	Claim uuid.UUID
}

// Outcome is how a look ended.
type Outcome struct {
	Result json.RawMessage
	// Error is empty if it succeeded.
	Error, Hint string
}

// Ref names an inspection across organizations.
type Ref struct{ Organization, ID uuid.UUID }

// Starter asks for an inspection to be executed somewhere else. It may be lost or
// repeated: the claim decides, and the sweep asks again.
type Starter interface {
	Begin(ctx context.Context, r Ref)
}

// Store keeps inspections.
type Store interface {
	// CreateInspection stores a request, armed (P23), with its audit entry.
	CreateInspection(ctx context.Context, a control.Actor, i Inspection, keep time.Duration) (Inspection, error)
	// Inspection returns one that has not expired; *control.NotFoundError.
	Inspection(ctx context.Context, organization, id uuid.UUID) (Inspection, error)
	// Inspections lists those that have not expired, the newest first.
	Inspections(ctx context.Context, organization uuid.UUID, f Filter, p control.Page) (control.List[Inspection], error)
	// ClaimInspection gives a requested inspection of any organization to the
	// caller; nil: there is none.
	ClaimInspection(ctx context.Context, lease time.Duration) (*Claimed, error)
	// ClaimInspectionOf gives one requested inspection to the caller; nil: somebody
	// has it already, or it is over.
	ClaimInspectionOf(ctx context.Context, organization, id uuid.UUID, lease time.Duration) (*Claimed, error)
	// RequestedInspections returns some that nobody has claimed for so long.
	RequestedInspections(ctx context.Context, age time.Duration, limit int) ([]Ref, error)
	// RenewInspection extends the lease; false: the claim is lost.
	RenewInspection(ctx context.Context, c Claimed, lease time.Duration) (bool, error)
	// FinishInspection stores the outcome if the claim still holds.
	FinishInspection(ctx context.Context, c Claimed, o Outcome) error
	// SweepInspections fails those whose worker is lost, and deletes the expired
	// ones. next is when the next lease ends, by the database's clock, in from now;
	// 0: none is running.
	SweepInspections(ctx context.Context) (next time.Duration, err error)
}
