package schedules

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
)

// Store keeps schedules. Every change writes its audit entry in the same
// transaction. Errors are package control's.
type Store interface {
	// CreateSchedule stores a schedule; with an idempotency key in the context that
	// was used before it returns what that call made.
	CreateSchedule(ctx context.Context, a control.Actor, s Schedule) (Schedule, error)
	// UpdateSchedule stores s over the row of s.Version, else *control.StaleVersionError.
	UpdateSchedule(ctx context.Context, a control.Actor, action string, s Schedule) (Schedule, error)
	// DeleteSchedule removes a schedule; its occurrences stay until retention.
	DeleteSchedule(ctx context.Context, a control.Actor, id uuid.UUID, version int64) error
	GetSchedule(ctx context.Context, a control.Actor, id uuid.UUID) (Schedule, error)
	// ListSchedules lists by creation.
	ListSchedules(ctx context.Context, a control.Actor, f Filter, p control.Page) (control.List[Schedule], error)
	// PipelineID finds a live pipeline by its name or id.
	PipelineID(ctx context.Context, a control.Actor, ref string) (uuid.UUID, error)
	// ListOccurrences lists a schedule's occurrences, newest instant first.
	ListOccurrences(ctx context.Context, a control.Actor, schedule uuid.UUID, p control.Page) (control.List[Occurrence], error)
}

// Filter narrows a list of schedules.
type Filter struct {
	// Pipeline is uuid.Nil for all pipelines, State empty for all states.
	Pipeline uuid.UUID
	State    State
}

// Ledger is the store's side of firing, across organizations. Each call is one
// transaction of its own.
type Ledger interface {
	// NextDue is the earliest time after the given one at which a schedule or
	// occurrence is due; zero: none.
	NextDue(ctx context.Context, after time.Time) (time.Time, error)
	// DueSchedules returns schedules that are due, the longest due first.
	DueSchedules(ctx context.Context, now time.Time, limit int) ([]Ref, error)
	// Advance locks a schedule and, if it is still due, stores the step that decide
	// returns: occurrences that are there already stay as they are. If decide
	// fails nothing is stored.
	Advance(ctx context.Context, r Ref, now time.Time, decide func(Schedule) (Step, error)) error
	// Park makes an active schedule parked, with its alert.
	Park(ctx context.Context, r Ref, reason string, now time.Time) error
	// DueOccurrences returns occurrences that are due, by schedule and instant.
	DueOccurrences(ctx context.Context, now time.Time, limit int) ([]OccurrenceRef, error)
	// DueOccurrencesOf returns the due occurrences of one schedule, oldest first.
	DueOccurrencesOf(ctx context.Context, r Ref, now time.Time, limit int) ([]OccurrenceRef, error)
	// Claim takes a due occurrence until the given time, when it is due again;
	// false: it is not due any more. It counts a try.
	Claim(ctx context.Context, r OccurrenceRef, now, until time.Time) (Occurrence, Schedule, bool, error)
	// Conclude stores what became of a due occurrence, with its alert; nothing if
	// it is concluded already. An occurrence that is to be queued stays due if the
	// pipeline's open run has ended meanwhile, and is skipped (ReasonQueueFull) if
	// queueLimit others of its kind wait.
	Conclude(ctx context.Context, r OccurrenceRef, o Occurrence, queueLimit int, alert *Alert, now time.Time) error
	// Release makes the oldest queued occurrence of each of a pipeline's schedules
	// due; false: none was queued.
	Release(ctx context.Context, organization, pipeline uuid.UUID, now time.Time) (bool, error)
}

// Intake starts runs.
type Intake interface {
	// Start starts a run of each of a pipeline's routes, once per key: a repeated
	// call returns the same runs. If a route has an open run, nothing starts and
	// the busy routes are returned; with AllowBusy the others start all the same.
	// Errors: *control.NotFoundError, *control.InvalidError (the pipeline cannot
	// run), *control.ConflictError "pipeline_paused"; others are tried again.
	Start(ctx context.Context, a control.Actor, req StartRequest) (Started, error)
}

// StartRequest asks for the runs of an occurrence.
type StartRequest struct {
	Pipeline  uuid.UUID
	Key       string
	Schedule  uuid.UUID
	Instant   time.Time
	Options   Options
	AllowBusy bool
}

// Started is what a request started.
type Started struct {
	Runs []uuid.UUID
	Busy []Busy
}

// Scheduler wakes the firing at the next instant: in serve a timer in each
// process, elsewhere a service of the platform ([Mirror]).
type Scheduler interface {
	// Moved tells that a schedule's next firing changed, or that it has none any more.
	Moved(ctx context.Context, r Ref) error
}
