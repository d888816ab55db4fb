package store

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/control/projection"
	"github.com/tranship-io/tranship/events"
)

// life makes the facts of a run from its intake to its end, in the order in which
// workers tell them; rng decides how it goes.
func life(rng *rand.Rand, start time.Time) [][]events.Payload {
	var out [][]events.Payload
	add := func(p ...events.Payload) { out = append(out, p) }
	add(events.RunRequested{Pipeline: "shop", PipelineVersion: "v", Route: "a->b", Ordinal: 1})
	resources := 1 + rng.IntN(3)
	for attempt := 1; ; attempt++ {
		generation := int64(attempt)
		first := []events.Payload{events.AttemptStarted{Attempt: attempt, Generation: generation, Holder: "w", MemoryBytes: 256 << 20}}
		if attempt == 1 {
			first = append(first, events.RunStarted{Slots: 1})
			for r := range resources {
				first = append(first, events.ResourcePlanned{Resource: fmt.Sprintf("t%d", r), Target: "t", Read: "full", Write: "replace", Splits: 1})
			}
		}
		add(first...)
		last := rng.IntN(3) == 0 || attempt == 4
		for r := range resources {
			name := fmt.Sprintf("t%d", r)
			if rng.IntN(8) == 0 {
				add(events.ResourceReset{Resource: name, Reason: "its staging is gone"})
			}
			add(events.EpochCommitted{Resource: name, Split: "s", Counts: events.Counts{Read: 10, Applied: 9, Skipped: 1, Bytes: 1000}},
				events.CheckpointSaved{Resource: name, Split: "s"})
			if last {
				add(events.SplitFinished{Resource: name, Split: "s"}, events.ResourceCompleted{Resource: name, Counts: events.Counts{Read: 20, Applied: 20, Bytes: 2000}})
			}
		}
		used := events.AttemptUsed{Generation: generation, CPUMillis: 50, PeakBytes: int64(rng.IntN(1 << 30))}
		if last {
			add(used, events.RunCompleted{RowsRead: int64(20 * resources), RowsWritten: int64(20 * resources), Millis: 5000})
			return out
		}
		switch rng.IntN(4) {
		case 0:
			add(events.AttemptInterrupted{Generation: generation, Holder: "w", Reason: "lease expired", InARow: 1})
		case 1:
			add(used, events.AttemptHandedOver{Generation: generation, Reason: "deadline"})
		case 2:
			add(events.ResourceFailed{Resource: "t0", Error: "too wide"}, used, events.RunFailed{Class: "retryable", Error: "too wide", Resumable: true})
			add(events.RunResumed{By: "me"})
		default:
			add(used, events.RunPaused{Reason: "asked"})
			add(events.RunResumed{By: "me"})
		}
	}
}

// told is a store whose runs tell facts.
type told struct {
	*services
	pipeline uuid.UUID
}

func (s told) newRun(tb testing.TB) uuid.UUID {
	tb.Helper()
	id := uuid.Must(uuid.NewV7())
	require.NoError(tb, s.d.Tx(tb.Context(), s.a.Organization, func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO runs (organization, id, pipeline, pipeline_name, version, route_key, state, created_at)
			VALUES ($1, $2, $3, 'shop', 'v', 'a->b', 'completed', '2026-11-30T10:00:00Z')`, s.a.Organization, id, s.pipeline)
		return err
	}))
	return id
}

// tell appends facts in one transaction.
func (s told) tell(tb testing.TB, run uuid.UUID, at time.Time, list ...events.Payload) {
	tb.Helper()
	var facts []events.Fact
	for _, p := range list {
		f, err := events.New(run, at, p)
		require.NoError(tb, err)
		facts = append(facts, f)
	}
	require.NoError(tb, s.d.Tx(tb.Context(), s.a.Organization, func(ctx context.Context, tx Tx) error {
		if _, err := tx.Exec(ctx, `SELECT FROM runs WHERE organization = $1 AND id = $2 FOR NO KEY UPDATE`, s.a.Organization, run); err != nil {
			return err
		}
		return tx.AddFacts(ctx, run, facts...)
	}))
}

func (s told) projector() *projection.Projector {
	return &projection.Projector{Relay: s.d.Projection(), Store: s.d.Projection(), Clock: &handClock{}, Log: slog.New(slog.DiscardHandler)}
}

// models reads all read models of the organization.
func (s told) models(tb testing.TB) string {
	tb.Helper()
	out := ""
	require.NoError(tb, s.d.Tx(tb.Context(), s.a.Organization, func(ctx context.Context, tx Tx) error {
		for _, query := range []string{
			`SELECT to_jsonb(t) - 'muted' FROM run_history t ORDER BY run`,
			`SELECT to_jsonb(t) FROM run_resources t ORDER BY run, resource`,
			`SELECT to_jsonb(t) FROM run_costs t ORDER BY run`,
			`SELECT to_jsonb(t) FROM metrics_hourly t ORDER BY hour, pipeline, source, sink, resource, status`,
			`SELECT to_jsonb(t) FROM metrics_durations t ORDER BY hour, pipeline, source, sink, resource, status, class`,
			`SELECT to_jsonb(t) FROM metrics_daily t ORDER BY day, pipeline, source, sink, resource, status`,
			`SELECT to_jsonb(t) FROM metrics_daily_durations t ORDER BY day, pipeline, source, sink, resource, status, class`,
		} {
			rows, err := tx.Query(ctx, query)
			if err != nil {
				return err
			}
			found, err := pgx.CollectRows(rows, pgx.RowTo[json.RawMessage])
			if err != nil {
				return err
			}
			for _, row := range found {
				out += string(row) + "\n"
			}
		}
		return nil
	}))
	return out
}

func (s told) count(tb testing.TB, query string, args ...any) (n int) {
	tb.Helper()
	require.NoError(tb, s.d.Tx(tb.Context(), s.a.Organization, func(ctx context.Context, tx Tx) error {
		return tx.QueryRow(ctx, query, args...).Scan(&n)
	}))
	return n
}

func newTold(tb testing.TB, d *DB, key string) told {
	tb.Helper()
	s := told{services: newServices(tb, d, key)}
	s.pipeline = s.newPipeline(tb, "shop")
	return s
}

// Workers tell, several projectors fold at once what was told, over and over: the
// rows are those of one projector that folds all at the end, of a rebuild, and
// each event has exactly one delivery.
func TestProjectionFoldsOnce(t *testing.T) {
	t.Parallel()
	s := newTold(t, newDB(t), "a")
	rule, err := s.d.Notifications().CreateRule(t.Context(), s.a, notify.Rule{
		ID: uuid.Must(uuid.NewV7()), Name: "all", Events: []string{notify.RunCompleted, notify.RunFailed, notify.ResourceFailed},
		Channel: notify.Email, To: []string{"a@example.org"},
	})
	require.NoError(t, err)
	start := instant("2026-11-30T10:59:50Z")
	const runs = 24
	var tellers, folders sync.WaitGroup
	done := make(chan struct{})
	want := map[string]int{}
	var mu sync.Mutex
	for i := range runs {
		run := s.newRun(t)
		rng := rand.New(rand.NewPCG(4, uint64(i)))
		tellers.Go(func() {
			for n, part := range life(rng, start) {
				s.tell(t, run, start.Add(time.Duration(n)*3*time.Second), part...)
				mu.Lock()
				for _, p := range part {
					typ, _ := p.FactType()
					want[string(typ)]++
				}
				mu.Unlock()
			}
		})
	}
	for range 3 {
		p := s.projector()
		folders.Go(func() {
			for {
				_, err := p.Drain(t.Context())
				if err != nil {
					t.Error(err)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	tellers.Wait()
	close(done)
	folders.Wait()
	p := s.projector()
	_, err = p.Drain(t.Context())
	require.NoError(t, err)
	require.Zero(t, s.count(t, `SELECT count(*) FROM fact_relays`), "all is confirmed")

	require.Equal(t, runs, s.count(t, `SELECT count(*) FROM run_history WHERE state = 'completed'`))
	require.Equal(t, want["run.completed"]+want["run.failed"], s.count(t, `SELECT sum(runs) FROM metrics_hourly WHERE resource = ''`))
	require.Equal(t, s.count(t, `SELECT sum(rows_read) FROM run_history`), s.count(t, `SELECT sum(rows_read) FROM metrics_hourly WHERE resource = ''`))
	require.Equal(t, s.count(t, `SELECT sum(rows_read) FROM run_history`), s.count(t, `SELECT sum(rows_read) FROM metrics_hourly WHERE resource <> ''`))
	require.Equal(t, s.count(t, `SELECT sum(cpu_ms) FROM run_history`), s.count(t, `SELECT sum(cpu_ms) FROM metrics_hourly WHERE resource = ''`))
	require.Equal(t, s.count(t, `SELECT sum(compute_ms) FROM run_costs`), s.count(t, `SELECT sum(compute_ms) FROM metrics_hourly WHERE resource = ''`))
	require.Equal(t, s.count(t, `SELECT sum(endings) FROM metrics_durations WHERE resource = ''`), s.count(t, `SELECT sum(runs) FROM metrics_hourly WHERE resource = ''`))
	require.Equal(t, s.count(t, daysOfHours), s.count(t, `SELECT count(*) FROM metrics_daily`))
	require.Zero(t, s.count(t, daysBehind))
	require.Equal(t, "db", s.text(t, `SELECT string_agg(DISTINCT source, ',') FROM run_history`))

	for event, facts := range map[string]int{notify.RunCompleted: want["run.completed"], notify.RunPartial: want["run.failed"], notify.ResourceFailed: want["resource.failed"]} {
		require.Equal(t, facts, s.count(t, `SELECT count(*) FROM notification_deliveries WHERE rule = $1 AND event = $2`, rule.ID, event), event)
	}
	deliveries := s.count(t, `SELECT count(*) FROM notification_deliveries`)

	before := s.models(t)
	// Deliveries that retention dropped are not made again.
	require.NoError(t, s.d.Maintain(t.Context(), func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM notification_deliveries WHERE event = 'run.completed'`)
		return err
	}))
	read := &projection.Service{Reader: s.d.Projection()}
	var asked control.Idempotency
	asked.Key, asked.Hash = "again", []byte("x")
	ctx := control.WithIdempotency(t.Context(), asked)
	begun, err := read.Rebuild(ctx, s.a)
	require.NoError(t, err)
	require.EqualValues(t, runs, begun.Waiting)
	require.Zero(t, s.count(t, `SELECT count(*) FROM metrics_hourly`))
	require.Zero(t, s.count(t, `SELECT count(*) FROM metrics_daily`))
	again, err := read.Rebuild(ctx, s.a)
	require.NoError(t, err)
	require.Equal(t, begun, again, "the same request")
	_, err = p.Drain(t.Context())
	require.NoError(t, err)
	left, err := read.Waiting(t.Context(), s.a)
	require.NoError(t, err)
	require.Zero(t, left)
	require.Equal(t, before, s.models(t))
	require.Equal(t, 1, s.count(t, `SELECT count(*) FROM audit_log WHERE action = 'metrics.rebuild'`))
	require.Equal(t, deliveries-want["run.completed"], s.count(t, `SELECT count(*) FROM notification_deliveries`))
}

func (s told) text(tb testing.TB, query string) (out string) {
	tb.Helper()
	require.NoError(tb, s.d.Tx(tb.Context(), s.a.Organization, func(ctx context.Context, tx Tx) error {
		return tx.QueryRow(ctx, query).Scan(&out)
	}))
	return out
}

// A run that cannot be folded does not hold up the others.
func TestProjectionLeavesABrokenRun(t *testing.T) {
	t.Parallel()
	s := newTold(t, newDB(t), "a")
	at := instant("2026-11-30T11:00:00Z")
	good, bad := s.newRun(t), s.newRun(t)
	s.tell(t, bad, at, events.RunStarted{})
	s.tell(t, good, at, events.RunStarted{})
	require.NoError(t, s.d.Maintain(t.Context(), func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM facts WHERE run = $1`, bad)
		return err
	}))
	s.tell(t, bad, at, events.RunCompleted{})
	_, err := s.projector().Drain(t.Context())
	var gap *projection.GapError
	require.ErrorAs(t, err, &gap)
	require.Equal(t, 1, s.count(t, `SELECT count(*) FROM run_history WHERE run = $1 AND state = 'running'`, good))
	require.Equal(t, 2, s.count(t, `SELECT count(*) FROM fact_relays WHERE run = $1`, bad))
	require.Zero(t, s.count(t, `SELECT count(*) FROM fact_relays WHERE run = $1`, good))
	var conflict *control.ConflictError
	require.NoError(t, s.d.Maintain(t.Context(), func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM facts WHERE run = $1`, good)
		return err
	}))
	_, err = s.d.Projection().Rebuild(t.Context(), s.a, uuid.Must(uuid.NewV7()))
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, "facts_dropped", conflict.Code)
}

// A crash after folding and before confirming, or before anybody was told of the
// end, repeats what was left undone and nothing else.
func TestProjectionTellsOfEndsAgain(t *testing.T) {
	t.Parallel()
	s := newTold(t, newDB(t), "a")
	run := s.newRun(t)
	at := instant("2026-11-30T11:00:00Z")
	s.tell(t, run, at, events.AttemptStarted{Attempt: 1, Generation: 1}, events.RunStarted{}, events.RunCompleted{RowsRead: 1})
	p := s.projector()
	ended := 0
	p.Ended = func(context.Context, uuid.UUID, uuid.UUID) error {
		if ended++; ended == 1 {
			return context.DeadlineExceeded
		}
		return nil
	}
	_, err := p.Drain(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	before := s.models(t)
	require.Equal(t, 1, s.count(t, `SELECT count(*) FROM fact_relays`))
	_, err = p.Drain(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, ended)
	require.Equal(t, before, s.models(t))
	require.Zero(t, s.count(t, `SELECT count(*) FROM fact_relays`))
}
