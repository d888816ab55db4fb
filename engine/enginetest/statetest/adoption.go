package statetest

import (
	"encoding/json"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
)

// adopted is what a destination knows of a route whose State was lost: "a" is
// published by the last run, "b" is half done, "c" belongs to an earlier run.
func adopted(run uuid.UUID) engine.Adoption {
	b := resource("b", 2)
	return engine.Adoption{
		Installation: "6d0d9a1e-0000-4000-8000-000000000001", RunID: run.String(), Ordinal: 12,
		Resources: []engine.AdoptedResource{
			{Resource: "a", Cursor: json.RawMessage(`"a12"`), Seen: []engine.RowID{{7}}, RunID: run.String(), Ordinal: 12, Published: true, Plan: resource("a", 1),
				Ledger: []engine.LedgerEntry{{Split: "a/0", Claim: 1, Epoch: 3, Done: true, Totals: totals(3)}, {Split: engine.PublishSplit("a"), Claim: 1, Epoch: 1, Done: true}}},
			{Resource: "b", Cursor: json.RawMessage(`"b11"`), RunID: run.String(), Ordinal: 12, Plan: b,
				Ledger: []engine.LedgerEntry{
					{Split: "b/0", Claim: 4, Epoch: 9, Position: json.RawMessage(`{"k":9}`), Totals: totals(9)},
					{Split: "b/1", Claim: 2, Epoch: 5, Done: true, Totals: totals(5)},
					{Split: engine.PublishSplit("b"), Claim: 0},
				}},
			{Resource: "c", Cursor: json.RawMessage(`"c3"`), RunID: uuid.NewString(), Ordinal: 3, Published: true},
		},
	}
}

var adoptionTests = map[string]func(*world){
	"goes on where the ledger is": func(w *world) {
		t := w.t
		id := uuid.Must(uuid.NewV7())
		a := adopted(id)
		require.NoError(t, w.AdoptRoute(w.ctx, route, "adopted", a))
		require.NoError(t, w.AdoptRoute(w.ctx, route, "adopted", a), "twice is the same")

		installation, known, err := w.RouteKnown(w.ctx, route)
		require.NoError(t, err)
		require.True(t, known)
		require.Equal(t, a.Installation, installation)
		require.NotEqual(t, a.Installation, must(w.Installation(w.ctx))(t), "the store's own id stays")

		require.Equal(t, engine.RouteCursor{Cursor: json.RawMessage(`"a12"`), Seen: []engine.RowID{{7}}}, must(w.Cursor(w.ctx, route, "a"))(t))
		require.Equal(t, `"b11"`, string(must(w.Cursor(w.ctx, route, "b"))(t).Cursor))
		require.Equal(t, `"c3"`, string(must(w.Cursor(w.ctx, route, "c"))(t).Cursor))

		runs := must(w.ListRuns(w.ctx, "shop", 10))(t)
		require.Len(t, runs, 1)
		require.Equal(t, id, runs[0].ID)
		require.Equal(t, engine.StateFailed, runs[0].State)
		require.True(t, runs[0].Resumable)
		require.Equal(t, "adopted", runs[0].Version)
		require.EqualValues(t, 12, runs[0].Ordinal)
		require.Equal(t, a.Installation, runs[0].Route.Installation)

		run, resumed, err := w.StartRun(w.ctx, engine.StartRequest{Route: route, Version: "adopted", AtLeastOrdinal: 12})
		require.NoError(t, err)
		require.True(t, resumed)
		require.Equal(t, id, run.ID)
		require.NotNil(t, mustLoad(t, w, run))
		l := w.acquire(t, run, 0)
		c := w.claim(t, l)
		require.Equal(t, "b/0", c.ID)
		require.EqualValues(t, 5, c.Claim, "above the ledger's claim")
		require.EqualValues(t, 9, c.Epoch)
		require.Equal(t, `{"k":9}`, string(c.Position))
		require.Equal(t, totals(9), c.Totals)
		w.finishSplit(t, l, c)
		require.Equal(t, []string{engine.PublishSplit("b")}, w.workAll(t, l))
		w.finish(t, l, engine.StateCompleted, false)
		require.Greater(t, w.start(t, "v1").Ordinal, int64(12))
	},
	"of a published run starts the next": func(w *world) {
		t := w.t
		a := adopted(uuid.Must(uuid.NewV7()))
		a.Resources = a.Resources[:1]
		a.Ordinal = 20 // A later run never got as far as a resource.
		require.NoError(t, w.AdoptRoute(w.ctx, route, "adopted", a))
		require.Empty(t, must(w.ListRuns(w.ctx, "", 10))(t))
		run, resumed, err := w.StartRun(w.ctx, engine.StartRequest{Route: route, Version: "adopted"})
		require.NoError(t, err)
		require.False(t, resumed)
		require.Greater(t, run.Ordinal, int64(20))
		require.Equal(t, a.Installation, run.Route.Installation)
	},
	"minds ordinals of every resource": func(w *world) {
		t := w.t
		a := adopted(uuid.Must(uuid.NewV7()))
		a.Ordinal = 1
		require.NoError(t, w.AdoptRoute(w.ctx, route, "adopted", a))
		run, _, err := w.StartRun(w.ctx, engine.StartRequest{Route: route, Version: "v1"})
		require.NoError(t, err)
		require.Greater(t, run.Ordinal, int64(12))
	},
	"of two installations is refused": func(w *world) {
		t := w.t
		run := w.start(t, "v1")
		w.unchanged(t, run.ID, func() {
			err := w.AdoptRoute(w.ctx, route, "adopted", adopted(uuid.Must(uuid.NewV7())))
			requireClass(t, err, engine.Permanent)
			require.Contains(t, err.Error(), run.Route.Installation)
		})
		require.Len(t, must(w.ListRuns(w.ctx, "", 10))(t), 1)
	},
	"opens a completed run again": func(w *world) {
		t := w.t
		id := uuid.Must(uuid.NewV7())
		a := adopted(id)
		require.NoError(t, w.AdoptRoute(w.ctx, route, "v1", a))
		run := w.start(t, "v1")
		require.Equal(t, id, run.ID)
		l := w.acquire(t, run, 0)
		w.workAll(t, l)
		w.finish(t, l, engine.StateCompleted, false)
		later := w.start(t, "v1")
		require.NotEqual(t, id, later.ID)

		// The destination is set back to where it was.
		require.NoError(t, w.AdoptRoute(w.ctx, route, "adopted", a))
		require.NoError(t, w.AdoptRoute(w.ctx, route, "adopted", a), "twice is the same")
		require.False(t, must(w.GetRun(w.ctx, later.ID))(t).Resumable, "the later run is superseded")
		again := w.start(t, "v1")
		require.Equal(t, id, again.ID)
		require.Equal(t, "v1", again.Version)
		require.Equal(t, later.Ordinal+1, again.Ordinal, "only the latest can go on")
		c := w.claim(t, w.acquire(t, again, 0))
		require.Equal(t, "b/0", c.ID)
		require.EqualValues(t, 9, c.Epoch)
	},
	"gives an unplanned run its plan": func(w *world) {
		t := w.t
		run := w.start(t, "v1")
		a := adopted(run.ID)
		a.Installation = run.Route.Installation
		l := w.acquire(t, run, 0)
		require.ErrorIs(t, w.AdoptRoute(w.ctx, route, "adopted", a), engine.ErrLocked)
		require.NoError(t, w.EndAttempt(w.ctx, l, nil))
		require.NoError(t, w.AdoptRoute(w.ctx, route, "adopted", a))
		again := w.start(t, "v1")
		require.Equal(t, run.ID, again.ID)
		require.NotNil(t, mustLoad(t, w, again))
		require.Equal(t, "b/0", w.claim(t, w.acquire(t, again, 0)).ID)
	},
	"of a run published whole that is unfinished here leaves nothing to do": func(w *world) {
		t := w.t
		run := w.start(t, "v1")
		a := adopted(run.ID)
		a.Installation, a.Resources = run.Route.Installation, a.Resources[:1]
		require.NoError(t, w.AdoptRoute(w.ctx, route, "adopted", a))
		again := w.start(t, "v1")
		require.Equal(t, run.ID, again.ID)
		_, err := w.ClaimSplit(w.ctx, w.acquire(t, again, 0).Fence, nil)
		require.ErrorIs(t, err, engine.ErrSplitDone)
	},
	"keeps what the user has reset": func(w *world) {
		t := w.t
		id := uuid.Must(uuid.NewV7())
		a := adopted(id)
		require.NoError(t, w.AdoptRoute(w.ctx, route, "v1", a))
		require.NoError(t, w.ResetResource(w.ctx, route, "b"))
		w.finish(t, w.acquire(t, w.start(t, "v1"), 0), engine.StateFailed, false)
		w.finish(t, w.acquire(t, w.start(t, "v1"), 0), engine.StateCompleted, false)

		// The destination is set back; its run has read from the old cursor on.
		require.NoError(t, w.AdoptRoute(w.ctx, route, "adopted", a))
		reset := engine.RouteCursor{Reset: true}
		require.Equal(t, reset, must(w.Cursor(w.ctx, route, "b"))(t))
		run := w.start(t, "v1")
		require.Equal(t, id, run.ID)
		l := w.acquire(t, run, 0)
		w.finishSplit(t, l, w.claim(t, l))
		c := w.claim(t, l)
		require.Equal(t, engine.PublishSplit("b"), c.ID)
		require.NoError(t, w.CommitPublish(w.ctx, l.Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 1}, json.RawMessage(`"b12"`), nil))
		require.Equal(t, reset, must(w.Cursor(w.ctx, route, "b"))(t))
	},
	"superseded runs raise no ordinal": func(w *world) {
		t := w.t
		run := w.start(t, "v1")
		w.start(t, "v2")
		_, err := w.RaiseOrdinal(w.ctx, run.ID, 99)
		var stale *engine.StaleError
		require.ErrorAs(t, err, &stale)
	},
	"superseded by another version": func(w *world) {
		t := w.t
		id := uuid.Must(uuid.NewV7())
		require.NoError(t, w.AdoptRoute(w.ctx, route, "adopted", adopted(id)))
		run := w.start(t, "v1")
		require.NotEqual(t, id, run.ID)
		require.Greater(t, run.Ordinal, int64(12))
		old := must(w.GetRun(w.ctx, id))(t)
		require.False(t, old.Resumable)
	},
}
