package notify

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"
)

// The events that rules may name.
const (
	RunStarted        = "run.started"
	RunCompleted      = "run.completed"
	RunFailed         = "run.failed"
	RunPartial        = "run.partial" // failed, and can be resumed
	RunPaused         = "run.paused"
	RunCanceled       = "run.canceled"
	RunNoProgress     = "run.no_progress"
	ResourceCompleted = "resource.completed"
	ResourceFailed    = "resource.failed"
	RowsSetAside      = "rows.set_aside"
	SchemaChanged     = "schema.changed"
	PipelineStale     = "pipeline.stale"
	ScheduleParked    = "schedule.parked"
	ScheduleSkipped   = "schedule.skipped"
	ScheduleBlocked   = "schedule.blocked" // it waits for a paused run
	ScheduleFailed    = "schedule.failed"
)

// AttemptStarted is an event that no rule may name; it lets rules look in time at
// a run that goes on.
const AttemptStarted = "attempt.started"

// EventTypes are all events that a rule may name.
func EventTypes() []string {
	return []string{
		RunStarted, RunCompleted, RunFailed, RunPartial, RunPaused, RunCanceled, RunNoProgress,
		ResourceCompleted, ResourceFailed, RowsSetAside, SchemaChanged,
		PipelineStale, ScheduleParked, ScheduleSkipped, ScheduleBlocked, ScheduleFailed,
	}
}

// Event is something that happened in an organization.
type Event struct {
	Type string
	// Key names the event within its organization: it is the same however often
	// the event is found.
	Key string
	At  time.Time
	// Pipeline, Run and Fact (its number) are what it is about; zero: nothing.
	Pipeline     uuid.UUID
	PipelineName string
	Run          uuid.UUID
	Fact         int64
	// Resources are those it is about; none: it is about no resource in particular.
	Resources []string
	// Message is a sentence for a person, without secrets (invariant 10).
	Message string
	// Data is a JSON object with more; nil: none.
	Data json.RawMessage
}

// Payload is what receivers get of an event, in the form of Standard Webhooks.
func (e Event) Payload(organization uuid.UUID) (json.RawMessage, error) {
	data := map[string]any{"organization_id": organization, "message": e.Message}
	if e.Pipeline != uuid.Nil {
		data["pipeline_id"] = e.Pipeline
	}
	if e.PipelineName != "" {
		data["pipeline"] = e.PipelineName
	}
	if e.Run != uuid.Nil {
		data["run_id"] = e.Run
	}
	if e.Fact != 0 {
		data["fact"] = e.Fact
	}
	if len(e.Resources) > 0 {
		data["resources"] = e.Resources
	}
	if e.Data != nil {
		data["details"] = e.Data
	}
	return json.Marshal(map[string]any{"type": e.Type, "timestamp": e.At.UTC(), "data": data})
}
