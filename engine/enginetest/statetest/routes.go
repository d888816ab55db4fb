package statetest

import (
	"encoding/json"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
)

var routeTests = map[string]func(*world){
	"the installation is one": func(w *world) {
		t := w.t
		a := must(w.Installation(w.ctx))(t)
		_, err := uuid.Parse(a)
		require.NoError(t, err)
		require.Equal(t, a, must(w.Installation(w.ctx))(t))
	},
	"are known once a run began": func(w *world) {
		t := w.t
		_, known, err := w.RouteKnown(w.ctx, route)
		require.NoError(t, err)
		require.False(t, known)
		run := w.start(t, "v1")
		r := route
		r.Installation = "whatever the caller believes"
		installation, known, err := w.RouteKnown(w.ctx, r)
		require.NoError(t, err)
		require.True(t, known)
		require.Equal(t, run.Route.Installation, installation)
		for _, other := range []engine.Route{{Pipeline: "x", Source: route.Source, Sink: route.Sink},
			{Pipeline: route.Pipeline, Source: "x", Sink: route.Sink}, {Pipeline: route.Pipeline, Source: route.Source, Sink: "x"}} {
			_, known, err := w.RouteKnown(w.ctx, other)
			require.NoError(t, err)
			require.False(t, known)
		}
	},
	"are reset": func(w *world) {
		t := w.t
		require.NoError(t, w.ResetResource(w.ctx, route, "a"), "of an unknown route there is nothing to forget")
		publish := func(l engine.Lease, cursor string) {
			t.Helper()
			c := w.claim(t, l)
			require.NoError(t, w.CommitPublish(w.ctx, l.Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 1}, json.RawMessage(cursor), []engine.RowID{{1}}))
		}
		_, l := w.begin(t, resource("a", 0), resource("b", 0))
		require.ErrorIs(t, w.ResetResource(w.ctx, route, "a"), engine.ErrLocked, "a process works on the route")
		publish(l, `"a1"`)
		publish(l, `"b1"`)
		w.finish(t, l, engine.StateCompleted, false)

		require.NoError(t, w.ResetResource(w.ctx, route, "a"))
		require.Equal(t, engine.RouteCursor{Reset: true}, must(w.Cursor(w.ctx, route, "a"))(t))
		require.Equal(t, `"b1"`, string(must(w.Cursor(w.ctx, route, "b"))(t).Cursor))

		_, l = w.begin(t, resource("a", 0))
		require.True(t, must(w.Cursor(w.ctx, route, "a"))(t).Reset, "until the next publish")
		publish(l, `"a2"`)
		w.finish(t, l, engine.StateCompleted, false)
		require.Equal(t, engine.RouteCursor{Cursor: json.RawMessage(`"a2"`), Seen: []engine.RowID{{1}}}, must(w.Cursor(w.ctx, route, "a"))(t))
	},
	"a reset outlives the run that it interrupts": func(w *world) {
		t := w.t
		run, l := w.begin(t, resource("a", 1))
		w.finish(t, l, engine.StatePaused, false)
		require.NoError(t, w.ResetResource(w.ctx, route, "a"))
		again := w.start(t, "v1")
		require.Equal(t, run.ID, again.ID)
		l = w.acquire(t, again, 0)
		w.finishSplit(t, l, w.claim(t, l))
		c := w.claim(t, l)
		// It read from the old cursor on, so its new one would leave rows out.
		require.NoError(t, w.CommitPublish(w.ctx, l.Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 1}, json.RawMessage(`"old"`), nil))
		require.Equal(t, engine.RouteCursor{Reset: true}, must(w.Cursor(w.ctx, route, "a"))(t))
	},
}
