package statetest

import (
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

var leaseTests = map[string]func(*world){
	"exclude each other": func(w *world) {
		t := w.t
		run := w.start(t, "v1")
		l := w.acquire(t, run, 0)
		require.EqualValues(t, 1, l.Generation)
		require.Equal(t, 1, l.Attempt)
		require.Equal(t, "worker 0", l.Holder)
		_, err := w.Acquire(w.ctx, run.ID, 0, "other", long)
		require.ErrorIs(t, err, engine.ErrLocked)
		d, err := w.Renew(w.ctx, l, long)
		require.NoError(t, err)
		require.Equal(t, engine.DesiredRun, d)
		other := w.acquire(t, run, 1)
		require.Equal(t, 2, other.Attempt, "attempts count over all slots")
		require.Equal(t, 2, must(w.GetRun(w.ctx, run.ID))(t).Attempts)
	},
	"expire": func(w *world) {
		t := w.t
		run, main := w.begin(t, resource("a", 2))
		l, err := w.Acquire(w.ctx, run.ID, 1, "first", short)
		require.NoError(t, err)
		c := w.claim(t, l)
		w.advance(short)
		require.False(t, w.split(t, run.ID, c.ID).Owned)
		next, err := w.Acquire(w.ctx, run.ID, 1, "second", long)
		require.NoError(t, err)
		require.Equal(t, l.Generation+1, next.Generation)
		w.unchanged(t, run.ID, func() {
			_, err = w.Renew(w.ctx, l, long)
			requireStale(t, err, "generation")
			requireStale(t, w.EndAttempt(w.ctx, l, []events.Fact{fact(t, run.ID, events.AttemptHandedOver{})}), "generation")
			requireStale(t, w.Commit(w.ctx, l.Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 1}), "generation")
			requireStale(t, w.AppendFacts(w.ctx, l.Fence, []events.Fact{fact(t, run.ID, events.Retry{})}), "generation")
			requireStale(t, w.ReturnSplit(w.ctx, l.Fence, c.ID, c.Claim), "generation")
			_, err = w.ClaimSplit(w.ctx, l.Fence, nil)
			requireStale(t, err, "generation")
		})
		require.Equal(t, c.ID, w.claim(t, next).ID)
		require.NoError(t, w.EndAttempt(w.ctx, main, nil))
	},
	"are renewed in time": func(w *world) {
		t := w.t
		run := w.start(t, "v1")
		l, err := w.Acquire(w.ctx, run.ID, 0, "first", short)
		require.NoError(t, err)
		_, err = w.Renew(w.ctx, l, long)
		require.NoError(t, err)
		w.advance(short)
		_, err = w.Acquire(w.ctx, run.ID, 0, "second", long)
		require.ErrorIs(t, err, engine.ErrLocked)
	},
	"end with their attempt": func(w *world) {
		t := w.t
		run, l := w.begin(t, resource("a", 1))
		c := w.claim(t, l)
		facts := []events.Fact{fact(t, run.ID, events.AttemptHandedOver{Reason: "stop"})}
		require.NoError(t, w.EndAttempt(w.ctx, l, facts))
		require.False(t, w.split(t, run.ID, c.ID).Owned)
		w.unchanged(t, run.ID, func() {
			require.NoError(t, w.EndAttempt(w.ctx, l, facts), "twice is the same")
			_, err := w.Renew(w.ctx, l, long)
			requireStale(t, err, "generation")
			requireStale(t, w.Commit(w.ctx, l.Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 1}), "claim")
		})
		next := w.acquire(t, run, 0)
		require.Equal(t, l.Generation+1, next.Generation)
		require.Equal(t, 2, next.Attempt)
	},
	"can finish the run after their attempt": func(w *world) {
		t := w.t
		run, l := w.begin(t)
		require.NoError(t, w.EndAttempt(w.ctx, l, nil))
		require.NoError(t, w.FinishRun(w.ctx, l.Fence, engine.RunEnd{State: engine.StateCompleted}))
		require.Equal(t, engine.StateCompleted, must(w.GetRun(w.ctx, run.ID))(t).State)
	},
	"carry the owner's wish": func(w *world) {
		t := w.t
		run := w.start(t, "v1")
		l := w.acquire(t, run, 0)
		for _, want := range []engine.Desired{engine.DesiredPause, engine.DesiredRun, engine.DesiredPause} {
			require.NoError(t, w.SetDesired(w.ctx, run.ID, want))
			require.Equal(t, want, must(w.Renew(w.ctx, l, long))(t))
		}
		w.finish(t, l, engine.StatePaused, false)
		again := w.start(t, "v1")
		require.Equal(t, run.ID, again.ID)
		l = w.acquire(t, again, 0)
		require.Equal(t, engine.DesiredRun, must(w.Renew(w.ctx, l, long))(t), "resuming is wanting it to run")
	},
	"a resting run is canceled at once": func(w *world) {
		t := w.t
		for _, end := range []engine.RunState{engine.StatePaused, engine.StateFailed} {
			run := w.start(t, "v1")
			w.finish(t, w.acquire(t, run, 0), end, end == engine.StateFailed)
			require.NoError(t, w.SetDesired(w.ctx, run.ID, engine.DesiredCancel))
			got := must(w.GetRun(w.ctx, run.ID))(t)
			require.Equal(t, engine.StateCanceled, got.State)
			require.False(t, got.Resumable)
			fs := w.facts(t, run.ID)
			require.Equal(t, events.TypeRunCanceled, fs[len(fs)-1].Type)
			w.unchanged(t, run.ID, func() {
				require.NoError(t, w.SetDesired(w.ctx, run.ID, engine.DesiredCancel), "canceling twice is the same")
				requireClass(t, w.SetDesired(w.ctx, run.ID, engine.DesiredRun), engine.Permanent)
			})
			require.NotEqual(t, run.ID, w.start(t, "v1").ID)
			w.finish(t, w.acquire(t, w.start(t, "v1"), 0), engine.StateCompleted, false)
		}
	},
	"a run asked to cancel is not resumed": func(w *world) {
		t := w.t
		run := w.start(t, "v1")
		require.NoError(t, w.EndAttempt(w.ctx, w.acquire(t, run, 0), nil))
		require.NoError(t, w.SetDesired(w.ctx, run.ID, engine.DesiredCancel))
		require.NotEqual(t, run.ID, w.start(t, "v1").ID)
		require.Equal(t, engine.StateCanceled, must(w.GetRun(w.ctx, run.ID))(t).State)
	},
	"need a holder": func(w *world) {
		t := w.t
		run := w.start(t, "v1")
		_, err := w.Acquire(w.ctx, run.ID, 0, "", long)
		requireClass(t, err, engine.Bug)
	},
}
