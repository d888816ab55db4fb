package statetest

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

var runTests = map[string]func(*world){
	"a new run": func(w *world) {
		t := w.t
		own, err := w.Installation(w.ctx)
		require.NoError(t, err)
		run, resumed, err := w.StartRun(w.ctx, engine.StartRequest{Route: route, Version: "v1"})
		require.NoError(t, err)
		require.False(t, resumed)
		require.EqualValues(t, 1, run.Ordinal)
		require.Equal(t, engine.StateRunning, run.State)
		require.Equal(t, "v1", run.Version)
		require.Equal(t, own, run.Route.Installation)
		require.False(t, run.CreatedAt.IsZero())
		require.True(t, run.EndedAt.IsZero())
		require.EqualValues(t, 7, run.ID.Version())
		got, err := w.GetRun(w.ctx, run.ID)
		require.NoError(t, err)
		require.Equal(t, run, got)
	},
	"unfinished runs of the same version are resumed": func(w *world) {
		t := w.t
		run := w.start(t, "v1")
		for _, end := range []struct {
			state     engine.RunState
			resumable bool
		}{{engine.StateRunning, false}, {engine.StateFailed, true}, {engine.StatePaused, false}} {
			l := w.acquire(t, run, 0)
			if end.state != engine.StateRunning {
				require.NoError(t, w.FinishRun(w.ctx, l.Fence, engine.RunEnd{State: end.state, Resumable: end.resumable, Error: "why"}))
				got, err := w.GetRun(w.ctx, run.ID)
				require.NoError(t, err)
				require.Equal(t, end.state, got.State)
				require.Equal(t, end.resumable, got.Resumable)
				require.False(t, got.EndedAt.IsZero())
			}
			require.NoError(t, w.EndAttempt(w.ctx, l, nil))
			again, resumed, err := w.StartRun(w.ctx, engine.StartRequest{Route: route, Version: "v1"})
			require.NoError(t, err)
			require.True(t, resumed, end.state)
			require.Equal(t, run.ID, again.ID)
			require.Equal(t, run.Ordinal, again.Ordinal)
			require.Equal(t, engine.StateRunning, again.State)
			require.False(t, again.Resumable)
			require.Empty(t, again.Error)
			require.True(t, again.EndedAt.IsZero())
		}
	},
	"finished runs are followed by new ones": func(w *world) {
		t := w.t
		for i, end := range []engine.RunState{engine.StateCompleted, engine.StateFailed, engine.StateCanceled} {
			run, resumed, err := w.StartRun(w.ctx, engine.StartRequest{Route: route, Version: "v1"})
			require.NoError(t, err)
			require.False(t, resumed)
			require.EqualValues(t, i+1, run.Ordinal)
			w.finish(t, w.acquire(t, run, 0), end, false)
		}
	},
	"another version supersedes": func(w *world) {
		t := w.t
		old := w.start(t, "v1")
		l := w.acquire(t, old, 0)
		w.finish(t, l, engine.StatePaused, false)
		run, resumed, err := w.StartRun(w.ctx, engine.StartRequest{Route: route, Version: "v2"})
		require.NoError(t, err)
		require.False(t, resumed)
		require.EqualValues(t, 2, run.Ordinal)
		requireSuperseded(t, w, old, run)
	},
	"restart supersedes": func(w *world) {
		t := w.t
		old := w.start(t, "v1")
		l := w.acquire(t, old, 0)
		require.NoError(t, w.EndAttempt(w.ctx, l, nil))
		run, resumed, err := w.StartRun(w.ctx, engine.StartRequest{Route: route, Version: "v1", Restart: true})
		require.NoError(t, err)
		require.False(t, resumed)
		requireSuperseded(t, w, old, run)
		// What the superseded run still holds has no effect (invariant 2).
		w.unchanged(t, old.ID, func() {
			requireStale(t, w.AppendFacts(w.ctx, l.Fence, []events.Fact{fact(t, old.ID, events.RunStarted{Slots: 1})}), "generation")
			requireStale(t, w.FinishRun(w.ctx, l.Fence, engine.RunEnd{State: engine.StateCompleted}), "generation")
		})
	},
	"live workers lock a run": func(w *world) {
		t := w.t
		run := w.start(t, "v1")
		l := w.acquire(t, run, 1)
		w.unchanged(t, run.ID, func() {
			for _, req := range []engine.StartRequest{{Route: route, Version: "v1"}, {Route: route, Version: "v2"}, {Route: route, Version: "v1", Restart: true}} {
				_, _, err := w.StartRun(w.ctx, req)
				require.ErrorIs(t, err, engine.ErrLocked)
			}
		})
		_, err := w.Renew(w.ctx, l, long)
		require.NoError(t, err)
		other := route
		other.Pipeline = "other"
		run2, _, err := w.StartRun(w.ctx, engine.StartRequest{Route: other, Version: "v1"})
		require.NoError(t, err, "another pipeline is not locked")
		require.EqualValues(t, 1, run2.Ordinal, "ordinals count per route")
	},
	"ordinals only grow": func(w *world) {
		t := w.t
		run, _, err := w.StartRun(w.ctx, engine.StartRequest{Route: route, Version: "v1", AtLeastOrdinal: 7})
		require.NoError(t, err)
		require.Greater(t, run.Ordinal, int64(7))
		raised, err := w.RaiseOrdinal(w.ctx, run.ID, 20)
		require.NoError(t, err)
		require.Greater(t, raised.Ordinal, int64(20))
		again, err := w.RaiseOrdinal(w.ctx, run.ID, 20)
		require.NoError(t, err)
		require.Equal(t, raised.Ordinal, again.Ordinal, "raising to what it has is no change")
		w.finish(t, w.acquire(t, run, 0), engine.StateCompleted, false)
		next := w.start(t, "v1")
		require.Greater(t, next.Ordinal, raised.Ordinal)
	},
	"the ordinal of a frozen plan stays": func(w *world) {
		t := w.t
		run, _ := w.begin(t, resource("a", 1))
		_, err := w.RaiseOrdinal(w.ctx, run.ID, 20)
		requireClass(t, err, engine.Bug)
		_, err = w.RaiseOrdinal(w.ctx, run.ID, run.Ordinal-1)
		require.NoError(t, err, "it is greater already")
	},
	"finishing": func(w *world) {
		t := w.t
		run := w.start(t, "v1")
		l := w.acquire(t, run, 0)
		end := engine.RunEnd{State: engine.StateCompleted, Receipt: json.RawMessage(`{"rows":9007199254740993}`),
			Facts: []events.Fact{fact(t, run.ID, events.RunCompleted{RowsRead: 1})}}
		stale := l.Fence
		stale.Generation--
		w.unchanged(t, run.ID, func() {
			requireStale(t, w.FinishRun(w.ctx, stale, end), "generation")
			requireClass(t, w.FinishRun(w.ctx, l.Fence, engine.RunEnd{State: engine.StateRunning}), engine.Bug)
		})
		require.NoError(t, w.FinishRun(w.ctx, l.Fence, end))
		got, err := w.GetRun(w.ctx, run.ID)
		require.NoError(t, err)
		require.Equal(t, string(end.Receipt), string(got.Receipt))
		require.Len(t, w.facts(t, run.ID), 1)
		require.NoError(t, w.FinishRun(w.ctx, l.Fence, end), "finishing twice is the same")
		require.Len(t, w.facts(t, run.ID), 1)
		w.unchanged(t, run.ID, func() {
			requireClass(t, w.FinishRun(w.ctx, l.Fence, engine.RunEnd{State: engine.StateFailed}), engine.Bug)
			_, err := w.Acquire(w.ctx, run.ID, 0, "late", long)
			requireClass(t, err, engine.Permanent)
		})
		require.NoError(t, w.EndAttempt(w.ctx, l, nil), "the finished run's slot is free already")
		require.NotEqual(t, run.ID, w.start(t, "v1").ID)
	},
	"listing": func(w *world) {
		t := w.t
		var ids []uuid.UUID
		for range 3 {
			run := w.start(t, "v1")
			ids = append(ids, run.ID)
			w.finish(t, w.acquire(t, run, 0), engine.StateCompleted, false)
		}
		other := route
		other.Pipeline = "other"
		_, _, err := w.StartRun(w.ctx, engine.StartRequest{Route: other, Version: "v1"})
		require.NoError(t, err)
		runs, err := w.ListRuns(w.ctx, "shop", 2)
		require.NoError(t, err)
		require.Len(t, runs, 2)
		require.Equal(t, []uuid.UUID{ids[2], ids[1]}, []uuid.UUID{runs[0].ID, runs[1].ID}, "newest first")
		all, err := w.ListRuns(w.ctx, "", 10)
		require.NoError(t, err)
		require.Len(t, all, 4)
		require.Equal(t, "other", all[0].Route.Pipeline)
	},
	"unknown runs": func(w *world) {
		t := w.t
		id := uuid.New()
		f := engine.Fence{RunID: id, Generation: 1}
		_, err := w.GetRun(w.ctx, id)
		requireClass(t, err, engine.Permanent)
		require.Contains(t, err.Error(), id.String())
		_, err = w.Acquire(w.ctx, id, 0, "x", long)
		requireClass(t, err, engine.Permanent)
		requireClass(t, w.SetDesired(w.ctx, id, engine.DesiredPause), engine.Permanent)
		_, err = w.ClaimSplit(w.ctx, f, nil)
		requireStale(t, err, "generation")
		requireStale(t, w.Commit(w.ctx, f, engine.Progress{Split: "a/0", Claim: 1}), "generation")
	},
}

func requireSuperseded(t *testing.T, w *world, old, by engine.Run) {
	t.Helper()
	got, err := w.GetRun(w.ctx, old.ID)
	require.NoError(t, err)
	require.Equal(t, engine.StateFailed, got.State)
	require.False(t, got.Resumable)
	require.Contains(t, got.Error, by.ID.String())
	require.Greater(t, by.Ordinal, old.Ordinal)
	fs := w.facts(t, old.ID)
	require.NotEmpty(t, fs)
	require.Equal(t, events.TypeRunFailed, fs[len(fs)-1].Type, "with its fact")
}
