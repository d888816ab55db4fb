package store

import (
	"context"
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
