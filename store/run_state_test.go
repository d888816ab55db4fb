package store

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

var testRoute = engine.Route{Pipeline: "shop", Source: "postgres://src/shop", Sink: "postgres://dst/shop"}

// requested makes a run that waits for its worker.
func requested(t *testing.T, d *DB, org uuid.UUID) uuid.UUID {
	t.Helper()
	id := uuid.Must(uuid.NewV7())
	require.NoError(t, d.Tx(t.Context(), org, func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO runs (organization, id, pipeline_name, version, state) VALUES ($1, $2, 'shop', '3', 'requested')`, org, id)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO attempt_offers (organization, run, slot) VALUES ($1, $2, 0)`, org, id)
		return err
	}))
	return id
}

func resourcePlan(name string, write engine.WriteMode, splits int) *engine.ResourcePlan {
	src := &engine.SourcePlan{Resource: engine.Resource{Name: name}}
	for i := range splits {
		src.Splits = append(src.Splits, engine.Split{ID: name + "/" + string(rune('0'+i)), Resource: name})
	}
	return &engine.ResourcePlan{Selection: engine.Selection{Resource: name}, Write: write, Source: src, Target: &engine.Target{Resource: name, Name: name}}
}

// TestWorkerStartsItsRun: a requested run begins once, is linked to its route,
// and goes on in later attempts.
func TestWorkerStartsItsRun(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	org := newOrganization(t, d, "a")
	ctx := t.Context()
	id := requested(t, d, org)
	other := requested(t, d, org)
	s := d.RunState(org, id)
	_, _, err := s.StartRun(ctx, engine.StartRequest{Route: testRoute, Restart: true})
	require.Equal(t, engine.Permanent, engine.ClassOf(err))

	run, resumed, err := s.StartRun(ctx, engine.StartRequest{Route: testRoute, Version: "whatever", Slots: 3, AtLeastOrdinal: 4})
	require.NoError(t, err)
	require.False(t, resumed)
	require.Equal(t, id, run.ID)
	require.Equal(t, engine.StateRunning, run.State)
	require.Equal(t, "3", run.Version)
	require.EqualValues(t, 5, run.Ordinal)
	own, err := s.Installation(ctx)
	require.NoError(t, err)
	require.Equal(t, own, run.Route.Installation)
	facts, err := s.Facts(ctx, id, 0, 0)
	require.NoError(t, err)
	require.Len(t, facts, 1)
	started, err := facts[0].Decode()
	require.NoError(t, err)
	require.Equal(t, &events.RunStarted{Slots: 3}, started)

	l, err := s.Acquire(ctx, id, 0, "w", time.Hour)
	require.NoError(t, err)
	require.NoError(t, d.Tx(ctx, org, func(ctx context.Context, tx Tx) error {
		var offers int
		require.NoError(t, tx.QueryRow(ctx, `SELECT count(*) FROM attempt_offers WHERE run = $1`, id).Scan(&offers))
		require.Zero(t, offers, "the offer is a worker's now")
		return nil
	}))
	require.NoError(t, s.EndAttempt(ctx, l, nil))
	again, resumed, err := s.StartRun(ctx, engine.StartRequest{Route: testRoute, Slots: 3})
	require.NoError(t, err)
	require.True(t, resumed)
	require.Equal(t, run.Ordinal, again.Ordinal)
	facts, err = s.Facts(ctx, id, 0, 0)
	require.NoError(t, err)
	require.Len(t, facts, 1, "it is told once")

	// A wish that came before the worker is not forgotten by the start.
	require.NoError(t, s.SetDesired(ctx, id, engine.DesiredCancel))
	_, _, err = s.StartRun(ctx, engine.StartRequest{Route: testRoute})
	require.NoError(t, err)
	l, err = s.Acquire(ctx, id, 0, "w", time.Hour)
	require.NoError(t, err)
	want, err := s.Renew(ctx, l, time.Hour)
	require.NoError(t, err)
	require.Equal(t, engine.DesiredCancel, want)

	// While it lives nobody begins another run of the route; then it is over.
	_, _, err = d.RunState(org, other).StartRun(ctx, engine.StartRequest{Route: testRoute})
	require.ErrorIs(t, err, engine.ErrLocked)
	require.NoError(t, s.FinishRun(ctx, l.Fence, engine.RunEnd{State: engine.StateCanceled}))
	var stale *engine.StaleError
	_, _, err = s.StartRun(ctx, engine.StartRequest{Route: testRoute})
	require.ErrorAs(t, err, &stale)
	_, _, err = d.RunState(org, uuid.New()).StartRun(ctx, engine.StartRequest{Route: testRoute})
	require.ErrorAs(t, err, &stale)
	elsewhere := testRoute
	elsewhere.Pipeline = "other"
	_, _, err = d.RunState(org, other).StartRun(ctx, engine.StartRequest{Route: elsewhere})
	require.Equal(t, engine.Bug, engine.ClassOf(err))
}

// TestWorkerSupersedes: partial predecessors of the route are superseded, unless
// rows that they have appended stand (P21).
func TestWorkerSupersedes(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	org := newOrganization(t, d, "a")
	ctx := t.Context()
	partial := func(write engine.WriteMode) uuid.UUID {
		id := requested(t, d, org)
		s := d.RunState(org, id)
		_, _, err := s.StartRun(ctx, engine.StartRequest{Route: testRoute})
		require.NoError(t, err)
		l, err := s.Acquire(ctx, id, 0, "w", time.Hour)
		require.NoError(t, err)
		require.NoError(t, s.SavePlan(ctx, l.Fence, &engine.RunPlan{Resources: []*engine.ResourcePlan{resourcePlan("a", write, 1)}}, nil))
		c, err := s.ClaimSplit(ctx, l.Fence, nil)
		require.NoError(t, err)
		require.NoError(t, s.Commit(ctx, l.Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 1, Totals: engine.Totals{Read: 7, Applied: 7}}))
		require.NoError(t, s.FinishRun(ctx, l.Fence, engine.RunEnd{State: engine.StateFailed, Resumable: true}))
		return id
	}
	old := partial(engine.WriteUpsert)
	next := partial(engine.WriteAppend)
	got, err := d.State(org).GetRun(ctx, old)
	require.NoError(t, err)
	require.False(t, got.Resumable)
	require.Contains(t, got.Error, next.String())

	third := requested(t, d, org)
	_, _, err = d.RunState(org, third).StartRun(ctx, engine.StartRequest{Route: testRoute})
	require.ErrorIs(t, err, engine.ErrUnfinished)
	require.ErrorContains(t, err, "7 rows")
	require.ErrorContains(t, err, next.String())
	got, err = d.State(org).GetRun(ctx, third)
	require.NoError(t, err)
	require.Equal(t, engine.StateRequested, got.State, "nothing happened")
	got, err = d.State(org).GetRun(ctx, next)
	require.NoError(t, err)
	require.True(t, got.Resumable)
}

// TestWorkerKeepsItsRoute: a run whose ends have changed, or that was overtaken,
// does not go on.
func TestWorkerKeepsItsRoute(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	org := newOrganization(t, d, "a")
	ctx := t.Context()
	id := requested(t, d, org)
	s := d.RunState(org, id)
	_, _, err := s.StartRun(ctx, engine.StartRequest{Route: testRoute})
	require.NoError(t, err)
	moved := testRoute
	moved.Sink = "postgres://elsewhere/shop"
	_, _, err = s.StartRun(ctx, engine.StartRequest{Route: moved})
	require.Equal(t, engine.Permanent, engine.ClassOf(err))
	require.NoError(t, d.Tx(ctx, org, func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `UPDATE routes SET last_ordinal = 99`)
		return err
	}))
	var stale *engine.StaleError
	_, _, err = s.StartRun(ctx, engine.StartRequest{Route: testRoute})
	require.ErrorAs(t, err, &stale)
	require.Equal(t, "ordinal", stale.What)
}

// TestProcesses: that another process lives is known by its lease alone.
func TestProcesses(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	org := newOrganization(t, d, "a")
	ctx := t.Context()
	a, b := d.State(org), openURL(t, d.config.URL).State(org)
	run, _, err := a.StartRun(ctx, engine.StartRequest{Route: testRoute, Version: "v1"})
	require.NoError(t, err)
	l, err := a.Acquire(ctx, run.ID, 0, "a", time.Hour)
	require.NoError(t, err)
	_, _, err = b.StartRun(ctx, engine.StartRequest{Route: testRoute, Version: "v1"})
	require.ErrorIs(t, err, engine.ErrLocked)
	_, err = b.Acquire(ctx, run.ID, 0, "b", time.Hour)
	require.ErrorIs(t, err, engine.ErrLocked)
	require.ErrorIs(t, b.ResetResource(ctx, testRoute, "x"), engine.ErrLocked)
	require.NoError(t, b.SetDesired(ctx, run.ID, engine.DesiredPause))
	want, err := a.Renew(ctx, l, 0) // and dies
	require.NoError(t, err)
	require.Equal(t, engine.DesiredPause, want)
	again, resumed, err := b.StartRun(ctx, engine.StartRequest{Route: testRoute, Version: "v1"})
	require.NoError(t, err)
	require.True(t, resumed)
	require.Equal(t, run.ID, again.ID)
	_, err = a.Renew(ctx, l, time.Hour)
	var stale *engine.StaleError
	require.ErrorAs(t, err, &stale)
}
