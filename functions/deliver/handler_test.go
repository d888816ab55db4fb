package main

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/internal/awsadapter/kmskeys"
	"github.com/tranship-io/tranship/internal/cloudtest"
)

func TestMain(m *testing.M) { cloudtest.Main(m) }

// TestDeliver: what the queue brings is sent if it is due; a failed attempt comes
// back through the queue, a repeated message sends nothing.
func TestDeliver(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	i := cloudtest.New(t)
	actor, _ := i.Organization()
	var calls atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("webhook-signature") == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(receiver.Close)
	const guard = `{"allow":["127.0.0.0/8"],"allow_http":true}`
	f := i.Function("deliver", "TRANSHIP_WEBHOOKS", guard)
	h, err := wire(ctx, f)
	require.NoError(t, err)
	require.NoError(t, f.Env.Err())
	t.Cleanup(h.db.Close)
	var open notify.Guard
	f.Env.JSON("TRANSHIP_WEBHOOKS", &open)
	service := &notify.Service{Store: h.db.Notifications(), Vault: h.db, Keyring: kmskeys.New(i.AWS, i.Env["TRANSHIP_KMS_KEY"]), Guard: open, Clock: control.SystemClock{}}
	rule, err := service.Create(ctx, actor, notify.Draft{Name: "ops", Events: []string{notify.RunFailed}, Channel: notify.Webhook, URL: receiver.URL})
	require.NoError(t, err)
	var id uuid.UUID
	i.Query(i.URL, `INSERT INTO tranship.notification_deliveries (organization, id, rule, event, event_key, channel, state, payload, next_at)
		VALUES ($1, gen_random_uuid(), $2, 'run.failed', 'k', 'webhook', 'pending', '{}', now()) RETURNING id`, &id, actor.Organization, rule.ID)

	_, err = h.forward.Run(ctx)
	require.NoError(t, err)
	first := i.Receive("TRANSHIP_DELIVERIES_QUEUE")
	require.Len(t, first.Records, 1)
	for range 2 {
		out, err := h.handle(i.Invocation(time.Minute), first)
		require.NoError(t, err)
		require.NotNil(t, out.BatchItemFailures)
		require.Empty(t, out.BatchItemFailures)
	}
	require.EqualValues(t, 1, calls.Load(), "a repeated message sends nothing")
	require.True(t, i.Sweeping(), "what falls due later arms the sweep, which sets its alarm")
	require.Eventually(t, func() bool {
		event := i.Receive("TRANSHIP_DELIVERIES_QUEUE")
		_, err := h.handle(i.Invocation(time.Minute), event)
		require.NoError(t, err)
		return calls.Load() == 2
	}, time.Minute, 200*time.Millisecond)
	sent, err := service.Delivery(ctx, actor, id)
	require.NoError(t, err)
	require.Equal(t, notify.Sent, sent.State)
	require.Len(t, sent.History, 2)

	for _, body := range []string{`{`, `{"organization":"` + actor.Organization.String() + `"}`} {
		out, err := h.handle(i.Invocation(time.Minute), cloudtest.Message(body))
		require.NoError(t, err)
		require.Empty(t, out.BatchItemFailures)
	}
	require.Eventually(t, func() bool {
		return len(i.Receive("TRANSHIP_DEAD_QUEUE").Records) > 0
	}, time.Minute, 100*time.Millisecond)
}
