package statetest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// Machine is a machine whose processes share one State and can tell whether
// another one is alive, so that nothing waits for a lease of a dead process.
type Machine interface {
	// Process opens the State in a new process.
	Process(t *testing.T) engine.State
	// Kill ends a process as the kernel does: what it held is let go, and nothing
	// is written.
	Kill(t *testing.T, process engine.State)
}

// RunProcesses runs the tests of States that belong to one machine. They do not fit
// a State of many machines, such as PostgreSQL's: it knows of another process no
// more than its lease says, so a dead one's run is free only when that is over, and a
// live one is not locked out "at once" but fenced by its generation. That such a
// State does the right thing then is in [Run] (leases) and in the store's own tests.
func RunProcesses(t *testing.T, open func(t *testing.T) Machine) {
	t.Helper()
	for name, test := range processTests {
		t.Run("processes/"+name, func(t *testing.T) {
			t.Parallel()
			test(host{t: t, Machine: open(t)})
		})
	}
}

// host is a machine under test.
type host struct {
	Machine
	t *testing.T
}

func process(t *testing.T, m Machine) *world {
	t.Helper()
	return &world{t: t, ctx: t.Context(), State: m.Process(t)}
}

var processTests = map[string]func(host){
	"one works on a route": func(h host) {
		t, m := h.t, h.Machine
		a, b := process(t, m), process(t, m)
		require.Equal(t, must(a.Installation(a.ctx))(t), must(b.Installation(b.ctx))(t))
		run := a.start(t, "v1")
		refused := func() {
			t.Helper()
			began := time.Now()
			_, _, err := b.StartRun(b.ctx, engine.StartRequest{Route: route, Version: "v1"})
			require.ErrorIs(t, err, engine.ErrLocked)
			_, err = b.Acquire(b.ctx, run.ID, 0, "b", long)
			require.ErrorIs(t, err, engine.ErrLocked)
			require.ErrorIs(t, b.ResetResource(b.ctx, route, "a"), engine.ErrLocked)
			require.Less(t, time.Since(began), 5*time.Second, "at once")
		}
		refused()
		l := a.acquire(t, run, 0)
		refused()
		require.NoError(t, a.EndAttempt(a.ctx, l, nil))
		refused() // Between two attempts it is still a's run.
		l = a.acquire(t, run, 0)
		l1 := a.acquire(t, run, 1)
		require.NoError(t, a.FinishRun(a.ctx, l.Fence, engine.RunEnd{State: engine.StatePaused}))
		refused() // Slot 1 still works.
		require.NoError(t, a.EndAttempt(a.ctx, l1, nil))
		require.NoError(t, b.ResetResource(b.ctx, route, "a"))
		require.Equal(t, run.ID, b.start(t, "v1").ID)
		_, _, err := a.StartRun(a.ctx, engine.StartRequest{Route: route, Version: "v1"})
		require.ErrorIs(t, err, engine.ErrLocked)
	},
	"a dead one is followed at once": func(h host) {
		t, m := h.t, h.Machine
		a := process(t, m)
		run, l := a.begin(t, resource("a", 2))
		l1 := a.acquire(t, run, 1)
		c := a.claim(t, l)
		require.NoError(t, a.Commit(a.ctx, l.Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 3, Position: json.RawMessage(`3`), Totals: totals(3)}))
		a.claim(t, l1)
		m.Kill(t, a.State)

		b := process(t, m)
		again, resumed, err := b.StartRun(b.ctx, engine.StartRequest{Route: route, Version: "v1"})
		require.NoError(t, err)
		require.True(t, resumed)
		require.Equal(t, run.ID, again.ID)
		next := b.acquire(t, again, 0)
		require.Greater(t, next.Generation, l.Generation)
		got := b.claim(t, next)
		require.Equal(t, c.ID, got.ID)
		require.EqualValues(t, 3, got.Epoch)
		require.Equal(t, "a/1", b.claim(t, next).ID)
		// What the dead one would still send has no effect (invariant 2).
		b.unchanged(t, run.ID, func() {
			for _, f := range []engine.Fence{l.Fence, l1.Fence} {
				requireStale(t, b.Commit(b.ctx, f, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 4}), "generation")
				requireStale(t, b.AppendFacts(b.ctx, f, []events.Fact{fact(t, run.ID, events.Retry{})}), "generation")
			}
		})
	},
	"a slot can be taken over without starting": func(h host) {
		t, m := h.t, h.Machine
		a := process(t, m)
		run, l := a.begin(t, resource("a", 1))
		m.Kill(t, a.State)
		b := process(t, m)
		next := b.acquire(t, run, 0)
		require.Greater(t, next.Generation, l.Generation)
		require.Equal(t, "a/0", b.claim(t, next).ID)
	},
	"different pipelines run side by side": func(h host) {
		t, m := h.t, h.Machine
		a, b := process(t, m), process(t, m)
		run, l := a.begin(t, resource("a", 1))
		other := route
		other.Pipeline = "other"
		run2, _, err := b.StartRun(b.ctx, engine.StartRequest{Route: other, Version: "v1"})
		require.NoError(t, err)
		l2 := b.acquire(t, run2, 0)
		require.NoError(t, b.SavePlan(b.ctx, l2.Fence, &engine.RunPlan{Resources: []*engine.ResourcePlan{resource("a", 1)}}, nil))
		require.Len(t, a.workAll(t, l), 2)
		require.Len(t, b.workAll(t, l2), 2)
		require.NotEqual(t, run.ID, run2.ID)
	},
	"a wish comes from another one": func(h host) {
		t, m := h.t, h.Machine
		a, b := process(t, m), process(t, m)
		run := a.start(t, "v1")
		l := a.acquire(t, run, 0)
		require.NoError(t, b.SetDesired(b.ctx, run.ID, engine.DesiredCancel))
		require.Equal(t, engine.DesiredCancel, must(a.Renew(a.ctx, l, long))(t))
		a.finish(t, l, engine.StateCanceled, false)
		require.Equal(t, engine.StateCanceled, must(b.GetRun(b.ctx, run.ID))(t).State)
	},
}
