package schedules

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/events"
)

// Alert asks the notification rules of an organization to tell of something that
// happened to a schedule.
type Alert struct {
	// Type is one of package notify's schedule events.
	Type string
	// Run is the open run that is in the way; uuid.Nil: none.
	Run uuid.UUID
	// Reason is why the occurrence was skipped, as in the occurrence.
	Reason string
	// Message is a sentence for a person.
	Message string
}

func alertOf(typ string, s Schedule, o Occurrence, run uuid.UUID) *Alert {
	what := map[string]string{
		notify.ScheduleSkipped: "was skipped", notify.ScheduleBlocked: "waits", notify.ScheduleFailed: "could not be started",
	}[typ]
	return &Alert{Type: typ, Run: run, Reason: o.Reason, Message: fmt.Sprintf("the occurrence of %s of schedule %q %s: %s",
		o.Instant.UTC().Format(time.RFC3339), s.Name, what, o.Detail)}
}

// partAlert tells of routes that were left out because their run is paused.
func partAlert(s Schedule, o Occurrence) *Alert {
	if len(o.Busy) == 0 {
		return nil
	}
	b := inTheWay(o.Busy)
	if b.State != paused {
		return nil
	}
	o.Detail, o.Reason = fmt.Sprintf("run %s of route %s is paused", b.Run, b.Route), ReasonPausedRun
	return alertOf(notify.ScheduleSkipped, s, o, b.Run)
}

// MissedAlert tells of an occurrence that nothing could fire in time.
func MissedAlert(s Schedule, o Occurrence) *Alert {
	o.Detail = "nothing could fire it in time"
	if o.Missed > 0 {
		o.Detail += fmt.Sprintf(", nor %d before it", o.Missed)
	}
	return alertOf(notify.ScheduleSkipped, s, o, uuid.Nil)
}

// ParkedAlert tells that a schedule was parked.
func ParkedAlert(s Schedule) *Alert {
	return &Alert{Type: notify.ScheduleParked, Message: fmt.Sprintf("schedule %q is parked and fires no more: %s", s.Name, s.Reason)}
}

// QueueFull is what becomes of an occurrence for which there is no place to wait,
// and its alert.
func QueueFull(o Occurrence, now time.Time) (Occurrence, *Alert) {
	o = skipped(o, ReasonQueueFull, o.Detail+", and as many occurrences as may wait do so already", now)
	return o, &Alert{Type: notify.ScheduleSkipped, Run: inTheWay(o.Busy).Run, Reason: o.Reason, Message: o.Detail}
}

// Fact is what the run in the way is told: that it made an occurrence be skipped;
// nil if the alert is about something else.
func (a *Alert) Fact(s Schedule, at time.Time) events.Payload {
	if a.Type != notify.ScheduleSkipped || a.Run == uuid.Nil {
		return nil
	}
	return events.OccurrenceSkipped{ScheduleID: s.ID.String(), Schedule: s.Name, Instant: at.UTC(), Reason: a.Reason}
}

// Event returns the alert as an event; the same alert of the same schedule and
// time is the same event, however often it is raised.
func (a *Alert) Event(s Schedule, at, now time.Time) notify.Event {
	data := fmt.Appendf(nil, `{"schedule_id":"%s","schedule":%s,"instant":%q}`, s.ID, quoted(s.Name), at.UTC().Format(time.RFC3339Nano))
	return notify.Event{
		Type: a.Type, Key: fmt.Sprintf("%s/%s/%s", a.Type, s.ID, at.UTC().Format(time.RFC3339Nano)), At: now.UTC(),
		Pipeline: s.Pipeline, Run: a.Run, Message: a.Message, Data: data,
	}
}

// quoted is a text as JSON.
func quoted(text string) string {
	out, err := json.Marshal(text)
	if err != nil {
		return `""`
	}
	return string(out)
}
