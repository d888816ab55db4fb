package store

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/operations"
	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// yard starts containers as a test says; by token, as platforms do.
type yard struct {
	tokens  map[string]string
	fail    error
	stopped []string
	ended   []dispatch.TaskEnd
}

func (y *yard) Run(_ context.Context, _ dispatch.Command, token string) (string, error) {
	if y.fail != nil {
		return "", y.fail
	}
	if y.tokens == nil {
		y.tokens = map[string]string{}
	}
	if y.tokens[token] == "" {
		y.tokens[token] = "task/" + token
	}
	return y.tokens[token], nil
}

func (y *yard) Stop(_ context.Context, id, _ string) error {
	y.stopped = append(y.stopped, id)
	return nil
}

func (y *yard) Ended(context.Context, []dispatch.Task) ([]dispatch.TaskEnd, error) {
	return y.ended, nil
}

// containers is a fleet whose attempts run in containers.
type containers struct {
	*fleet
	yard    *yard
	starter *dispatch.Starter
	sweeper *dispatch.TaskSweeper
}

func newContainers(t *testing.T) *containers {
	t.Helper()
	d := newDB(t)
	c := &containers{fleet: newFleet(t, d, "a"), yard: &yard{}}
	runner := &operations.Runner{Store: d, Clock: wall{}, Log: slog.New(slog.DiscardHandler)}
	c.starter = &dispatch.Starter{Tasks: c.yard, Store: d, Runner: runner}
	runner.Effects = map[string]operations.Effect{dispatch.KindTask: c.starter, dispatch.KindStopTask: &dispatch.Stopper{Tasks: c.yard}}
	c.sweeper = &dispatch.TaskSweeper{Tasks: c.yard, Store: d, Runner: runner, Clock: wall{}}
	c.pipeline("shop")
	p := c.pipelines["shop"]
	p.Policy.Compute = dispatch.Fargate
	c.pipelines["shop"] = p
	return c
}

// offer starts a run and admits its attempt.
func (c *containers) offer() dispatch.Command {
	c.t.Helper()
	c.fleet.start("shop")
	return c.next()
}

func (c *containers) next() dispatch.Command {
	c.t.Helper()
	a := admission
	a.Platform = dispatch.Platform{Lambda: true, Fargate: true}
	sent, err := c.db.Admit(c.t.Context(), 10, a)
	require.NoError(c.t, err)
	require.Len(c.t, sent, 1)
	return sent[0]
}

func (c *containers) run(command dispatch.Command) operations.Operation {
	c.t.Helper()
	o, err := c.starter.Start(c.t.Context(), command)
	require.NoError(c.t, err)
	return o
}

func (c *containers) end(command dispatch.Command, version int64, reason string, blameless bool) {
	c.t.Helper()
	require.NoError(c.t, dispatch.TaskStopped(c.t.Context(), c.db, dispatch.TaskEnd{
		Task: dispatch.Task{Command: command, ID: "task/x"}, Version: version, Reason: reason, Blameless: blameless}))
}

func TestAttemptsAreOfferedToContainers(t *testing.T) {
	t.Parallel()
	c := newContainers(t)
	sent := c.offer()
	require.Equal(t, dispatch.Fargate, sent.Compute)
	var left float64
	require.NoError(t, superuser(t, c.db).QueryRow(t.Context(), `SELECT extract(epoch FROM expires - now())::float8 FROM attempt_offers WHERE compute = 'fargate'`).Scan(&left))
	require.Greater(t, left, 90.0)
	require.Less(t, left, 130.0, "a lost command is sent again within 3 minutes")

	// One command, however often it comes, starts one container.
	for range 3 {
		require.Equal(t, operations.Succeeded, c.run(sent).State)
	}
	require.Len(t, c.yard.tokens, 1)
	require.NoError(t, superuser(t, c.db).QueryRow(t.Context(), `SELECT extract(epoch FROM expires - now())::float8 FROM attempt_offers WHERE compute = 'fargate'`).Scan(&left))
	require.Greater(t, left, 200.0, "a container takes its time to start")

	// The worker that has the lease ends with its container: the sweep sees to that.
	c.begin(sent, "container")
	c.end(sent, 5, "exit code 0", false)
	r := c.get(sent.Run)
	require.True(t, r.Busy)
	require.Zero(t, r.Interruptions)
	live, err := c.db.LiveTasks(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Empty(t, live)
}

// The choice looks at the last run of the route.
func TestAutoLooksAtTheLastRun(t *testing.T) {
	t.Parallel()
	c := newContainers(t)
	p := c.pipelines["shop"]
	p.Policy.Compute = dispatch.Auto
	c.pipelines["shop"] = p
	require.Equal(t, dispatch.Lambda, c.offer().Compute)
	c.pipeline("large")
	p = c.pipelines["large"]
	require.NoError(t, c.db.Tx(t.Context(), c.a.Organization, func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO run_history (organization, run, pipeline, pipeline_name, route_key, version, created_at, state, started_at, ended_at, bytes)
			VALUES (organization(), gen_random_uuid(), $1, 'large', 'a->b', 'h1', now(), 'completed', now() - interval '2 hours', now(), 1)`, p.ID)
		return err
	}))
	c.fleet.start("large")
	require.Equal(t, dispatch.Fargate, c.next().Compute)
}

// A container that ends before its worker has the lease is an interruption; the
// same report twice is one, and an older one is none. The third fails the run.
func TestContainersThatNeverBegin(t *testing.T) {
	t.Parallel()
	c := newContainers(t)
	sent := c.offer()
	for n := 1; n <= runs.MaxInterruptions; n++ {
		c.run(sent)
		for range 2 {
			c.end(sent, 3, "the image cannot be pulled", false)
		}
		r := c.get(sent.Run)
		require.Equal(t, n, r.Interruptions)
		if n < runs.MaxInterruptions {
			require.Equal(t, engine.StateRequested, r.State)
			sent = c.next()
		}
	}
	r := c.get(sent.Run)
	require.Equal(t, engine.StateFailed, r.State)
	require.True(t, r.Resumable)
	require.Contains(t, r.Error, "the image cannot be pulled")
	require.Zero(t, r.Failures, "an interruption is no failed attempt")
	require.Contains(t, c.facts(sent.Run), events.Type("attempt.interrupted"))
}

func TestThePlatformIsToBlame(t *testing.T) {
	t.Parallel()
	c := newContainers(t)
	sent := c.offer()
	for range 5 {
		c.run(sent)
		c.end(sent, 3, "Capacity is unavailable", true)
		require.Zero(t, c.get(sent.Run).Interruptions)
		sent = c.next()
	}
}

// No capacity: nothing fails, the sweep tries again until the offer expires, and
// then for the next one.
func TestNoCapacity(t *testing.T) {
	t.Parallel()
	c := newContainers(t)
	sent := c.offer()
	c.yard.fail = &operations.LaterError{Err: errors.New("no capacity")}
	require.Equal(t, operations.Pending, c.run(sent).State)
	c.expire(sent.Run)
	c.sweep()
	again := c.next()
	require.Greater(t, again.Sent, sent.Sent)
	c.yard.fail = nil
	_, err := superuser(t, c.db).Exec(t.Context(), `UPDATE operations SET next_at = now()`)
	require.NoError(t, err)
	_, err = c.starter.Runner.Run(t.Context())
	require.NoError(t, err)
	require.Empty(t, c.yard.tokens, "an offer that is gone starts no container")
	c.run(again)
	require.Len(t, c.yard.tokens, 1)
	r := c.get(sent.Run)
	require.Zero(t, r.Failures)
	require.Zero(t, r.Interruptions)
}

// What is refused for good fails the run in the end, and says why.
func TestRefusedContainers(t *testing.T) {
	t.Parallel()
	c := newContainers(t)
	sent := c.offer()
	c.yard.fail = &operations.RefusedError{Err: errors.New("no such task definition")}
	for range runs.MaxInterruptions - 1 {
		require.Equal(t, operations.Failed, c.run(sent).State)
		sent = c.next()
	}
	c.run(sent)
	r := c.get(sent.Run)
	require.Equal(t, engine.StateFailed, r.State)
	require.Contains(t, r.Error, "no such task definition")
}

// A canceled run's container is stopped, and one of whose end no report came is
// noticed; until then it is work (P23).
func TestContainersAreSweptUp(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := newContainers(t)
	sent := c.offer()
	c.run(sent)
	_, err := c.sweeper.Run(ctx)
	require.NoError(t, err)
	require.Empty(t, c.yard.stopped, "it is wanted")
	canceled, err := c.svc.Cancel(ctx, c.a, sent.Run)
	require.NoError(t, err)
	require.Equal(t, engine.StateCanceled, canceled.State)
	for range 2 {
		_, err = c.sweeper.Run(ctx)
		require.NoError(t, err)
	}
	require.Len(t, c.yard.stopped, 1, "it is asked to stop once")
	c.relayed()
	disarmed, err := c.db.Disarm(ctx)
	require.NoError(t, err)
	require.False(t, disarmed)
	live, err := c.db.LiveTasks(ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, live, 1)
	c.yard.ended = []dispatch.TaskEnd{{Task: live[0].Task, Version: 9, Reason: "stopped"}}
	next, err := c.sweeper.Run(ctx)
	require.NoError(t, err)
	require.True(t, next.After(time.Now()))
	disarmed, err = c.db.Disarm(ctx)
	require.NoError(t, err)
	require.True(t, disarmed)
}

// relayed confirms all facts, as the projection does.
func (c *containers) relayed() {
	c.t.Helper()
	require.NoError(c.t, c.db.Maintain(c.t.Context(), func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM fact_relays`)
		return err
	}))
}
