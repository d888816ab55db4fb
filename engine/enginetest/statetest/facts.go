package statetest

import (
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

var factTests = map[string]func(*world){
	"are kept as they are": func(w *world) {
		t := w.t
		run := w.start(t, "v1")
		l := w.acquire(t, run, 0)
		f := fact(t, run.ID, events.SchemaChanged{Resource: `public."Ördërs"`, Statement: "ALTER …"})
		require.NoError(t, w.AppendFacts(w.ctx, l.Fence, []events.Fact{f}))
		got := w.facts(t, run.ID)
		require.Len(t, got, 1)
		f.Number = 1
		require.Equal(t, f, got[0])
	},
	"are read in pages": func(w *world) {
		t := w.t
		run := w.start(t, "v1")
		l := w.acquire(t, run, 0)
		for i := range 7 {
			require.NoError(t, w.AppendFacts(w.ctx, l.Fence, []events.Fact{fact(t, run.ID, events.RunStarted{Slots: i})}))
		}
		page, err := w.Facts(w.ctx, run.ID, 2, 3)
		require.NoError(t, err)
		require.Len(t, page, 3)
		require.EqualValues(t, 3, page[0].Number)
		none, err := w.Facts(w.ctx, run.ID, 7, 3)
		require.NoError(t, err)
		require.Empty(t, none)
	},
	"are stored once": func(w *world) {
		t := w.t
		run := w.start(t, "v1")
		l := w.acquire(t, run, 0)
		a, b := fact(t, run.ID, events.RunStarted{Slots: 1}), fact(t, run.ID, events.RunStarted{Slots: 2})
		require.NoError(t, w.AppendFacts(w.ctx, l.Fence, []events.Fact{a}))
		require.NoError(t, w.AppendFacts(w.ctx, l.Fence, []events.Fact{a, b}), "a repeated call (invariant 4)")
		require.Len(t, w.facts(t, run.ID), 2)
	},
	"of another run are refused": func(w *world) {
		t := w.t
		run, l := w.begin(t, resource("a", 1))
		c := w.claim(t, l)
		other := run
		other.ID[0]++
		w.unchanged(t, run.ID, func() {
			requireClass(t, w.AppendFacts(w.ctx, l.Fence, []events.Fact{fact(t, run.ID, events.RunStarted{}), fact(t, other.ID, events.RunStarted{})}), engine.Bug)
			err := w.Commit(w.ctx, l.Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 1, Facts: []events.Fact{fact(t, other.ID, events.RunStarted{})}})
			requireClass(t, err, engine.Bug)
		})
	},
	"have no gaps under concurrency": func(w *world) {
		t := w.t
		run := w.start(t, "v1")
		var wg sync.WaitGroup
		for slot := range 8 {
			l := w.acquire(t, run, slot)
			stale := l.Fence
			stale.Generation++
			wg.Go(func() {
				for i := range 10 {
					p := events.SplitClaimed{Slot: slot, Claim: int64(i)}
					f, err := events.New(run.ID, run.CreatedAt, p)
					if err == nil {
						err = w.AppendFacts(w.ctx, l.Fence, []events.Fact{f})
					}
					if err != nil {
						t.Errorf("slot %d: %v", slot, err)
					}
					if f, err = events.New(run.ID, run.CreatedAt, p); err == nil {
						err = w.AppendFacts(w.ctx, stale, []events.Fact{f})
					}
					if err == nil {
						t.Error("a stale fence stored a fact")
					}
				}
			})
		}
		wg.Wait()
		require.Len(t, w.facts(t, run.ID), 80)
	},
}
