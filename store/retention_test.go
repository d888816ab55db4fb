package store

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// idAt is a run's id of a moment.
func idAt(at time.Time) uuid.UUID {
	id := uuid.Must(uuid.NewV7())
	ms := at.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (8 * (5 - i)))
	}
	return id
}

func TestRetention(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	org := newOrganization(t, d, "a")
	ctx := t.Context()
	conn := superuser(t, d)
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := conn.Exec(ctx, sql, args...)
		require.NoError(t, err)
	}
	count := func(sql string, args ...any) (n int) {
		t.Helper()
		require.NoError(t, conn.QueryRow(ctx, sql, args...).Scan(&n))
		return n
	}
	// A month that is over, as it would have been made in its time.
	old := time.Now().UTC().AddDate(0, -6, 0)
	exec(`CREATE TABLE facts_` + old.Format("200601") + ` (LIKE facts INCLUDING ALL)`)
	exec(`ALTER TABLE facts_` + old.Format("200601") + ` OWNER TO tranship_owner`)
	begins := time.Date(old.Year(), old.Month(), 1, 0, 0, 0, 0, time.UTC)
	var from, to string
	require.NoError(t, conn.QueryRow(ctx, `SELECT uuid_at($1), uuid_at($2)`, begins, begins.AddDate(0, 1, 0)).Scan(&from, &to))
	exec(`ALTER TABLE facts ATTACH PARTITION facts_` + old.Format("200601") + ` FOR VALUES FROM ('` + from + `') TO ('` + to + `')`)

	s := d.State(org)
	// A run of each age, with a plan, progress and facts; run is nil for a new one.
	work := func(age time.Duration, state engine.RunState) uuid.UUID {
		run, _, err := s.StartRun(ctx, engine.StartRequest{Route: engine.Route{Pipeline: uuid.NewString(), Source: "s", Sink: "d"}, Version: "v"})
		require.NoError(t, err)
		id := idAt(time.Now().Add(-age))
		exec(`UPDATE runs SET id = $2, created_at = now() - $3::interval WHERE id = $1`, run.ID, id, age)
		l, err := s.Acquire(ctx, id, 0, "w", time.Hour)
		require.NoError(t, err)
		f := fact(t, id, events.RunStarted{Slots: 1})
		require.NoError(t, s.SavePlan(ctx, l.Fence, &engine.RunPlan{Resources: []*engine.ResourcePlan{resourcePlan("a", engine.WriteAppend, 1)}}, []events.Fact{f}))
		c, err := s.ClaimSplit(ctx, l.Fence, nil)
		require.NoError(t, err)
		require.NoError(t, s.Commit(ctx, l.Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 1, Artifacts: []engine.Artifact{{Name: "x"}}, Seen: []engine.RowID{{1}}}))
		if state != engine.StateRunning {
			require.NoError(t, s.FinishRun(ctx, l.Fence, engine.RunEnd{State: state, Resumable: state == engine.StateFailed}))
			exec(`UPDATE runs SET ended_at = now() - $2::interval WHERE id = $1`, id, age)
		}
		return id
	}
	young, middle, ancient := work(day, engine.StateCanceled), work(40*day, engine.StateCanceled), work(500*day, engine.StateCanceled)
	partial := work(45*day, engine.StateFailed)
	inOld := work(time.Since(old), engine.StateRunning)
	for _, age := range []time.Duration{time.Hour, 15*day - time.Hour, 17 * day, 401 * day} {
		exec(`INSERT INTO idempotency (organization, key, kind, hash, object, created_at) VALUES ($1, $2, 'run', 'x', $1, now() - $3::interval)`, org, age.String(), age)
		exec(`INSERT INTO audit_log (organization, id, at, actor_kind, actor_name, actor_role, request_id, action, kind) VALUES ($1, gen_random_uuid(), now() - $2::interval, 'system', '', '', '', 'x', 'x')`, org, age)
	}

	deleted, err := d.Retain(ctx, Retention{})
	require.NoError(t, err)
	require.Zero(t, deleted["months of facts"], "a run of it is not over")
	for id, has := range map[uuid.UUID]bool{young: true, middle: false, partial: true, inOld: true, ancient: false} {
		for _, table := range []string{"splits", "resources", "artifacts", "seen_rows"} {
			require.Equal(t, has, count(`SELECT count(*) FROM `+table+` WHERE run = $1`, id) > 0, "%s of %s", table, id)
		}
	}
	require.Equal(t, 1, count(`SELECT count(*) FROM facts WHERE run = $1`, middle))
	require.Zero(t, count(`SELECT count(*) FROM runs WHERE id = $1`, ancient))
	require.Equal(t, 2, count(`SELECT count(*) FROM idempotency`))
	require.Equal(t, 3, count(`SELECT count(*) FROM audit_log`))

	exec(`UPDATE runs SET state = 'canceled', ended_at = created_at WHERE id = $1`, inOld)
	deleted, err = d.Retain(ctx, Retention{Idempotency: time.Hour, Audit: -1})
	require.NoError(t, err)
	require.EqualValues(t, 1, deleted["months of facts"])
	require.Zero(t, count(`SELECT count(*) FROM facts WHERE run = $1`, inOld))
	require.Equal(t, 2, count(`SELECT count(*) FROM idempotency`), "never less than 15 days (P27)")
	require.Equal(t, 1, count(`SELECT count(*) FROM runs WHERE id = $1`, inOld), "the run itself is kept longer")
	require.GreaterOrEqual(t, count(`SELECT count(*) FROM pg_inherits WHERE inhparent = 'facts'::regclass`), 4, "this month, two ahead, and the rest")

	// Facts of other months than those that have partitions go by rows.
	deleted, err = d.Retain(ctx, Retention{Facts: 35 * day})
	require.NoError(t, err)
	require.EqualValues(t, 2, deleted["facts"])
	require.Equal(t, 1, count(`SELECT count(*) FROM facts WHERE run = $1`, young))
}

func fact(t *testing.T, run uuid.UUID, p events.Payload) events.Fact {
	t.Helper()
	f, err := events.New(run, time.Now(), p)
	require.NoError(t, err)
	return f
}
