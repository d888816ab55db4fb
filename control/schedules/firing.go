package schedules

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/engine"
)

const (
	// batch is how many due rows are taken at once.
	batch = 200
	// parallel is how many schedules are fired side by side, so that one whose
	// start hangs does not hold up the others.
	parallel = 8
	// startTimeout bounds the start of an occurrence's runs; claimTime is how long
	// others leave it alone, and when it is tried again after a crash.
	startTimeout = 30 * time.Second
	claimTime    = 2 * startTimeout
	// maxTries bounds how often an occurrence is started: waits of 1 s doubling to
	// 5 min make about 10 minutes.
	maxTries  = 10
	firstWait = time.Second
	maxWait   = 5 * time.Minute
)

// Firing fires what is due. It is a source of a timer.
type Firing struct {
	Ledger Ledger
	Intake Intake
	Log    *slog.Logger
}

// Next implements the timer's source.
func (f *Firing) Next(ctx context.Context, after time.Time) (time.Time, error) {
	return f.Ledger.NextDue(ctx, after)
}

// Run fires all that is due at the time now. An error tells that something due
// could not be dealt with and should be tried again; everything else was.
func (f *Firing) Run(ctx context.Context, now time.Time) error {
	return errors.Join(f.advance(ctx, now), f.launch(ctx, now))
}

// Fire fires what is due of one schedule, as Run does of all.
func (f *Firing) Fire(ctx context.Context, r Ref, now time.Time) error {
	if err := f.advanceOne(ctx, r, now); err != nil {
		return fmt.Errorf("advance schedule %s: %w", r.Schedule, err)
	}
	return f.launchAll(ctx, now, func() ([]OccurrenceRef, error) { return f.Ledger.DueOccurrencesOf(ctx, r, now, batch) })
}

// advance turns due schedules into due occurrences.
func (f *Firing) advance(ctx context.Context, now time.Time) error {
	var failed []error
	seen := map[Ref]bool{}
	for {
		refs, err := f.Ledger.DueSchedules(ctx, now, batch+len(failed))
		if err != nil {
			return errors.Join(append(failed, err)...)
		}
		fresh := false
		for _, r := range refs {
			if seen[r] {
				continue
			}
			seen[r], fresh = true, true
			if err := f.advanceOne(ctx, r, now); err != nil {
				if ctx.Err() != nil || isUnavailable(err) {
					return errors.Join(append(failed, err)...)
				}
				failed = append(failed, fmt.Errorf("advance schedule %s: %w", r.Schedule, err))
			}
		}
		if !fresh {
			return errors.Join(failed...)
		}
	}
}

func (f *Firing) advanceOne(ctx context.Context, r Ref, now time.Time) error {
	err := f.Ledger.Advance(ctx, r, now, func(s Schedule) (Step, error) { return Advance(s, now) })
	if err == nil || ctx.Err() != nil || isUnavailable(err) {
		return err
	}
	// Whatever it is, trying again at once would end the same way.
	f.Log.WarnContext(ctx, "schedule parked", "organization", r.Organization, "schedule", r.Schedule, "error", err)
	return f.Ledger.Park(ctx, r, err.Error(), now)
}

func (f *Firing) launch(ctx context.Context, now time.Time) error {
	return f.launchAll(ctx, now, func() ([]OccurrenceRef, error) { return f.Ledger.DueOccurrences(ctx, now, batch) })
}

// launchAll starts the runs of due occurrences: schedules side by side, the
// occurrences of one schedule in order.
func (f *Firing) launchAll(ctx context.Context, now time.Time, find func() ([]OccurrenceRef, error)) error {
	tried := map[OccurrenceRef]bool{}
	var failed error
	for {
		refs, err := find()
		if err != nil {
			return errors.Join(failed, err)
		}
		bySchedule := map[Ref][]OccurrenceRef{}
		for _, r := range refs {
			if !tried[r] {
				tried[r] = true
				bySchedule[r.Ref] = append(bySchedule[r.Ref], r)
			}
		}
		if len(bySchedule) == 0 {
			return failed
		}
		var g errgroup.Group
		g.SetLimit(parallel)
		results := make(chan error, len(bySchedule))
		for _, list := range bySchedule {
			g.Go(func() error {
				var errs []error
				for _, r := range list {
					if err := f.launchOne(ctx, r, now); err != nil {
						errs = append(errs, fmt.Errorf("fire %s of schedule %s: %w", r.Instant.Format(time.RFC3339), r.Schedule, err))
						break
					}
				}
				results <- errors.Join(errs...)
				return nil
			})
		}
		_ = g.Wait() // errors travel by the channel, so that all are told
		close(results)
		for err := range results {
			failed = errors.Join(failed, err)
		}
		if ctx.Err() != nil || isUnavailable(failed) {
			return failed
		}
	}
}

func (f *Firing) launchOne(ctx context.Context, r OccurrenceRef, now time.Time) error {
	o, s, claimed, err := f.Ledger.Claim(ctx, r, now, now.Add(claimTime))
	if err != nil || !claimed {
		return err
	}
	startCtx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	started, err := f.Intake.Start(startCtx, control.System(r.Organization), StartRequest{
		Pipeline: s.Pipeline, Key: Key(s.ID, o.Instant), Schedule: s.ID, Instant: o.Instant, Options: s.Options, AllowBusy: s.Overlap == Allow,
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	v := judge(s, o, started, err, now)
	if v.park {
		if err := f.Ledger.Park(ctx, r.Ref, v.o.Detail, now); err != nil {
			return err
		}
	}
	return f.Ledger.Conclude(ctx, r, v.o, v.queueLimit, v.alert, now)
}

// Key is the idempotency key of an occurrence's runs.
func Key(schedule uuid.UUID, instant time.Time) string {
	return "schedule/" + schedule.String() + "/" + instant.UTC().Format(time.RFC3339Nano)
}

// verdict is what becomes of an occurrence.
type verdict struct {
	o          Occurrence
	queueLimit int
	alert      *Alert
	// park: the schedule cannot be used.
	park bool
}

// judge decides by what starting it gave.
func judge(s Schedule, o Occurrence, started Started, err error, now time.Time) verdict {
	var notFound *control.NotFoundError
	var invalid *control.InvalidError
	var forbidden *control.ForbiddenError
	var conflict *control.ConflictError
	switch {
	case err == nil && len(started.Busy) > 0 && len(started.Runs) == 0:
		return judgeBusy(s, o, started.Busy, now)
	case err == nil:
		o.State, o.Reason, o.Detail = OccurrenceFired, "", ""
		o.Runs, o.Busy, o.ConcludedAt = started.Runs, started.Busy, now
		return verdict{o: o, alert: partAlert(s, o)}
	case errors.As(err, &notFound), errors.As(err, &invalid), errors.As(err, &forbidden):
		// Park itself alerts.
		return verdict{o: skipped(o, ReasonParked, err.Error(), now), park: true}
	// A conflict about a run that is gone when we look is tried again.
	case errors.As(err, &conflict) && conflict.Code != "run_overlap":
		reason := ReasonError
		if conflict.Code == "pipeline_paused" {
			reason = ReasonPipelinePaused
		}
		o = skipped(o, reason, err.Error(), now)
		return verdict{o: o, alert: alertOf(notify.ScheduleSkipped, s, o, uuid.Nil)}
	case o.Tries >= maxTries:
		o.State, o.Reason, o.Detail, o.ConcludedAt = OccurrenceFailed, ReasonError, err.Error(), now
		return verdict{o: o, alert: alertOf(notify.ScheduleFailed, s, o, uuid.Nil)}
	}
	o.Detail, o.DueAt = err.Error(), now.Add(wait(o.Tries, err))
	return verdict{o: o}
}

// judgeBusy applies the overlap policy.
func judgeBusy(s Schedule, o Occurrence, busy []Busy, now time.Time) verdict {
	o.Busy = busy
	reason, blocking := ReasonOverlap, inTheWay(busy)
	if blocking.State == paused {
		reason = ReasonPausedRun
	}
	detail := fmt.Sprintf("run %s of route %s is %s", blocking.Run, blocking.Route, blocking.State)
	if s.Overlap != Queue && !o.CatchingUp {
		o = skipped(o, reason, detail, now)
		return verdict{o: o, alert: alertOf(notify.ScheduleSkipped, s, o, blocking.Run)}
	}
	o.State, o.Reason, o.Detail = OccurrenceQueued, reason, detail
	v := verdict{o: o, queueLimit: 1}
	if o.CatchingUp {
		v.queueLimit = s.CatchUpLimit + 1
	}
	if reason == ReasonPausedRun {
		v.alert = alertOf(notify.ScheduleBlocked, s, o, blocking.Run)
	}
	return v
}

const paused = string(engine.StatePaused)

// inTheWay is the route that a person has to know of: one whose run is paused, or
// else the first.
func inTheWay(busy []Busy) Busy {
	for _, b := range busy {
		if b.State == paused {
			return b
		}
	}
	return busy[0]
}

func skipped(o Occurrence, reason, detail string, now time.Time) Occurrence {
	o.State, o.Reason, o.Detail, o.ConcludedAt = OccurrenceSkipped, reason, detail, now
	return o
}

// wait is the backoff after so many tries.
func wait(tries int, err error) time.Duration {
	d := min(firstWait<<min(max(tries-1, 0), 20), maxWait)
	var limit *control.LimitError
	var away *control.UnavailableError
	switch {
	case errors.As(err, &limit):
		d = max(d, min(limit.RetryAfter, maxWait))
	case errors.As(err, &away):
		d = max(d, min(away.RetryAfter, maxWait))
	}
	return d
}

func isUnavailable(err error) bool {
	var away *control.UnavailableError
	return errors.As(err, &away)
}
