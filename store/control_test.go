package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/control/sweep"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// fleet is an organization whose runs a test starts and works on.
type fleet struct {
	t   testing.TB
	db  *DB
	a   control.Actor
	svc *runs.Service
	// pipelines by name.
	pipelines map[string]runs.Compiled
}

func newFleet(t testing.TB, d *DB, key string) *fleet {
	t.Helper()
	f := &fleet{t: t, db: d, pipelines: map[string]runs.Compiled{}}
	f.a = control.Actor{Organization: newOrganization(t, d, key), Kind: control.ActorServiceAccount, ID: uuid.Must(uuid.NewV7()), Name: "ann", Role: control.RoleAdmin}
	f.svc = &runs.Service{Store: d, Pipelines: f, Clock: wall{}, Waiter: polling{}}
	return f
}

type wall struct{}

func (wall) Now() time.Time                                   { return time.Now() }
func (wall) Sleep(ctx context.Context, until time.Time) error { return errors.ErrUnsupported }

type polling struct{}

func (polling) WaitFacts(context.Context, uuid.UUID, time.Time) { time.Sleep(10 * time.Millisecond) }

func (f *fleet) CompileRuns(_ context.Context, _ uuid.UUID, ref string) (runs.Compiled, error) {
	if c, ok := f.pipelines[ref]; ok {
		return c, nil
	}
	for name, c := range f.pipelines {
		if name == ref || c.ID.String() == ref {
			return c, nil
		}
	}
	return runs.Compiled{}, &control.NotFoundError{Kind: "pipeline", Ref: ref}
}

func (f *fleet) pipeline(name string) {
	f.pipelines[name] = runs.Compiled{
		ID: uuid.Must(uuid.NewV7()), Name: name, Number: 1, Routes: []runs.Route{{Key: "a->b", Name: name, Hash: "h1"}},
		Policy: runs.Policy{Retry: runs.Retry{Attempts: 2, Wait: time.Millisecond, MaxWait: time.Millisecond}},
	}
	id := f.pipelines[name].ID
	require.NoError(f.t, f.db.Tx(f.t.Context(), f.a.Organization, func(ctx context.Context, tx Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO pipelines (organization, id, name, current) VALUES (organization(), $1, $2, 1)`, id, id.String()); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO pipeline_versions (organization, pipeline, number, hash, graph, created_by) VALUES (organization(), $1, 1, 'h1', '{}', '')`, id)
		return err
	}))
}

func (f *fleet) start(name string) runs.Run {
	f.t.Helper()
	s, err := f.svc.Start(f.t.Context(), f.a, runs.StartRequest{Pipeline: name})
	require.NoError(f.t, err)
	require.Len(f.t, s.Runs, 1)
	return s.Runs[0]
}

func (f *fleet) get(id uuid.UUID) runs.Run {
	f.t.Helper()
	r, err := f.db.Run(f.t.Context(), f.a.Organization, id)
	require.NoError(f.t, err)
	return r
}

var admission = dispatch.Admission{PerOrganization: 1000, Expiry: time.Minute}

func (f *fleet) admit() []dispatch.Command {
	f.t.Helper()
	c, err := f.db.Admit(f.t.Context(), 1000, admission)
	require.NoError(f.t, err)
	return c
}

// begin accepts a command and takes the run's first slot, as a worker does.
func (f *fleet) begin(c dispatch.Command, holder string) (*RunState, engine.Lease) {
	f.t.Helper()
	ctx := f.t.Context()
	mine, err := f.db.Accept(ctx, c, holder, time.Minute)
	require.NoError(f.t, err)
	require.True(f.t, mine)
	st := f.db.RunState(c.Organization, c.Run)
	r := f.get(c.Run)
	installation, err := st.Installation(ctx)
	require.NoError(f.t, err)
	_, _, err = st.StartRun(ctx, engine.StartRequest{Route: engine.Route{Installation: installation, Pipeline: r.Name, Source: "src", Sink: "dst"}, Version: r.Hash})
	require.NoError(f.t, err)
	l, err := st.Acquire(ctx, c.Run, 0, holder, time.Minute)
	require.NoError(f.t, err)
	return st, l
}

// finish ends a run as the engine does.
func (f *fleet) finish(st *RunState, l engine.Lease, state engine.RunState) {
	f.t.Helper()
	end := engine.RunEnd{State: state}
	var p events.Payload
	switch state {
	case engine.StateCompleted:
		p = events.RunCompleted{}
	case engine.StatePaused:
		p = events.RunPaused{}
	case engine.StateCanceled:
		p = events.RunCanceled{}
	default:
		p, end.Resumable, end.Error = events.RunFailed{Class: "permanent", Error: "no"}, true, "no"
	}
	fact, err := events.New(l.RunID, time.Now(), p)
	require.NoError(f.t, err)
	end.Facts = []events.Fact{fact}
	require.NoError(f.t, st.FinishRun(f.t.Context(), l.Fence, end))
}

// expire ends the leases and offers of a run as time would.
func (f *fleet) expire(run uuid.UUID) {
	f.t.Helper()
	require.NoError(f.t, f.db.Tx(f.t.Context(), f.a.Organization, func(ctx context.Context, tx Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE slots SET expires = clock_timestamp() - interval '1 s' WHERE run = $1 AND holder <> ''`, run); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE attempt_offers SET expires = clock_timestamp() - interval '1 s' WHERE run = $1 AND state <> 'waiting'`, run)
		return err
	}))
}

func (f *fleet) sweep() {
	f.t.Helper()
	s := &sweep.Sweeper{Store: f.db, Log: f.db.log}
	_, _, err := s.Sweep(f.t.Context())
	require.NoError(f.t, err)
}

func (f *fleet) facts(run uuid.UUID) []events.Type {
	f.t.Helper()
	list, err := f.db.RunFacts(f.t.Context(), f.a.Organization, run, 0, 10000)
	require.NoError(f.t, err)
	out := make([]events.Type, len(list))
	for i, x := range list {
		require.EqualValues(f.t, i+1, x.Number, "numbers have no gaps")
		out[i] = x.Type
	}
	return out
}

func TestARunFromIntakeToItsEnd(t *testing.T) {
	t.Parallel()
	f := newFleet(t, newDB(t), "acme")
	f.pipeline("shop")
	r := f.start("shop")
	require.Equal(t, engine.StateRequested, r.State)
	require.Equal(t, "shop", r.Title)
	require.True(t, r.Offered)

	_, err := f.svc.Start(t.Context(), f.a, runs.StartRequest{Pipeline: "shop"})
	var overlap *runs.OverlapError
	require.ErrorAs(t, err, &overlap)
	require.Equal(t, []runs.Busy{{Route: "a->b", Run: r.ID, State: engine.StateRequested}}, overlap.Busy)
	var conflict *control.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, "run_overlap", conflict.Code)

	c := f.admit()
	require.Len(t, c, 1)
	require.Empty(t, f.admit(), "a command is out")
	st, l := f.begin(c[0], "w1")
	r = f.get(r.ID)
	require.Equal(t, engine.StateRunning, r.State)
	require.True(t, r.Busy)
	require.False(t, r.Offered)
	mine, err := f.db.Accept(t.Context(), c[0], "w2", time.Minute)
	require.NoError(t, err)
	require.False(t, mine, "a repeated command does nothing")
	f.finish(st, l, engine.StateCompleted)
	r = f.get(r.ID)
	require.Equal(t, engine.StateCompleted, r.State)
	require.False(t, r.Busy)
	require.Equal(t, []events.Type{events.TypeRunRequested, events.TypeRunStarted, events.TypeRunCompleted}, f.facts(r.ID))
	_, err = f.svc.Cancel(t.Context(), f.a, r.ID)
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, "completed", conflict.State)
}

// TestALostWorkerIsFollowed: its slot is fenced off, its splits return, the next
// attempt is offered, and the third loss in a row fails the run (P24).
func TestALostWorkerIsFollowed(t *testing.T) {
	t.Parallel()
	f := newFleet(t, newDB(t), "acme")
	f.pipeline("shop")
	r := f.start("shop")
	for n := 1; n <= 3; n++ {
		c := f.admit()
		require.Len(t, c, 1)
		st, l := f.begin(c[0], fmt.Sprint("w", n))
		f.sweep()
		require.True(t, f.get(r.ID).Busy, "a live lease is left alone")
		f.expire(r.ID)
		f.sweep()
		var stale *engine.StaleError
		_, err := st.Renew(t.Context(), l, time.Minute)
		require.ErrorAs(t, err, &stale, "the lost worker is fenced off (invariant 2)")
		require.Equal(t, n, f.get(r.ID).Interruptions)
	}
	r = f.get(r.ID)
	require.Equal(t, engine.StateFailed, r.State)
	require.True(t, r.Resumable)
	require.Zero(t, r.Failures)
	require.Contains(t, r.Error, "w3")
	require.NotEmpty(t, r.Hint)

	// A new start goes on with it, since it is of the same version.
	again := f.start("shop")
	require.Equal(t, r.ID, again.ID)
	require.Equal(t, engine.StateRunning, again.State)
	require.Zero(t, again.Interruptions)
}

func TestALostCommandIsSentAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, newDB(t), "acme")
	f.pipeline("shop")
	r := f.start("shop")
	first := f.admit()
	f.expire(r.ID)
	f.sweep()
	second := f.admit()
	require.Len(t, second, 1)
	require.Greater(t, second[0].Sent, first[0].Sent)
	mine, err := f.db.Accept(t.Context(), first[0], "w1", time.Minute)
	require.NoError(t, err)
	require.False(t, mine, "the older command is void")
	f.begin(second[0], "w2")
	require.Equal(t, 1, f.get(r.ID).Attempts, "a lost command is no attempt")
	require.Zero(t, f.get(r.ID).Interruptions)
}

func TestAcceptedAndNotBegun(t *testing.T) {
	t.Parallel()
	f := newFleet(t, newDB(t), "acme")
	f.pipeline("shop")
	r := f.start("shop")
	c := f.admit()[0]
	mine, err := f.db.Accept(t.Context(), c, "w1", time.Minute)
	require.NoError(t, err)
	require.True(t, mine)
	require.True(t, f.get(r.ID).Busy)
	d, err := f.db.Keep(t.Context(), c, "w1", time.Minute)
	require.NoError(t, err)
	require.Equal(t, engine.DesiredRun, d)
	_, err = f.svc.Cancel(t.Context(), f.a, r.ID)
	require.NoError(t, err)
	d, err = f.db.Keep(t.Context(), c, "w1", time.Minute)
	require.NoError(t, err)
	require.Equal(t, engine.DesiredCancel, d)
	require.NoError(t, f.db.GiveUp(t.Context(), c, "w1"))
	require.NoError(t, f.db.Settle(t.Context(), sweep.Ref{Organization: c.Organization, Run: c.Run}, runs.Idle))
	require.Equal(t, engine.StateCanceled, f.get(r.ID).State)
	var stale *engine.StaleError
	_, err = f.db.Keep(t.Context(), c, "w1", time.Minute)
	require.ErrorAs(t, err, &stale)
}

// TestStartOncePerKey: a repeated request returns the same run, another body under
// the same key is refused, and a refused request leaves its key unused.
func TestStartOncePerKey(t *testing.T) {
	t.Parallel()
	f := newFleet(t, newDB(t), "acme")
	f.pipeline("shop")
	key := func(k, body string) context.Context {
		return control.WithIdempotency(t.Context(), control.Idempotency{Key: k, Hash: []byte(body)})
	}
	first, err := f.svc.Start(key("k1", "a"), f.a, runs.StartRequest{Pipeline: "shop"})
	require.NoError(t, err)
	again, err := f.svc.Start(key("k1", "a"), f.a, runs.StartRequest{Pipeline: "shop"})
	require.NoError(t, err)
	require.Equal(t, first.Runs[0].ID, again.Runs[0].ID)
	_, err = f.svc.Start(key("k1", "b"), f.a, runs.StartRequest{Pipeline: "shop"})
	var conflict *control.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, "idempotency_key_reused", conflict.Code)

	_, err = f.svc.Start(key("k2", "a"), f.a, runs.StartRequest{Pipeline: "shop"})
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, "run_overlap", conflict.Code)
	busy, err := f.svc.Start(key("k2", "a"), f.a, runs.StartRequest{Pipeline: "shop", AllowBusy: true})
	require.NoError(t, err)
	require.Empty(t, busy.Runs)
	require.Len(t, busy.Busy, 1)
	_, err = f.svc.Cancel(t.Context(), f.a, first.Runs[0].ID)
	require.NoError(t, err)
	second, err := f.svc.Start(key("k2", "a"), f.a, runs.StartRequest{Pipeline: "shop"})
	require.NoError(t, err)
	require.NotEqual(t, first.Runs[0].ID, second.Runs[0].ID)
	again, err = f.svc.Start(key("k1", "a"), f.a, runs.StartRequest{Pipeline: "shop"})
	require.NoError(t, err)
	require.Equal(t, first.Runs[0].ID, again.Runs[0].ID)
	require.Equal(t, engine.StateCanceled, again.Runs[0].State)
}

// TestOneOfManyStarts: the overlap guard holds under concurrency (P21).
func TestOneOfManyStarts(t *testing.T) {
	t.Parallel()
	f := newFleet(t, newDB(t), "acme")
	f.pipeline("shop")
	var won atomic.Int32
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			_, err := f.svc.Start(t.Context(), f.a, runs.StartRequest{Pipeline: "shop"})
			var overlap *runs.OverlapError
			if err == nil {
				won.Add(1)
			} else if !errors.As(err, &overlap) {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	require.EqualValues(t, 1, won.Load())
}

// TestAdmission: at most so many slots of an organization run at once, a run that
// is greater than the bound runs alone, and one organization does not keep
// another from its share.
func TestAdmission(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	a, b := newFleet(t, d, "acme"), newFleet(t, d, "bolt")
	for i := range 5 {
		name := fmt.Sprint("p", i)
		a.pipeline(name)
		a.start(name)
	}
	b.pipeline("p")
	b.start("p")
	bound := dispatch.Admission{PerOrganization: 4, Expiry: time.Minute} // two runs of two slots
	admit := func(n int) map[uuid.UUID][]dispatch.Command {
		list, err := d.Admit(t.Context(), n, bound)
		require.NoError(t, err)
		out := map[uuid.UUID][]dispatch.Command{}
		for _, c := range list {
			out[c.Organization] = append(out[c.Organization], c)
		}
		return out
	}
	got := admit(2)
	require.Len(t, got[a.a.Organization], 1)
	require.Len(t, got[b.a.Organization], 1, "those that run least come first")
	got = admit(10)
	require.Len(t, got[a.a.Organization], 1)
	require.Empty(t, admit(10), "the bound is reached")
	bound.PerOrganization = 1
	require.Empty(t, admit(10))
}

func TestAGreatRunRunsAlone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, newDB(t), "acme")
	f.pipeline("big")
	c := f.pipelines["big"]
	c.Policy.Slots = 16
	f.pipelines["big"] = c
	f.start("big")
	list, err := f.db.Admit(t.Context(), 10, dispatch.Admission{PerOrganization: 4, Expiry: time.Minute})
	require.NoError(t, err)
	require.Len(t, list, 1)
}

// TestScheduledRuns: a run that begins later waits, is canceled at once, and
// becomes requested when its time has come.
func TestScheduledRuns(t *testing.T) {
	t.Parallel()
	f := newFleet(t, newDB(t), "acme")
	f.pipeline("shop")
	s, err := f.svc.Start(t.Context(), f.a, runs.StartRequest{Pipeline: "shop", NotBefore: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	id := s.Runs[0].ID
	require.Equal(t, engine.StateScheduled, s.Runs[0].State)
	f.sweep()
	require.Empty(t, f.admit())
	require.NoError(t, f.db.Tx(t.Context(), f.a.Organization, func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `UPDATE attempt_offers SET not_before = clock_timestamp() WHERE run = $1`, id)
		return err
	}))
	f.sweep()
	require.Equal(t, engine.StateRequested, f.get(id).State)
	require.Len(t, f.admit(), 1)
	require.Equal(t, []events.Type{events.TypeRunScheduled, events.TypeRunRequested}, f.facts(id))

	f.pipeline("other")
	s, err = f.svc.Start(t.Context(), f.a, runs.StartRequest{Pipeline: "other", NotBefore: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	r, err := f.svc.Cancel(t.Context(), f.a, s.Runs[0].ID)
	require.NoError(t, err)
	require.Equal(t, engine.StateCanceled, r.State)
	require.False(t, r.Offered)
}

// TestCrashesLeaveNothingStuck: whatever is missing of what a worker or a request
// would have done next, a sweep makes up for (P23).
func TestCrashesLeaveNothingStuck(t *testing.T) {
	t.Parallel()
	f := newFleet(t, newDB(t), "acme")
	f.pipeline("shop")
	r := f.start("shop")
	st, l := f.begin(f.admit()[0], "w1")
	// The worker dies between handing over and offering the next attempt.
	require.NoError(t, st.EndAttempt(t.Context(), l, nil))
	require.False(t, f.get(r.ID).Offered)
	f.sweep()
	require.True(t, f.get(r.ID).Offered)
	require.Zero(t, f.get(r.ID).Interruptions)
	// Asked to cancel, the worker dies: one more attempt is offered, for that alone.
	_, l2 := f.begin(f.admit()[0], "w2")
	require.Equal(t, int64(2), l2.Generation)
	_, err := f.svc.Cancel(t.Context(), f.a, r.ID)
	require.NoError(t, err)
	f.expire(r.ID)
	f.sweep()
	c := f.admit()
	require.Len(t, c, 1)
	require.True(t, c[0].Cancel)
	st3, l3 := f.begin(c[0], "w3")
	d, err := st3.Renew(t.Context(), l3, time.Minute)
	require.NoError(t, err)
	require.Equal(t, engine.DesiredCancel, d)
	f.finish(st3, l3, engine.StateCanceled)
	require.Equal(t, engine.StateCanceled, f.get(r.ID).State)
}

// TestNoWorkIsCommittedUnarmed: while many make work and sweeps disarm at any
// moment, there is never committed work with nothing armed (P23).
func TestNoWorkIsCommittedUnarmed(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	f := newFleet(t, d, "acme")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	for i := range 6 {
		f.pipeline(fmt.Sprint("p", i))
	}
	drained := func(ctx context.Context) error {
		return d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
			_, err := tx.Exec(ctx, `DELETE FROM fact_relays`)
			return err
		})
	}
	var wait sync.WaitGroup
	var disarmed atomic.Int32
	for i := range 6 {
		wait.Go(func() {
			for ctx.Err() == nil {
				s, err := f.svc.Start(ctx, f.a, runs.StartRequest{Pipeline: fmt.Sprint("p", i)})
				if err != nil {
					continue
				}
				_, _ = f.svc.Cancel(ctx, f.a, s.Runs[0].ID)
				_ = drained(ctx)
			}
		})
	}
	for range 2 {
		wait.Go(func() {
			for ctx.Err() == nil {
				if ok, err := d.Disarm(ctx); ok && err == nil {
					disarmed.Add(1)
				}
			}
		})
	}
	wait.Go(func() {
		for ctx.Err() == nil {
			var open, armed bool
			err := d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
				// One snapshot of both.
				return tx.QueryRow(ctx, `SELECT open_work(), (SELECT armed FROM arming)`).Scan(&open, &armed)
			})
			if err == nil && open && !armed {
				t.Error("there is work and nothing is armed")
				return
			}
		}
	})
	wait.Wait()
	require.Positive(t, disarmed.Load())
}

func TestHints(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	f := newFleet(t, d, "acme")
	f.pipeline("shop")
	ctx, cancel := context.WithCancel(t.Context())
	connected, hints := make(chan struct{}, 10), make(chan Hint, 100)
	var wait sync.WaitGroup
	wait.Go(func() { d.Listen(ctx, func() { connected <- struct{}{} }, func(h Hint) { hints <- h }) })
	<-connected
	r := f.start("shop")
	seen := map[HintKind]bool{}
	for !seen[HintArmed] || !seen[HintIntake] || !seen[HintFacts] {
		h := <-hints
		seen[h.Kind] = true
	}
	_, err := f.svc.Cancel(ctx, f.a, r.ID)
	require.NoError(t, err)
	for h := range hints {
		if h.Kind == HintDesired {
			require.Equal(t, r.ID, h.Object)
			break
		}
	}
	// A new connection looks at everything again.
	require.NoError(t, d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `RESET ROLE`)
		if err == nil {
			_, err = tx.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'listen%'`)
		}
		return err
	}))
	<-connected
	cancel()
	wait.Wait()
}
