package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/control/secrets"
	"github.com/tranship-io/tranship/events"
)

// sender is a channel that answers as a test says.
type sender struct {
	mu     sync.Mutex
	answer func(n int) notify.Result
	sent   []uuid.UUID
	// before, if not nil, is called in each attempt.
	before func()
}

func (s *sender) Send(_ context.Context, m notify.Message) notify.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, m.ID)
	if s.before != nil {
		s.before()
	}
	return s.answer(len(s.sent))
}

func accepts(int) notify.Result { return notify.Result{Status: 200} }

// noticing is an organization with rules and a clock.
type noticing struct {
	told
	clock   *handClock
	service *notify.Service
	keyring *secrets.MasterKeys
}

func newNoticing(tb testing.TB, d *DB, key string) *noticing {
	tb.Helper()
	ring, err := secrets.NewMasterKeys(bytes.Repeat([]byte{7}, 32))
	require.NoError(tb, err)
	n := &noticing{told: newTold(tb, d, key), clock: &handClock{}, keyring: ring}
	n.clock.set(instant("2026-11-30T12:00:00Z"))
	n.service = &notify.Service{Store: d.Notifications(), Vault: d, Keyring: ring, Clock: n.clock}
	return n
}

func (n *noticing) deliverer(s notify.Sender) *notify.Deliverer {
	return &notify.Deliverer{Ledger: n.d.Notifications(), Clock: n.clock, Log: slog.New(slog.DiscardHandler),
		Senders: map[notify.Channel]notify.Sender{notify.Webhook: s, notify.Email: s}}
}

func (n *noticing) fail(tb testing.TB) uuid.UUID {
	tb.Helper()
	run := n.newRun(tb)
	n.tell(tb, run, instant("2026-11-30T11:00:00Z"), events.RunStarted{}, events.RunFailed{Class: "permanent", Error: "no"})
	_, err := n.projector().Drain(tb.Context())
	require.NoError(tb, err)
	return run
}

func webhook(name string, names ...string) notify.Draft {
	return notify.Draft{Name: name, Events: names, Channel: notify.Webhook, URL: "https://example.org/x"}
}

func TestRules(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	n, other := newNoticing(t, d, "a"), newNoticing(t, d, "b")
	ctx := t.Context()
	made, err := n.service.Create(ctx, n.a, webhook("ops", notify.RunFailed))
	require.NoError(t, err)
	resolve := func(ref secrets.Ref) (string, error) { return n.resolver.Resolve(ctx, n.a.Organization, ref) }
	first, err := resolve(made.Secret)
	require.NoError(t, err)
	require.Equal(t, made.SecretPrefix, first[:len(made.SecretPrefix)])

	// Two secrets are valid, never three.
	second, until, err := n.service.Rotate(ctx, n.a, made.ID)
	require.NoError(t, err)
	require.Equal(t, n.clock.Now().Add(notify.SecretOverlap), until)
	got, err := n.service.Get(ctx, n.a, made.ID)
	require.NoError(t, err)
	require.Equal(t, made.Secret, got.OldSecret)
	now, err := resolve(got.Secret)
	require.NoError(t, err)
	require.Equal(t, second, now)
	_, _, err = n.service.Rotate(ctx, n.a, made.ID)
	require.NoError(t, err)
	_, err = resolve(made.Secret)
	require.Error(t, err, "the first secret is gone")

	// No secret in any row but encrypted (invariant 10).
	for _, table := range []string{"notification_rules", "audit_log", "secrets"} {
		text := n.text(t, `SELECT coalesce(string_agg(t::text, ' '), '') FROM `+table+` t`)
		for _, secret := range []string{first, second} {
			require.NotContains(t, text, secret[len("whsec_"):])
		}
	}

	_, err = n.service.Create(ctx, n.a, webhook("ops", notify.RunFailed))
	var conflict *control.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, 2, n.count(t, `SELECT count(*) FROM secrets WHERE name LIKE 'notification-rule.%'`), "the refused rule's secret is gone")
	var missing *control.NotFoundError
	_, err = other.service.Get(ctx, other.a, made.ID)
	require.ErrorAs(t, err, &missing)
	foreign := webhook("foreign", notify.RunFailed)
	foreign.Pipeline = other.pipeline
	_, err = n.service.Create(ctx, n.a, foreign)
	require.ErrorAs(t, err, &missing)
	_, _, err = other.service.Rotate(ctx, other.a, made.ID)
	require.ErrorAs(t, err, &missing)
	var stale *control.StaleVersionError
	_, err = n.service.Update(ctx, n.a, made.ID, 1, webhook("ops", notify.RunFailed))
	require.ErrorAs(t, err, &stale)

	n.fail(t)
	require.NoError(t, n.service.Delete(ctx, n.a, made.ID, 0))
	list, err := n.service.Deliveries(ctx, n.a, notify.Filter{}, control.Page{})
	require.NoError(t, err)
	require.Equal(t, notify.Canceled, list.Items[0].State)
	require.Zero(t, n.count(t, `SELECT count(*) FROM secrets WHERE name LIKE 'notification-rule.%'`))
}

// Attempts, backoff, dead letter, replay under the same id.
func TestDeliveryToItsDeathAndBack(t *testing.T) {
	t.Parallel()
	n := newNoticing(t, newDB(t), "a")
	ctx := t.Context()
	rule, err := n.service.Create(ctx, n.a, webhook("ops", notify.RunFailed))
	require.NoError(t, err)
	run := n.fail(t)
	s := &sender{answer: func(int) notify.Result { return notify.Result{Status: 500, Error: "the receiver answered 500"} }}
	d := n.deliverer(s)
	for range notify.MaxAttempts {
		require.NoError(t, d.Run(ctx, n.clock.Now()))
		require.NoError(t, d.Run(ctx, n.clock.Now()), "not due again yet")
		next, err := d.Next(ctx, time.Time{})
		require.NoError(t, err)
		if !next.IsZero() {
			n.clock.set(next)
		}
	}
	require.Len(t, s.sent, notify.MaxAttempts)
	list, err := n.service.Deliveries(ctx, n.a, notify.Filter{Rule: rule.ID, Run: run, State: notify.Dead}, control.Page{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	dead, err := n.service.Delivery(ctx, n.a, list.Items[0].ID)
	require.NoError(t, err)
	require.Len(t, dead.History, notify.MaxAttempts)
	require.Equal(t, 500, dead.History[0].Status)
	require.Equal(t, "shop", dead.PipelineName)
	next, err := d.Next(ctx, time.Time{})
	require.NoError(t, err)
	require.True(t, next.IsZero(), "nothing is due")

	s.answer = accepts
	key := control.WithIdempotency(ctx, control.Idempotency{Key: "k", Hash: []byte("h")})
	for range 2 {
		again, err := n.service.Replay(key, n.a, dead.ID)
		require.NoError(t, err)
		require.Equal(t, notify.Pending, again.State)
	}
	var conflict *control.ConflictError
	_, err = n.service.Replay(ctx, n.a, dead.ID)
	require.ErrorAs(t, err, &conflict)
	require.NoError(t, d.Run(ctx, n.clock.Now()))
	require.Equal(t, dead.ID, s.sent[len(s.sent)-1], "the same id")
	got, err := n.service.Delivery(ctx, n.a, dead.ID)
	require.NoError(t, err)
	require.Equal(t, notify.Sent, got.State)
	var payload struct {
		Type string         `json:"type"`
		Data map[string]any `json:"data"`
	}
	require.NoError(t, json.Unmarshal(got.Payload, &payload))
	require.Equal(t, "run.failed", payload.Type)
	require.Equal(t, run.String(), payload.Data["run_id"])
}

// Several processes send: each delivery once, and a broken receiver's rule does
// not hold up another's.
func TestDeliverersShareTheWork(t *testing.T) {
	t.Parallel()
	n := newNoticing(t, newDB(t), "a")
	ctx := t.Context()
	for i := range 3 {
		_, err := n.service.Create(ctx, n.a, webhook(fmt.Sprintf("r%d", i), notify.RunFailed))
		require.NoError(t, err)
	}
	const failures = 15
	for range failures {
		n.fail(t)
	}
	s := &sender{answer: accepts}
	var wg sync.WaitGroup
	for range 5 {
		d := n.deliverer(s)
		wg.Go(func() {
			if err := d.Run(ctx, n.clock.Now()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.NoError(t, n.deliverer(s).Run(ctx, n.clock.Now()))
	require.Len(t, s.sent, 3*failures)
	ids := map[uuid.UUID]bool{}
	for _, id := range s.sent {
		ids[id] = true
	}
	require.Len(t, ids, 3*failures)
	require.Equal(t, 3*failures, n.count(t, `SELECT count(*) FROM notification_deliveries WHERE state = 'sent'`))
}

// A process that dies while it sends leaves the delivery to the others, under the
// same id, and no attempt is burnt.
func TestDeliveryOfALostProcess(t *testing.T) {
	t.Parallel()
	n := newNoticing(t, newDB(t), "a")
	_, err := n.service.Create(t.Context(), n.a, webhook("ops", notify.RunFailed))
	require.NoError(t, err)
	n.fail(t)
	dying, cancel := context.WithCancel(t.Context())
	first := &sender{before: cancel, answer: func(int) notify.Result { return notify.Result{Error: "the process was stopped"} }}
	require.ErrorIs(t, n.deliverer(first).Run(dying, n.clock.Now()), context.Canceled)
	second := &sender{answer: accepts}
	require.NoError(t, n.deliverer(second).Run(t.Context(), n.clock.Now()))
	require.Empty(t, second.sent, "its claim stands")
	n.clock.set(n.clock.Now().Add(time.Hour))
	require.NoError(t, n.deliverer(second).Run(t.Context(), n.clock.Now()))
	require.Equal(t, first.sent, second.sent)
	require.Equal(t, 1, n.count(t, `SELECT count(*) FROM notification_deliveries WHERE state = 'sent' AND attempts = 1 AND interruptions = 1`))
}

// A rule that watches tells once of each silence.
func TestWatches(t *testing.T) {
	t.Parallel()
	n := newNoticing(t, newDB(t), "a")
	ctx := t.Context()
	stale := webhook("stale", notify.PipelineStale)
	stale.StaleAfter = time.Hour
	_, err := n.service.Create(ctx, n.a, stale)
	require.NoError(t, err)
	still := webhook("still", notify.RunNoProgress)
	still.NoProgressAfter = 10 * time.Minute
	_, err = n.service.Create(ctx, n.a, still)
	require.NoError(t, err)
	w := &notify.Watcher{Ledger: n.d.Notifications()}
	told := func() string {
		return n.text(t, `SELECT coalesce(string_agg(event, ' ' ORDER BY created_at), '') FROM notification_deliveries`)
	}
	look := func(at time.Time) {
		require.NoError(t, w.Run(ctx, at))
		next, err := w.Next(ctx, time.Time{})
		require.NoError(t, err)
		require.True(t, next.IsZero() || next.After(at))
	}
	// The pipeline was made now, by the database's clock.
	start := time.Now().UTC()
	look(start)
	require.Empty(t, told())
	ended := start.Add(30 * time.Minute)
	run := n.newRun(t)
	n.tell(t, run, ended.Add(-time.Minute), events.AttemptStarted{Attempt: 1, Generation: 1}, events.RunStarted{}, events.RunCompleted{})
	_, err = n.projector().Drain(ctx)
	require.NoError(t, err)
	look(ended)
	next, err := w.Next(ctx, time.Time{})
	require.NoError(t, err)
	require.True(t, next.Before(ended.Add(time.Hour)))
	look(ended.Add(50 * time.Minute))
	require.Empty(t, told())
	look(ended.Add(time.Hour))
	require.Equal(t, "pipeline.stale", told())
	look(ended.Add(5 * time.Hour))
	require.Equal(t, "pipeline.stale", told(), "once")

	slow := n.newRun(t)
	begun := ended.Add(6 * time.Hour)
	n.tell(t, slow, begun, events.AttemptStarted{Attempt: 1, Generation: 1}, events.RunStarted{})
	_, err = n.projector().Drain(ctx)
	require.NoError(t, err)
	look(begun.Add(9 * time.Minute))
	require.Equal(t, "pipeline.stale", told())
	look(begun.Add(11 * time.Minute))
	look(begun.Add(30 * time.Minute))
	require.Equal(t, "pipeline.stale run.no_progress", told())
	n.tell(t, slow, begun.Add(31*time.Minute), events.CheckpointSaved{Resource: "t"})
	_, err = n.projector().Drain(ctx)
	require.NoError(t, err)
	look(begun.Add(45 * time.Minute))
	require.Equal(t, "pipeline.stale run.no_progress run.no_progress", told(), "it went on and stands still again")
}

func TestHealthAndMetrics(t *testing.T) {
	t.Parallel()
	n := newNoticing(t, newDB(t), "a")
	ctx := t.Context()
	read := n.d.Projection()
	routes, next, err := read.RoutesHealth(ctx, n.a, uuid.Nil, control.Page{})
	require.NoError(t, err)
	require.Empty(t, next)
	require.Len(t, routes, 1)
	require.Zero(t, routes[0].Failures)
	n.fail(t)
	n.fail(t)
	routes, _, err = read.RoutesHealth(ctx, n.a, n.pipeline, control.Page{})
	require.NoError(t, err)
	require.Equal(t, 2, routes[0].Failures)
	require.Equal(t, "failed", routes[0].LastState)
	ok := n.newRun(t)
	n.tell(t, ok, instant("2026-11-30T12:30:00Z"), events.AttemptStarted{Attempt: 1, Generation: 1, MemoryBytes: 1 << 30}, events.RunStarted{})
	n.tell(t, ok, instant("2026-11-30T12:30:10Z"), events.EpochCommitted{Resource: "t", Counts: events.Counts{Read: 5, Applied: 5, Bytes: 1 << 30}},
		events.ResourceCompleted{Resource: "t", Counts: events.Counts{Read: 5, Applied: 5, Bytes: 1 << 30}}, events.RunCompleted{})
	_, err = n.projector().Drain(ctx)
	require.NoError(t, err)
	routes, _, err = read.RoutesHealth(ctx, n.a, n.pipeline, control.Page{})
	require.NoError(t, err)
	require.Zero(t, routes[0].Failures)
	require.Equal(t, instant("2026-11-30T12:30:10Z"), routes[0].SuccessEndedAt)
}
