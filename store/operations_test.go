package store

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/operations"
)

func bell(org uuid.UUID, key, request string) operations.Intent {
	return operations.Intent{Organization: org, Kind: "bell", Key: key, Target: "tower", Request: json.RawMessage(request)}
}

func TestOperationsAreRecordedOnceAndAreWork(t *testing.T) {
	t.Parallel()
	ctx, d := t.Context(), newDB(t)
	org := newOrganization(t, d, "a")
	one, err := d.RecordOperation(ctx, bell(org, "k", `{"times": 1}`))
	require.NoError(t, err)
	require.Equal(t, operations.Pending, one.State)
	require.True(t, one.Open())
	same, err := d.RecordOperation(ctx, bell(org, "k", `{"times": 1}`))
	require.NoError(t, err)
	require.Equal(t, one.ID, same.ID)
	_, err = d.RecordOperation(ctx, bell(org, "k", `{"times": 2}`))
	var conflict *control.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, "operation_key_reused", conflict.Code)
	elsewhere := bell(org, "k", `{"times": 1}`)
	elsewhere.Target = "gate"
	_, err = d.RecordOperation(ctx, elsewhere)
	require.ErrorAs(t, err, &conflict, "another target is another request")

	disarmed, err := d.Disarm(ctx)
	require.NoError(t, err)
	require.False(t, disarmed, "an open operation is work (P23)")
	refs, err := d.DueOperations(ctx, []string{"bell"}, 10)
	require.NoError(t, err)
	require.Equal(t, []operations.Ref{{Organization: org, ID: one.ID}}, refs)
	refs, err = d.DueOperations(ctx, []string{"other"}, 10)
	require.NoError(t, err)
	require.Empty(t, refs)

	claimed, ok, err := d.ClaimOperation(ctx, operations.Ref{Organization: org, ID: one.ID}, time.Minute)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, operations.Pending, claimed.State, "the state before the claim")
	_, ok, err = d.ClaimOperation(ctx, operations.Ref{Organization: org, ID: one.ID}, time.Minute)
	require.NoError(t, err)
	require.False(t, ok)
	wait, open, err := d.NextOperation(ctx, []string{"bell"})
	require.NoError(t, err)
	require.True(t, open)
	require.InDelta(t, 60, wait.Seconds(), 20)

	// Put off, and claimed anew: the first claim's end does not count any more.
	off, ok, err := d.ConcludeOperation(ctx, claimed, operations.Conclusion{State: operations.Unknown, Error: "no answer"})
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "no answer", off.Error)
	again, ok, err := d.ClaimOperation(ctx, operations.Ref{Organization: org, ID: one.ID}, time.Minute)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, operations.Unknown, again.State)
	_, ok, err = d.ConcludeOperation(ctx, claimed, operations.Conclusion{State: operations.Failed, Over: true})
	require.NoError(t, err)
	require.False(t, ok)
	over, ok, err := d.ConcludeOperation(ctx, again, operations.Conclusion{State: operations.Succeeded, Outcome: json.RawMessage(`{"rung":1}`), Over: true})
	require.NoError(t, err)
	require.True(t, ok)
	require.False(t, over.Open())
	require.False(t, over.ConcludedAt.IsZero())
	known, err := d.RecordOperation(ctx, bell(org, "k", `{"times": 1}`))
	require.NoError(t, err)
	require.JSONEq(t, `{"rung":1}`, string(known.Outcome))
	disarmed, err = d.Disarm(ctx)
	require.NoError(t, err)
	require.True(t, disarmed)
	_, open, err = d.NextOperation(ctx, []string{"bell"})
	require.NoError(t, err)
	require.False(t, open)
}

// ring is an effect that counts, and whose answer is lost at times.
type ring struct{ done, rung atomic.Int64 }

func (r *ring) Do(context.Context, operations.Operation) (json.RawMessage, error) {
	r.rung.Store(1)
	if r.done.Add(1)%2 == 1 {
		return nil, errors.New("the answer was lost")
	}
	return json.RawMessage(`{}`), nil
}

func (r *ring) ReadBack(context.Context, operations.Operation) (bool, json.RawMessage, error) {
	return r.rung.Load() == 1, json.RawMessage(`{}`), nil
}

func TestManyRunnersDoAnOperationOnce(t *testing.T) {
	t.Parallel()
	ctx, d := t.Context(), newDB(t)
	org := newOrganization(t, d, "a")
	effect := &ring{}
	runner := &operations.Runner{Store: d, Effects: map[string]operations.Effect{"bell": effect}, Clock: &handClock{}, Log: slog.New(slog.DiscardHandler)}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			_, err := runner.Perform(ctx, bell(org, "k", `{}`))
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, effect.done.Load())
	// The wait after a lost answer is over.
	_, err := superuser(t, d).Exec(ctx, `UPDATE operations SET next_at = now()`)
	require.NoError(t, err)
	for range 8 {
		wg.Go(func() {
			_, err := runner.Run(ctx)
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, effect.done.Load(), "it was read back and found")
	o, err := d.RecordOperation(ctx, bell(org, "k", `{}`))
	require.NoError(t, err)
	require.Equal(t, operations.Succeeded, o.State)
	require.Equal(t, 2, o.Attempts)
}

func TestOldOperationsAreDeleted(t *testing.T) {
	t.Parallel()
	ctx, d := t.Context(), newDB(t)
	org := newOrganization(t, d, "a")
	for _, key := range []string{"old", "young", "open"} {
		_, err := d.RecordOperation(ctx, bell(org, key, `{}`))
		require.NoError(t, err)
	}
	conn := superuser(t, d)
	for key, age := range map[string]string{"old": "31 days", "young": "29 days"} {
		_, err := conn.Exec(ctx, `UPDATE operations SET state = 'succeeded', next_at = NULL, concluded_at = now() - $2::interval WHERE key = $1`, key, age)
		require.NoError(t, err)
	}
	deleted, err := d.Retain(ctx, Retention{})
	require.NoError(t, err)
	require.EqualValues(t, 1, deleted["operations"])
}
