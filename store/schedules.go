package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/schedules"
	"github.com/tranship-io/tranship/store/internal/db"
)

// Schedules implements the ports of package schedules.
type Schedules struct{ db *DB }

var (
	_ schedules.Store  = (*Schedules)(nil)
	_ schedules.Ledger = (*Schedules)(nil)
	_ schedules.Wakes  = (*Schedules)(nil)
)

// Schedules returns the store of schedules.
func (d *DB) Schedules() *Schedules { return &Schedules{d} }

// CreateSchedule implements [schedules.Store].
func (s *Schedules) CreateSchedule(ctx context.Context, a control.Actor, made schedules.Schedule) (out schedules.Schedule, err error) {
	err = s.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		id, first, err := once(ctx, tx, "schedule", made.ID)
		if err != nil {
			return err
		}
		if !first {
			row, err := tx.Q().GetSchedule(ctx, db.GetScheduleParams{Organization: a.Organization, ID: id})
			if err != nil {
				return scheduleError(err, id)
			}
			out, err = named(ctx, tx, row)
			return err
		}
		r, err := rowOf(made)
		if err != nil {
			return err
		}
		row, err := tx.Q().InsertSchedule(ctx, db.InsertScheduleParams{
			Organization: a.Organization, ID: made.ID, Name: r.Name, Pipeline: r.Pipeline,
			Cron: r.Cron, EverySeconds: r.EverySeconds, OnceAt: r.OnceAt, TimeZone: r.TimeZone, Anchor: r.Anchor,
			JitterSeconds: r.JitterSeconds, Overlap: r.Overlap, CatchUp: r.CatchUp, CatchUpLimit: r.CatchUpLimit,
			Options: r.Options, State: r.State, Reason: r.Reason, NextInstant: r.NextInstant, NextAt: r.NextAt,
		})
		if err != nil {
			return scheduleWriteError(err, made)
		}
		if out, err = named(ctx, tx, row); err != nil {
			return err
		}
		tx.Hint(Hint{Kind: HintSchedule, Organization: a.Organization, Object: out.ID})
		if !out.NextAt.IsZero() {
			if err := moved(ctx, tx, out.ID, 0, row.Revision); err != nil {
				return err
			}
		}
		return auditSchedule(ctx, tx, a, "schedule.create", nil, &out)
	})
	return out, err
}

// UpdateSchedule implements [schedules.Store].
func (s *Schedules) UpdateSchedule(ctx context.Context, a control.Actor, action string, made schedules.Schedule) (out schedules.Schedule, err error) {
	err = s.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		before, revision, err := lockSchedule(ctx, tx, made.ID, made.Version)
		if err != nil {
			return err
		}
		r, err := rowOf(made)
		if err != nil {
			return err
		}
		row, err := tx.Q().UpdateSchedule(ctx, db.UpdateScheduleParams{
			Organization: a.Organization, ID: made.ID, Name: r.Name, Pipeline: r.Pipeline,
			Cron: r.Cron, EverySeconds: r.EverySeconds, OnceAt: r.OnceAt, TimeZone: r.TimeZone, Anchor: r.Anchor,
			JitterSeconds: r.JitterSeconds, Overlap: r.Overlap, CatchUp: r.CatchUp, CatchUpLimit: r.CatchUpLimit,
			Options: r.Options, State: r.State, Reason: r.Reason, NextInstant: r.NextInstant, NextAt: r.NextAt,
		})
		if err != nil {
			return scheduleWriteError(err, made)
		}
		if out, err = named(ctx, tx, row); err != nil {
			return err
		}
		tx.Hint(Hint{Kind: HintSchedule, Organization: a.Organization, Object: out.ID})
		if err := moved(ctx, tx, out.ID, revision, row.Revision); err != nil {
			return err
		}
		return auditSchedule(ctx, tx, a, action, &before, &out)
	})
	return out, err
}

// DeleteSchedule implements [schedules.Store].
func (s *Schedules) DeleteSchedule(ctx context.Context, a control.Actor, id uuid.UUID, version int64) error {
	return s.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		before, revision, err := lockSchedule(ctx, tx, id, version)
		if err != nil {
			return err
		}
		now, err := tx.Q().DeleteSchedule(ctx, db.DeleteScheduleParams{Organization: a.Organization, ID: id})
		if err != nil {
			return err
		}
		if err := moved(ctx, tx, id, revision, now); err != nil {
			return err
		}
		if err := tx.Q().DropOccurrences(ctx, db.DropOccurrencesParams{Organization: a.Organization, Schedule: id}); err != nil {
			return err
		}
		return auditSchedule(ctx, tx, a, "schedule.delete", &before, nil)
	})
}

// lockSchedule locks a schedule at a version (0: whatever stands), and returns it
// with its revision.
func lockSchedule(ctx context.Context, tx Tx, id uuid.UUID, version int64) (schedules.Schedule, int64, error) {
	row, err := tx.Q().LockSchedule(ctx, db.LockScheduleParams{Organization: tx.Organization(), ID: id})
	if err != nil {
		return schedules.Schedule{}, 0, scheduleError(err, id)
	}
	if version != 0 && row.Version != version {
		return schedules.Schedule{}, 0, &control.StaleVersionError{Kind: "schedule", Ref: id.String(), Given: version, Current: row.Version}
	}
	s, err := scheduleOf(row)
	return s, row.Revision, err
}

// GetSchedule implements [schedules.Store].
func (s *Schedules) GetSchedule(ctx context.Context, a control.Actor, id uuid.UUID) (out schedules.Schedule, err error) {
	err = s.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		row, err := tx.Q().GetSchedule(ctx, db.GetScheduleParams{Organization: a.Organization, ID: id})
		if err != nil {
			return scheduleError(err, id)
		}
		out, err = named(ctx, tx, row)
		return err
	})
	return out, err
}

// ListSchedules implements [schedules.Store].
func (s *Schedules) ListSchedules(ctx context.Context, a control.Actor, f schedules.Filter, p control.Page) (out control.List[schedules.Schedule], err error) {
	const kind = "schedules"
	params := db.ListSchedulesParams{Organization: a.Organization, Pipeline: optional(f.Pipeline), Count: int32(p.Size() + 1)}
	if _, err := control.DecodeCursor(kind, p.After, &params.After); err != nil {
		return out, err
	}
	if f.State != "" {
		state := string(f.State)
		params.State = &state
	}
	err = s.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().ListSchedules(ctx, params)
		if err != nil {
			return err
		}
		found, err := each(rows, scheduleOf)
		if err != nil {
			return err
		}
		if err := nameSchedules(ctx, tx, found); err != nil {
			return err
		}
		out = control.PageOf(kind, p, found, func(s schedules.Schedule) any { return s.ID })
		return err
	})
	return out, err
}

// nameSchedules fills in the names of pipelines.
func nameSchedules(ctx context.Context, tx Tx, list []schedules.Schedule) error {
	ids := make([]uuid.UUID, len(list))
	for i, s := range list {
		ids[i] = s.Pipeline
	}
	names, err := pipelineNames(ctx, tx, ids...)
	for i, s := range list {
		list[i].PipelineName = names[s.Pipeline]
	}
	return err
}

// named reads a schedule's row with its pipeline's name.
func named(ctx context.Context, tx Tx, row db.Schedule) (schedules.Schedule, error) {
	s, err := scheduleOf(row)
	if err != nil {
		return s, err
	}
	list := []schedules.Schedule{s}
	err = nameSchedules(ctx, tx, list)
	return list[0], err
}

// ListOccurrences implements [schedules.Store].
func (s *Schedules) ListOccurrences(ctx context.Context, a control.Actor, schedule uuid.UUID, p control.Page) (out control.List[schedules.Occurrence], err error) {
	const kind = "occurrences"
	params := db.ListOccurrencesParams{Organization: a.Organization, Schedule: schedule, Before: endOfTime, Count: int32(p.Size() + 1)}
	if _, err := control.DecodeCursor(kind, p.After, &params.Before); err != nil {
		return out, err
	}
	err = s.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().ListOccurrences(ctx, params)
		if err != nil {
			return err
		}
		found, err := each(rows, occurrenceOf)
		out = control.PageOf(kind, p, found, func(o schedules.Occurrence) any { return o.Instant })
		return err
	})
	return out, err
}

func scheduleError(err error, id uuid.UUID) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return &control.NotFoundError{Kind: "schedule", Ref: id.String()}
	}
	return err
}

func scheduleWriteError(err error, s schedules.Schedule) error {
	switch code(err) {
	case uniqueViolation:
		return &control.ConflictError{
			Code: "name_taken", Message: fmt.Sprintf("the pipeline has a schedule %q already", s.Name),
			Hint: "choose another name, or change that one",
		}
	case foreignKeyViolation:
		return &control.NotFoundError{Kind: "pipeline", Ref: s.Pipeline.String()}
	}
	return err
}

func auditSchedule(ctx context.Context, tx Tx, a control.Actor, action string, before, after *schedules.Schedule) error {
	e := control.AuditEntry{Actor: a, Action: action, Kind: "schedule"}
	for _, side := range []struct {
		s    *schedules.Schedule
		into *json.RawMessage
	}{{before, &e.Before}, {after, &e.After}} {
		if side.s == nil {
			continue
		}
		e.Object = side.s.ID
		text, err := json.Marshal(scheduleDocument(*side.s))
		if err != nil {
			return err
		}
		*side.into = text
	}
	return audit(ctx, tx, e)
}

// scheduleDocument is a schedule as the audit log shows it.
func scheduleDocument(s schedules.Schedule) map[string]any {
	doc := map[string]any{
		"name": s.Name, "pipeline": s.Pipeline, "overlap": s.Overlap, "catch_up": s.CatchUp, "catch_up_limit": s.CatchUpLimit,
		"state": s.State, "version": s.Version, "options": s.Options, "jitter": s.Timing.Jitter.String(),
	}
	switch t := s.Timing; {
	case t.Cron != "":
		doc["cron"], doc["time_zone"] = t.Cron, t.Zone
	case t.Every != 0:
		doc["interval"], doc["anchor"] = t.Every.String(), t.Anchor
	default:
		doc["at"] = t.At
	}
	if s.Reason != "" {
		doc["reason"] = s.Reason
	}
	return doc
}

// rowOf returns the columns that a schedule's user decides.
func rowOf(s schedules.Schedule) (db.Schedule, error) {
	options, err := json.Marshal(s.Options)
	r := db.Schedule{
		Name: s.Name, Pipeline: s.Pipeline, TimeZone: s.Timing.Zone, OnceAt: orNull(s.Timing.At), Anchor: orNull(s.Timing.Anchor),
		JitterSeconds: int64(s.Timing.Jitter / time.Second), Overlap: string(s.Overlap), CatchUp: string(s.CatchUp),
		CatchUpLimit: int32(s.CatchUpLimit), Options: options, State: string(s.State), Reason: s.Reason,
		NextInstant: orNull(s.NextInstant), NextAt: orNull(s.NextAt),
	}
	if s.Timing.Cron != "" {
		r.Cron = &s.Timing.Cron
	}
	if s.Timing.Every != 0 {
		seconds := int64(s.Timing.Every / time.Second)
		r.EverySeconds = &seconds
	}
	return r, err
}

func scheduleOf(r db.Schedule) (schedules.Schedule, error) {
	s := schedules.Schedule{
		ID: r.ID, Name: r.Name, Pipeline: r.Pipeline,
		Timing: schedules.Timing{
			Zone: r.TimeZone, At: moment(r.OnceAt), Anchor: moment(r.Anchor), Jitter: time.Duration(r.JitterSeconds) * time.Second,
		},
		Overlap: schedules.Overlap(r.Overlap), CatchUp: schedules.CatchUp(r.CatchUp), CatchUpLimit: int(r.CatchUpLimit),
		State: schedules.State(r.State), Reason: r.Reason, Version: r.Version,
		NextInstant: moment(r.NextInstant), NextAt: moment(r.NextAt), LastInstant: moment(r.LastInstant),
		CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
	}
	if r.Cron != nil {
		s.Timing.Cron = *r.Cron
	}
	if r.EverySeconds != nil {
		s.Timing.Every = time.Duration(*r.EverySeconds) * time.Second
	}
	if err := json.Unmarshal(r.Options, &s.Options); err != nil {
		return s, fmt.Errorf("read options of schedule %s: %w", r.ID, err)
	}
	return s, nil
}

func occurrenceOf(r db.ScheduleOccurrence) (schedules.Occurrence, error) {
	o := schedules.Occurrence{
		Schedule: r.Schedule, Instant: r.Instant.UTC(), State: schedules.OccurrenceState(r.State), Reason: r.Reason, Detail: r.Detail,
		Missed: int(r.Missed), CatchingUp: r.CatchingUp, Runs: r.Runs, Tries: int(r.Tries), DueAt: moment(r.DueAt),
		CreatedAt: r.CreatedAt.UTC(), ConcludedAt: moment(r.ConcludedAt),
	}
	if err := json.Unmarshal(r.Busy, &o.Busy); err != nil {
		return o, fmt.Errorf("read occurrence %s of schedule %s: %w", o.Instant, r.Schedule, err)
	}
	return o, nil
}
