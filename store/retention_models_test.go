package store

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// TestRetentionOfReadModels: history and metrics go by age, and what was deleted
// once nothing refers to it any more.
func TestRetentionOfReadModels(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	told := newTold(t, d, "a")
	org, pipeline := told.a.Organization, told.pipeline
	ctx := t.Context()
	conn := superuser(t, d)
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := conn.Exec(ctx, sql, append([]any{org}, args...)...)
		require.NoError(t, err)
	}
	left := func(table string) (n int) {
		t.Helper()
		require.NoError(t, conn.QueryRow(ctx, `SELECT count(*) FROM `+table).Scan(&n))
		return n
	}
	for _, age := range []time.Duration{time.Hour, 399 * day, 401 * day, 801 * day} {
		run := uuid.Must(uuid.NewV7())
		exec(`INSERT INTO run_history (organization, run, pipeline_name, route_key, version, created_at, state, ended_at) VALUES ($1, $2, 'p', '', 'v', now() - $3::interval, 'completed', now() - $3::interval)`, run, age)
		exec(`INSERT INTO run_costs (organization, run, at, compute_ms, memory_mib_ms, bytes) VALUES ($1, $2, now(), 1, 1, 1)`, run)
		exec(`INSERT INTO metrics_hourly SELECT $1, date_trunc('hour', now() - $3::interval), $2, 's', 'd', '', 'completed', 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1`, pipeline, age)
		exec(`INSERT INTO metrics_durations SELECT organization, hour, pipeline, source, sink, resource, status, 3, 1 FROM metrics_hourly
			WHERE organization = $1 AND pipeline = $2 AND hour = date_trunc('hour', now() - $3::interval)`, pipeline, age)
	}
	// Old, but it goes on.
	exec(`INSERT INTO run_history (organization, run, pipeline_name, route_key, version, created_at, state) VALUES ($1, $2, 'p', '', 'v', now() - interval '500 days', 'running')`, uuid.Must(uuid.NewV7()))
	kept := map[string]uuid.UUID{}
	for name, age := range map[string]time.Duration{"live": -1, "young": 89 * day, "old": 91 * day, "used": 91 * day} {
		id := uuid.Must(uuid.NewV7())
		kept[name] = id
		at := any(nil)
		if age >= 0 {
			at = time.Now().Add(-age)
		}
		exec(`INSERT INTO schedules (organization, id, name, pipeline, cron, time_zone, jitter_seconds, overlap, catch_up, catch_up_limit, options, state, deleted_at)
			VALUES ($1, $2, $3, $4, '@daily', 'UTC', 0, 'skip', 'none', 1, '{}', 'paused', $5)`, id, name, pipeline, at)
		exec(`INSERT INTO notification_rules (organization, id, name, events, channel, deleted_at) VALUES ($1, $2, $3, '{run.failed}', 'email', $4)`, id, name, at)
	}
	exec(`INSERT INTO schedule_occurrences (organization, schedule, instant, pipeline, state, concluded_at) VALUES ($1, $2, now(), $3, 'fired', now())`, kept["used"], pipeline)
	exec(`INSERT INTO notification_deliveries (organization, id, rule, event, event_key, channel, state, payload, next_at) VALUES ($1, $2, $2, 'x', 'x', 'email', 'pending', '{}', now())`, kept["used"])

	_, err := d.Retain(ctx, Retention{})
	require.NoError(t, err)
	require.Equal(t, 3, left("run_history"))
	require.Equal(t, 2, left("run_costs"))
	require.Equal(t, 3, left("metrics_hourly"))
	require.Equal(t, 3, left("metrics_durations"))
	require.Equal(t, 3, left("metrics_daily"))
	require.Equal(t, 3, left("metrics_daily_durations"))
	for _, table := range []string{"schedules", "notification_rules"} {
		require.Equal(t, 3, left(table))
		require.Zero(t, left(table+` WHERE name = 'old'`), table)
	}

	_, err = d.Retain(ctx, Retention{History: -1, Metrics: 390 * day, Deleted: time.Hour})
	require.NoError(t, err)
	require.Equal(t, 3, left("run_history"), "for ever")
	require.Equal(t, 1, left("metrics_hourly"))
	require.Equal(t, 2, left("schedules"))
}
