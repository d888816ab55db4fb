package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/control/schedules"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
	"github.com/tranship-io/tranship/store/internal/db"
)

// NextDue implements [schedules.Ledger].
func (s *Schedules) NextDue(ctx context.Context, after time.Time) (time.Time, error) {
	return s.db.earliest(ctx, after,
		func(tx Tx) func(context.Context, time.Time) ([]time.Time, error) { return tx.Q().NextScheduleDue },
		func(tx Tx) func(context.Context, time.Time) ([]time.Time, error) { return tx.Q().NextOccurrenceDue })
}

// DueSchedules implements [schedules.Ledger].
func (s *Schedules) DueSchedules(ctx context.Context, now time.Time, limit int) (out []schedules.Ref, err error) {
	err = s.db.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().DueSchedules(ctx, db.DueSchedulesParams{Now: now, Count: int32(limit)})
		out = nil
		for _, r := range rows {
			out = append(out, schedules.Ref{Organization: r.Organization, Schedule: r.ID})
		}
		return err
	})
	return out, err
}

// DueOccurrences implements [schedules.Ledger].
func (s *Schedules) DueOccurrences(ctx context.Context, now time.Time, limit int) (out []schedules.OccurrenceRef, err error) {
	err = s.db.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().DueOccurrences(ctx, db.DueOccurrencesParams{Now: now, Count: int32(limit)})
		out = nil
		for _, r := range rows {
			out = append(out, schedules.OccurrenceRef{
				Ref: schedules.Ref{Organization: r.Organization, Schedule: r.Schedule}, Instant: r.Instant.UTC(),
			})
		}
		return err
	})
	return out, err
}

// DueOccurrencesOf implements [schedules.Ledger].
func (s *Schedules) DueOccurrencesOf(ctx context.Context, r schedules.Ref, now time.Time, limit int) (out []schedules.OccurrenceRef, err error) {
	err = s.db.Tx(ctx, r.Organization, func(ctx context.Context, tx Tx) error {
		instants, err := tx.Q().DueOccurrencesOf(ctx, db.DueOccurrencesOfParams{Organization: r.Organization, Schedule: r.Schedule, Now: now, Count: int32(limit)})
		out = nil
		for _, at := range instants {
			out = append(out, schedules.OccurrenceRef{Ref: r, Instant: at.UTC()})
		}
		return err
	})
	return out, err
}

// Advance implements [schedules.Ledger].
func (s *Schedules) Advance(ctx context.Context, r schedules.Ref, now time.Time, decide func(schedules.Schedule) (schedules.Step, error)) error {
	return s.db.Tx(ctx, r.Organization, func(ctx context.Context, tx Tx) error {
		q := tx.Q()
		row, err := q.LockSchedule(ctx, db.LockScheduleParams{Organization: r.Organization, ID: r.Schedule})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if row.NextAt == nil || row.NextAt.After(now) {
			return nil
		}
		stored, err := scheduleOf(row)
		if err != nil {
			return err
		}
		step, err := decide(stored)
		if err != nil {
			return err
		}
		last := stored.LastInstant
		for _, o := range step.Occurrences {
			last = o.Instant
			if err := insertOccurrence(ctx, tx, stored, o, now); err != nil {
				return err
			}
		}
		revision, err := q.AdvanceSchedule(ctx, db.AdvanceScheduleParams{
			Organization: r.Organization, ID: r.Schedule, State: string(step.State),
			NextInstant: orNull(step.NextInstant), NextAt: orNull(step.NextAt), LastInstant: orNull(last),
		})
		if err != nil {
			return err
		}
		return moved(ctx, tx, r.Schedule, row.Revision, revision)
	})
}

func insertOccurrence(ctx context.Context, tx Tx, s schedules.Schedule, o schedules.Occurrence, now time.Time) error {
	n, err := tx.Q().InsertOccurrence(ctx, db.InsertOccurrenceParams{
		Organization: tx.Organization(), Schedule: s.ID, Instant: o.Instant, Pipeline: s.Pipeline, State: string(o.State),
		Reason: o.Reason, Detail: o.Detail, Missed: int32(o.Missed), CatchingUp: o.CatchingUp,
		DueAt: orNull(o.DueAt), ConcludedAt: orNull(o.ConcludedAt),
	})
	if err != nil || n == 0 {
		return err
	}
	if o.State == schedules.OccurrenceDue {
		tx.owe()
	}
	if o.State != schedules.OccurrenceSkipped {
		return nil
	}
	return raise(ctx, tx, schedules.MissedAlert(s, o).Event(s, o.Instant, now))
}

// Park implements [schedules.Ledger].
func (s *Schedules) Park(ctx context.Context, r schedules.Ref, reason string, now time.Time) error {
	return s.db.Tx(ctx, r.Organization, func(ctx context.Context, tx Tx) error {
		row, err := tx.Q().ParkSchedule(ctx, db.ParkScheduleParams{Organization: r.Organization, ID: r.Schedule, Reason: reason})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		parked, err := scheduleOf(row)
		if err != nil {
			return err
		}
		if err := moved(ctx, tx, r.Schedule, row.Revision-1, row.Revision); err != nil {
			return err
		}
		return raise(ctx, tx, schedules.ParkedAlert(parked).Event(parked, now, now))
	})
}

// Claim implements [schedules.Ledger].
func (s *Schedules) Claim(ctx context.Context, r schedules.OccurrenceRef, now, until time.Time) (o schedules.Occurrence, of schedules.Schedule, claimed bool, err error) {
	err = s.db.Tx(ctx, r.Organization, func(ctx context.Context, tx Tx) error {
		claimed = false
		q := tx.Q()
		row, err := q.ClaimOccurrence(ctx, db.ClaimOccurrenceParams{
			Organization: r.Organization, Schedule: r.Schedule, Instant: r.Instant, Now: now, Until: until,
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		schedule, err := q.GetSchedule(ctx, db.GetScheduleParams{Organization: r.Organization, ID: r.Schedule})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if of, err = scheduleOf(schedule); err != nil {
			return err
		}
		o, err = occurrenceOf(row)
		claimed = err == nil
		return err
	})
	return o, of, claimed, err
}

// Conclude implements [schedules.Ledger].
func (s *Schedules) Conclude(ctx context.Context, r schedules.OccurrenceRef, o schedules.Occurrence, queueLimit int, alert *schedules.Alert, now time.Time) error {
	return s.db.Tx(ctx, r.Organization, func(ctx context.Context, tx Tx) error {
		q, o, alert := tx.Q(), o, alert
		row, err := q.LockOccurrence(ctx, db.LockOccurrenceParams{Organization: r.Organization, Schedule: r.Schedule, Instant: r.Instant})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if o.State == schedules.OccurrenceQueued {
			if o, alert, err = queueOccurrence(ctx, tx, row, o, alert, queueLimit, now); err != nil {
				return err
			}
		}
		busy, err := json.Marshal(o.Busy)
		if err != nil {
			return err
		}
		if o.Busy == nil {
			busy = []byte("[]")
		}
		if o.Runs == nil {
			o.Runs = []uuid.UUID{}
		}
		params := db.ConcludeOccurrenceParams{
			Organization: r.Organization, Schedule: r.Schedule, Instant: r.Instant, State: string(o.State), Reason: o.Reason,
			Detail: o.Detail, Runs: o.Runs, Busy: busy, ConcludedAt: orNull(o.ConcludedAt),
		}
		if o.State == schedules.OccurrenceDue {
			params.DueAt = orNull(o.DueAt)
			tx.owe()
			tx.Hint(Hint{Kind: HintSchedule, Organization: r.Organization, Object: r.Schedule})
		}
		if err := q.ConcludeOccurrence(ctx, params); err != nil || alert == nil {
			return err
		}
		stored, err := q.GetSchedule(ctx, db.GetScheduleParams{Organization: r.Organization, ID: r.Schedule})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		of, err := scheduleOf(stored)
		if err != nil {
			return err
		}
		told, err := tellRun(ctx, tx, alert.Run, alert.Fact(of, r.Instant))
		if err != nil {
			return err
		}
		if err := raise(ctx, tx, alert.Event(of, r.Instant, now)); err != nil || !told {
			return err
		}
		return arm(ctx, tx)
	})
}

// tellRun adds a fact, unless it is nil, to a run that is open: one that is over
// has told all.
func tellRun(ctx context.Context, tx Tx, run uuid.UUID, p events.Payload) (bool, error) {
	if p == nil {
		return false, nil
	}
	state, err := tx.Q().LockControlRun(ctx, run)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil || !runs.Active(engine.RunState(state)) {
		return false, err
	}
	tx.Hint(Hint{Kind: HintFacts, Organization: tx.Organization(), Object: run})
	return true, tx.AddFact(ctx, run, p)
}

// queueOccurrence decides about an occurrence that found its pipeline busy. The
// lock is the one that Release takes: either this sees that the run has ended, or
// that Release, which comes after the run's end, sees this one queued.
func queueOccurrence(ctx context.Context, tx Tx, row db.ScheduleOccurrence, o schedules.Occurrence, alert *schedules.Alert, limit int, now time.Time) (schedules.Occurrence, *schedules.Alert, error) {
	q := tx.Q()
	if err := q.LockPipelineQueue(ctx, db.LockPipelineQueueParams{Organization: row.Organization, Pipeline: row.Pipeline}); err != nil {
		return o, nil, err
	}
	open, err := q.HasOpenRun(ctx, db.HasOpenRunParams{Organization: row.Organization, Pipeline: row.Pipeline})
	if err != nil {
		return o, nil, err
	}
	if !open {
		o.State, o.DueAt = schedules.OccurrenceDue, now
		return o, nil, nil
	}
	waiting, err := q.CountQueued(ctx, db.CountQueuedParams{
		Organization: row.Organization, Pipeline: row.Pipeline, Schedule: row.Schedule, CatchingUp: row.CatchingUp,
	})
	if err != nil {
		return o, nil, err
	}
	if waiting >= int64(limit) {
		o, alert = schedules.QueueFull(o, now)
	}
	return o, alert, nil
}

// Release implements [schedules.Ledger].
func (s *Schedules) Release(ctx context.Context, organization, pipeline uuid.UUID, now time.Time) (released bool, err error) {
	err = s.db.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		q := tx.Q()
		if err := q.LockPipelineQueue(ctx, db.LockPipelineQueueParams{Organization: organization, Pipeline: pipeline}); err != nil {
			return err
		}
		rows, err := q.ReleaseOccurrences(ctx, db.ReleaseOccurrencesParams{Organization: organization, Pipeline: pipeline, Now: now})
		if err != nil {
			return err
		}
		if released = len(rows) > 0; released {
			tx.owe()
		}
		for _, r := range rows {
			tx.Hint(Hint{Kind: HintSchedule, Organization: organization, Object: r.Schedule})
		}
		return nil
	})
	return released, err
}
