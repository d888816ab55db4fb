package runs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

var states = []engine.RunState{
	engine.StateScheduled, engine.StateRequested, engine.StateRunning, engine.StatePaused,
	engine.StateCompleted, engine.StateFailed, engine.StateCanceled,
}

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func run(s engine.RunState) *runs.Run {
	return &runs.Run{ID: uuid.Must(uuid.NewV7()), State: s, Desired: engine.DesiredRun, Now: now, Attempts: 1}
}

// every calls f with a run of every state and circumstance.
func every(f func(r *runs.Run, name string)) {
	for _, s := range states {
		for mask := range 64 {
			r := run(s)
			on := func(n int) bool { return mask&(1<<n) != 0 }
			r.Busy, r.Offered, r.Overtaken, r.Resumable = on(0), on(1), on(2), on(3) && s == engine.StateFailed
			if on(4) {
				r.Desired = engine.DesiredCancel
			}
			if on(5) {
				r.Attempts = 0
			}
			f(r, fmt.Sprintf("%s %06b", s, mask))
		}
	}
}

// TestDecisionsFollowTheTable: whatever is decided is a transition that the table
// has, ends what must end, and refuses with the state.
func TestDecisionsFollowTheTable(t *testing.T) {
	failure := runs.Failure{Class: engine.Retryable, Error: "lost"}
	decisions := map[string]func(*runs.Run) (runs.Change, error){
		"cancel":      func(r *runs.Run) (runs.Change, error) { return runs.Cancel(r, "ann") },
		"pause":       func(r *runs.Run) (runs.Change, error) { return runs.Pause(r, "ann") },
		"resume":      func(r *runs.Run) (runs.Change, error) { return runs.Resume(r, "ann") },
		"due":         func(r *runs.Run) (runs.Change, error) { return runs.Due(r), nil },
		"idle":        func(r *runs.Run) (runs.Change, error) { return runs.Idle(r), nil },
		"end cancel":  func(r *runs.Run) (runs.Change, error) { return runs.EndCancel(r), nil },
		"failed":      func(r *runs.Run) (runs.Change, error) { return runs.Failed(r, failure, 0.5), nil },
		"interrupted": func(r *runs.Run) (runs.Change, error) { return runs.Interrupted(r, []runs.Lost{{Holder: "h"}}), nil },
	}
	for name, decide := range decisions {
		t.Run(name, func(t *testing.T) {
			every(func(r *runs.Run, what string) {
				c, err := decide(r)
				if err != nil {
					var conflict *control.ConflictError
					require.ErrorAs(t, err, &conflict, what)
					require.Equal(t, string(r.State), conflict.State, what)
					return
				}
				if c.State != r.State {
					require.True(t, runs.Follows(r.State, c.State), "%s: %s -> %s", what, r.State, c.State)
					require.NotEmpty(t, c.Facts, "%s: a transition has its fact", what)
					require.False(t, c.Nothing, what)
				}
				require.False(t, c.Resumable && c.State != engine.StateFailed, what)
				require.False(t, c.Offer && (c.Withdraw || !runs.Active(c.State) || c.State == engine.StatePaused), "%s: an offer for a run that is %s", what, c.State)
				if !runs.Active(c.State) && runs.Active(r.State) {
					require.True(t, c.Withdraw, what)
				}
				if c.Nothing {
					require.Equal(t, r.State, c.State, what)
				}
			})
		})
	}
}

func TestCancel(t *testing.T) {
	for _, s := range []engine.RunState{engine.StateScheduled, engine.StateRequested, engine.StatePaused, engine.StateRunning} {
		r := run(s)
		c, err := runs.Cancel(r, "ann")
		require.NoError(t, err)
		require.Equal(t, engine.StateCanceled, c.State, "nobody works on a run that is %s", s)
		require.Equal(t, []events.Payload{events.RunCanceled{Reason: "asked for by ann"}}, c.Facts)
	}
	r := run(engine.StateRunning)
	r.Busy = true
	c, err := runs.Cancel(r, "ann")
	require.NoError(t, err)
	require.Equal(t, engine.StateRunning, c.State, "its workers write the end")
	require.Equal(t, engine.DesiredCancel, c.Desired)
	r.Desired = engine.DesiredCancel
	again, err := runs.Cancel(r, "ann")
	require.NoError(t, err)
	require.True(t, again.Nothing, "the second cancel changes nothing")

	r = run(engine.StateFailed)
	_, err = runs.Cancel(r, "ann")
	require.Error(t, err)
	r.Resumable = true
	c, err = runs.Cancel(r, "ann")
	require.NoError(t, err)
	require.Equal(t, engine.StateCanceled, c.State)
	_, err = runs.Cancel(run(engine.StateCompleted), "ann")
	require.Error(t, err)
	c, err = runs.Cancel(run(engine.StateCanceled), "ann")
	require.NoError(t, err)
	require.True(t, c.Nothing)
}

// TestALostWorkersRunIsCanceledByAnotherAttempt: sessions of the lost worker may be left (P5).
func TestALostWorkersRunIsCanceledByAnotherAttempt(t *testing.T) {
	r := run(engine.StateRunning)
	r.Interruptions = 1
	c, err := runs.Cancel(r, "ann")
	require.NoError(t, err)
	require.Equal(t, engine.StateRunning, c.State)
	require.Equal(t, engine.DesiredCancel, c.Desired)
	require.True(t, c.Offer)
}

func TestResume(t *testing.T) {
	r := run(engine.StatePaused)
	c, err := runs.Resume(r, "ann")
	require.NoError(t, err)
	require.Equal(t, engine.StateRunning, c.State)
	require.True(t, c.Offer)
	r.Attempts = 0
	c, err = runs.Resume(r, "ann")
	require.NoError(t, err)
	require.Equal(t, engine.StateRequested, c.State)

	r = run(engine.StateFailed)
	_, err = runs.Resume(r, "ann")
	require.Error(t, err, "it failed for good")
	r.Resumable, r.Failures, r.Interruptions = true, 3, 3
	c, err = runs.Resume(r, "ann")
	require.NoError(t, err)
	require.Zero(t, c.Failures, "a person's resume begins to count anew")
	require.Zero(t, c.Interruptions)
	r.Overtaken = true
	_, err = runs.Resume(r, "ann")
	require.ErrorContains(t, err, "later run", "P21")
}

// TestRetries: failed attempts are followed by others by their class, with waits
// that double up to a bound.
func TestRetries(t *testing.T) {
	r := run(engine.StateRunning)
	r.Policy.Retry = runs.Retry{Attempts: 4, Wait: time.Second, MaxWait: 3 * time.Second}
	var waits []time.Duration
	for {
		c := runs.Failed(r, runs.Failure{Class: engine.Retryable, Error: "connection lost", Resumable: true}, 0)
		r.Failures = c.Failures
		if c.State == engine.StateFailed {
			require.True(t, c.Resumable)
			require.Equal(t, "connection lost", c.Error)
			break
		}
		require.True(t, c.Offer)
		require.Equal(t, engine.StateRunning, c.State)
		waits = append(waits, c.OfferAt.Sub(now))
	}
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, waits)
	require.Equal(t, 4, r.Failures)

	for _, class := range []engine.Class{engine.Permanent, engine.Bug} {
		r := run(engine.StateRunning)
		c := runs.Failed(r, runs.Failure{Class: class, Error: "no"}, 0)
		require.Equal(t, engine.StateFailed, c.State)
		require.Equal(t, class, c.Class)
	}
	r = run(engine.StateRunning)
	c := runs.Failed(r, runs.Failure{Class: engine.Retryable, Error: "no"}, 0.999)
	require.Less(t, c.OfferAt.Sub(now), runs.DefaultWait)
	require.GreaterOrEqual(t, c.OfferAt.Sub(now), runs.DefaultWait*3/4)
}

// TestInterruptions: a lost worker is no failed attempt, but the third in a row
// without progress ends the run (P24).
func TestInterruptions(t *testing.T) {
	r := run(engine.StateRunning)
	r.Policy.Retry.Attempts = 1
	for n := 1; n < runs.MaxInterruptions; n++ {
		c := runs.Interrupted(r, []runs.Lost{{Generation: int64(n), Holder: "h"}, {Slot: 1, Generation: int64(n), Holder: "h"}})
		require.Equal(t, engine.StateRunning, c.State)
		require.True(t, c.Offer)
		require.Equal(t, n, c.Interruptions, "slots of one worker count once")
		require.Zero(t, c.Failures)
		require.Len(t, c.Facts, 2)
		r.Interruptions = c.Interruptions
	}
	c := runs.Interrupted(r, []runs.Lost{{Generation: 3, Holder: "h"}})
	require.Equal(t, engine.StateFailed, c.State)
	require.True(t, c.Resumable)
	require.Contains(t, c.Error, "without progress")
	require.Equal(t, events.TypeAttemptInterrupted, typeOf(c.Facts[0]))
	require.Equal(t, events.TypeRunFailed, typeOf(c.Facts[1]))

	r.Desired = engine.DesiredCancel
	c = runs.Interrupted(r, []runs.Lost{{Generation: 3, Holder: "h"}})
	require.Equal(t, engine.StateRunning, c.State, "it is canceled, not failed")
	require.True(t, c.Offer)
}

func typeOf(p events.Payload) events.Type {
	t, _ := p.FactType()
	return t
}

func TestLimits(t *testing.T) {
	r := run(engine.StateRunning)
	r.StartedAt = now.Add(-time.Hour)
	require.Empty(t, r.Limit())
	require.True(t, r.Deadline().IsZero())
	r.Policy.NoProgress = 30 * time.Minute
	require.Equal(t, "no progress for 30m0s", r.Limit())
	r.ProgressAt = now.Add(-10 * time.Minute)
	require.Empty(t, r.Limit())
	require.Equal(t, now.Add(20*time.Minute), r.Deadline())
	r.Policy.TimeLimit = 61 * time.Minute
	require.Equal(t, now.Add(time.Minute), r.Deadline())
	r.Policy.TimeLimit = time.Hour
	require.Equal(t, "the time limit of 1h0m0s is over", r.Limit())

	c := runs.Idle(r)
	require.Equal(t, engine.StateFailed, c.State)
	require.True(t, c.Resumable)
	c = runs.Failed(r, runs.Failure{Class: engine.Retryable, Error: "stopped", Resumable: true}, 0)
	require.Equal(t, engine.StateFailed, c.State, "no attempt follows")
}

func TestIntake(t *testing.T) {
	d := runs.Draft{Compiled: runs.Compiled{Name: "shop"}, Route: runs.Route{Key: "a->b", Name: "shop", Hash: "h1"}}
	d.ID = uuid.Must(uuid.NewV7())
	resume, c, err := runs.Intake(nil, d)
	require.NoError(t, err)
	require.False(t, resume)
	require.Equal(t, engine.StateRequested, c.State)
	require.True(t, c.Offer)

	partial := run(engine.StateFailed)
	partial.Resumable, partial.Hash = true, "h1"
	resume, c, err = runs.Intake(partial, d)
	require.NoError(t, err)
	require.True(t, resume, "an unfinished run of the same version goes on")
	require.Equal(t, engine.StateRunning, c.State)
	for name, change := range map[string]func(*runs.Run, *runs.Draft){
		"restart":       func(_ *runs.Run, d *runs.Draft) { d.Restart = true },
		"other version": func(r *runs.Run, _ *runs.Draft) { r.Hash = "h0" },
		"other options": func(_ *runs.Run, d *runs.Draft) { d.Options.Only = []string{"x"} },
		"overtaken":     func(r *runs.Run, _ *runs.Draft) { r.Overtaken = true },
		"for good":      func(r *runs.Run, _ *runs.Draft) { r.Resumable = false },
	} {
		r, d := *partial, d
		change(&r, &d)
		resume, _, err := runs.Intake(&r, d)
		require.NoError(t, err)
		require.False(t, resume, name)
	}
	d.NotBefore = now.Add(time.Hour)
	_, c, err = runs.Intake(nil, d)
	require.NoError(t, err)
	require.Equal(t, engine.StateScheduled, c.State)
	require.Equal(t, d.NotBefore, c.OfferAt)
}

func TestPolicyProblems(t *testing.T) {
	require.Empty(t, runs.Policy{}.Check(""))
	p := runs.Policy{Retry: runs.Retry{Attempts: -1, Wait: time.Hour, MaxWait: time.Minute}, TimeLimit: -1, NoProgress: -1}
	var paths []string
	for _, x := range p.Check("settings.") {
		paths = append(paths, x.Path)
	}
	require.Equal(t, []string{"settings.retry.attempts", "settings.retry.max_wait", "settings.time_limit", "settings.no_progress_limit"}, paths)
}
