package schedules

import (
	"time"

	"github.com/google/uuid"
)

// Overlap says what becomes of an occurrence whose pipeline still has an open run.
type Overlap string

// The overlap policies. Queue lets one occurrence wait. A route never has two open runs: Allow starts the
// pipeline's free routes and names the busy ones in the occurrence.
const (
	Skip  Overlap = "skip"
	Allow Overlap = "allow"
	Queue Overlap = "queue"
)

// CatchUp says what becomes of occurrences that were missed while nothing could
// fire them.
type CatchUp string

// The catch-up policies. CatchUpOne fires once and says how many were missed;
// CatchUpAll fires each, one after the other, up to the schedule's limit.
const (
	CatchUpNone CatchUp = "none"
	CatchUpOne  CatchUp = "one"
	CatchUpAll  CatchUp = "all"
)

// State is where a schedule stands.
type State string

// The states. Parked: it cannot be used, for the reason it states. Finished: it
// has no more instants.
const (
	Active   State = "active"
	Paused   State = "paused"
	Parked   State = "parked"
	Finished State = "finished"
)

// Limits of a schedule.
const (
	MaxCatchUp     = 1000
	DefaultCatchUp = 10
	MaxName        = 63
	// MaxPreview is the greatest number of next occurrences that are listed.
	MaxPreview = 100
)

// Options say what the runs that a schedule starts do.
type Options struct {
	// FullRefresh names resources that are read from the beginning.
	FullRefresh []string `json:"full_refresh,omitempty"`
	// Only narrows the runs to these resources; empty: all.
	Only []string `json:"only,omitempty"`
}

// Schedule fires a pipeline.
type Schedule struct {
	ID       uuid.UUID
	Name     string
	Pipeline uuid.UUID
	// PipelineName is filled in by the store.
	PipelineName string
	Timing       Timing
	Overlap      Overlap
	CatchUp      CatchUp
	// CatchUpLimit is the greatest number of missed occurrences that CatchUpAll
	// fires; the newest are taken.
	CatchUpLimit int
	Options      Options
	State        State
	// Reason is why it is parked.
	Reason  string
	Version int64
	// NextInstant is the next occurrence's instant, NextAt when it fires: the
	// instant and its part of the jitter window. Zero: nothing is due.
	NextInstant, NextAt time.Time
	// LastInstant is the newest instant that was due.
	LastInstant          time.Time
	CreatedAt, UpdatedAt time.Time
}

// OccurrenceState is where an occurrence stands.
type OccurrenceState string

// The states of occurrences. Due: its runs are about to be started. Queued: it
// waits for the end of its pipeline's open run.
const (
	OccurrenceDue     OccurrenceState = "due"
	OccurrenceQueued  OccurrenceState = "queued"
	OccurrenceFired   OccurrenceState = "fired"
	OccurrenceSkipped OccurrenceState = "skipped"
	OccurrenceFailed  OccurrenceState = "failed"
)

// Why an occurrence was skipped or failed.
const (
	ReasonMissed         = "missed"          // nothing could fire it in time
	ReasonOverlap        = "overlap"         // an open run of the pipeline
	ReasonPausedRun      = "paused_run"      // an open run that somebody paused
	ReasonPipelinePaused = "pipeline_paused" // the pipeline is paused
	ReasonQueueFull      = "queue_full"      // one occurrence waits already
	ReasonParked         = "parked"          // the schedule cannot be used
	ReasonError          = "error"           // starting kept failing
)

// Occurrence is one instant of a schedule and what became of it.
type Occurrence struct {
	Schedule uuid.UUID
	Instant  time.Time
	State    OccurrenceState
	// Reason is one of the Reason constants; Detail says more.
	Reason, Detail string
	// Missed counts the earlier instants that this occurrence stands for besides
	// its own.
	Missed int
	// CatchingUp: it is one of several that were missed, and waits its turn
	// whatever the overlap policy is.
	CatchingUp bool
	// Runs are the runs that were started, Busy the routes left out because each
	// has an open run.
	Runs []uuid.UUID
	Busy []Busy
	// Tries counts starts that failed for a while.
	Tries int
	// DueAt is when it is started, tried again; only for OccurrenceDue.
	DueAt       time.Time
	CreatedAt   time.Time
	ConcludedAt time.Time
}

// Busy is a route whose run is still open.
type Busy struct {
	Route string    `json:"route"`
	Run   uuid.UUID `json:"run"`
	// State is the run's.
	State string `json:"state"`
}

// Ref names a schedule across organizations.
type Ref struct {
	Organization, Schedule uuid.UUID
}

// OccurrenceRef names an occurrence across organizations.
type OccurrenceRef struct {
	Ref
	Instant time.Time
}
