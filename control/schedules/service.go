package schedules

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
)

// Service creates, changes and shows schedules.
type Service struct {
	Store     Store
	Scheduler Scheduler
	Clock     control.Clock
}

// Draft is what a user says of a schedule.
type Draft struct {
	// Name is made up if empty.
	Name     string
	Pipeline uuid.UUID
	Timing   Timing
	// Overlap is Skip if empty, CatchUp CatchUpOne, CatchUpLimit DefaultCatchUp if 0.
	Overlap      Overlap
	CatchUp      CatchUp
	CatchUpLimit int
	// Paused makes or leaves it paused.
	Paused  bool
	Options Options
}

// Create stores a new schedule.
func (s *Service) Create(ctx context.Context, a control.Actor, d Draft) (Schedule, error) {
	if err := control.Authorize(a, control.WriteSchedules); err != nil {
		return Schedule{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Schedule{}, err
	}
	made, err := s.apply(Schedule{ID: id}, d)
	if err != nil {
		return Schedule{}, err
	}
	if made, err = s.Store.CreateSchedule(ctx, a, made); err != nil {
		return Schedule{}, err
	}
	return made, s.Scheduler.Moved(ctx, Ref{a.Organization, made.ID})
}

// Update replaces what a user says of a schedule, if it is still at the version.
// A parked one is active again.
func (s *Service) Update(ctx context.Context, a control.Actor, id uuid.UUID, version int64, d Draft) (Schedule, error) {
	if err := control.Authorize(a, control.WriteSchedules); err != nil {
		return Schedule{}, err
	}
	old, err := s.Store.GetSchedule(ctx, a, id)
	if err != nil {
		return Schedule{}, err
	}
	changed, err := s.apply(old, d)
	if err != nil {
		return Schedule{}, err
	}
	return s.save(ctx, a, "schedule.update", changed, version)
}

// Delete removes a schedule. Runs that it started go on.
func (s *Service) Delete(ctx context.Context, a control.Actor, id uuid.UUID, version int64) error {
	if err := control.Authorize(a, control.WriteSchedules); err != nil {
		return err
	}
	if err := s.Store.DeleteSchedule(ctx, a, id, version); err != nil {
		return err
	}
	return s.Scheduler.Moved(ctx, Ref{a.Organization, id})
}

// Get returns a schedule.
func (s *Service) Get(ctx context.Context, a control.Actor, id uuid.UUID) (Schedule, error) {
	if err := control.Authorize(a, control.ReadSchedules); err != nil {
		return Schedule{}, err
	}
	return s.Store.GetSchedule(ctx, a, id)
}

// PipelineID finds the pipeline of a reference, by its name or id; uuid.Nil for the
// empty one.
func (s *Service) PipelineID(ctx context.Context, a control.Actor, ref string) (uuid.UUID, error) {
	if err := control.Authorize(a, control.ReadSchedules); err != nil || ref == "" {
		return uuid.Nil, err
	}
	return s.Store.PipelineID(ctx, a, ref)
}

// List lists schedules.
func (s *Service) List(ctx context.Context, a control.Actor, f Filter, p control.Page) (control.List[Schedule], error) {
	if err := control.Authorize(a, control.ReadSchedules); err != nil {
		return control.List[Schedule]{}, err
	}
	return s.Store.ListSchedules(ctx, a, f, p)
}

// Occurrences lists what became of a schedule's instants, newest first.
func (s *Service) Occurrences(ctx context.Context, a control.Actor, id uuid.UUID, p control.Page) (control.List[Occurrence], error) {
	if err := control.Authorize(a, control.ReadSchedules); err != nil {
		return control.List[Occurrence]{}, err
	}
	if _, err := s.Store.GetSchedule(ctx, a, id); err != nil {
		return control.List[Occurrence]{}, err
	}
	return s.Store.ListOccurrences(ctx, a, id, p)
}

// Pause stops a schedule until it is resumed. What falls into the pause is not
// missed: it was not wanted.
func (s *Service) Pause(ctx context.Context, a control.Actor, id uuid.UUID, version int64) (Schedule, error) {
	return s.operate(ctx, a, "schedule.pause", id, version, func(old Schedule) (Schedule, error) {
		if old.State == Finished {
			return old, &control.ConflictError{
				Code: "illegal_transition", State: string(old.State),
				Message: fmt.Sprintf("schedule %q is finished: it has no more instants", old.Name), Hint: "give it another time",
			}
		}
		old.State, old.Reason = Paused, ""
		old.NextInstant, old.NextAt = time.Time{}, time.Time{}
		return old, nil
	})
}

// Resume makes a paused or parked schedule active, from the next instant on.
func (s *Service) Resume(ctx context.Context, a control.Actor, id uuid.UUID, version int64) (Schedule, error) {
	return s.operate(ctx, a, "schedule.resume", id, version, func(old Schedule) (Schedule, error) {
		if old.State != Paused && old.State != Parked {
			return old, nil
		}
		old.State, old.Reason = Active, ""
		return s.next(old)
	})
}

func (s *Service) operate(ctx context.Context, a control.Actor, action string, id uuid.UUID, version int64, change func(Schedule) (Schedule, error)) (Schedule, error) {
	if err := control.Authorize(a, control.OperateSchedules); err != nil {
		return Schedule{}, err
	}
	old, err := s.Store.GetSchedule(ctx, a, id)
	if err != nil {
		return Schedule{}, err
	}
	changed, err := change(old)
	if err != nil || changed.State == old.State {
		return old, err
	}
	if version == 0 {
		version = old.Version
	}
	return s.save(ctx, a, action, changed, version)
}

func (s *Service) save(ctx context.Context, a control.Actor, action string, changed Schedule, version int64) (Schedule, error) {
	changed.Version = version
	changed, err := s.Store.UpdateSchedule(ctx, a, action, changed)
	if err != nil {
		return Schedule{}, err
	}
	return changed, s.Scheduler.Moved(ctx, Ref{a.Organization, changed.ID})
}

// Upcoming is an occurrence that has not been yet.
type Upcoming struct {
	Instant time.Time
	// FiresAt is the instant with its part of the jitter window.
	FiresAt time.Time
	Zone    *time.Location
}

// Next returns the next n occurrences of a stored schedule, none unless it is active.
func (s *Service) Next(ctx context.Context, a control.Actor, id uuid.UUID, n int) ([]Upcoming, error) {
	stored, err := s.Get(ctx, a, id)
	if err != nil {
		return nil, err
	}
	if n < 1 || n > MaxPreview {
		return nil, control.Invalid("count", "", "count is between 1 and %d", MaxPreview)
	}
	if stored.State != Active {
		return nil, nil
	}
	c, err := stored.Timing.Compile("")
	if err != nil {
		return nil, err
	}
	zone, err := loadZone(stored.Timing.Zone)
	if err != nil {
		return nil, err
	}
	var out []Upcoming
	for _, at := range NextInstants(c, s.Clock.Now(), n) {
		out = append(out, Upcoming{Instant: at, FiresAt: fireAt(id, c, at, stored.Timing.Jitter), Zone: zone})
	}
	return out, nil
}

// apply checks a draft and puts it over a schedule.
func (s *Service) apply(old Schedule, d Draft) (Schedule, error) {
	var problems []control.Problem
	add := func(path, format string, args ...any) {
		problems = append(problems, control.Problem{Path: path, Message: fmt.Sprintf(format, args...)})
	}
	made := old
	made.Name, made.Pipeline, made.Options = strings.TrimSpace(d.Name), d.Pipeline, d.Options
	if made.Name == "" {
		made.Name = or(old.Name, "schedule-"+old.ID.String()[28:])
	}
	if len(made.Name) > MaxName {
		add("name", "a name has at most %d bytes", MaxName)
	}
	if d.Pipeline == uuid.Nil {
		add("pipeline", "a schedule names its pipeline")
	}
	made.Overlap, made.CatchUp, made.CatchUpLimit = or(d.Overlap, Skip), or(d.CatchUp, CatchUpOne), or(d.CatchUpLimit, DefaultCatchUp)
	switch made.Overlap {
	case Skip, Allow, Queue:
	default:
		add("overlap", "overlap is %s, %s or %s", Skip, Allow, Queue)
	}
	switch made.CatchUp {
	case CatchUpNone, CatchUpOne, CatchUpAll:
	default:
		add("catch_up", "catch_up is %s, %s or %s", CatchUpNone, CatchUpOne, CatchUpAll)
	}
	if made.CatchUpLimit < 1 || made.CatchUpLimit > MaxCatchUp {
		add("catch_up_limit", "the limit is between 1 and %d", MaxCatchUp)
	}
	made.Timing = d.Timing
	made.Timing.At = d.Timing.At.UTC().Truncate(time.Second)
	made.Timing.Anchor = d.Timing.Anchor.UTC().Truncate(time.Second)
	if d.Timing.Every != 0 && d.Timing.Anchor.IsZero() {
		made.Timing.Anchor = s.Clock.Now().UTC().Truncate(time.Second)
		if old.Timing.Every == d.Timing.Every {
			made.Timing.Anchor = old.Timing.Anchor
		}
	}
	if _, err := made.Timing.Compile(""); err != nil {
		var invalid *control.InvalidError
		if !errors.As(err, &invalid) {
			return old, err
		}
		problems = append(problems, invalid.Problems...)
	}
	if problems != nil {
		return old, &control.InvalidError{Problems: problems}
	}
	made.Reason = ""
	if d.Paused {
		made.State = Paused
		made.NextInstant, made.NextAt = time.Time{}, time.Time{}
		return made, nil
	}
	if old.State == Active && made.Timing == old.Timing {
		// What is due already stays due.
		return made, nil
	}
	made.State = Active
	return s.next(made)
}

// next sets a schedule's next instant, counted from now.
func (s *Service) next(made Schedule) (Schedule, error) {
	c, err := made.Timing.Compile("")
	if err != nil {
		return made, err
	}
	at, ok := c.Next(s.Clock.Now())
	if !ok {
		return made, control.Invalid("at", "choose a later time", "the schedule has no instant in the future")
	}
	made.NextInstant, made.NextAt = at, fireAt(made.ID, c, at, made.Timing.Jitter)
	return made, nil
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}
