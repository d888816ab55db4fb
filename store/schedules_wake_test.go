package store

import (
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/operations"
	"github.com/tranship-io/tranship/control/schedules"
	"github.com/tranship-io/tranship/control/schedules/schedulestest"
	"github.com/tranship-io/tranship/internal/pgtest"
)

// timed opens a database of an installation whose platform times what falls due.
func timed(tb testing.TB) *DB {
	tb.Helper()
	d, err := Open(tb.Context(), Config{URL: pgtest.NewDatabase(tb, pgtest.Shared(tb)), Timed: true})
	require.NoError(tb, err)
	tb.Cleanup(d.Close)
	require.NoError(tb, d.Migrate(tb.Context()))
	return d
}

// chain is scheduling with a platform that fires.
type chain struct {
	*scheduling
	platform *schedulestest.Memory
	runner   *operations.Runner
	mirror   *schedules.Mirror
	compiler *schedules.Compiler
}

func newChain(tb testing.TB, now string) *chain {
	tb.Helper()
	d := timed(tb)
	c := &chain{scheduling: newScheduling(tb, d, "a", now), platform: &schedulestest.Memory{}}
	log := slog.New(slog.DiscardHandler)
	c.runner = &operations.Runner{Store: d, Clock: c.clock, Log: log}
	c.mirror = &schedules.Mirror{Wakes: d.Schedules(), Platform: c.platform, Runner: c.runner, Now: c.clock.Now}
	c.runner.Effects = map[string]operations.Effect{schedules.KindMoved: c.mirror}
	c.compiler = &schedules.Compiler{Firing: c.firing, Mirror: c.mirror, Clock: c.clock, Log: log}
	c.service.Scheduler = c.mirror
	return c
}

func (c *chain) held(tb testing.TB, id uuid.UUID) schedules.Wake {
	tb.Helper()
	w, there, err := c.platform.Held(tb.Context(), id)
	require.NoError(tb, err)
	require.True(tb, there, "the platform holds the schedule")
	return w
}

// fire fires what the platform holds, at its time.
func (c *chain) fire(tb testing.TB, w schedules.Wake) {
	tb.Helper()
	c.clock.set(w.At)
	require.NoError(tb, c.compiler.Fire(tb.Context(), w))
}

// due lets operations be looked at that wait.
func (c *chain) due(t *testing.T) {
	t.Helper()
	_, err := superuser(t, c.d).Exec(t.Context(), `UPDATE operations SET next_at = now() WHERE next_at IS NOT NULL`)
	require.NoError(t, err)
}

func TestPlatformFiresTheChain(t *testing.T) {
	t.Parallel()
	c := newChain(t, "2026-03-07T00:00:00Z")
	s := c.create(t, schedules.Draft{Timing: schedules.Timing{Cron: "30 2 * * *", Zone: "America/New_York"}, Overlap: schedules.Allow})
	var fired []string
	for range 4 {
		w := c.held(t, s.ID)
		fired = append(fired, w.At.Format(time.RFC3339))
		c.fire(t, w)
		c.fire(t, w) // once more: the same occurrence gives one run
		_, err := superuser(t, c.d).Exec(t.Context(), `UPDATE runs SET state = 'completed', ended_at = now()`)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"2026-03-07T07:30:00Z", "2026-03-08T07:30:00Z", "2026-03-09T06:30:00Z", "2026-03-10T06:30:00Z"}, fired)
	require.Len(t, c.intake.starts, 4)

	paused, err := c.service.Pause(t.Context(), c.a, s.ID, 0)
	require.NoError(t, err)
	_, there, err := c.platform.Held(t.Context(), s.ID)
	require.NoError(t, err)
	require.False(t, there, "a paused schedule is not held")
	resumed, err := c.service.Resume(t.Context(), c.a, s.ID, paused.Version)
	require.NoError(t, err)
	require.Equal(t, resumed.NextAt, c.held(t, s.ID).At)
	require.NoError(t, c.service.Delete(t.Context(), c.a, s.ID, 0))
	ids, err := c.platform.All(t.Context())
	require.NoError(t, err)
	require.Empty(t, ids)
	disarmed, err := c.d.Disarm(t.Context())
	require.NoError(t, err)
	require.True(t, disarmed, "all that was recorded is done")
}

func TestOldFiringsDoNothing(t *testing.T) {
	t.Parallel()
	c := newChain(t, "2026-01-01T00:00:00Z")
	s := c.create(t, schedules.Draft{Timing: schedules.Timing{Cron: "0 12 * * *"}})
	old := c.held(t, s.ID)
	_, err := c.service.Update(t.Context(), c.a, s.ID, s.Version, schedules.Draft{Name: s.Name, Pipeline: s.Pipeline, Timing: schedules.Timing{Cron: "0 18 * * *"}})
	require.NoError(t, err)
	c.fire(t, old)
	require.Zero(t, c.intake.calls)
	w := c.held(t, s.ID)
	require.Equal(t, instant("2026-01-01T18:00:00Z"), w.At)
	require.Greater(t, w.Revision, old.Revision)

	// The clock of the one that is told may run behind the platform's.
	c.clock.set(w.At.Add(-2 * time.Second))
	require.NoError(t, c.compiler.Fire(t.Context(), w))
	require.Equal(t, 1, c.intake.calls)
}

// A crash between the commit of an occurrence and the move of the copy: the intent
// was committed with it, and the sweep moves the copy.
func TestChainGoesOnAfterCrash(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(*schedulestest.Memory, error){
		"before the move":           func(m *schedulestest.Memory, err error) { m.Fail = func(string) error { return err } },
		"after the move, no answer": func(m *schedulestest.Memory, err error) { m.After = func(string) error { return err } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChain(t, "2026-01-01T00:00:00Z")
			s := c.create(t, schedules.Draft{Timing: schedules.Timing{Cron: "0 * * * *"}, Overlap: schedules.Allow})
			w := c.held(t, s.ID)
			broken(c.platform, errors.New("the process died"))
			c.fire(t, w)
			require.Equal(t, 1, c.intake.calls, "the occurrence is not held up")
			c.platform.Fail, c.platform.After = nil, nil
			disarmed, err := c.d.Disarm(t.Context())
			require.NoError(t, err)
			require.False(t, disarmed)
			c.due(t)
			_, err = c.runner.Run(t.Context())
			require.NoError(t, err)
			require.Equal(t, instant("2026-01-01T02:00:00Z"), c.held(t, s.ID).At)
		})
	}
}

// The platform refused for long enough that the operation was given up: the daily
// repair finds what is missing, stale, overdue and unwanted.
func TestRepair(t *testing.T) {
	t.Parallel()
	c := newChain(t, "2026-01-01T00:00:00Z")
	var made []schedules.Schedule
	for range 5 {
		p := c.newPipeline(t, "p-"+uuid.NewString()[:8])
		s, err := c.service.Create(t.Context(), c.a, schedules.Draft{Pipeline: p, Timing: schedules.Timing{Cron: "0 */6 * * *"}})
		require.NoError(t, err)
		made = append(made, s)
	}
	missing, stale, wrong, overdue, fine := made[0], made[1], made[2], made[3], made[4]
	require.NoError(t, c.platform.Remove(t.Context(), missing.ID))
	w := c.held(t, stale.ID)
	w.Revision--
	require.NoError(t, c.platform.Set(t.Context(), w))
	w = c.held(t, wrong.ID)
	w.At = w.At.Add(time.Hour)
	require.NoError(t, c.platform.Set(t.Context(), w))
	orphan := schedules.Wake{Ref: schedules.Ref{Organization: c.a.Organization, Schedule: uuid.New()}, Revision: 1, At: instant("2026-01-02T00:00:00Z")}
	require.NoError(t, c.platform.Set(t.Context(), orphan))
	stranger := schedules.Wake{Ref: schedules.Ref{Schedule: uuid.New()}}
	require.NoError(t, c.platform.Set(t.Context(), stranger))
	_, err := superuser(t, c.d).Exec(t.Context(), `UPDATE schedules SET next_at = '2025-12-31T23:00:00Z', next_instant = '2025-12-31T23:00:00Z' WHERE id = $1`, overdue.ID)
	require.NoError(t, err)

	done, err := c.compiler.Repair(t.Context())
	require.NoError(t, err)
	require.Equal(t, schedules.Repaired{Checked: 5, Missing: 1, Stale: 2, Orphans: 2}, done)
	require.Len(t, c.intake.starts, 1, "the overdue one was fired, which moved its copy on")
	for _, s := range []schedules.Schedule{missing, stale, wrong, overdue, fine} {
		require.Equal(t, instant("2026-01-01T06:00:00Z"), c.held(t, s.ID).At)
	}
	ids, err := c.platform.All(t.Context())
	require.NoError(t, err)
	require.Len(t, ids, 5)
	done, err = c.compiler.Repair(t.Context())
	require.NoError(t, err)
	require.Equal(t, schedules.Repaired{Checked: 5}, done)
}

// Whoever changes a schedule while others apply it: in the end the platform holds
// what the database says.
func TestManyMovesEndEqual(t *testing.T) {
	t.Parallel()
	c := newChain(t, "2026-01-01T00:00:00Z")
	s := c.create(t, schedules.Draft{Timing: schedules.Timing{Cron: "0 * * * *"}})
	c.platform.Fail = func(string) error { time.Sleep(time.Millisecond); return nil } // lets others overtake
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			for j := range 5 {
				var err error
				switch (i + j) % 3 {
				case 0:
					_, err = c.service.Pause(t.Context(), c.a, s.ID, 0)
				case 1:
					_, err = c.service.Resume(t.Context(), c.a, s.ID, 0)
				default:
					_, err = c.runner.Run(t.Context())
				}
				var stale *control.StaleVersionError
				if !errors.As(err, &stale) {
					assert.NoError(t, err)
				}
			}
		})
	}
	wg.Wait()
	c.due(t)
	_, err := c.runner.Run(t.Context())
	require.NoError(t, err)
	want, err := c.d.Schedules().Wake(t.Context(), schedules.Ref{Organization: c.a.Organization, Schedule: s.ID})
	require.NoError(t, err)
	held, there, err := c.platform.Held(t.Context(), s.ID)
	require.NoError(t, err)
	require.Equal(t, !want.At.IsZero(), there)
	if there {
		require.Equal(t, want, held)
	}
	_, open, err := c.d.NextOperation(t.Context(), []string{schedules.KindMoved})
	require.NoError(t, err)
	require.False(t, open)
}
