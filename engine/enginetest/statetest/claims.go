package statetest

import (
	"encoding/json"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
)

var claimTests = map[string]func(*world){
	"go in plan order and publish early": func(w *world) {
		t := w.t
		_, l := w.begin(t, resource("b", 2), resource("a", 1))
		require.Equal(t, []string{"b/0", "b/1", engine.PublishSplit("b"), "a/0", engine.PublishSplit("a")}, w.workAll(t, l))
	},
	"set all slots to one resource": func(w *world) {
		t := w.t
		run, l0 := w.begin(t, resource("a", 2), resource("b", 1))
		l1, l2 := w.acquire(t, run, 1), w.acquire(t, run, 2)
		require.Equal(t, "a/0", w.claim(t, l0).ID)
		require.Equal(t, "a/1", w.claim(t, l1).ID)
		require.Equal(t, "b/0", w.claim(t, l2).ID)
	},
	"wait for publish until all is read": func(w *world) {
		t := w.t
		run, l0 := w.begin(t, resource("a", 2))
		l1 := w.acquire(t, run, 1)
		first, second := w.claim(t, l0), w.claim(t, l1)
		nothing := func(l engine.Lease) {
			t.Helper()
			c, err := w.ClaimSplit(w.ctx, l.Fence, nil)
			require.NoError(t, err)
			require.Nil(t, c, "others are at work")
		}
		nothing(l0)
		w.finishSplit(t, l0, first)
		nothing(l0)
		w.finishSplit(t, l1, second)
		p := w.claim(t, l1)
		require.Equal(t, engine.SplitPublish, p.Kind)
		require.Equal(t, engine.PublishSplit("a"), p.ID)
		require.Equal(t, "a", p.Resource)
		nothing(l0)
		w.finishSplit(t, l1, p)
		_, err := w.ClaimSplit(w.ctx, l0.Fence, nil)
		require.ErrorIs(t, err, engine.ErrSplitDone)
	},
	"leave excluded resources alone": func(w *world) {
		t := w.t
		_, l := w.begin(t, resource("a", 1), resource("b", 1))
		b := w.claim(t, l, "a")
		require.Equal(t, "b/0", b.ID)
		c, err := w.ClaimSplit(w.ctx, l.Fence, []string{"a"})
		require.NoError(t, err)
		require.Nil(t, c, "b is not done yet")
		w.finishSplit(t, l, b)
		w.finishSplit(t, l, w.claim(t, l, "a"))
		_, err = w.ClaimSplit(w.ctx, l.Fence, []string{"a"})
		require.ErrorIs(t, err, engine.ErrSplitDone, "nothing is left but what is excluded")
		require.Equal(t, "a/0", w.claim(t, l).ID)
	},
	"bump the number and carry the checkpoint": func(w *world) {
		t := w.t
		run, l := w.begin(t, resource("a", 1))
		c := w.claim(t, l)
		require.EqualValues(t, 1, c.Claim)
		require.Empty(t, c.Position)
		pos := json.RawMessage(`{"last": ["ü", 9007199254740993]}`)
		require.NoError(t, w.Commit(w.ctx, l.Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 4, Position: pos, Totals: totals(9)}))
		require.True(t, w.split(t, run.ID, c.ID).Owned)
		require.NoError(t, w.ReturnSplit(w.ctx, l.Fence, c.ID, c.Claim))
		require.NoError(t, w.ReturnSplit(w.ctx, l.Fence, c.ID, c.Claim), "twice is the same")
		require.False(t, w.split(t, run.ID, c.ID).Owned)
		w.unchanged(t, run.ID, func() {
			requireStale(t, w.Commit(w.ctx, l.Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 5}), "claim")
		})
		next := w.claim(t, l)
		require.Equal(t, c.ID, next.ID)
		require.EqualValues(t, 2, next.Claim)
		require.EqualValues(t, 4, next.Epoch)
		require.Equal(t, string(pos), string(next.Position), "byte by byte")
		require.Equal(t, totals(9), next.Totals)
		w.unchanged(t, run.ID, func() {
			requireStale(t, w.Commit(w.ctx, l.Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 5}), "claim")
			requireStale(t, w.ReturnSplit(w.ctx, l.Fence, c.ID, c.Claim), "claim")
		})
	},
	"are raised above what the ledger has": func(w *world) {
		t := w.t
		run, l := w.begin(t, resource("a", 2))
		l1 := w.acquire(t, run, 1)
		c := w.claim(t, l)
		n, err := w.RaiseClaim(w.ctx, l.Fence, c.ID, 41)
		require.NoError(t, err)
		require.Greater(t, n, int64(41))
		again, err := w.RaiseClaim(w.ctx, l.Fence, c.ID, 41)
		require.NoError(t, err)
		require.Equal(t, n, again)
		w.unchanged(t, run.ID, func() {
			requireStale(t, w.Commit(w.ctx, l.Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 1}), "claim")
			_, err = w.RaiseClaim(w.ctx, l1.Fence, c.ID, 99)
			requireStale(t, err, "claim")
			stale := l.Fence
			stale.Generation++
			_, err = w.RaiseClaim(w.ctx, stale, c.ID, 99)
			requireStale(t, err, "generation")
		})
		require.NoError(t, w.Commit(w.ctx, l.Fence, engine.Progress{Split: c.ID, Claim: n, Epoch: 1}))
		require.NoError(t, w.ReturnSplit(w.ctx, l.Fence, c.ID, n))
		require.Equal(t, n+1, w.claim(t, l).Claim)
	},
	"pass to others when a lease ends": func(w *world) {
		t := w.t
		run, l0 := w.begin(t, resource("a", 1))
		l1, err := w.Acquire(w.ctx, run.ID, 1, "slow", short)
		require.NoError(t, err)
		slow := w.claim(t, l1)
		w.advance(short)
		taken := w.claim(t, l0)
		require.Equal(t, slow.ID, taken.ID)
		require.Equal(t, slow.Claim+1, taken.Claim)
		w.unchanged(t, run.ID, func() {
			requireStale(t, w.Commit(w.ctx, l1.Fence, engine.Progress{Split: slow.ID, Claim: slow.Claim, Epoch: 1}), "claim")
		})
		// Late, but nobody else has the slot or the split: its work counts.
		w.finishSplit(t, l0, taken)
		_, err = w.Renew(w.ctx, l1, long)
		require.NoError(t, err)
	},
	"of an ended run are refused": func(w *world) {
		t := w.t
		run, l0 := w.begin(t, resource("a", 2))
		l1 := w.acquire(t, run, 1)
		require.NoError(t, w.FinishRun(w.ctx, l0.Fence, engine.RunEnd{State: engine.StateFailed, Resumable: true}))
		w.unchanged(t, run.ID, func() {
			_, err := w.ClaimSplit(w.ctx, l1.Fence, nil)
			requireStale(t, err, "generation")
		})
	},
	"of unknown splits are stale": func(w *world) {
		t := w.t
		run, l := w.begin(t, resource("a", 1))
		w.unchanged(t, run.ID, func() {
			requireStale(t, w.Commit(w.ctx, l.Fence, engine.Progress{Split: "z/0", Claim: 1}), "claim")
			requireStale(t, w.ReturnSplit(w.ctx, l.Fence, "z/0", 1), "claim")
			_, err := w.RaiseClaim(w.ctx, l.Fence, "z/0", 1)
			requireStale(t, err, "claim")
		})
	},
}
