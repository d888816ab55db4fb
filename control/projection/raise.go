package projection

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/events"
)

// maxNamed bounds the resources that an event names.
const maxNamed = 1000

// raise finds the event that a fact is for notification rules.
func (s folding) raise(p events.Payload) error {
	if s.f.Number <= s.r.Muted {
		return nil
	}
	e := notify.Event{Resources: s.named("")}
	details := map[string]any{"route": s.r.Route}
	switch p := p.(type) {
	case *events.AttemptStarted:
		e.Type, e.Resources = notify.AttemptStarted, nil
	case *events.RunStarted:
		e.Type, e.Message = notify.RunStarted, "started"
	case *events.RunCompleted:
		e.Type = notify.RunCompleted
		e.Message = fmt.Sprintf("completed: %d rows read, %d written", p.RowsRead, p.RowsWritten)
		details["rows_read"], details["rows_written"], details["milliseconds"] = p.RowsRead, p.RowsWritten, p.Millis
		details["bytes"] = s.r.Bytes
	case *events.RunFailed:
		e.Type, e.Message = notify.RunFailed, "failed: "+p.Error
		if p.Resumable {
			e.Type, e.Message = notify.RunPartial, "failed and can be resumed: "+p.Error
		}
		if p.Hint != "" {
			e.Message += " (" + p.Hint + ")"
		}
		details["class"], details["error"], details["hint"], details["resumable"] = p.Class, p.Error, p.Hint, p.Resumable
		if failed := s.named("failed"); len(failed) > 0 {
			e.Resources = failed
		}
	case *events.RunPaused:
		e.Type, e.Message = notify.RunPaused, "is paused: "+p.Reason
	case *events.RunCanceled:
		e.Type, e.Message = notify.RunCanceled, "was canceled: "+p.Reason
	case *events.ResourceCompleted:
		e.Type, e.Resources = notify.ResourceCompleted, []string{p.Resource}
		e.Message = fmt.Sprintf("has published %s: %d rows read, %d written", p.Resource, p.Read, p.Applied)
		details["rows_read"], details["rows_written"], details["bytes"] = p.Read, p.Applied, p.Bytes
	case *events.ResourceFailed:
		e.Type, e.Resources = notify.ResourceFailed, []string{p.Resource}
		e.Message = fmt.Sprintf("cannot go on with %s: %s", p.Resource, p.Error)
		details["error"] = p.Error
	case *events.RowsSetAside:
		e.Type, e.Resources = notify.RowsSetAside, []string{p.Resource}
		e.Message = fmt.Sprintf("has set %d rows of %s aside: %s", p.Rows, p.Resource, p.Reason)
		details["rows"], details["column"], details["reason"], details["place"] = p.Rows, p.Column, p.Reason, p.Place
	case *events.SchemaChanged:
		e.Type, e.Resources = notify.SchemaChanged, []string{p.Resource}
		e.Message = fmt.Sprintf("has changed the destination of %s: %s", p.Resource, p.Statement)
		details["statement"] = p.Statement
	default:
		return nil
	}
	data, err := json.Marshal(details)
	if err != nil {
		return fmt.Errorf("encode event of fact %d of run %s: %w", s.f.Number, s.r.ID, err)
	}
	r := s.r
	e.Key = fmt.Sprintf("fact/%s/%d", r.ID, s.f.Number)
	e.At, e.Pipeline, e.PipelineName, e.Run, e.Fact = s.f.At, r.Pipeline, r.PipelineName, r.ID, s.f.Number
	e.Message = fmt.Sprintf("run %s of pipeline %q %s", r.ID, r.PipelineName, e.Message)
	e.Data = data
	s.b.Events = append(s.b.Events, e)
	return nil
}

// named lists the run's resources in a state, or all, sorted.
func (s folding) named(state string) []string {
	var out []string
	for name, res := range s.res {
		if state == "" || res.State == state {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), maxNamed)]
}
