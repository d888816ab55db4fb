package server

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/api/internal/rest"
	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/schedules"
)

// durationOf reads a duration; an empty text is 0.
func durationOf(path, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, control.Invalid(path, "write a number with a unit, such as 90s, 15m or 24h", "%q is no duration", text)
	}
	return d, nil
}

// durationText is a duration as the API writes it; empty for 0.
func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func scheduleOf(s schedules.Schedule) rest.Schedule {
	out := rest.Schedule{
		Id: s.ID, Name: s.Name, Pipeline: s.PipelineName, PipelineId: s.Pipeline, State: rest.ScheduleState(s.State), Reason: s.Reason,
		Cron: s.Timing.Cron, Interval: durationText(s.Timing.Every), Anchor: s.Timing.Anchor, At: s.Timing.At, TimeZone: "UTC",
		Overlap: rest.OverlapPolicy(s.Overlap), CatchUp: rest.CatchUpPolicy(s.CatchUp), CatchUpLimit: s.CatchUpLimit,
		Jitter: durationText(s.Timing.Jitter), Options: rest.RunOptions{FullRefresh: s.Options.FullRefresh, Only: s.Options.Only},
		NextAt: s.NextAt, LastAt: s.LastInstant, Version: s.Version, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}
	if s.Timing.Zone != "" {
		out.TimeZone = s.Timing.Zone
	}
	return out
}

// draft reads what a user says of a schedule.
func (o *operations) draft(ctx context.Context, in rest.ScheduleInput) (d schedules.Draft, err error) {
	d = schedules.Draft{
		Name: in.Name, Timing: schedules.Timing{Cron: in.Cron, Zone: in.TimeZone, Anchor: in.Anchor, At: in.At},
		Overlap: schedules.Overlap(in.Overlap), CatchUp: schedules.CatchUp(in.CatchUp), CatchUpLimit: in.CatchUpLimit, Paused: in.Paused,
		Options: schedules.Options{FullRefresh: in.Options.FullRefresh, Only: in.Options.Only},
	}
	if d.Timing.Every, err = durationOf("interval", in.Interval); err != nil {
		return d, err
	}
	if d.Timing.Jitter, err = durationOf("jitter", in.Jitter); err != nil {
		return d, err
	}
	if d.Timing.Cron == "" && d.Timing.Zone == "UTC" {
		// What a schedule is shown with can be sent back.
		d.Timing.Zone = ""
	}
	d.Pipeline, err = o.Schedules.PipelineID(ctx, actorOf(ctx), in.Pipeline)
	return d, err
}

// ListSchedules lists schedules.
func (o *operations) ListSchedules(ctx context.Context, r rest.ListSchedulesRequestObject) (rest.ListSchedulesResponseObject, error) {
	pipeline, err := o.Schedules.PipelineID(ctx, actorOf(ctx), r.Params.Pipeline)
	if err != nil {
		return nil, err
	}
	l, err := o.Schedules.List(ctx, actorOf(ctx), schedules.Filter{Pipeline: pipeline, State: schedules.State(r.Params.State)}, page(r.Params.Limit, r.Params.After))
	if err != nil {
		return nil, err
	}
	return rest.ListSchedules200JSONResponse{Items: each(l.Items, scheduleOf), Next: next(l.Next)}, nil
}

// CreateSchedule makes a schedule.
func (o *operations) CreateSchedule(ctx context.Context, r rest.CreateScheduleRequestObject) (rest.CreateScheduleResponseObject, error) {
	d, err := o.draft(ctx, *r.Body)
	if err != nil {
		return nil, err
	}
	s, err := o.Schedules.Create(ctx, actorOf(ctx), d)
	if err != nil {
		return nil, err
	}
	return rest.CreateSchedule201JSONResponse(scheduleOf(s)), nil
}

// GetSchedule answers with a schedule.
func (o *operations) GetSchedule(ctx context.Context, r rest.GetScheduleRequestObject) (rest.GetScheduleResponseObject, error) {
	s, err := o.Schedules.Get(ctx, actorOf(ctx), r.Id)
	if err != nil {
		return nil, err
	}
	return rest.GetSchedule200JSONResponse(scheduleOf(s)), nil
}

// UpdateSchedule replaces a schedule.
func (o *operations) UpdateSchedule(ctx context.Context, r rest.UpdateScheduleRequestObject) (rest.UpdateScheduleResponseObject, error) {
	d, err := o.draft(ctx, *r.Body)
	if err != nil {
		return nil, err
	}
	s, err := o.Schedules.Update(ctx, actorOf(ctx), r.Id, ifMatch(r.Params.IfMatch), d)
	if err != nil {
		return nil, err
	}
	return rest.UpdateSchedule200JSONResponse(scheduleOf(s)), nil
}

// DeleteSchedule removes a schedule.
func (o *operations) DeleteSchedule(ctx context.Context, r rest.DeleteScheduleRequestObject) (rest.DeleteScheduleResponseObject, error) {
	if err := o.Schedules.Delete(ctx, actorOf(ctx), r.Id, ifMatch(r.Params.IfMatch)); err != nil {
		return nil, err
	}
	return rest.DeleteSchedule204Response{}, nil
}

// PauseSchedule pauses a schedule.
func (o *operations) PauseSchedule(ctx context.Context, r rest.PauseScheduleRequestObject) (rest.PauseScheduleResponseObject, error) {
	s, err := o.Schedules.Pause(ctx, actorOf(ctx), r.Id, 0)
	if err != nil {
		return nil, err
	}
	return rest.PauseSchedule200JSONResponse(scheduleOf(s)), nil
}

// ResumeSchedule makes a paused or parked schedule active.
func (o *operations) ResumeSchedule(ctx context.Context, r rest.ResumeScheduleRequestObject) (rest.ResumeScheduleResponseObject, error) {
	s, err := o.Schedules.Resume(ctx, actorOf(ctx), r.Id, 0)
	if err != nil {
		return nil, err
	}
	return rest.ResumeSchedule200JSONResponse(scheduleOf(s)), nil
}

// ListNextOccurrences computes the next occurrences of a schedule.
func (o *operations) ListNextOccurrences(ctx context.Context, r rest.ListNextOccurrencesRequestObject) (rest.ListNextOccurrencesResponseObject, error) {
	count := r.Params.Count
	if count == 0 {
		count = 10
	}
	list, err := o.Schedules.Next(ctx, actorOf(ctx), r.Id, count)
	if err != nil {
		return nil, err
	}
	return rest.ListNextOccurrences200JSONResponse{Items: each(list, func(n schedules.Upcoming) rest.NextOccurrence {
		return rest.NextOccurrence{At: n.Instant, FiresAt: n.FiresAt, Local: n.Instant.In(n.Zone).Format("2006-01-02T15:04:05-07:00 MST")}
	})}, nil
}

// ListOccurrences lists what became of a schedule's occurrences.
func (o *operations) ListOccurrences(ctx context.Context, r rest.ListOccurrencesRequestObject) (rest.ListOccurrencesResponseObject, error) {
	l, err := o.Schedules.Occurrences(ctx, actorOf(ctx), r.Id, page(r.Params.Limit, r.Params.After))
	if err != nil {
		return nil, err
	}
	return rest.ListOccurrences200JSONResponse{Items: each(l.Items, func(c schedules.Occurrence) rest.Occurrence {
		out := rest.Occurrence{
			At: c.Instant, State: rest.OccurrenceState(c.State), Reason: c.Reason, Detail: c.Detail, Missed: c.Missed, Tries: c.Tries,
			Runs: append([]uuid.UUID(nil), c.Runs...), DueAt: c.DueAt, ConcludedAt: c.ConcludedAt,
		}
		for _, b := range c.Busy {
			out.Busy = append(out.Busy, rest.BusyRoute{Route: b.Route, Run: b.Run, State: rest.RunState(b.State)})
		}
		return out
	}), Next: next(l.Next)}, nil
}
