package store

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/control/timer"
)

// alarmBell is a platform's alarm that tests hear.
type alarmBell struct{ at time.Time }

func (b *alarmBell) Ring(_ context.Context, at time.Time) error { b.at = at; return nil }

// Whatever falls due arms the sweep, which cannot be disarmed before the alarm is
// set for it (P23), and once it is set the installation is left alone.
func TestSweepSetsTheAlarmBeforeItEnds(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	d := timed(t)
	s := newServices(t, d, "a")
	b := &alarmBell{}
	alarm := &timer.Alarm{Store: d, Bell: b}
	disarm := func() bool {
		t.Helper()
		off, err := d.Disarm(ctx)
		require.NoError(t, err)
		return off
	}
	armed := func() (is bool) {
		t.Helper()
		require.NoError(t, superuser(t, d).QueryRow(ctx, `SELECT armed FROM arming`).Scan(&is))
		return is
	}
	run := func() {
		t.Helper()
		_, err := alarm.Run(ctx)
		require.NoError(t, err)
	}
	run()
	require.True(t, disarm(), "nothing falls due")

	conn := superuser(t, d)
	rule := notify.Rule{ID: uuid.Must(uuid.NewV7()), Name: "r", Events: []string{notify.PipelineStale}, StaleAfter: time.Hour, Channel: notify.Webhook, URL: "https://x"}
	_, err := d.Notifications().CreateRule(ctx, s.a, rule)
	require.NoError(t, err)
	require.True(t, armed(), "a rule that watches arms the sweep")
	require.False(t, disarm(), "it has to look at once")
	run()
	require.Zero(t, b.at)
	require.False(t, disarm())

	_, err = conn.Exec(ctx, `UPDATE notification_rules SET watch_at = now() + interval '1 hour'`)
	require.NoError(t, err)
	require.False(t, disarm(), "the alarm is not set")
	run()
	require.WithinDuration(t, time.Now().Add(time.Hour), b.at, 5*time.Minute)
	require.True(t, disarm())
	require.False(t, armed())
	first := b.at

	// Something that falls due later needs no other alarm, something earlier does.
	_, err = conn.Exec(ctx, `UPDATE notification_rules SET watch_at = now() + interval '3 hours'`)
	require.NoError(t, err)
	require.True(t, disarm())
	_, err = conn.Exec(ctx, `UPDATE notification_rules SET watch_at = now() + interval '30 minutes'`)
	require.NoError(t, err)
	require.NoError(t, d.Arm(ctx))
	require.False(t, disarm())
	run()
	require.True(t, b.at.Before(first))
	require.True(t, disarm())

	// The alarm went off: what falls due next needs a new one.
	_, err = conn.Exec(ctx, `UPDATE arming SET alarm_at = now() - interval '1 second'`)
	require.NoError(t, err)
	require.NoError(t, d.Arm(ctx))
	require.False(t, disarm())
	run()
	require.True(t, disarm())
}
