package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tranship-io/tranship/engine/schema"
)

// Position is a source's resumable place in a split, opaque to the engine: a
// small JSON document of the connector's. An empty position is the beginning.
type Position = json.RawMessage

// Source is one system that rows are read from.
type Source interface {
	Spec() Spec
	// Open checks the configuration and makes a session. It may connect; a
	// failure says which of host, TLS, password, database or rights is wrong.
	Open(ctx context.Context, cfg Config, opt OpenOptions) (SourceSession, error)
}

// SourceSession is a live connection to a source. Its methods may be called
// concurrently; each Read uses a server connection of its own.
//
// Order of calls: Discover (any time), Plan for each resource, then Read for
// its splits in any order and in parallel, then Close. A session opened anew
// must be able to Read the splits of a plan made by an earlier one, unless the
// plan's consistency is snapshot, in which case it returns ErrSnapshotLost.
type SourceSession interface {
	// Identity is a stable name of the database, account or folder behind the
	// configuration, without secrets and without what may change (password,
	// options); it is part of the route's identity.
	Identity() string
	// Discover lists the resources that match any of the patterns ("public.*");
	// no patterns means all.
	Discover(ctx context.Context, patterns []string) ([]Resource, error)
	// Plan cuts one resource into splits. With a snapshot it also takes it; the
	// session holds it until Close. Its result is frozen and persisted by the
	// engine before anything is read.
	Plan(ctx context.Context, req PlanRequest) (*SourcePlan, error)
	// Read writes the rows of a split after the position to out, in any order
	// that lets a later Read go on from a Mark. It returns Done true after the
	// split's last row; after ErrBoundary from out.Mark it returns at once with
	// Done false. Rows after the last Mark are thrown away by the engine.
	// Errors: retryable if a new Read may succeed; ErrSnapshotLost; else permanent.
	Read(ctx context.Context, req ReadRequest, out Writer) (ReadResult, error)
	// Close ends the session and everything that it holds.
	Close(ctx context.Context) error
}

// Resource is something a source offers: a table, view, endpoint, file set.
type Resource struct {
	// Name is how pipelines name it, such as "public.orders"; a part that
	// contains a dot is quoted: `"s.t"."a.b"`.
	Name string `json:"name"`
	// Path are the name's parts, unquoted.
	Path []string `json:"path"`
	// Kind is "table", "partitioned table", "view", "materialized view", …
	Kind   string        `json:"kind"`
	Schema schema.Schema `json:"schema"`
	// Rows and Bytes are estimates; -1 means unknown.
	Rows  int64 `json:"rows"`
	Bytes int64 `json:"bytes"`
}

// Selection is what a pipeline wants of a resource.
type Selection struct {
	Resource string `json:"resource"`
	// Include and Exclude choose columns; empty Include means all.
	Include []string `json:"include,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
	// Where is a filter in the source's own language; empty means none.
	Where string `json:"where,omitempty"`
	// Key overrides the source's key.
	Key []string `json:"key,omitempty"`
	// Cursor is the incremental cursor column.
	Cursor string `json:"cursor,omitempty"`
	// Lookback widens the next run's window into the past.
	Lookback time.Duration `json:"lookback,omitempty"`
	// Initial is how a cdc resource begins; empty means aligned.
	Initial Initial `json:"initial,omitempty"`
}

// PlanRequest asks a source to plan one resource.
type PlanRequest struct {
	Selection
	Read  ReadMode
	Write WriteMode
	// Consistency is the wish; empty means the source's default (P12).
	Consistency Consistency
	// Cursor is what the last completed run of the route stored, nil at first.
	Cursor json.RawMessage
	// Slots is how many reads can run at once; a source plans some splits a slot.
	Slots int
	// SplitBytes is the wished size of a split; 0 means the source's default.
	SplitBytes int64
	// AttemptTime bounds one attempt; 0 means no bound.
	AttemptTime time.Duration
	// HolderLives is true when this process lives as long as the whole read, so
	// that an exported snapshot can be held.
	HolderLives bool
}

// CursorRange is a part of an incremental resource: the rows whose cursor is from
// From to To, both included, as the source writes its values. An empty end is open.
type CursorRange struct {
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// SourcePlan is a source's plan of one resource.
type SourcePlan struct {
	// Resource is the resource as discovered, with the selected columns in order
	// and the key in effect.
	Resource    Resource    `json:"resource"`
	Consistency Consistency `json:"consistency"`
	Splits      []Split     `json:"splits"`
	// Wire are formats in which the source could hand over these rows, for the
	// sink to choose from.
	Wire []WireFormat `json:"wire,omitempty"`
	// NextCursor is what the run stores when the resource is published.
	NextCursor json.RawMessage `json:"next_cursor,omitempty"`
	// Window, if not nil, says which rows may have been applied by earlier runs.
	Window *Window `json:"window,omitempty"`
	// Coverage says in words what the read covers and what it cannot see.
	Coverage string   `json:"coverage,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// Rows and Bytes are estimates; -1 means unknown.
	Rows  int64 `json:"rows"`
	Bytes int64 `json:"bytes"`
}

// Window is the part of an incremental read that overlaps with earlier runs
// (P15). An append sink leaves out rows with a cursor up to UpTo that it has
// already, by (key, cursor).
type Window struct {
	// Cursor is the cursor column, UpTo the greatest value applied before, as
	// the source prints it at full precision.
	Cursor string `json:"cursor"`
	UpTo   string `json:"up_to"`
}

// Split is an independently readable and resumable piece of a resource.
type Split struct {
	// ID is unique within the run's plan and stable, such as "public.orders/3".
	ID       string `json:"id"`
	Resource string `json:"resource"`
	// Descriptor is the connector's, opaque to the engine.
	Descriptor json.RawMessage `json:"descriptor"`
	Rows       int64           `json:"rows"`
	Bytes      int64           `json:"bytes"`
}

// ReadRequest asks for the rows of one split.
type ReadRequest struct {
	Split Split
	// Claim is the claim under which the split is read; a source names its server
	// session after it and ends the sessions of older claims (P5). 0: unclaimed.
	Claim int64
	// Plan is the frozen plan of the split's resource.
	Plan *SourcePlan
	// Selection is the pipeline's choice, frozen with the plan.
	Selection Selection
	// From is where an earlier read of the split stopped; empty: the beginning.
	From Position
	// Wire is the negotiated wire format; empty means Arrow records.
	Wire WireFormat
	// AsText names columns to hand over in text form within the wire format.
	AsText []string
	// BatchBytes is the wished size of a batch; one row may exceed it.
	BatchBytes int64
	// Skip are rows applied by earlier runs within the window; Remember asks for
	// [Batch.Seen]. Both are used only for sinks that can't look themselves.
	Skip     map[RowID]struct{}
	Remember bool
	// Members are the plans of a stream's members by resource, with what they are
	// read as; nil for the split of a table.
	Members map[string]MemberRead
	// Follow makes a stream's Read go on when it has caught up with where the server
	// was when the Read began; without it the Read is then Done. While it has nothing
	// to hand over it calls Mark again, with the same position, at least every 200 ms:
	// so an epoch ends when its time is over, and a boundary is heard.
	Follow bool
}

// MemberRead is how the changes of one resource are read.
type MemberRead struct {
	Selection Selection
	Plan      *SourcePlan
	// Wire and AsText are as in [ReadRequest].
	Wire   WireFormat
	AsText []string
	// Aligning is true while pieces of the resource are still to be read beside the
	// stream, and Reads are where those that are finished ended, until the resource is
	// published. A row whose key changes before all that they saw must come whole, if
	// it is still there: it may be read under neither key.
	Aligning bool
	Reads    []Position
}

// ReadResult tells how a Read ended.
type ReadResult struct {
	// Done is true when the split's last row was written, or a stream that is not
	// followed has caught up.
	Done bool
	// End, if not empty, is stored as the position of the end: of a table's piece
	// read for a change stream it says what its snapshots saw ([Streamer.Settled]);
	// of a stream it is where it has caught up.
	End Position
	// Replan, if not empty, says why a stream can't go on from End under this plan:
	// the structure of a member has changed there. The run ends at End, and the next
	// one is planned anew and follows on.
	Replan string
}

// Writer is where a source writes rows. It is used by one goroutine.
type Writer interface {
	// Reserve blocks until n bytes of the attempt's budget are free and takes
	// them (invariant 11). A single request larger than the whole budget is
	// granted when nothing else is in flight. A source reserves before it fills
	// a batch; Write hands the reservation over with the batch (Batch.Bytes must
	// equal what was reserved), Unreserve gives back what was not used.
	Reserve(ctx context.Context, n int64) error
	Unreserve(n int64)
	// Write hands a batch over; it blocks while the sink is behind.
	Write(ctx context.Context, b *Batch) error
	// Mark says that everything written so far may be committed together and
	// that reading can go on from pos. ErrBoundary: stop reading now.
	Mark(ctx context.Context, pos Position) error
	// Keep is Mark for a position that should be stored soon even if nothing was
	// written since the last one: the source holds its log until it is acknowledged.
	Keep(ctx context.Context, pos Position) error
}

// Optional capabilities of source sessions.

// ConnectionTester diagnoses a connection beyond opening it.
type ConnectionTester interface {
	// TestConnection returns findings, one a check; an error if it can't be used.
	TestConnection(ctx context.Context) ([]Finding, error)
}

// Finding is one result of a check.
type Finding struct {
	// Level is "ok", "warning" or "error".
	Level string `json:"level"`
	// Subject is what was looked at, Message what was found, Hint what to do.
	Subject string `json:"subject"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// CursorRanker says which columns of a resource can be incremental cursors.
type CursorRanker interface {
	// RankCursors returns all columns, best first, with the reasons.
	RankCursors(ctx context.Context, resource string) ([]CursorChoice, error)
}

// CursorChoice is one column as a cursor.
type CursorChoice struct {
	Column string `json:"column"`
	Type   string `json:"type"`
	// Eligible tells whether it can be a cursor at all; Score orders (higher first).
	Eligible bool   `json:"eligible"`
	Score    int    `json:"score"`
	Reason   string `json:"reason"`
}

// RangePlanner is a source that can plan a part of an incremental resource again
// (backfill).
type RangePlanner interface {
	// PlanRange is Plan for the rows of a range as they are now, which may have been
	// applied before. Nothing moves on: NextCursor is req.Cursor. For an append the
	// range ends at the greatest value that earlier runs have read, which Window tells:
	// what follows is the next run's, and what is there already the sink leaves out.
	// An append of which no run has read anything is refused.
	PlanRange(ctx context.Context, req PlanRequest, r CursorRange) (*SourcePlan, error)
}

// Acknowledger is a source that holds data until it is told that it is durable
// (CDC). The engine calls it only with positions that are stored (invariant 3),
// during the split's Read and after it, before the session's Close.
type Acknowledger interface {
	Acknowledge(ctx context.Context, split Split, pos Position) error
}
