package store

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/projection"
	"github.com/tranship-io/tranship/internal/pgtest"
)

// daysBehind counts sums of days that are not what their hours add up to.
const daysBehind = `SELECT count(*) FROM (
	(SELECT day, pipeline, source, sink, resource, status, runs, rows_read, rows_written, rows_set_aside, bytes, duration_ms, min_ms, max_ms,
		compute_ms, memory_mib_ms, cpu_ms, moved_bytes, peak_bytes FROM metrics_daily)
	EXCEPT
	(SELECT date_trunc('day', hour, 'UTC'), pipeline, source, sink, resource, status, sum(runs), sum(rows_read), sum(rows_written), sum(rows_set_aside),
		sum(bytes), sum(duration_ms), coalesce(min(min_ms) FILTER (WHERE runs > 0), 0), max(max_ms), sum(compute_ms), sum(memory_mib_ms), sum(cpu_ms),
		sum(moved_bytes), max(peak_bytes) FROM metrics_hourly GROUP BY 1, 2, 3, 4, 5, 6)
) x`

const daysOfHours = `SELECT count(DISTINCT (date_trunc('day', hour, 'UTC'), pipeline, source, sink, resource, status)) FROM metrics_hourly`

// hoursOf writes sums of random hours of some days, each in several additions.
func hoursOf(t *testing.T, conn *pgx.Conn, organization uuid.UUID, from time.Time) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	pipelines := []uuid.UUID{uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())}
	for i, id := range pipelines {
		// Without its version, which names need not.
		_, err := conn.Exec(t.Context(), fmt.Sprintf(`SET session_replication_role = replica; INSERT INTO pipelines (organization, id, name, current)
			VALUES ('%s', '%s', 'p%d', 1); SET session_replication_role = origin`, organization, id, i))
		require.NoError(t, err)
	}
	for i := range 300 {
		at := from.Add(time.Duration(r.IntN(5*24)) * time.Hour)
		runs := r.IntN(3)
		args := []any{organization, at, pipelines[r.IntN(2)], []string{"", "a"}[r.IntN(2)], []string{"completed", "failed"}[r.IntN(2)], runs, i, r.IntN(1000)}
		_, err := conn.Exec(t.Context(), `INSERT INTO metrics_hourly AS m VALUES ($1, $2, $3, 's', 'd', $4, $5, $6::bigint, $7::bigint, $7, 0, $7, $8::bigint, CASE WHEN $6 = 0 THEN 0 ELSE $8 END, CASE WHEN $6 = 0 THEN 0 ELSE $8 END, 1, 1, 1, 1, $8)
			ON CONFLICT (organization, hour, pipeline, source, sink, resource, status) DO UPDATE SET runs = m.runs + excluded.runs, rows_read = m.rows_read + excluded.rows_read,
				min_ms = CASE WHEN excluded.runs = 0 THEN m.min_ms WHEN m.runs = 0 THEN excluded.min_ms ELSE least(m.min_ms, excluded.min_ms) END,
				max_ms = greatest(m.max_ms, excluded.max_ms), peak_bytes = greatest(m.peak_bytes, excluded.peak_bytes)`, args...)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), `INSERT INTO metrics_durations AS m VALUES ($1, $2, $3, 's', 'd', $4, $5, $6, 1)
			ON CONFLICT (organization, hour, pipeline, source, sink, resource, status, class) DO UPDATE SET endings = m.endings + 1`,
			args[0], args[1], args[2], args[3], args[4], i%5)
		require.NoError(t, err)
	}
}

// TestMetricsOfDays compares what days tell with what their hours tell.
func TestMetricsOfDays(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	organization := newOrganization(t, d, "a")
	conn := superuser(t, d)
	from := instant("2026-11-20T00:00:00Z")
	hoursOf(t, conn, organization, from)
	count := func(sql string) (n int64) {
		t.Helper()
		require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&n))
		return n
	}
	require.Zero(t, count(daysBehind))
	require.Equal(t, count(daysOfHours), count(`SELECT count(*) FROM metrics_daily`))
	require.Equal(t, count(`SELECT sum(endings) FROM metrics_durations`), count(`SELECT sum(endings) FROM metrics_daily_durations`))

	a := control.Actor{Organization: organization, Role: control.RoleViewer}
	ask := func(q projection.Query) []projection.Point {
		t.Helper()
		points, err := d.Projection().Metrics(t.Context(), a, q, 10000)
		require.NoError(t, err)
		return points
	}
	for _, span := range [][2]string{
		{"2026-11-20T00:00:00Z", "2026-11-25T00:00:00Z"}, {"2026-11-20T07:00:00Z", "2026-11-23T15:30:00Z"},
		{"2026-11-21T01:00:00Z", "2026-11-21T23:00:00Z"}, {"2026-11-21T23:00:00Z", "2026-11-22T01:00:00Z"},
		{"2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"}, {"2026-11-21T23:00:00Z", "2026-11-23T00:00:00Z"},
	} {
		for _, by := range [][]projection.Dimension{nil, {projection.ByPipeline, projection.ByStatus}, {projection.ByResource}} {
			q := projection.Query{From: instant(span[0]), To: instant(span[1]), By: by, Durations: true}
			// Hours are never summed up of days: added up they are the reference.
			want := map[string]*projection.Metrics{}
			q.Bucket = "hour"
			for _, pt := range ask(q) {
				key := fmt.Sprint(pt.Group)
				if want[key] == nil {
					want[key] = new(projection.Metrics)
				}
				want[key].Add(pt.Metrics)
			}
			q.Bucket = ""
			got := ask(q)
			require.Len(t, got, len(want), "%v %v", span, by)
			for _, pt := range got {
				require.Equal(t, *want[fmt.Sprint(pt.Group)], pt.Metrics, "%v %v", span, pt.Group)
			}
		}
	}
	for _, pt := range ask(projection.Query{Bucket: "day", From: from, To: from.Add(5 * 24 * time.Hour)}) {
		require.Nil(t, pt.Durations, "they were not asked for")
		require.Equal(t, pt.At, pt.At.Truncate(24*time.Hour))
	}
}

// TestDaysOfEarlierHours goes on from a database that knew no days.
func TestDaysOfEarlierHours(t *testing.T) {
	t.Parallel()
	d := openURL(t, pgtest.NewDatabase(t, pgtest.Shared(t)))
	require.NoError(t, d.migrateTo(t.Context(), 20261130205030))
	organization := newOrganization(t, d, "a")
	conn := superuser(t, d)
	hoursOf(t, conn, organization, instant("2026-11-20T00:00:00Z"))
	require.NoError(t, d.Migrate(t.Context()))
	var behind, days, daily int64
	require.NoError(t, conn.QueryRow(t.Context(), daysBehind).Scan(&behind))
	require.Zero(t, behind)
	require.NoError(t, conn.QueryRow(t.Context(), daysOfHours).Scan(&days))
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM metrics_daily`).Scan(&daily))
	require.Equal(t, days, daily)
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_class WHERE relname IN ('metrics_hourly', 'metrics_durations') AND NOT relforcerowsecurity`).Scan(&behind))
	require.Zero(t, behind)
}
