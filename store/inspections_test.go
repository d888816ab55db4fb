package store

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/control/inspections"
)

func TestInspectionsAreWorkAndEnd(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), newServices(t, newDB(t), "a")
	s.connection(t, "c", connections.Source)
	service := &inspections.Service{Store: s.d, Connections: s.d, Pipelines: s.d, Catalog: testCatalog{}}
	disarmed, err := s.d.Disarm(ctx)
	require.NoError(t, err)
	require.True(t, disarmed)
	start := func() inspections.Inspection {
		i, err := service.Start(ctx, s.a, inspections.Request{Kind: inspections.Test, Connection: "c"})
		require.NoError(t, err)
		return i
	}
	one := start()
	disarmed, err = s.d.Disarm(ctx)
	require.NoError(t, err)
	assert.False(t, disarmed, "a requested inspection is work (P23)")

	// One of many workers gets it.
	var wg sync.WaitGroup
	var mu sync.Mutex
	var got []*inspections.Claimed
	for range 8 {
		wg.Go(func() {
			c, err := s.d.ClaimInspection(ctx, time.Minute)
			if assert.NoError(t, err) && c != nil {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, c)
			}
		})
	}
	wg.Wait()
	require.Len(t, got, 1)
	assert.Equal(t, s.a.Organization, got[0].Organization)
	mine, err := s.d.RenewInspection(ctx, *got[0], time.Minute)
	require.NoError(t, err)
	assert.True(t, mine)
	next, err := s.d.SweepInspections(ctx)
	require.NoError(t, err)
	assert.Positive(t, next)

	// A worker that is lost leaves a failure, and its late outcome changes nothing.
	mine, err = s.d.RenewInspection(ctx, *got[0], -time.Second)
	require.NoError(t, err)
	assert.True(t, mine)
	_, err = s.d.SweepInspections(ctx)
	require.NoError(t, err)
	require.NoError(t, s.d.FinishInspection(ctx, *got[0], inspections.Outcome{Result: []byte(`{}`)}))
	mine, err = s.d.RenewInspection(ctx, *got[0], time.Minute)
	require.NoError(t, err)
	assert.False(t, mine)
	after, err := service.Get(ctx, s.a, one.ID)
	require.NoError(t, err)
	assert.Equal(t, inspections.Failed, after.State)
	assert.NotEmpty(t, after.Hint)

	two := start()
	c, err := s.d.ClaimInspection(ctx, time.Minute)
	require.NoError(t, err)
	require.NoError(t, s.d.FinishInspection(ctx, *c, inspections.Outcome{Result: []byte(`{"ok":true}`)}))
	after, err = service.Get(ctx, s.a, two.ID)
	require.NoError(t, err)
	assert.Equal(t, inspections.Succeeded, after.State)
	disarmed, err = s.d.Disarm(ctx)
	require.NoError(t, err)
	assert.True(t, disarmed)

	// Results end with their time.
	require.NoError(t, s.d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `UPDATE inspections SET expires_at = now() - interval '1 second'`)
		return err
	}))
	_, err = service.Get(ctx, s.a, two.ID)
	require.Error(t, err)
	_, err = s.d.SweepInspections(ctx)
	require.NoError(t, err)
	require.NoError(t, s.d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		var n int
		require.NoError(t, tx.QueryRow(ctx, `SELECT count(*) FROM inspections`).Scan(&n))
		assert.Zero(t, n)
		return nil
	}))
}

// begun notes what it is asked to begin.
type begun struct{ refs []inspections.Ref }

func (b *begun) Begin(_ context.Context, r inspections.Ref) { b.refs = append(b.refs, r) }

// looked is an executor that always finds the same.
type looked struct{}

func (looked) Inspect(context.Context, inspections.Claimed) (any, error) {
	return map[string]int{"tables": 3}, nil
}

// Where inspections are executed elsewhere, a request is passed on at once, once
// more by the sweep if that was lost, and executed by one of those who were asked.
func TestInspectionsBeginElsewhere(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), newServices(t, newDB(t), "a")
	s.connection(t, "c", connections.Source)
	asked := &begun{}
	service := &inspections.Service{Store: s.d, Connections: s.d, Pipelines: s.d, Catalog: testCatalog{}, Starter: asked}
	made, err := service.Start(ctx, s.a, inspections.Request{Kind: inspections.Test, Connection: "c"})
	require.NoError(t, err)
	want := []inspections.Ref{{Organization: s.a.Organization, ID: made.ID}}
	require.Equal(t, want, asked.refs)

	sweeper := &inspections.Sweeper{Store: s.d, Starter: asked, Clock: &handClock{}}
	_, err = sweeper.Run(ctx)
	require.NoError(t, err)
	require.Equal(t, want, asked.refs, "it may still be on its way")
	_, err = superuser(t, s.d).Exec(ctx, `UPDATE inspections SET created_at = now() - interval '1 minute'`)
	require.NoError(t, err)
	_, err = sweeper.Run(ctx)
	require.NoError(t, err)
	require.Equal(t, append(want, want...), asked.refs)

	worker := &inspections.Worker{Store: s.d, Executor: looked{}, Clock: &handClock{}, Log: slog.New(slog.DiscardHandler)}
	done, err := worker.LookFor(ctx, inspections.Ref{Organization: newOrganization(t, s.d, "b"), ID: made.ID}, time.Minute)
	require.NoError(t, err)
	require.False(t, done, "it is another organization's")
	for i := range 2 {
		done, err := worker.LookFor(ctx, want[0], time.Minute)
		require.NoError(t, err)
		require.Equal(t, i == 0, done, "asked twice, executed once")
	}
	over, err := s.d.Inspection(ctx, s.a.Organization, made.ID)
	require.NoError(t, err)
	require.Equal(t, inspections.Succeeded, over.State)
	require.JSONEq(t, `{"tables":3}`, string(over.Result))
}
