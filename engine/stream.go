package engine

import (
	"context"
	"encoding/json"
	"time"
)

// Change streams (read mode cdc). All cdc resources of a route share one stream:
// one log position, one slot at the source. In a run's plan the stream stands
// beside its members as the plan of a resource of its own, [StreamResource], with
// a single split; its fence, ledger row, checkpoint and cursor are kept under that
// name like any other resource's. A member has read splits only while its initial
// rows are missing; they are read and staged as a full read's are, in any order
// and in parallel, while the stream goes on.
//
// Initial rows and changes are brought together without watermarks (P16, P17 as
// built: docs/protocol.md). When the plan is made the source takes an alignment
// point for each member that needs its rows: a log position C and a snapshot E of
// exactly the transactions that had committed before C. From then on
//
//   - the stream carries the member's changes that commit from C on, all of them; an
//     appended member's from the stream's cursor on, so that the log has no gap where
//     an unfinished run began it;
//   - each piece of the table is read in a snapshot of its own that sees whatever E
//     sees, and whatever else it happens to see;
//   - the sink keeps, for each key, what the changes make of it, apart from the rows
//     that were read (a member that is not published yet), or where there is no
//     current state (append) writes both;
//   - publish merges them: a key that a change has touched is as the changes left
//     it, with columns that no change has sent taken from the row that was read; it
//     waits until the stream has passed whatever any of the snapshots saw
//     ([Streamer.Settled]).

// StreamResource is the name under which plan, State and ledger keep a route's
// change stream. It is no name of a table: no source offers it. In a run's plan it
// comes first, so that it is claimed before the members' pieces; it has no rows of
// its own, so that receipts count its rows with the members.
const StreamResource = "#changes"

// StreamPlan makes a [ResourcePlan] the plan of a change stream.
type StreamPlan struct {
	// Members are the resources whose changes it carries, in the run's order; each
	// has a plan of its own in the run's plan.
	Members []string `json:"members"`
	// Statements are what the source would run, or ran, to make the stream.
	Statements []string `json:"statements,omitempty"`
}

// Streamer is a source whose changes can be read.
type Streamer interface {
	Acknowledger
	// PlanStream plans the stream of the members, whose plans [SourceSession.Plan]
	// has made with read mode cdc, and changes nothing. The plan has one split; its
	// Statements say what PrepareStream would do. Members that can't be streamed
	// are permanent errors that name the resource and the statement that helps.
	PlanStream(ctx context.Context, req StreamRequest) (*SourcePlan, *StreamPlan, error)
	// PrepareStream makes what the stream needs (publication, slot), takes the
	// alignment points, and writes them into the descriptors of the stream's split
	// and of the members' splits, before the plan is frozen. It is idempotent: what
	// is there already and is ours is used, so that a crash in between leaves
	// nothing to clean up; alignment points are taken anew each time.
	PrepareStream(ctx context.Context, req StreamRequest, plan *SourcePlan, stream *StreamPlan) error
	// Settled tells whether a stream that is applied up to pos has passed everything
	// that the finished reads of a member, which ended at these positions, have seen.
	Settled(pos Position, reads []Position) (bool, error)
	// Lag tells how far pos is behind the server.
	Lag(ctx context.Context, pos Position) (StreamLag, error)
	// Streams lists what the source holds for streams of any pipeline of ours, and
	// DropStream drops one by name (deleting a pipeline; orphans).
	Streams(ctx context.Context) ([]StreamInfo, error)
	DropStream(ctx context.Context, name string) error
}

// StreamRequest asks for a route's change stream.
type StreamRequest struct {
	// Route names the stream: what it makes at the source is found again by it.
	Route Route
	// Members are the plans of its members.
	Members []StreamMember
	// Cursor is where the last completed run ended; nil: there was none, and every
	// member needs its initial rows or begins from now.
	Cursor json.RawMessage
}

// StreamMember is a resource whose changes are read.
type StreamMember struct {
	Selection Selection
	Write     WriteMode
	Plan      *SourcePlan
	// Follows tells that the member stands at the stream's cursor: all its changes from
	// there on count. Otherwise it gets a point: its rows are read, or ([InitialNone])
	// it begins now.
	Follows bool
}

// StreamLag is how far a stream is behind.
type StreamLag struct {
	// Bytes of the source's log that are not applied yet; At is when the server
	// wrote the position that is applied, zero if it is not known.
	Bytes int64     `json:"bytes"`
	At    time.Time `json:"at,omitzero"`
	// Retained is how much log the source keeps for the stream, in bytes.
	Retained int64 `json:"retained"`
}

// StreamInfo is what a source holds for a stream.
type StreamInfo struct {
	Name     string `json:"name"`
	Pipeline string `json:"pipeline,omitempty"`
	Active   bool   `json:"active"`
	// Retained is how much log the source keeps for it, in bytes.
	Retained int64 `json:"retained"`
	// State is the source's word on it ("reserved", "lost", …).
	State string `json:"state"`
}

// Initial says which rows a change stream's resource begins with.
type Initial string

// OnLost says what a run does whose change stream lost its place ([ErrPositionLost]).
type OnLost string

// What to do about a lost place.
const (
	// OnLostFail fails the run, saying what is lost and the way out (default).
	OnLostFail OnLost = "fail"
	// OnLostResync begins a new run that reads all members again.
	OnLostResync OnLost = "resync"
)

// The ways to begin.
const (
	// InitialAligned reads all rows, in pieces, while the stream goes on (default).
	InitialAligned Initial = "aligned"
	// InitialNone begins with the changes from now on; rows that exist stay as they
	// are at the destination.
	InitialNone Initial = "none"
)

// ChangeSink is a sink that applies changes.
type ChangeSink interface {
	// PlanStream returns the target under which the stream's fence, ledger row and
	// cursor are kept ([StreamResource]); members are the planned targets of the
	// same run. Like [SinkSession.Plan] it changes nothing.
	//
	// Apply is then called with [Epoch.Stream] set: its batches carry operations and
	// belong to any of Targets. Fence and ledger of the stream's target are checked;
	// where a member is not published yet its changes are kept apart and merged by
	// its Publish, which excludes epochs that are under way. Each epoch also stores
	// its end as the stream's cursor beside the fence: what is applied to published
	// members stands, so a run that supersedes an unfinished one follows on from there.
	PlanStream(ctx context.Context, req StreamTargetRequest) (*Target, error)
}

// StreamTargetRequest asks a sink for the stream's own target.
type StreamTargetRequest struct {
	Route   Route
	RunID   string
	Ordinal int64
	Members []*Target
}
