package statetest

import (
	"encoding/json"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

var progressTests = map[string]func(*world){
	"is stored whole": func(w *world) {
		t := w.t
		run, l := w.begin(t, resource("a", 1), resource("b", 1))
		c := w.claim(t, l)
		p := engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 1, Position: json.RawMessage(`{"k":1}`), Totals: totals(5),
			Artifacts: []engine.Artifact{{Name: "part-2", Split: c.ID, Epoch: 1, Claim: 1, Rows: 5, Digest: totals(5).Digest, Checksum: "x"}, {Name: "part-1", Split: c.ID}},
			Seen:      []engine.RowID{{2}, {1}, {2}},
			Facts:     []events.Fact{fact(t, run.ID, events.EpochCommitted{Epoch: 1}), fact(t, run.ID, events.CheckpointSaved{Epoch: 1})}}
		require.NoError(t, w.Commit(w.ctx, l.Fence, p))
		s := w.split(t, run.ID, c.ID)
		require.EqualValues(t, 1, s.Epoch)
		require.Equal(t, totals(5), s.Totals)
		require.ElementsMatch(t, p.Artifacts, must(w.Artifacts(w.ctx, run.ID, "a"))(t))
		require.ElementsMatch(t, []engine.RowID{{1}, {2}}, must(w.SeenRows(w.ctx, run.ID, "a"))(t))
		require.Empty(t, must(w.Artifacts(w.ctx, run.ID, "b"))(t))
		require.Len(t, w.facts(t, run.ID), 2)
		w.unchanged(t, run.ID, func() { require.NoError(t, w.Commit(w.ctx, l.Fence, p), "the same again (invariant 4)") })

		p2 := engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 2, Done: true, Totals: totals(9),
			Artifacts: []engine.Artifact{{Name: "part-3", Split: c.ID}}, Seen: []engine.RowID{{3}}}
		require.NoError(t, w.Commit(w.ctx, l.Fence, p2))
		require.Len(t, must(w.Artifacts(w.ctx, run.ID, "a"))(t), 3)
		require.Len(t, must(w.SeenRows(w.ctx, run.ID, "a"))(t), 3)
		s = w.split(t, run.ID, c.ID)
		require.True(t, s.Done)
		require.False(t, s.Owned)
		require.Empty(t, s.Position)
	},
	"goes back when the ledger says so": func(w *world) {
		t := w.t
		run, l := w.begin(t, resource("a", 1))
		c := w.claim(t, l)
		require.NoError(t, w.Commit(w.ctx, l.Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 5, Position: json.RawMessage(`5`), Totals: totals(5)}))
		require.NoError(t, w.Commit(w.ctx, l.Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 3, Position: json.RawMessage(`3`), Totals: totals(3)}))
		s := w.split(t, run.ID, c.ID)
		require.EqualValues(t, 3, s.Epoch)
		require.Equal(t, totals(3), s.Totals)
	},
	"under a stale number leaves nothing": func(w *world) {
		t := w.t
		run, l := w.begin(t, resource("a", 1))
		c := w.claim(t, l)
		p := engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 1, Position: json.RawMessage(`1`), Totals: totals(2),
			Artifacts: []engine.Artifact{{Name: "x", Split: c.ID}}, Seen: []engine.RowID{{1}},
			Facts: []events.Fact{fact(t, run.ID, events.EpochCommitted{Epoch: 1})}}
		other := w.acquire(t, run, 3)
		w.unchanged(t, run.ID, func() {
			for _, d := range []int64{-1, 1} {
				wrong := p
				wrong.Claim += d
				requireStale(t, w.Commit(w.ctx, l.Fence, wrong), "claim")
				f := l.Fence
				f.Generation += d
				requireStale(t, w.Commit(w.ctx, f, p), "generation")
			}
			requireStale(t, w.Commit(w.ctx, other.Fence, p), "claim")
		})
	},
	"of a publish stores the cursor": func(w *world) {
		t := w.t
		run, l := w.begin(t, resource("a", 1))
		w.finishSplit(t, l, w.claim(t, l))
		c := w.claim(t, l)
		require.Equal(t, engine.SplitPublish, c.Kind)
		p := engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 1, Totals: totals(4), Facts: []events.Fact{fact(t, run.ID, events.PublishDone{Resource: "a"})}}
		cursor := json.RawMessage(`{"u":"2024-05-09 13:28:27.031153"}`)
		w.unchanged(t, run.ID, func() {
			wrong := p
			wrong.Claim++
			requireStale(t, w.CommitPublish(w.ctx, l.Fence, wrong, cursor, nil), "claim")
			f := l.Fence
			f.Generation++
			requireStale(t, w.CommitPublish(w.ctx, f, p, cursor, nil), "generation")
			requireClass(t, w.Commit(w.ctx, l.Fence, p), engine.Bug)
		})
		require.NoError(t, w.CommitPublish(w.ctx, l.Fence, p, cursor, []engine.RowID{{1}, {2}}))
		require.True(t, w.split(t, run.ID, c.ID).Done)
		got := must(w.Cursor(w.ctx, route, "a"))(t)
		require.Equal(t, engine.RouteCursor{Cursor: cursor, Seen: []engine.RowID{{1}, {2}}}, got)
		w.unchanged(t, run.ID, func() { require.NoError(t, w.CommitPublish(w.ctx, l.Fence, p, cursor, []engine.RowID{{1}, {2}})) })
		other := route
		other.Sink = "elsewhere"
		require.Zero(t, must(w.Cursor(w.ctx, other, "a"))(t))
		require.Zero(t, must(w.Cursor(w.ctx, route, "b"))(t))
	},
	"of reading is no publish": func(w *world) {
		t := w.t
		run, l := w.begin(t, resource("a", 1))
		c := w.claim(t, l)
		w.unchanged(t, run.ID, func() {
			requireClass(t, w.CommitPublish(w.ctx, l.Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 1}, json.RawMessage(`1`), nil), engine.Bug)
		})
	},
	"of a publish waits for rows taken back": func(w *world) {
		t := w.t
		run, l := w.begin(t, resource("a", 1))
		read := w.claim(t, l)
		w.finishSplit(t, l, read)
		c := w.claim(t, l)
		require.Equal(t, engine.SplitPublish, c.Kind)
		// The ledger was found behind (P3): the split is not done after all.
		require.NoError(t, w.Commit(w.ctx, l.Fence, engine.Progress{Split: read.ID, Claim: read.Claim, Epoch: 0}))
		w.unchanged(t, run.ID, func() {
			err := w.CommitPublish(w.ctx, l.Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 1}, json.RawMessage(`1`), nil)
			requireClass(t, err, engine.Bug)
		})
	},
	"the cursor follows the last publish": func(w *world) {
		t := w.t
		for i, cursor := range []json.RawMessage{json.RawMessage(`1`), json.RawMessage(`2`), nil} {
			_, l := w.begin(t, resource("a", 0))
			c := w.claim(t, l)
			require.NoError(t, w.CommitPublish(w.ctx, l.Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 1}, cursor, nil))
			w.finish(t, l, engine.StateCompleted, false)
			got := must(w.Cursor(w.ctx, route, "a"))(t)
			require.Equal(t, string(cursor), string(got.Cursor), i)
		}
	},
	"survives hand-over and restart": func(w *world) {
		t := w.t
		run, l := w.begin(t, resource("a", 2))
		c := w.claim(t, l)
		require.NoError(t, w.Commit(w.ctx, l.Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 7, Position: json.RawMessage(`{"k":7}`), Totals: totals(7)}))
		require.NoError(t, w.EndAttempt(w.ctx, l, []events.Fact{fact(t, run.ID, events.AttemptHandedOver{Reason: "deadline"})}))
		again := w.start(t, "v1")
		require.Equal(t, run.ID, again.ID)
		l = w.acquire(t, again, 0)
		require.Equal(t, 2, l.Attempt)
		next := w.claim(t, l)
		require.Equal(t, c.ID, next.ID)
		require.EqualValues(t, 7, next.Epoch)
		require.EqualValues(t, 2, next.Claim)
		w.finishSplit(t, l, next)
		w.workAll(t, l)
	},
}
