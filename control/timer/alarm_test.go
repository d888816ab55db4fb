package timer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/timer"
)

// ledger is an AlarmStore and a Bell.
type ledger struct {
	timer.AlarmState
	rung  []time.Time
	armed int
	fail  error
}

func (l *ledger) Alarm(context.Context) (timer.AlarmState, error) { return l.AlarmState, nil }
func (l *ledger) Arm(context.Context) error                       { l.armed++; return nil }

func (l *ledger) SetAlarm(_ context.Context, at time.Time) error {
	l.Set, l.Known = at, true
	return nil
}

func (l *ledger) Ring(_ context.Context, at time.Time) error {
	if l.fail != nil {
		return l.fail
	}
	l.rung = append(l.rung, at)
	return nil
}

func TestAlarm(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	in := now.Add
	for name, c := range map[string]struct {
		due, set time.Time
		known    bool
		rung     []time.Time
		armed    int
		after    time.Time
	}{
		"nothing is due, the first time":     {after: time.Time{}},
		"nothing is due":                     {known: true, set: in(time.Hour), after: in(time.Hour)},
		"due before the alarm":               {due: in(time.Hour), set: in(2 * time.Hour), known: true, rung: []time.Time{in(time.Hour)}, after: in(time.Hour)},
		"due, and no alarm is set":           {due: in(time.Hour), known: true, rung: []time.Time{in(time.Hour)}, after: in(time.Hour)},
		"due, the first time":                {due: in(time.Hour), rung: []time.Time{in(time.Hour)}, after: in(time.Hour)},
		"the alarm goes off early enough":    {due: in(2 * time.Hour), set: in(time.Hour), known: true, after: in(time.Hour)},
		"due soon: the sweep goes on":        {due: in(time.Second), set: in(time.Hour), known: true, armed: 1, after: in(time.Hour)},
		"overdue: the sweep goes on":         {due: in(-time.Hour), known: true, armed: 1},
		"overdue, and it never was set once": {due: in(-time.Hour), armed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := &ledger{AlarmState: timer.AlarmState{Due: c.due, Set: c.set, Known: c.known, Now: now}}
			_, err := (&timer.Alarm{Store: l, Bell: l}).Run(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.rung, l.rung)
			require.Equal(t, c.armed, l.armed)
			require.True(t, l.Known)
			require.Equal(t, c.after, l.Set)
		})
	}
	l := &ledger{AlarmState: timer.AlarmState{Due: in(time.Hour), Known: true, Now: now}, fail: errors.New("away")}
	_, err := (&timer.Alarm{Store: l, Bell: l}).Run(t.Context())
	require.ErrorContains(t, err, "away")
	require.Zero(t, l.Set, "an alarm that may not be set is not remembered")
}
