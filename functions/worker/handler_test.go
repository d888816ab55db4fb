package main

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/projection"
	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/control/sweep"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/internal/awsadapter/queue"
	"github.com/tranship-io/tranship/internal/cloudtest"
	"github.com/tranship-io/tranship/internal/compose/cloud"
	"github.com/tranship-io/tranship/internal/compose/worker"
)

func TestMain(m *testing.M) { cloudtest.Main(m) }

func newHandler(t *testing.T, i *cloudtest.Installation) *handler {
	t.Helper()
	f := i.Function(name, "AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "512")
	h, err := wire(t.Context(), f, "AWS_LAMBDA_FUNCTION_MEMORY_SIZE")
	require.NoError(t, err)
	require.NoError(t, f.Env.Err())
	t.Cleanup(h.plane.DB.Close)
	require.EqualValues(t, 384<<20, h.config.MaxMemory, "three quarters of the function's memory")
	h.batch = cloud.Batch[dispatch.Command]{Check: check, Dead: queue.Dead{Queue: queue.New(f.AWS, i.Env["TRANSHIP_DEAD_QUEUE"])}, Log: f.Log}
	return h
}

func TestMargin(t *testing.T) {
	t.Parallel()
	require.Equal(t, time.Minute, margin(15*time.Minute))
	require.Equal(t, 5*time.Second, margin(15*time.Second))
}

// TestARunInManyInvocations: short invocations hand over to each other through the
// queue until the run is complete, every row once; commands that come again do
// nothing; what cannot be parsed goes to the dead letters; facts are told of.
func TestARunInManyInvocations(t *testing.T) {
	t.Parallel()
	i := cloudtest.New(t)
	actor, _ := i.Organization()
	i.Pipeline(actor, "shop", 600_000)
	h := newHandler(t, i)
	require.False(t, i.Sweeping())
	started, err := h.plane.Runs.Start(t.Context(), actor, runs.StartRequest{Pipeline: "shop"})
	require.NoError(t, err)
	require.True(t, i.Sweeping(), "the sweep is on before the work is committed")
	require.NoError(t, h.plane.After(t.Context()))
	id := started.Runs[0].ID

	invocations, through := 0, int64(0)
	var old []byte
	sweeper := &sweep.Sweeper{Store: h.plane.DB, Log: h.plane.Log}
	require.Eventually(t, func() bool {
		// As the function sweep does, for an invocation that came to no safe position.
		_, _, err := sweeper.Sweep(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.plane.Dispatch(t.Context()))
		event := i.Receive("TRANSHIP_ATTEMPTS_QUEUE")
		for _, r := range event.Records {
			invocations++
			if old != nil {
				answer, err := h.handle(i.Invocation(time.Minute), cloudtest.Message(string(old)))
				require.NoError(t, err)
				require.Empty(t, answer.BatchItemFailures, "an older command does nothing")
			}
			old = []byte(r.Body)
		}
		if len(event.Records) > 0 {
			answer, err := h.handle(i.Invocation(6*time.Second), event)
			require.NoError(t, err)
			require.NotNil(t, answer.BatchItemFailures)
			require.Empty(t, answer.BatchItemFailures)
		}
		run, err := h.plane.DB.Run(t.Context(), actor.Organization, id)
		require.NoError(t, err)
		require.NotEqual(t, engine.StateFailed, run.State, run.Error)
		return run.State == engine.StateCompleted
	}, 2*time.Minute, 10*time.Millisecond)
	var rows, distinct int64
	i.Query(i.Target, `SELECT count(*) FROM public.shop`, &rows)
	i.Query(i.Target, `SELECT count(DISTINCT id) FROM public.shop`, &distinct)
	require.EqualValues(t, 600_000, rows)
	require.EqualValues(t, 600_000, distinct)
	t.Log("invocations:", invocations)

	var last int64
	i.Query(i.URL, `SELECT last_fact FROM tranship.runs`, &last)
	require.Eventually(t, func() bool {
		for _, r := range i.Receive("TRANSHIP_FACTS_QUEUE").Records {
			var told projection.Told
			require.NoError(t, json.Unmarshal([]byte(r.Body), &told))
			for _, f := range told.Facts {
				if f.Number > through {
					require.Equal(t, through+1, f.Number, "facts are told of in order, without gaps")
					through = f.Number
				}
			}
		}
		return through == last
	}, 30*time.Second, 10*time.Millisecond)

	answer, err := h.handle(i.Invocation(time.Minute), cloudtest.Message(`{"run":"x"}`))
	require.NoError(t, err)
	require.Empty(t, answer.BatchItemFailures)
	require.Len(t, i.Receive("TRANSHIP_DEAD_QUEUE").Records, 1)
}

// TestAnInvocationThatHasToEnd: what comes to no safe position in time is no failure
// of the run: its lease is taken over, as after a kill.
func TestAnInvocationThatHasToEnd(t *testing.T) {
	t.Parallel()
	i := cloudtest.New(t)
	actor, _ := i.Organization()
	i.Pipeline(actor, "shop", 3_000_000)
	h := newHandler(t, i)
	started, err := h.plane.Runs.Start(t.Context(), actor, runs.StartRequest{Pipeline: "shop"})
	require.NoError(t, err)
	require.NoError(t, h.plane.After(t.Context()))
	event := i.Receive("TRANSHIP_ATTEMPTS_QUEUE")
	require.Len(t, event.Records, 1)
	var c dispatch.Command
	require.NoError(t, json.Unmarshal([]byte(event.Records[0].Body), &c))
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan worker.Outcome, 1)
	go func() {
		out, err := h.execute(ctx, nil, h.config, c)
		assert.NoError(t, err)
		ended <- out
	}()
	require.Eventually(t, func() bool {
		var n int64
		i.Query(i.URL, `SELECT count(*) FROM tranship.splits WHERE epoch > 0`, &n)
		return n > 0
	}, time.Minute, 20*time.Millisecond)
	end()
	require.Equal(t, "lost", (<-ended).What)
	run, err := h.plane.DB.Run(t.Context(), actor.Organization, started.Runs[0].ID)
	require.NoError(t, err)
	require.Equal(t, engine.StateRunning, run.State)
	require.Zero(t, run.Failures)
	sweeper := &sweep.Sweeper{Store: h.plane.DB, Log: h.plane.Log}
	require.Eventually(t, func() bool {
		_, _, err := sweeper.Sweep(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.plane.Dispatch(t.Context()))
		return len(i.Receive("TRANSHIP_ATTEMPTS_QUEUE").Records) == 1
	}, time.Minute, 100*time.Millisecond)
}

// TestTask: the same program as a task hands over when it is told to stop.
func TestTask(t *testing.T) {
	t.Parallel()
	i := cloudtest.New(t)
	actor, _ := i.Organization()
	i.Pipeline(actor, "shop", 3_000_000)
	h := newHandler(t, i)
	_, err := h.plane.Runs.Start(t.Context(), actor, runs.StartRequest{Pipeline: "shop"})
	require.NoError(t, err)
	require.NoError(t, h.plane.After(t.Context()))
	event := i.Receive("TRANSHIP_ATTEMPTS_QUEUE")
	require.Len(t, event.Records, 1)
	f := i.Function(name, "TRANSHIP_COMMAND", event.Records[0].Body, "TRANSHIP_TASK_MEMORY", "512")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- task(ctx, f) }()
	require.Eventually(t, func() bool {
		var n int64
		i.Query(i.URL, `SELECT count(*) FROM tranship.splits WHERE epoch > 0`, &n)
		return n > 0
	}, time.Minute, 20*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	require.Len(t, i.Receive("TRANSHIP_ATTEMPTS_QUEUE").Records, 1, "the next attempt is asked for")

	require.ErrorContains(t, task(t.Context(), i.Function(name, "TRANSHIP_COMMAND", "{}")), "names no attempt")
	require.ErrorContains(t, task(t.Context(), i.Function(name, "TRANSHIP_COMMAND", "{}", "TRANSHIP_KMS_KEY", "")), "TRANSHIP_KMS_KEY")
}
