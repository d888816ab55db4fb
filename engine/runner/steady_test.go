package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/memsink"
	"github.com/tranship-io/tranship/engine/runner"
	"github.com/tranship-io/tranship/events"
)

// away is a State behind a connection that breaks.
type away struct {
	engine.State
	mu sync.Mutex
	// broken says of a call whether it fails before it is done, or after.
	broken func(op string, slot int) (before, after bool)
}

var errAway = errors.New("connection lost")

func (s *away) call(op string, slot int, do func() error) error {
	s.mu.Lock()
	before, after := s.broken(op, slot)
	s.mu.Unlock()
	if before {
		return engine.Retryablef("%s: %w", op, errAway)
	}
	if err := do(); err != nil {
		return err
	}
	if after {
		return engine.Retryablef("%s: %w", op, errAway)
	}
	return nil
}

func (s *away) Acquire(ctx context.Context, run uuid.UUID, slot int, holder string, ttl time.Duration) (l engine.Lease, err error) {
	err = s.call("acquire", slot, func() (err error) { l, err = s.State.Acquire(ctx, run, slot, holder, ttl); return err })
	return l, err
}

func (s *away) Renew(ctx context.Context, l engine.Lease, ttl time.Duration) (d engine.Desired, err error) {
	err = s.call("renew", l.Slot, func() (err error) { d, err = s.State.Renew(ctx, l, ttl); return err })
	return d, err
}

func (s *away) EndAttempt(ctx context.Context, l engine.Lease, facts []events.Fact) error {
	return s.call("endattempt", l.Slot, func() error { return s.State.EndAttempt(ctx, l, facts) })
}

func (s *away) SavePlan(ctx context.Context, f engine.Fence, plan *engine.RunPlan, facts []events.Fact) error {
	return s.call("saveplan", f.Slot, func() error { return s.State.SavePlan(ctx, f, plan, facts) })
}

func (s *away) ClaimSplit(ctx context.Context, f engine.Fence, exclude []string) (c *engine.ClaimedSplit, err error) {
	err = s.call("claim", f.Slot, func() (err error) { c, err = s.State.ClaimSplit(ctx, f, exclude); return err })
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (s *away) Commit(ctx context.Context, f engine.Fence, p engine.Progress) error {
	return s.call("commit", f.Slot, func() error { return s.State.Commit(ctx, f, p) })
}

func (s *away) CommitPublish(ctx context.Context, f engine.Fence, p engine.Progress, cursor json.RawMessage, seen []engine.RowID) error {
	return s.call("publish", f.Slot, func() error { return s.State.CommitPublish(ctx, f, p, cursor, seen) })
}

func (s *away) AppendFacts(ctx context.Context, f engine.Fence, facts []events.Fact) error {
	return s.call("facts", f.Slot, func() error { return s.State.AppendFacts(ctx, f, facts) })
}

func (s *away) FinishRun(ctx context.Context, f engine.Fence, end engine.RunEnd) error {
	return s.call("finish", f.Slot, func() error { return s.State.FinishRun(ctx, f, end) })
}

// work runs a table through, as a worker does, with a State that breaks.
func (d *desk) work(broken func(op string, slot int) (before, after bool)) (*runner.Result, error) {
	d.t.Helper()
	d.table("a", 40, engine.WriteUpsert, engine.ConsistencyChunked)
	process := d.state.Process()
	defer process.Kill()
	d.o.State = &away{State: process, broken: broken}
	return runner.Run(d.t.Context(), d.o)
}

func TestASlotThatCannotBeHadIsOneLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		res, err := d.work(func(op string, slot int) (bool, bool) { return op == "acquire" && slot > 0, false })
		require.NoError(t, err)
		require.Equal(t, engine.StateCompleted, res.Run.State)
		require.Equal(t, 1, res.Run.Attempts)
		d.has("a", 1)
	})
}

// TestASlotThatIsLostIsOneLess: the second slot's lease runs out while the first
// one's is kept; the attempt goes on.
func TestASlotThatIsLostIsOneLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		lost := false
		d.table("a", 40, engine.WriteUpsert, engine.ConsistencyChunked)
		process := d.state.Process()
		defer process.Kill()
		d.o.State = &stealing{State: process, lost: &lost}
		res, err := runner.Run(t.Context(), d.o)
		require.NoError(t, err)
		require.True(t, lost)
		require.Equal(t, engine.StateCompleted, res.Run.State)
		d.has("a", 1)
	})
}

// stealing is a State in which the second slot's lease is taken over at once.
type stealing struct {
	engine.State
	lost *bool
}

func (s *stealing) Renew(ctx context.Context, l engine.Lease, ttl time.Duration) (engine.Desired, error) {
	if l.Slot == 1 {
		*s.lost = true
		return "", &engine.StaleError{What: "generation", Subject: "slot 1", Ours: l.Generation, Have: l.Generation + 1}
	}
	return s.State.Renew(ctx, l, ttl)
}

// TestAnOutageWithinTheLeaseIsNoInterruption: the State is away again and again,
// at whatever the attempt asks of it, for less than the lease time (P24).
func TestAnOutageWithinTheLeaseIsNoInterruption(t *testing.T) {
	for n := range 40 {
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, memsink.Options{})
			var until time.Time
			res, err := d.work(func(op string, slot int) (bool, bool) {
				if op == "acquire" && slot == 0 {
					return false, false
				}
				if n--; n == 0 {
					until = time.Now().Add(40 * time.Second)
				}
				return time.Now().Before(until), false
			})
			require.NoError(t, err)
			require.Equal(t, engine.StateCompleted, res.Run.State)
			require.LessOrEqual(t, res.Run.Attempts, 2, "no slot was taken twice")
			require.Zero(t, d.facts(res, events.TypeAttemptInterrupted))
			d.has("a", 1)
		})
	}
}

// TestLostAnswersOfTheStateDoNoHarm: the first of each kind of call is done, and
// its answer lost.
func TestLostAnswersOfTheStateDoNoHarm(t *testing.T) {
	for _, kind := range []string{"saveplan", "claim", "commit", "publish", "facts", "finish", "renew"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t, memsink.Options{})
				left := 2
				res, err := d.work(func(op string, _ int) (bool, bool) {
					if op != kind || left == 0 {
						return false, false
					}
					left--
					return false, true
				})
				require.NoError(t, err)
				require.Equal(t, engine.StateCompleted, res.Run.State)
				require.Less(t, left, 2, "the call was made")
				require.Equal(t, 1, d.facts(res, events.TypeRunCompleted))
				d.has("a", 1)
			})
		})
	}
}

func TestAnOutageBeyondTheLeaseEndsTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		calls := 0
		began := time.Now()
		_, err := d.work(func(op string, _ int) (bool, bool) {
			calls++
			return calls > 12, false
		})
		require.ErrorIs(t, err, errAway)
		require.Greater(t, time.Since(began), time.Minute, "the lease time")
		require.Less(t, time.Since(began), 10*time.Minute, fmt.Sprint(calls, " calls"))
	})
}
