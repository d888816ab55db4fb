package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/gate"
	"github.com/tranship-io/tranship/engine/enginetest/memrow"
	"github.com/tranship-io/tranship/engine/enginetest/memsink"
	"github.com/tranship-io/tranship/engine/enginetest/memsource"
	"github.com/tranship-io/tranship/engine/enginetest/memstate"
	"github.com/tranship-io/tranship/engine/runner"
	"github.com/tranship-io/tranship/engine/schema"
	"github.com/tranship-io/tranship/events"
)

// desk is a source, a sink and a State, and what happens at their gates.
type desk struct {
	t     *testing.T
	src   *memsource.DB
	dst   *memsink.DB
	state *memstate.Store
	// at is asked about every call; nil lets all pass.
	at func(c gate.Call) error
	// turn lets one call at a time ask: slots call at once.
	turn chan struct{}
	o    runner.Options
}

func newDesk(t *testing.T, opt memsink.Options) *desk {
	t.Helper()
	d := &desk{t: t, src: memsource.New(memsource.Options{SplitRows: 5, BatchRows: 2}), dst: memsink.New(opt), state: memstate.New(memstate.Options{}), turn: make(chan struct{}, 1)}
	d.o = runner.Options{
		Pipeline: "p", Version: "v1", Settings: runner.Settings{Slots: 2, EpochBytes: 1, GiveUp: 10 * time.Second, MinTries: 2, Verify: engine.VerifyDigest},
		OpenSource: func(ctx context.Context, o engine.OpenOptions) (engine.SourceSession, error) {
			return (&memsource.Source{DB: d.src, Gate: d.gate}).Open(ctx, nil, o)
		},
		OpenSink: func(ctx context.Context, o engine.OpenOptions) (engine.SinkSession, error) {
			return (&memsink.Sink{DB: d.dst, Gate: d.gate}).Open(ctx, nil, o)
		},
	}
	return d
}

func (d *desk) gate(ctx context.Context, c gate.Call, effect func() error) error {
	if d.at != nil {
		d.turn <- struct{}{}
		err := d.at(c)
		<-d.turn
		if err != nil {
			return err
		}
	}
	return gate.Open(ctx, c, effect)
}

// table makes a table of n rows and replicates it.
func (d *desk) table(name string, n int, write engine.WriteMode, k engine.Consistency) {
	d.src.Create(name, schema.Schema{Key: []string{"id"}, Fields: []schema.Field{
		{Name: "id", Type: schema.Type{Kind: schema.Int64}}, {Name: "v", Type: schema.Type{Kind: schema.String}}}})
	for i := range n {
		tx := d.src.Begin()
		tx.Put(name, int64(i), fmt.Sprint("row ", i))
		tx.Commit()
	}
	d.o.Resources = append(d.o.Resources, runner.ResourceRequest{Selection: engine.Selection{Resource: name}, Read: engine.ReadFull, Write: write, Consistency: k})
}

func (d *desk) run(ctx context.Context) (*runner.Result, error) {
	d.t.Helper()
	// A process of its own each time, as a command line makes.
	process := d.state.Process()
	defer process.Kill()
	d.o.State = process
	return runner.Run(ctx, d.o)
}

// has tells whether the target holds every row that many times.
func (d *desk) has(name string, times int) {
	d.t.Helper()
	rows, _ := d.dst.Rows(name)
	count := map[string]int{}
	for _, r := range rows {
		count[string(r.Wire)]++
	}
	all := d.src.Rows(name, d.src.Version())
	require.Len(d.t, rows, times*len(all), "rows of %s", name)
	for _, r := range all {
		require.Equal(d.t, times, count[string(r.Wire)], "row %d of %s", r.Ord, name)
	}
}

func (d *desk) facts(res *runner.Result, typ events.Type) int {
	d.t.Helper()
	facts, err := d.state.Facts(d.t.Context(), res.Run.ID, 0, 10_000)
	require.NoError(d.t, err)
	n := 0
	for i, f := range facts {
		require.EqualValues(d.t, i+1, f.Number, "numbers have no gaps")
		if f.Type == typ {
			n++
		}
	}
	return n
}

func TestRunCompletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		d.table("a", 23, engine.WriteReplace, engine.ConsistencyChunked)
		d.table("b", 0, engine.WriteAppend, engine.ConsistencySnapshot)
		res, err := d.run(t.Context())
		require.NoError(t, err)
		d.has("a", 1)
		require.Equal(t, engine.StateCompleted, res.Run.State)
		require.Len(t, res.Receipt.Resources, 2)
		a := res.Receipt.Resources[0]
		require.Equal(t, "published", a.State)
		require.EqualValues(t, 23, a.RowsRead)
		require.EqualValues(t, 23, a.RowsWritten)
		require.Equal(t, a.SourceDigest, *a.DestinationDigest)
		require.Equal(t, 5, a.Splits)
		require.JSONEq(t, string(res.Run.Receipt), string(must(json.Marshal(res.Receipt))))
		require.Equal(t, 1, d.facts(res, events.TypeRunCompleted))
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestOneFailedResourceLetsTheOthersFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		d.table("bad", 9, engine.WriteReplace, engine.ConsistencyChunked)
		d.table("good", 9, engine.WriteReplace, engine.ConsistencyChunked)
		d.at = func(c gate.Call) error {
			if c.Op == "source.fetch" && strings.HasPrefix(c.Subject, "bad/0.1") {
				return engine.Permanentf("mend it", "column %q is gone", "v")
			}
			return nil
		}
		res, err := d.run(t.Context())
		require.ErrorContains(t, err, `column "v" is gone`)
		require.ErrorContains(t, err, "resource bad")
		require.Equal(t, engine.StateFailed, res.Run.State)
		require.True(t, res.Run.Resumable)
		d.has("good", 1)
		require.Empty(t, first(d.dst.Rows("bad")), "nothing of it is visible")

		d.at = func(c gate.Call) error {
			if c.Op == "source.fetch" && strings.HasPrefix(c.Subject, "good") {
				return engine.Bugf("good is read again")
			}
			return nil
		}
		again, err := d.run(t.Context())
		require.NoError(t, err)
		require.True(t, again.Resumed)
		require.Equal(t, res.Run.ID, again.Run.ID)
		d.has("bad", 1)
	})
}

func first[A, B any](a A, _ B) A { return a }

func TestErrorsAreRetriedByClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		d.table("a", 9, engine.WriteAppend, engine.ConsistencyChunked)
		n := 0
		d.at = func(c gate.Call) error {
			if c.Op == "sink.apply.fence" {
				if n++; n%2 == 1 {
					return engine.Retryablef("connection reset")
				}
			}
			return nil
		}
		res, err := d.run(t.Context())
		require.NoError(t, err)
		d.has("a", 1)
		require.Positive(t, d.facts(res, events.TypeRetry))

		d.at = func(c gate.Call) error {
			if c.Op == "source.fetch" {
				return engine.Retryablef("no route to host")
			}
			return nil
		}
		began := time.Now()
		res, err = d.run(t.Context())
		require.ErrorContains(t, err, "gave up on split a/")
		require.ErrorContains(t, err, "no route to host")
		require.True(t, res.Run.Resumable)
		require.GreaterOrEqual(t, time.Since(began), d.o.Settings.GiveUp)
		require.Less(t, time.Since(began), time.Minute)
	})
}

func TestStopPausesAndTheNextRunGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		d.table("a", 40, engine.WriteAppend, engine.ConsistencyChunked)
		stop := make(chan struct{})
		d.o.Stop = stop
		n := 0
		d.at = func(c gate.Call) error {
			if c.Op == "sink.apply.commit" {
				if n++; n == 4 {
					close(stop)
					// Long enough for everybody to notice.
					time.Sleep(time.Millisecond)
				}
			}
			return nil
		}
		res, err := d.run(t.Context())
		require.NoError(t, err)
		require.Equal(t, engine.StatePaused, res.Run.State)
		rows := len(first(d.dst.Rows("a")))
		require.Less(t, rows, 40)
		require.Positive(t, rows)

		d.o.Stop = nil
		again, err := d.run(t.Context())
		require.NoError(t, err)
		require.Equal(t, res.Run.ID, again.Run.ID)
		require.Equal(t, engine.StateCompleted, again.Run.State)
		d.has("a", 1)
	})
}

func TestDesiredPauseAndCancel(t *testing.T) {
	for name, c := range map[string]struct {
		desired engine.Desired
		state   engine.RunState
	}{"pause": {engine.DesiredPause, engine.StatePaused}, "cancel": {engine.DesiredCancel, engine.StateCanceled}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t, memsink.Options{})
				d.table("a", 200, engine.WriteReplace, engine.ConsistencyChunked)
				asked := time.Time{}
				n := 0
				d.at = func(gc gate.Call) error {
					if gc.Op == "sink.apply.commit" {
						time.Sleep(time.Second)
						if n++; n == 5 {
							runs := must(d.state.ListRuns(t.Context(), "p", 1))
							require.NoError(t, d.state.SetDesired(t.Context(), runs[0].ID, c.desired))
							asked = time.Now()
						}
					}
					return nil
				}
				res, _ := d.run(t.Context())
				require.Equal(t, c.state, res.Run.State)
				require.Less(t, time.Since(asked), 10*time.Second)
				require.Empty(t, first(d.dst.Rows("a")))
				if c.state == engine.StateCanceled {
					require.Empty(t, d.dst.Staging(), "a canceled run drops what it staged")
				}
				d.at = nil
				again, err := d.run(t.Context())
				require.NoError(t, err)
				require.Equal(t, c.state == engine.StatePaused, again.Resumed)
				d.has("a", 1)
			})
		})
	}
}

func TestAttemptsHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		d.table("a", 30, engine.WriteAppend, engine.ConsistencyChunked)
		d.o.Settings.AttemptRows = 7
		res, err := d.run(t.Context())
		require.NoError(t, err)
		require.Greater(t, res.Receipt.Attempts, 3)
		require.Positive(t, d.facts(res, events.TypeAttemptHandedOver))
		d.has("a", 1)

		d.o.OneAttempt = true
		calls := 0
		for {
			res, err = d.run(t.Context())
			require.NoError(t, err)
			if calls++; !res.HandedOver {
				break
			}
			require.Equal(t, engine.StateRunning, res.Run.State)
		}
		require.Greater(t, calls, 2)
		d.has("a", 2)
	})
}

// TestStopHandsOverAWorker: a worker that has to go leaves its run open.
func TestStopHandsOverAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		d.table("a", 40, engine.WriteAppend, engine.ConsistencyChunked)
		stop := make(chan struct{})
		d.o.Stop, d.o.OneAttempt = stop, true
		n := 0
		d.at = func(c gate.Call) error {
			if c.Op == "sink.apply.commit" {
				if n++; n == 4 {
					close(stop)
					time.Sleep(time.Millisecond)
				}
			}
			return nil
		}
		res, err := d.run(t.Context())
		require.NoError(t, err)
		require.True(t, res.HandedOver)
		require.Equal(t, engine.StateRunning, res.Run.State)

		d.o.Stop = nil
		again, err := d.run(t.Context())
		require.NoError(t, err)
		require.Equal(t, res.Run.ID, again.Run.ID)
		require.Equal(t, engine.StateCompleted, again.Run.State)
		d.has("a", 1)
	})
}

// canceling is a State whose run is asked to cancel as soon as a worker has it.
type canceling struct{ engine.State }

func (s canceling) Acquire(ctx context.Context, run uuid.UUID, slot int, holder string, ttl time.Duration) (engine.Lease, error) {
	l, err := s.State.Acquire(ctx, run, slot, holder, ttl)
	if err == nil {
		err = s.SetDesired(ctx, run, engine.DesiredCancel)
	}
	return l, err
}

// TestCancelBeforeTheFirstStep: an attempt that finds its run canceled drops what
// an earlier one has staged, and closes both ends before it says so (P22).
func TestCancelBeforeTheFirstStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		d.table("a", 40, engine.WriteReplace, engine.ConsistencyChunked)
		d.o.Settings.AttemptRows, d.o.OneAttempt = 7, true
		res, err := d.run(t.Context())
		require.NoError(t, err)
		require.True(t, res.HandedOver)
		require.NotEmpty(t, d.dst.Staging())

		process := d.state.Process()
		defer process.Kill()
		d.o.State = canceling{process}
		res, err = runner.Run(t.Context(), d.o)
		require.NoError(t, err)
		require.Equal(t, engine.StateCanceled, res.Run.State)
		require.Empty(t, d.dst.Staging())
		require.Equal(t, 1, d.facts(res, events.TypeRunCanceled))
	})
}

func TestALostSnapshotBeginsTheResourceAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		d.table("a", 30, engine.WriteReplace, engine.ConsistencySnapshot)
		d.table("b", 30, engine.WriteAppend, engine.ConsistencySnapshot)
		n := 0
		d.at = func(c gate.Call) error {
			if c.Op == "sink.apply.commit" {
				if n++; n == 6 {
					d.src.Crash()
				}
			}
			return nil
		}
		res, err := d.run(t.Context())
		require.NoError(t, err)
		require.Positive(t, d.facts(res, events.TypeResourceReset))
		d.has("a", 1)
		d.has("b", 1)
	})
}

func TestLostStagingBeginsTheResourceAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{Unlogged: true})
		d.table("a", 30, engine.WriteReplace, engine.ConsistencyChunked)
		n := 0
		d.at = func(c gate.Call) error {
			if c.Op == "sink.apply.commit" {
				if n++; n == 6 {
					d.dst.Crash()
				}
			}
			return nil
		}
		res, err := d.run(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, d.facts(res, events.TypeResourceReset))
		d.has("a", 1)
		require.Empty(t, d.dst.Staging())
	})
}

// interrupt ends a run, as a killed process does, after n commits.
func (d *desk) interrupt(n int) {
	d.t.Helper()
	ctx, cancel := context.WithCancel(d.t.Context())
	defer cancel()
	d.at = func(c gate.Call) error {
		if ctx.Err() != nil {
			return errors.New("this process is dead")
		}
		if c.Op == "sink.apply.commit" {
			if n--; n < 0 {
				cancel()
			}
		}
		return nil
	}
	_, err := d.run(ctx)
	require.Error(d.t, err)
	d.at = nil
}

func TestALostStateIsAdoptedFromTheDestination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		d.table("a", 30, engine.WriteAppend, engine.ConsistencyChunked)
		d.interrupt(5)
		require.NotEmpty(t, first(d.dst.Rows("a")))
		old := must(d.state.Installation(t.Context()))
		d.state = memstate.New(memstate.Options{})
		res, err := d.run(t.Context())
		require.NoError(t, err)
		require.Equal(t, old, res.Run.Route.Installation)
		rows, _ := d.dst.Rows("a")
		byRun := map[string]int{}
		for _, r := range rows {
			byRun[r.Run]++
		}
		require.Len(t, byRun, 2, "the run that was found is finished, then the new one")
		for run, n := range byRun {
			require.Equal(t, 30, n, "run %s", run)
		}
	})
}

func TestAnUnfinishedAppendIsFinishedBeforeANewVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		d.table("a", 30, engine.WriteAppend, engine.ConsistencyChunked)
		d.interrupt(5)
		d.o.Version = "v2"
		res, err := d.run(t.Context())
		require.NoError(t, err)
		require.Equal(t, "v2", res.Run.Version)
		d.has("a", 2)
		runs := must(d.state.ListRuns(t.Context(), "p", 0))
		require.Len(t, runs, 2)
		for _, r := range runs {
			require.Equal(t, engine.StateCompleted, r.State)
		}
	})
}

func TestADestinationSetBackIntoACompletedRunGoesOnFromThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		d.table("a", 30, engine.WriteAppend, engine.ConsistencyChunked)
		var backup any
		n := 0
		d.at = func(c gate.Call) error {
			if c.Op == "sink.apply.commit" {
				if n++; n == 5 {
					backup = d.dst.Backup()
				}
			}
			return nil
		}
		res, err := d.run(t.Context())
		require.NoError(t, err)
		d.dst.Restore(backup)
		again, err := d.run(t.Context())
		require.NoError(t, err)
		require.Equal(t, res.Run.ID, again.Run.ID, "P3: the run's lost commits are brought again")
		d.has("a", 1)
	})
}

// liar says of every epoch that other rows were read back.
type liar struct{ *memsink.Session }

func (l liar) Apply(ctx context.Context, e *engine.Epoch) (*engine.Receipt, error) {
	rc, err := l.Session.Apply(ctx, e)
	if rc != nil {
		rc.ReadBack.AddRow(memrow.Append(nil, []any{int64(1)}))
	}
	return rc, err
}

func TestADigestThatDiffersFailsTheRunAndShowsTheOldRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		d.table("a", 12, engine.WriteReplace, engine.ConsistencyChunked)
		require.NoError(t, second(d.run(t.Context())))
		tx := d.src.Begin()
		tx.Delete("a", 3)
		tx.Commit()
		open := d.o.OpenSink
		d.o.OpenSink = func(ctx context.Context, o engine.OpenOptions) (engine.SinkSession, error) {
			s, err := open(ctx, o)
			if err != nil {
				return nil, err
			}
			return liar{s.(*memsink.Session)}, nil
		}
		_, err := d.run(t.Context())
		var m *engine.MismatchError
		require.ErrorAs(t, err, &m)
		require.Equal(t, "digest", m.What)
		require.Equal(t, "a", m.Resource)
		require.Len(t, first(d.dst.Rows("a")), 12)
	})
}

func second[A, B any](_ A, b B) B { return b }

// TestASlowDestinationEndsInTime: what was read ahead is left to the next attempt
// when the time is over, instead of being written for longer than there is.
func TestASlowDestinationEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		d.table("a", 200, engine.WriteAppend, engine.ConsistencyChunked)
		const write = 3 * time.Second
		d.at = func(c gate.Call) error {
			if c.Op == "sink.apply.commit" {
				time.Sleep(write)
			}
			return nil
		}
		d.o.OneAttempt = true
		d.o.Settings.Slots, d.o.Settings.AttemptTime = 1, 10*time.Second
		began := time.Now()
		res, err := d.run(t.Context())
		require.NoError(t, err)
		require.True(t, res.HandedOver)
		require.LessOrEqual(t, time.Since(began), d.o.Settings.AttemptTime+write+time.Second)
		require.NotEmpty(t, first(d.dst.Rows("a")))

		d.o.OneAttempt, d.o.Settings.AttemptTime = false, 0
		res, err = d.run(t.Context())
		require.NoError(t, err)
		require.Equal(t, engine.StateCompleted, res.Run.State)
		d.has("a", 1)
	})
}
