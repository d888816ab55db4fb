package store

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/notify"
)

// sentTo is a queue that keeps what it is given.
type sentTo struct {
	refs  []notify.DeliveryRef
	after []time.Duration
}

func (q *sentTo) Enqueue(_ context.Context, after time.Duration, refs ...notify.DeliveryRef) error {
	q.refs, q.after = append(q.refs, refs...), append(q.after, after)
	return nil
}

// Where deliveries travel through a queue, the ledger decides about each message:
// a repeated one sends nothing, an early one neither.
func TestDeliveriesThroughAQueue(t *testing.T) {
	t.Parallel()
	ctx, n := t.Context(), newNoticing(t, newDB(t), "a")
	rule, err := n.service.Create(ctx, n.a, webhook("ops", notify.RunFailed))
	require.NoError(t, err)
	n.fail(t)
	q := &sentTo{}
	forward := &notify.Forwarder{Ledger: n.d.Notifications(), Queue: q, Clock: n.clock}
	next, err := forward.Run(ctx)
	require.NoError(t, err)
	require.Zero(t, next)
	require.Len(t, q.refs, 1)
	require.Equal(t, rule.ID, q.refs[0].Rule)

	receiver := &sender{answer: func(call int) notify.Result {
		if call == 1 {
			return notify.Result{Status: 503, Error: "away"}
		}
		return accepts(call)
	}}
	deliverer := n.deliverer(receiver)
	next, err = deliverer.Deliver(ctx, q.refs[0])
	require.NoError(t, err)
	require.WithinDuration(t, n.clock.Now().Add(5*time.Second), next, 2*time.Second)
	require.NoError(t, forward.Again(ctx, q.refs[0], next))
	require.Len(t, q.refs, 2)
	require.Greater(t, q.after[1], next.Sub(n.clock.Now()), "it does not arrive too early")
	early, err := deliverer.Deliver(ctx, q.refs[0])
	require.NoError(t, err)
	require.Zero(t, early)
	require.Len(t, receiver.sent, 1)

	n.clock.set(next.Add(time.Second))
	for range 2 {
		after, err := deliverer.Deliver(ctx, q.refs[1])
		require.NoError(t, err)
		require.Zero(t, after)
	}
	require.Len(t, receiver.sent, 2, "it is sent once")
	require.NoError(t, forward.Again(ctx, q.refs[0], n.clock.Now().Add(time.Hour)))
	require.Len(t, q.refs, 2, "a queue does not hold it for so long: the alarm does")
}
