// Package runs is the life of runs: intake, the states and what moves a run from
// one to the next, retries, limits. What a request or event does to a run is
// decided by the pure functions of this package ([Cancel], [Resume], [Ended] …)
// from the run as its row's lock holds it; a store applies the [Change] in the
// same transaction, with its facts, so that each transition is a compare-and-swap.
package runs

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
)

// Run is one execution of a route, with all that decisions need.
type Run struct {
	ID       uuid.UUID
	Pipeline uuid.UUID
	// Title is the pipeline's name when the run was accepted, Name the one that
	// engine and destinations remember the route by.
	Title, Name string
	// Number is the number of the pipeline's version, Hash its content's.
	Number int64
	Hash   string
	// Route names the pair of source and sink within the pipeline's graph.
	Route string

	State     engine.RunState
	Desired   engine.Desired
	Resumable bool
	Error     string
	Class     engine.Class
	Hint      string
	Trigger   Trigger
	Options   Options
	Policy    Policy

	// Attempts counts all lives of workers, Failures those that ended with an
	// error, Interruptions those in a row that were lost without progress (P24).
	Attempts, Failures, Interruptions int
	// LastFact is the number of the newest fact.
	LastFact int64
	Totals   Totals
	Receipt  json.RawMessage

	CreatedAt time.Time
	// StartedAt, ProgressAt and EndedAt are zero before the run did so; ProgressAt
	// is when its checkpoint last moved.
	StartedAt, ProgressAt, EndedAt time.Time

	// Busy is true while a worker has a live lease or is about to take one, and
	// Offered while an attempt waits for a worker; Overtaken is true once a later
	// run of the route exists (P21).
	Busy, Offered, Overtaken bool
	// Now is the store's clock when it read the run (P22).
	Now time.Time
}

// Totals are a run's sums so far.
type Totals struct{ Read, Written, Bytes int64 }

// Open tells whether the run can still do something by itself.
func (r *Run) Open() bool { return Active(r.State) }

// Active tells whether a run in the state keeps others off its route (P21).
func Active(s engine.RunState) bool {
	switch s {
	case engine.StateScheduled, engine.StateRequested, engine.StateRunning, engine.StatePaused:
		return true
	}
	return false
}

// TriggerKind is what starts runs.
type TriggerKind string

// The triggers.
const (
	TriggerAPI      TriggerKind = "api"
	TriggerSchedule TriggerKind = "schedule"
	TriggerRetry    TriggerKind = "retry"
	TriggerBackfill TriggerKind = "backfill"
)

// Trigger is what started a run.
type Trigger struct {
	Kind TriggerKind `json:"kind"`
	// Schedule and Occurrence are set for a schedule's runs.
	Schedule   uuid.UUID `json:"schedule,omitzero"`
	Occurrence time.Time `json:"occurrence,omitzero"`
	// Of is the run that is retried.
	Of uuid.UUID `json:"of,omitzero"`
}

// Options narrow or widen one run.
type Options struct {
	// FullRefresh are resources that are read from their beginning, whatever the
	// route's cursor says.
	FullRefresh []string `json:"full_refresh,omitempty"`
	// Only are the resources that the run is about; empty: all of the pipeline's.
	Only []string `json:"only,omitempty"`
	// Backfill are parts of incremental resources that are read again; the run is
	// about nothing else, and moves no cursor.
	Backfill []Backfill `json:"backfill,omitempty"`
}

// Backfill is a part of a resource.
type Backfill struct {
	Resource string `json:"resource"`
	engine.CursorRange
}

// Resource is a resource's progress within a run.
type Resource struct {
	Name, Target string
	Read         engine.ReadMode
	Write        engine.WriteMode
	// State is planned, reading, publishing, published, incomplete or failed.
	State              string
	Error              string
	Totals             engine.Totals
	Splits, SplitsDone int
}

// Filter chooses runs of a list.
type Filter struct {
	// Pipeline is a name or id; empty: all.
	Pipeline string
	States   []engine.RunState
	// From and Before bound the time of creation; zero: no bound.
	From, Before time.Time
}
