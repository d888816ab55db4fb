package statetest

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

var planTests = map[string]func(*world){
	"are frozen": func(w *world) {
		t := w.t
		run := w.start(t, "v1")
		l := w.acquire(t, run, 0)
		none, err := w.LoadPlan(w.ctx, run.ID)
		require.NoError(t, err)
		require.Nil(t, none)
		_, err = w.ClaimSplit(w.ctx, l.Fence, nil)
		requireClass(t, err, engine.Bug)

		plan := &engine.RunPlan{Resources: []*engine.ResourcePlan{resource("b", 2), resource("a", 1)}}
		stale := l.Fence
		stale.Generation++
		w.unchanged(t, run.ID, func() { requireStale(t, w.SavePlan(w.ctx, stale, plan, nil), "generation") })
		require.NoError(t, w.SavePlan(w.ctx, l.Fence, plan, []events.Fact{fact(t, run.ID, events.ResourcePlanned{Resource: "b"})}))
		requireJSON(t, plan, mustLoad(t, w, run))
		require.Len(t, w.facts(t, run.ID), 1)

		all, err := w.Splits(w.ctx, run.ID)
		require.NoError(t, err)
		var ids []string
		for _, s := range all {
			ids = append(ids, s.ID)
			require.False(t, s.Done)
			require.False(t, s.Owned)
		}
		require.Equal(t, []string{"b/0", "b/1", engine.PublishSplit("b"), "a/0", engine.PublishSplit("a")}, ids, "in plan order")

		w.unchanged(t, run.ID, func() {
			requireClass(t, w.SavePlan(w.ctx, l.Fence, &engine.RunPlan{Resources: []*engine.ResourcePlan{resource("c", 1)}}, nil), engine.Bug)
		})
	},
	"of a change stream": func(w *world) {
		t := w.t
		stream := resource(engine.StreamResource, 1)
		stream.Read, stream.Stream = engine.ReadCDC, &engine.StreamPlan{Members: []string{"a"}, Statements: []string{"make a slot"}}
		member := resource("a", 1)
		member.Read = engine.ReadCDC
		run, l := w.begin(t, stream, member)
		requireJSON(t, &engine.RunPlan{Resources: []*engine.ResourcePlan{stream, member}}, mustLoad(t, w, run))
		c, err := w.ClaimSplit(w.ctx, l.Fence, nil)
		require.NoError(t, err)
		require.Equal(t, engine.StreamResource, c.Resource, "the stream comes first")
		totals := engine.Totals{Read: 3, Applied: 3, Members: map[string]engine.Totals{"a": {Read: 3, Applied: 2, Superseded: 1}}}
		require.NoError(t, w.Commit(w.ctx, l.Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 1, Position: engine.Position(`{"lsn":1}`), Totals: totals}))
		require.NoError(t, w.ReturnSplit(w.ctx, l.Fence, c.ID, c.Claim))
		// It is left alone for the next claim, and goes on at its checkpoint then.
		piece, err := w.ClaimSplit(w.ctx, l.Fence, []string{engine.StreamResource})
		require.NoError(t, err)
		require.Equal(t, "a", piece.Resource)
		c, err = w.ClaimSplit(w.ctx, l.Fence, nil)
		require.NoError(t, err)
		require.Equal(t, totals, c.Totals)
		require.EqualValues(t, 1, c.Epoch)
	},
	"may be empty": func(w *world) {
		t := w.t
		run, l := w.begin(t)
		require.NotNil(t, mustLoad(t, w, run))
		_, err := w.ClaimSplit(w.ctx, l.Fence, nil)
		require.ErrorIs(t, err, engine.ErrSplitDone)
	},
	"of an empty resource only publish": func(w *world) {
		t := w.t
		_, l := w.begin(t, resource("a", 0))
		require.Equal(t, []string{engine.PublishSplit("a")}, w.workAll(t, l))
	},
	"a plan that can't be stored leaves nothing": func(w *world) {
		t := w.t
		run := w.start(t, "v1")
		l := w.acquire(t, run, 0)
		twice := resource("a", 2)
		twice.Source.Splits[1].ID = twice.Source.Splits[0].ID
		w.unchanged(t, run.ID, func() {
			requireClass(t, w.SavePlan(w.ctx, l.Fence, &engine.RunPlan{Resources: []*engine.ResourcePlan{twice}}, nil), engine.Bug)
			requireClass(t, w.SavePlan(w.ctx, l.Fence, &engine.RunPlan{Resources: []*engine.ResourcePlan{resource("a", 1), resource("a", 1)}}, nil), engine.Bug)
		})
	},
	"a resource is planned anew": func(w *world) {
		t := w.t
		run, l := w.begin(t, resource("a", 2), resource("b", 1))
		second := w.acquire(t, run, 1)
		mine, theirs := w.claim(t, l), w.claim(t, second)
		require.NoError(t, w.Commit(w.ctx, l.Fence, engine.Progress{Split: mine.ID, Claim: mine.Claim, Epoch: 1, Done: true,
			Position: json.RawMessage(`{"k":1}`), Totals: totals(3), Artifacts: []engine.Artifact{{Name: "x", Split: mine.ID}}, Seen: []engine.RowID{{1}}}))

		next := resource("a", 3)
		next.Generation = 1
		stale := second.Fence
		stale.Generation++
		w.unchanged(t, run.ID, func() {
			requireStale(t, w.ReplaceResource(w.ctx, stale, next, nil), "generation")
			wrong := resource("a", 3)
			wrong.Generation = 2
			requireClass(t, w.ReplaceResource(w.ctx, l.Fence, wrong, nil), engine.Bug)
			requireClass(t, w.ReplaceResource(w.ctx, l.Fence, resource("a", 1), nil), engine.Bug)
			unknown := resource("z", 1)
			unknown.Generation = 1
			requireClass(t, w.ReplaceResource(w.ctx, l.Fence, unknown, nil), engine.Bug)
		})
		facts := []events.Fact{fact(t, run.ID, events.ResourceReset{Resource: "a"})}
		require.NoError(t, w.ReplaceResource(w.ctx, l.Fence, next, facts))
		w.unchanged(t, run.ID, func() {
			require.NoError(t, w.ReplaceResource(w.ctx, l.Fence, next, facts), "the same again (invariant 4)")
		})
		plan := mustLoad(t, w, run)
		require.Equal(t, "a", plan.Resources[0].Selection.Resource, "in its old place")
		requireJSON(t, next, plan.Resource("a"))
		for _, s := range must(w.Splits(w.ctx, run.ID))(t) {
			if s.Resource == "a" {
				require.False(t, s.Done)
				require.False(t, s.Owned)
				require.Zero(t, s.Epoch)
				require.Empty(t, s.Position)
				require.Equal(t, 1, s.Generation)
			}
		}
		require.Empty(t, must(w.Artifacts(w.ctx, run.ID, "a"))(t))
		require.Empty(t, must(w.SeenRows(w.ctx, run.ID, "a"))(t))
		// Old owners' claims never fit again, not even after new claims (invariant 2).
		w.unchanged(t, run.ID, func() {
			requireStale(t, w.Commit(w.ctx, second.Fence, engine.Progress{Split: theirs.ID, Claim: theirs.Claim, Epoch: 9}), "claim")
		})
		again := w.claim(t, l)
		require.Equal(t, "a/0", again.ID)
		require.Greater(t, again.Claim, mine.Claim)
		require.Greater(t, again.Claim, theirs.Claim)
		require.Equal(t, 1, again.Generation)
		w.unchanged(t, run.ID, func() {
			requireStale(t, w.Commit(w.ctx, l.Fence, engine.Progress{Split: mine.ID, Claim: mine.Claim, Epoch: 9}), "claim")
		})
		w.finishSplit(t, l, again)
		w.workAll(t, l)
		last := resource("a", 1)
		last.Generation = 2
		requireClass(t, w.ReplaceResource(w.ctx, l.Fence, last, nil), engine.Bug)
	},
}

func mustLoad(t *testing.T, w *world, run engine.Run) *engine.RunPlan {
	t.Helper()
	p, err := w.LoadPlan(w.ctx, run.ID)
	require.NoError(t, err)
	return p
}

func requireJSON(t *testing.T, want, got any) {
	t.Helper()
	a, err := json.Marshal(want)
	require.NoError(t, err)
	b, err := json.Marshal(got)
	require.NoError(t, err)
	require.Equal(t, string(a), string(b))
}

// must turns a pair into its value, within a test.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}
