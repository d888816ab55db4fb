package memstate_test

import (
	"encoding/binary"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/memstate"
	"github.com/tranship-io/tranship/engine/enginetest/statetest"
)

// clocked is a State whose clock only the suite moves.
type clocked struct {
	*memstate.Store
	mu  sync.Mutex
	now time.Time
}

func newClocked() *clocked {
	c := &clocked{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	c.Store = memstate.New(memstate.Options{Now: func() time.Time {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.now
	}})
	return c
}

func (c *clocked) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestConformance(t *testing.T) {
	statetest.Run(t, func(*testing.T) engine.State { return newClocked() })
}

func TestConformanceWallClock(t *testing.T) {
	statetest.Run(t, func(*testing.T) engine.State { return memstate.New(memstate.Options{}) })
}

type machine struct{ first *memstate.Store }

func (m machine) Process(*testing.T) engine.State         { return m.first.Process() }
func (m machine) Kill(_ *testing.T, process engine.State) { process.(*memstate.Store).Kill() }

func TestProcesses(t *testing.T) {
	statetest.RunProcesses(t, func(*testing.T) statetest.Machine { return machine{memstate.New(memstate.Options{})} })
}

var route = engine.Route{Pipeline: "shop", Source: "src", Sink: "dst"}

func plan() *engine.RunPlan {
	return &engine.RunPlan{Resources: []*engine.ResourcePlan{{
		Selection: engine.Selection{Resource: "a"},
		Source:    &engine.SourcePlan{Splits: []engine.Split{{ID: "a/0", Resource: "a"}}},
		Target:    &engine.Target{Resource: "a"},
	}}}
}

func TestRestoreOlderCopy(t *testing.T) {
	ctx := t.Context()
	s := memstate.New(memstate.Options{})
	run, _, err := s.StartRun(ctx, engine.StartRequest{Route: route, Version: "v1"})
	require.NoError(t, err)
	l, err := s.Acquire(ctx, run.ID, 0, "w", time.Hour)
	require.NoError(t, err)
	require.NoError(t, s.SavePlan(ctx, l.Fence, plan(), nil))
	c, err := s.ClaimSplit(ctx, l.Fence, nil)
	require.NoError(t, err)
	commit := func(epoch int64) {
		t.Helper()
		require.NoError(t, s.Commit(ctx, l.Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: epoch, Position: json.RawMessage(`1`)}))
	}
	epoch := func() int64 {
		t.Helper()
		all, err := s.Splits(ctx, run.ID)
		require.NoError(t, err)
		return all[0].Epoch
	}
	commit(1)
	copied := s.Snapshot()
	commit(2)
	s.Restore(copied)
	require.EqualValues(t, 1, epoch())
	commit(3)
	s.Restore(copied)
	require.EqualValues(t, 1, epoch(), "the copy itself never changes")
}

func TestLose(t *testing.T) {
	ctx := t.Context()
	s := memstate.New(memstate.Options{})
	before, err := s.Installation(ctx)
	require.NoError(t, err)
	run, _, err := s.StartRun(ctx, engine.StartRequest{Route: route, Version: "v1"})
	require.NoError(t, err)
	l, err := s.Acquire(ctx, run.ID, 0, "w", time.Hour)
	require.NoError(t, err)
	s.Lose()
	after, err := s.Installation(ctx)
	require.NoError(t, err)
	require.NotEqual(t, before, after)
	_, known, err := s.RouteKnown(ctx, route)
	require.NoError(t, err)
	require.False(t, known)
	var stale *engine.StaleError
	require.ErrorAs(t, s.AppendFacts(ctx, l.Fence, nil), &stale, "a zombie of the lost State has no effect")
}

// The same calls with the same clock and ids give the same State.
func TestDeterministic(t *testing.T) {
	history := func() any {
		var n uint64
		s := memstate.New(memstate.Options{
			Now: func() time.Time { return time.Unix(1, 0) },
			NewID: func() (id uuid.UUID) {
				n++
				binary.BigEndian.PutUint64(id[8:], n)
				return id
			}})
		for _, version := range []string{"v1", "v2", "v3"} {
			run, _, err := s.StartRun(t.Context(), engine.StartRequest{Route: route, Version: version})
			require.NoError(t, err)
			l, err := s.Acquire(t.Context(), run.ID, 0, "w", time.Hour)
			require.NoError(t, err)
			require.NoError(t, s.SavePlan(t.Context(), l.Fence, plan(), nil))
			require.NoError(t, s.EndAttempt(t.Context(), l, nil))
		}
		return s.Snapshot()
	}
	first := history()
	require.Equal(t, first, history())
}
