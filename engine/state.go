package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/events"
)

// RunState is where a run stands.
type RunState string

// The run states. Partial is StateFailed with Run.Resumable.
const (
	StateScheduled RunState = "scheduled"
	StateRequested RunState = "requested"
	StateRunning   RunState = "running"
	StatePaused    RunState = "paused"
	StateCompleted RunState = "completed"
	StateFailed    RunState = "failed"
	StateCanceled  RunState = "canceled"
)

// Run is one execution of a route.
type Run struct {
	ID    uuid.UUID `json:"id"`
	Route Route     `json:"route"`
	// Version is the content hash of the pipeline document.
	Version string `json:"version"`
	// Ordinal only grows per route; it is the run's fence (P1).
	Ordinal   int64     `json:"ordinal"`
	State     RunState  `json:"state"`
	Resumable bool      `json:"resumable"`
	Error     string    `json:"error,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	StartedAt time.Time `json:"started_at,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// Attempts counts the run's attempts so far.
	Attempts int `json:"attempts"`
	// Receipt is the run's receipt once issued.
	Receipt json.RawMessage `json:"receipt,omitempty"`
}

// ResourcePlan is one resource of a frozen plan.
type ResourcePlan struct {
	Selection Selection   `json:"selection"`
	Read      ReadMode    `json:"read"`
	Write     WriteMode   `json:"write"`
	Source    *SourcePlan `json:"source"`
	Target    *Target     `json:"target"`
	// Generation counts plans of the resource in the run: a reset makes a new one.
	Generation int `json:"generation"`
	// From is the route's cursor, as the destination had it, that an incremental
	// plan, or one of changes, follows on, also one that starts from the beginning
	// because the resource was reset; nil: there was none. Where the destination has
	// another one by now the plan is void (P3). A stream's cursor moves with its
	// epochs: once its plan is frozen the ledger tells where it is.
	From json.RawMessage `json:"from,omitempty"`
	// Stream makes it the plan of the route's change stream ([StreamResource]).
	Stream *StreamPlan `json:"stream,omitempty"`
}

// RunPlan is a run's frozen plan.
type RunPlan struct {
	Resources []*ResourcePlan `json:"resources"`
}

// Resource returns the plan of the named resource, or nil.
func (p *RunPlan) Resource(name string) *ResourcePlan {
	for _, r := range p.Resources {
		if r.Selection.Resource == name {
			return r
		}
	}
	return nil
}

// Fence is what a worker holds; State checks it inside every write's transaction.
type Fence struct {
	RunID uuid.UUID
	Slot  int
	// Generation is the slot's lease generation.
	Generation int64
}

// SplitKind tells reading from publishing.
type SplitKind string

// The kinds of splits.
const (
	SplitRead    SplitKind = "read"
	SplitPublish SplitKind = "publish"
)

// ClaimedSplit is a split that the caller now owns.
type ClaimedSplit struct {
	ID       string
	Resource string
	Kind     SplitKind
	// Claim is the split's ownership number, bumped by this claim.
	Claim int64
	// Epoch and Position are the checkpoint.
	Epoch    int64
	Position Position
	Totals   Totals
	// Generation is the resource's plan generation that the split belongs to.
	Generation int
}

// Progress is one step of a split, stored with its facts in one transaction.
type Progress struct {
	Split string
	Claim int64
	// Epoch, Position, Done and Totals replace the checkpoint (Totals are the
	// split's sums from its beginning).
	Epoch    int64
	Position Position
	Done     bool
	Totals   Totals
	// Artifacts and Seen are added to what the run has registered.
	Artifacts []Artifact
	Seen      []RowID
	Facts     []events.Fact
}

// Desired is what the run's owner wants of its workers.
type Desired string

// The desired states.
const (
	DesiredRun    Desired = "run"
	DesiredPause  Desired = "pause"
	DesiredCancel Desired = "cancel"
)

// Lease is a slot's lease.
type Lease struct {
	Fence
	Holder string
	// Attempt counts the run's attempts from 1.
	Attempt int
}

// StartRequest asks for a run of a route.
type StartRequest struct {
	Route   Route
	Version string
	// Restart begins a new run even if an unfinished one could go on.
	Restart bool
	// AtLeastOrdinal makes the new run's ordinal greater than it (P1: State was
	// restored from an older copy, or the route was adopted).
	AtLeastOrdinal int64
	// Slots is how many places the worker uses. A State of runs that were
	// requested before tells it in the fact of their start.
	Slots int
}

// RunStore keeps runs, their facts, and what a route carries from run to run.
type RunStore interface {
	// Installation is the store's own UUID, made once.
	Installation(ctx context.Context) (string, error)
	// RouteKnown returns the route's installation if the store remembers the
	// route (pipeline, source, sink), with known false otherwise.
	RouteKnown(ctx context.Context, r Route) (installation string, known bool, err error)
	// AdoptRoute stores what the destination knows of a route (P1): installation,
	// ordinal, cursors, and, if the adoption's run is not published, the run with
	// its frozen plan and progress as a failed, resumable run; other unfinished
	// runs of the route are superseded. If the store has that run already (store
	// or destination were set back: P1, P3), its plan and progress become the
	// destination's and it is opened again (one that is published whole and was
	// unfinished in the store then only waits to be finished). A run that is not
	// the route's latest gets an ordinal above the last. ErrLocked: a worker of
	// the route is alive.
	AdoptRoute(ctx context.Context, r Route, version string, a Adoption) error
	// StartRun returns the route's unfinished run of the same version with
	// resumed true, or makes a new one with the next ordinal in state running.
	// An unfinished run of another version is superseded: it becomes failed and
	// not resumable. ErrLocked: another process works on it.
	StartRun(ctx context.Context, req StartRequest) (run Run, resumed bool, err error)
	// RaiseOrdinal gives an unplanned run a greater ordinal (P1). *StaleError
	// ("generation") if the run is not running any more: it was superseded.
	RaiseOrdinal(ctx context.Context, runID uuid.UUID, atLeast int64) (Run, error)
	// FinishRun moves a run to a terminal or paused state with its facts.
	FinishRun(ctx context.Context, f Fence, end RunEnd) error
	GetRun(ctx context.Context, runID uuid.UUID) (Run, error)
	// ListRuns returns the newest first; pipeline "" means all, limit 0 no limit.
	ListRuns(ctx context.Context, pipeline string, limit int) ([]Run, error)
	// Facts returns facts with a number above after, in order.
	Facts(ctx context.Context, runID uuid.UUID, after int64, limit int) ([]events.Fact, error)
	// AppendFacts stores facts that belong to no split.
	AppendFacts(ctx context.Context, f Fence, facts []events.Fact) error
	// Cursor returns what the route carries from run to run for the resource; the
	// zero value if it never published.
	Cursor(ctx context.Context, r Route, resource string) (RouteCursor, error)
	// ResetResource forgets the resource's cursor and marks it as reset until the
	// next publish, so that the next run reads all of it, whatever the destination
	// remembers. Refused with ErrLocked while a process works on the route.
	ResetResource(ctx context.Context, r Route, resource string) error
}

// RouteCursor is what a route carries from run to run for one resource.
type RouteCursor struct {
	// Cursor is the source's, opaque; nil before the first publish.
	Cursor json.RawMessage
	// Seen are the remembered rows of the next run's window, for sinks that can't look.
	Seen []RowID
	// Reset is true when the user asked for everything to be read again.
	Reset bool
}

// RunEnd is how a run or an attempt of it ended.
type RunEnd struct {
	State     RunState
	Resumable bool
	Error     string
	Receipt   json.RawMessage
	Facts     []events.Fact
}

// PlanStore keeps frozen plans.
type PlanStore interface {
	// LoadPlan returns nil if the run has no plan yet.
	LoadPlan(ctx context.Context, runID uuid.UUID) (*RunPlan, error)
	// SavePlan freezes the plan and makes its splits claimable: the read splits
	// of every resource and one publish split each, claimable once the resource's
	// read splits are done. A plan that exists already is an error.
	SavePlan(ctx context.Context, f Fence, plan *RunPlan, facts []events.Fact) error
	// ReplaceResource puts a new plan generation in the place of a resource's old
	// one (reset): its old splits, artifacts and progress are dropped.
	ReplaceResource(ctx context.Context, f Fence, rp *ResourcePlan, facts []events.Fact) error
}

// ProgressStore hands out splits and keeps their progress.
type ProgressStore interface {
	// ClaimSplit gives the caller a split that nobody owns and that is not done,
	// and bumps its claim; owned splits of slots whose lease is over count as
	// nobody's. Splits of the resources in exclude are left alone (they failed in
	// this attempt). nil with no error: nothing to claim now, others are at work.
	// ErrSplitDone: nothing is left but what is excluded.
	ClaimSplit(ctx context.Context, f Fence, exclude []string) (*ClaimedSplit, error)
	// RaiseClaim sets the claim of an owned split to more than atLeast (P1).
	RaiseClaim(ctx context.Context, f Fence, split string, atLeast int64) (int64, error)
	// Commit stores progress if the split's claim is still the given one, else
	// *StaleError and nothing is written (invariant 2).
	Commit(ctx context.Context, f Fence, p Progress) error
	// ReturnSplit gives an owned split back at its checkpoint.
	ReturnSplit(ctx context.Context, f Fence, split string, claim int64) error
	// CommitPublish marks a publish split done, stores the resource's cursor and
	// remembered window for the next run, with the facts.
	CommitPublish(ctx context.Context, f Fence, p Progress, cursor json.RawMessage, seen []RowID) error
	// Splits returns the state of all splits of the run, for receipts and shows.
	Splits(ctx context.Context, runID uuid.UUID) ([]SplitStatus, error)
	// Artifacts and SeenRows return what is registered for a resource's current plan.
	Artifacts(ctx context.Context, runID uuid.UUID, resource string) ([]Artifact, error)
	SeenRows(ctx context.Context, runID uuid.UUID, resource string) ([]RowID, error)
}

// SplitStatus is a split as State sees it.
type SplitStatus struct {
	ClaimedSplit
	Done  bool
	Owned bool
}

// LeaseStore says who lives in a slot.
type LeaseStore interface {
	// Acquire takes a free or expired slot by raising its generation. ErrLocked:
	// a live holder has it.
	Acquire(ctx context.Context, runID uuid.UUID, slot int, holder string, ttl time.Duration) (Lease, error)
	// Renew extends the lease and returns what is wanted; *StaleError if lost.
	Renew(ctx context.Context, l Lease, ttl time.Duration) (Desired, error)
	// EndAttempt frees the slot, returns its splits, and stores facts.
	EndAttempt(ctx context.Context, l Lease, facts []events.Fact) error
	// SetDesired asks the run's workers to go on, pause or cancel.
	SetDesired(ctx context.Context, runID uuid.UUID, d Desired) error
}

// State is everything that the engine needs remembered. Implementations pass
// the State suite of engine/enginetest.
type State interface {
	RunStore
	PlanStore
	ProgressStore
	LeaseStore
}
