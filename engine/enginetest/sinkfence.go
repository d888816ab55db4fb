package enginetest

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
)

func requireStale(t *testing.T, err error, what string) {
	t.Helper()
	var stale *engine.StaleError
	require.ErrorAs(t, err, &stale)
	require.Equal(t, what, stale.What)
}

// next is the plan of the following run on the same resource.
func (p sinkPlan) next() sinkPlan {
	p.run, p.ordinal = uuid.Must(uuid.NewV7()), p.ordinal+1
	return p
}

func sinkOlderRun(t *testing.T, c SinkCase, w engine.WriteMode) {
	t.Helper()
	p := c.plan(w, 1)
	old := c.begin(t, c.open(t), p)
	rec, late := records(t, [3]any{1, 2, "new"}), records(t, [3]any{1, 1, "old"}, [3]any{2, 1, "old"})
	old.claim(old.split(0))
	r := c.begin(t, c.open(t), p.next())
	r.claim(r.split(0))
	if old.fencer != nil {
		// The older run is alive and does not know it yet (invariant 2).
		e, _ := old.epoch(old.split(0), 1, true, late)
		_, err := old.s.Apply(t.Context(), e)
		require.Error(t, err)
		require.Equal(t, engine.Retryable, engine.ClassOf(err), "%v", err)
		requireStale(t, old.fencer.BeginRun(t.Context(), []*engine.Target{old.target}), "ordinal")
		_, err = old.fencer.Claim(t.Context(), old.target, old.split(0), 9)
		requireStale(t, err, "ordinal")
	} else {
		old.apply(old.split(0), true, late)
	}
	r.apply(r.split(0), true, rec)
	r.publish()
	_, err := old.s.Publish(t.Context(), old.publication())
	requireStale(t, err, "ordinal")
	RequireSameRows(t, expect(w, c.canonical(t, rec)), c.Rows(t, r.target), "after an older run came late")
}

func sinkStaleClaim(t *testing.T, c SinkCase, w engine.WriteMode) {
	t.Helper()
	p := c.plan(w, 1)
	zombie := c.begin(t, c.open(t), p)
	if zombie.fencer == nil {
		// Claims are in the names of artifacts: none is ever overwritten (P11).
		return
	}
	split := zombie.split(0)
	rec := records(t, [3]any{1, 1, "a"})
	zombie.claim(split)
	r := c.begin(t, c.open(t), p)
	_, err := r.fencer.Claim(t.Context(), r.target, split, 1)
	requireStale(t, err, "claim")
	r.claims[split] = 1
	r.claim(split)
	e, _ := zombie.epoch(split, 1, true, records(t, [3]any{1, 1, "z"}, [3]any{2, 1, "z"}))
	_, err = zombie.s.Apply(t.Context(), e)
	require.Error(t, err)
	require.Equal(t, engine.Retryable, engine.ClassOf(err), "%v", err)
	r.apply(split, false, rec)
	// The same epoch again, as after a lost answer (P4).
	e, _ = r.epoch(split, 1, false, rec)
	_, err = r.s.Apply(t.Context(), e)
	requireStale(t, err, "claim")
	r.apply(split, true)
	r.publish()
	RequireSameRows(t, expect(w, c.canonical(t, rec)), c.Rows(t, r.target), "after a zombie")
}

func sinkResumed(t *testing.T, c SinkCase, w engine.WriteMode) {
	t.Helper()
	p := c.plan(w, 1)
	before := c.begin(t, c.Open(t), p)
	split := before.split(0)
	a, b := records(t, [3]any{1, 1, "a"}), records(t, [3]any{2, 1, "b"})
	before.claim(split)
	before.apply(split, false, a)
	require.NoError(t, before.s.Close(t.Context()))

	r := c.begin(t, c.open(t), p)
	r.claims, r.epochs, r.totals, r.artifacts = before.claims, before.epochs, before.totals, before.artifacts
	e := r.claim(split)
	require.EqualValues(t, 1, e.Epoch)
	if r.fencer != nil {
		require.JSONEq(t, `{"after":1}`, string(e.Position))
		require.False(t, e.Done)
		require.EqualValues(t, 1, e.Totals.Read)
		require.Equal(t, before.totals.Digest, e.Totals.Digest)
	}
	r.apply(split, true, b)
	if r.fencer != nil {
		require.True(t, r.claim(split).Done)
	}
	r.publish()
	RequireSameRows(t, expect(w, c.canonical(t, a, b)), c.Rows(t, r.target), "after a resume")
}

func sinkAdopted(t *testing.T, c SinkCase, w engine.WriteMode) {
	t.Helper()
	s := c.open(t)
	adopter, ok := s.(engine.Adopter)
	if !ok {
		return
	}
	find := func(resource string) (a engine.Adoption, ar *engine.AdoptedResource) {
		found, err := adopter.Adopt(t.Context(), c.route(s))
		require.NoError(t, err)
		for _, a := range found {
			i := slices.IndexFunc(a.Resources, func(r engine.AdoptedResource) bool { return r.Resource == resource })
			if i >= 0 {
				return a, &a.Resources[i]
			}
		}
		return engine.Adoption{}, nil
	}
	p := c.plan(w, 7)
	p.cursor = json.RawMessage(`{"at": 12345678901234567890}`)
	_, ar := find(p.resource)
	require.Nil(t, ar)
	r := c.begin(t, s, p)
	r.claim(r.split(0))
	r.apply(r.split(0), true, records(t, [3]any{1, 1, "a"}))
	if r.fencer != nil {
		a, ar := find(p.resource)
		require.NotNil(t, ar)
		require.Equal(t, c.route(s).Installation, a.Installation)
		require.Equal(t, p.run.String(), ar.RunID)
		require.EqualValues(t, 7, ar.Ordinal)
		require.False(t, ar.Published)
		require.Empty(t, ar.Cursor)
		require.NotNil(t, ar.Plan)
		require.Equal(t, r.plan.Source.Splits[0].ID, ar.Plan.Source.Splits[0].ID)
		i := slices.IndexFunc(ar.Ledger, func(e engine.LedgerEntry) bool { return e.Split == r.split(0) })
		require.GreaterOrEqual(t, i, 0)
		require.True(t, ar.Ledger[i].Done)
		require.EqualValues(t, 1, ar.Ledger[i].Totals.Read)
	}
	r.publish()
	_, ar = find(p.resource)
	require.NotNil(t, ar)
	require.True(t, ar.Published)
	require.JSONEq(t, string(p.cursor), string(ar.Cursor))
}

func sinkReplace(t *testing.T, c SinkCase) {
	t.Helper()
	p := c.plan(engine.WriteReplace, 1)
	one := c.begin(t, c.open(t), p)
	old := records(t, [3]any{1, 1, "old"}, [3]any{2, 1, "old"})
	one.claim(one.split(0))
	one.apply(one.split(0), true, old)
	require.Empty(t, c.Rows(t, one.target), "nothing is visible before the publish")
	one.publish()
	see := func(what string) {
		t.Helper()
		RequireSameRows(t, c.canonical(t, old), c.Rows(t, one.target), what)
	}
	see("published")

	two := c.begin(t, c.open(t), p.next())
	see("the next run has begun")
	two.claim(two.split(0))
	two.apply(two.split(0), false, records(t, [3]any{9, 9, "new"}))
	see("the next run has loaded")
	require.NoError(t, two.s.Abort(t.Context(), two.target))
	require.NoError(t, two.s.Abort(t.Context(), two.target))
	see("the next run was aborted (invariant 8)")

	three := c.begin(t, c.open(t), p.next().next())
	three.claim(three.split(0))
	fresh := records(t, [3]any{2, 3, "fresh"})
	three.apply(three.split(0), true, fresh)
	see("the third run has loaded")
	three.publish()
	RequireSameRows(t, c.canonical(t, fresh), c.Rows(t, three.target), "replaced")

	four := c.begin(t, c.open(t), p.next().next().next())
	four.claim(four.split(0))
	four.apply(four.split(0), true)
	four.publish()
	require.Empty(t, c.Rows(t, four.target), "a source that is empty now empties the target")
}

func sinkUpsert(t *testing.T, c SinkCase) {
	t.Helper()
	p := c.plan(engine.WriteUpsert, 1)
	r := c.begin(t, c.open(t), p)
	split := r.split(0)
	r.claim(split)
	rc := r.apply(split, false, records(t, [3]any{1, 1, "a"}, [3]any{2, 1, "b"}, [3]any{1, 2, "a2"}), records(t, [3]any{1, 3, "a3"}))
	require.EqualValues(t, 2, rc.Superseded)
	require.EqualValues(t, 2, rc.Applied)
	r.apply(split, true, records(t, [3]any{2, 4, "b4"}, [3]any{3, 4, "c4"}))
	r.publish()
	want := records(t, [3]any{1, 3, "a3"}, [3]any{2, 4, "b4"}, [3]any{3, 4, "c4"})
	RequireSameRows(t, c.canonical(t, want), c.Rows(t, r.target), "the last row of every key")
}

func sinkDelete(t *testing.T, c SinkCase) {
	t.Helper()
	if !slices.Contains(c.Spec.Writes, engine.WriteUpsert) {
		return
	}
	p := c.plan(engine.WriteUpsert, 1)
	r := c.begin(t, c.open(t), p)
	r.claim(r.split(0))
	r.apply(r.split(0), true, records(t, [3]any{1, 1, "a"}, [3]any{2, 1, "b"}, [3]any{3, 1, "c"}))
	r.publish()
	p = p.next()
	p.write = engine.WriteDelete
	d := c.begin(t, c.open(t), p)
	d.claim(d.split(0))
	d.apply(d.split(0), true, records(t, [3]any{1, 5, "x"}, [3]any{3, 5, "x"}, [3]any{7, 5, "x"}))
	d.publish()
	RequireSameRows(t, c.canonical(t, records(t, [3]any{2, 1, "b"})), c.Rows(t, d.target), "what was not deleted")
}

func sinkWindow(t *testing.T, c SinkCase) {
	t.Helper()
	p := c.plan(engine.WriteAppend, 1)
	p.read = engine.ReadIncremental
	r := c.begin(t, c.open(t), p)
	r.claim(r.split(0))
	have := records(t, [3]any{1, 10, "a"}, [3]any{2, 20, "b"})
	r.apply(r.split(0), true, have)
	r.publish()
	p = p.next()
	p.window = &engine.Window{Cursor: "u", UpTo: "20"}
	n := c.begin(t, c.open(t), p)
	if n.target.RememberWindow {
		// The source leaves them out: see the suite of sources.
		return
	}
	n.claim(n.split(0))
	more := records(t, [3]any{3, 15, "late"}, [3]any{4, 30, "new"})
	rc := n.apply(n.split(0), true, records(t, [3]any{2, 20, "b"}, [3]any{3, 15, "late"}, [3]any{4, 30, "new"}))
	pub := n.publish()
	require.EqualValues(t, 1, rc.Skipped+pub.Skipped, "the row of the window that is there")
	RequireSameRows(t, c.canonical(t, have, more), c.Rows(t, n.target), "each row once (P15)")
}
