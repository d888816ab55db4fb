package enginetest

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
)

// sinkFollows: an incremental plan starts where the destination is (P3).
func sinkFollows(t *testing.T, c SinkCase, w engine.WriteMode) {
	t.Helper()
	p := c.plan(w, 1)
	p.read, p.cursor = engine.ReadIncremental, json.RawMessage(`{"at":"<1>"}`)
	one := c.begin(t, c.open(t), p)
	rec := records(t, [3]any{1, 1, "a"})
	one.claim(one.split(0))
	one.apply(one.split(0), true, rec)
	one.publish()

	p = p.next()
	p.from, p.cursor = json.RawMessage(`{"at":"<2>"}`), json.RawMessage(`{"at":"<3>"}`)
	void := c.planned(t, c.open(t), p)
	if void.fencer != nil {
		_, err := void.s.Prepare(t.Context(), void.target)
		require.NoError(t, err)
		require.NoError(t, void.fencer.BeginRun(t.Context(), []*engine.Target{void.target}))
		require.ErrorIs(t, void.fencer.Freeze(t.Context(), void.target, void.plan), engine.ErrPlanVoid)
	} else {
		void.start()
		void.claim(void.split(0))
		void.apply(void.split(0), true, records(t, [3]any{2, 1, "b"}))
		void.claim(engine.PublishSplit(p.resource))
		_, err := void.s.Publish(t.Context(), void.publication())
		require.ErrorIs(t, err, engine.ErrPlanVoid)
	}
	RequireSameRows(t, expect(w, c.canonical(t, rec)), c.Rows(t, one.target), "after a plan that is void")

	p = p.next()
	p.from = json.RawMessage(`{"at":"<1>"}`)
	two := c.begin(t, c.open(t), p)
	two.claim(two.split(0))
	two.apply(two.split(0), true)
	two.publish()
}

// sinkRefrozen: who lost the run can't put another plan in the place of one that
// is worked on.
func sinkRefrozen(t *testing.T, c SinkCase, w engine.WriteMode) {
	t.Helper()
	p := c.plan(w, 1)
	// Until a split is claimed a plan may be replaced: State may never have had it.
	lost := c.begin(t, c.open(t), p)
	if lost.fencer == nil {
		return
	}
	p.splits = 2
	r := c.begin(t, c.open(t), p)
	r.claim(r.split(1))
	requireStale(t, lost.fencer.Freeze(t.Context(), lost.target, lost.plan), "generation")
	require.NoError(t, r.fencer.Freeze(t.Context(), r.target, r.plan), "the plan itself may be frozen again")
	recs := records(t, [3]any{1, 1, "a"})
	r.apply(r.split(1), true, recs)
	r.claim(r.split(0))
	r.apply(r.split(0), true)
	r.publish()
	RequireSameRows(t, expect(w, c.canonical(t, recs)), c.Rows(t, r.target), "the plan that was worked on")
}

// sinkIncomplete: the ledger must have every split of the plan as done (P7, P3).
func sinkIncomplete(t *testing.T, c SinkCase, w engine.WriteMode) {
	t.Helper()
	p := c.plan(w, 1)
	p.splits = 2
	r := c.begin(t, c.open(t), p)
	if r.fencer == nil {
		// Its State alone knows how far a split is.
		return
	}
	want := engine.ErrLedgerBehind
	if r.target.Staged {
		want = engine.ErrStagingLost
	}
	a, b := records(t, [3]any{1, 1, "a"}), records(t, [3]any{2, 1, "b"})
	r.claim(r.split(0))
	r.apply(r.split(0), true, a)
	r.claim(engine.PublishSplit(p.resource))
	_, err := r.s.Publish(t.Context(), r.publication())
	require.ErrorIs(t, err, want)
	r.claim(r.split(1))
	r.apply(r.split(1), false, b)
	_, err = r.s.Publish(t.Context(), r.publication())
	require.ErrorIs(t, err, want)
	_, err = r.fencer.Claim(t.Context(), r.target, p.resource+"/0.9", 1)
	require.ErrorIs(t, err, want, "a split that the ledger does not have")
	r.apply(r.split(1), true)
	r.publish()
	RequireSameRows(t, expect(w, c.canonical(t, a, b)), c.Rows(t, r.target), "whole")
}

// sinkStanding: a run whose appended rows stand is finished or aborted before
// another begins (P21).
func sinkStanding(t *testing.T, c SinkCase) {
	t.Helper()
	p := c.plan(engine.WriteAppend, 1)
	old := c.begin(t, c.open(t), p)
	if old.fencer == nil || old.target.Staged {
		return
	}
	a, b := records(t, [3]any{1, 1, "a"}), records(t, [3]any{2, 1, "b"})
	old.claim(old.split(0))
	old.apply(old.split(0), false, a)
	next := c.planned(t, c.open(t), p.next())
	_, err := next.s.Prepare(t.Context(), next.target)
	require.NoError(t, err)
	require.ErrorIs(t, next.fencer.BeginRun(t.Context(), []*engine.Target{next.target}), engine.ErrUnfinished)
	old.apply(old.split(0), true, b)
	old.publish()
	next.start()
	next.claim(next.split(0))
	next.apply(next.split(0), false, a)
	require.NoError(t, next.s.Abort(t.Context(), next.target))
	c.begin(t, c.open(t), p.next().next())
	RequireSameRows(t, c.canonical(t, a, b, a), c.Rows(t, old.target), "an abort leaves appended rows")
}
