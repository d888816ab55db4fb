package timer

import (
	"context"
	"fmt"
	"time"

	"github.com/tranship-io/tranship/control"
)

// AlarmState is what the store knows of the platform's alarm.
type AlarmState struct {
	// Due is when the next thing falls due that no schedule of the platform's own
	// fires; zero: nothing does.
	Due time.Time
	// Set is when the alarm goes off; zero: it does not, or went off already. Known is
	// false until it was set once, or to never.
	Set   time.Time
	Known bool
	Now   time.Time
}

// AlarmStore remembers for when the alarm is set. The sweep cannot be disarmed
// while something falls due earlier than that (P23).
type AlarmStore interface {
	Alarm(ctx context.Context) (AlarmState, error)
	// SetAlarm remembers the time; zero: never.
	SetAlarm(ctx context.Context, at time.Time) error
	// Arm arms the sweep.
	Arm(ctx context.Context) error
}

// Bell is a platform's alarm: it wakes the sweep once at an instant. Ring replaces
// the instant that was set before.
type Bell interface {
	Ring(ctx context.Context, at time.Time) error
}

// soon is what the sweep waits for itself: an alarm is not more exact.
const soon = time.Minute

// Alarm is the sweep's last task where no process can wait for what falls due: it
// sets the platform's alarm before the sweep is disarmed, so that an idle
// installation is woken when something is due and at no other time (invariant 14).
type Alarm struct {
	Store AlarmStore
	Bell  Bell
	Clock control.Clock
}

// Name names the task.
func (a *Alarm) Name() string { return "alarm" }

// Run implements the sweep's task.
func (a *Alarm) Run(ctx context.Context) (time.Time, error) {
	s, err := a.Store.Alarm(ctx)
	if err != nil {
		return time.Time{}, err
	}
	switch {
	case s.Due.IsZero() && s.Known:
		return time.Time{}, nil
	case s.Due.IsZero():
		return time.Time{}, a.Store.SetAlarm(ctx, time.Time{})
	case !s.Set.IsZero() && !s.Due.Before(s.Set):
		// It goes off early enough; too early does no harm.
		return s.Due, nil
	case s.Due.Before(s.Now.Add(soon)):
		// The sweep goes on. One that the alarm has woken may be disarmed.
		if !s.Known {
			if err := a.Store.SetAlarm(ctx, time.Time{}); err != nil {
				return time.Time{}, err
			}
		}
		return s.Due, a.Store.Arm(ctx)
	}
	if err := a.Bell.Ring(ctx, s.Due); err != nil {
		return time.Time{}, fmt.Errorf("set the alarm to %s: %w", s.Due.Format(time.RFC3339), err)
	}
	return s.Due, a.Store.SetAlarm(ctx, s.Due)
}

// Task makes a task of the sweep of a source, for where no timer runs: it does
// what is due whenever the sweep comes.
func Task(name string, s Source, c control.Clock) *SourceTask { return &SourceTask{name, s, c} }

// SourceTask is a source as a task of the sweep.
type SourceTask struct {
	name   string
	source Source
	clock  control.Clock
}

// Name names the task.
func (t *SourceTask) Name() string { return t.name }

// Run does what is due and returns when the next thing will be.
func (t *SourceTask) Run(ctx context.Context) (time.Time, error) {
	now := t.clock.Now()
	if err := t.source.Run(ctx, now); err != nil {
		return time.Time{}, err
	}
	return t.source.Next(ctx, now)
}
