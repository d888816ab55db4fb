package runner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/gate"
	"github.com/tranship-io/tranship/engine/enginetest/memsink"
	"github.com/tranship-io/tranship/engine/runner"
	"github.com/tranship-io/tranship/events"
)

// changing makes a table of n rows whose changes are replicated.
func (d *desk) changing(name string, n int, write engine.WriteMode) {
	d.table(name, n, write, "")
	d.o.Resources[len(d.o.Resources)-1].Read = engine.ReadCDC
}

// change commits some changes: an update, a move, a delete and an insert.
func (d *desk) change(name string, at int64) {
	tx := d.src.Begin()
	tx.Put(name, at, fmt.Sprint("changed ", at, " at ", tx.Now()))
	tx.Move(name, at+1, 1000+at, fmt.Sprint("moved from ", at+1))
	tx.Delete(name, at+2)
	tx.Put(name, 2000+at, "new")
	tx.Commit()
}

func TestStreamFollowsFromRunToRun(t *testing.T) {
	for slots := 1; slots <= 3; slots++ {
		t.Run(fmt.Sprint(slots, " slots"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDesk(t, memsink.Options{})
				d.o.Settings.Slots = slots
				d.changing("a", 40, engine.WriteMerge)
				d.changing("b", 20, engine.WriteMerge)
				n := int64(0)
				d.at = func(c gate.Call) error {
					// The source changes between any two steps of the first reads.
					if c.Op == "source.fetch" && n < 27 {
						d.change("a", n)
						n += 3
					}
					return nil
				}
				res, err := d.run(t.Context())
				require.NoError(t, err)
				d.has("a", 1)
				d.has("b", 1)
				require.Len(t, res.Receipt.Resources, 2, "the stream has no receipt of its own")
				rr := res.Receipt.Resources[0]
				require.Equal(t, rr.RowsRead, rr.RowsWritten+rr.RowsSuperseded+rr.RowsSkipped+rr.RowsSetAside)
				require.NotZero(t, d.facts(res, events.TypeStreamLag))

				d.at = nil
				d.change("a", 30)
				d.change("b", 3)
				res, err = d.run(t.Context())
				require.NoError(t, err)
				d.has("a", 1)
				d.has("b", 1)
				require.EqualValues(t, 5, res.Receipt.Resources[0].RowsRead, "the second run reads changes only")
				require.Equal(t, d.src.LSN(), d.src.Confirmed(), "what is stored is acknowledged")
			})
		})
	}
}

func TestContinuousRunStopsAndIsFinishedByAPlainOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		d.changing("a", 12, engine.WriteMerge)
		stop := make(chan struct{})
		d.o.Continuous, d.o.Stop = true, stop
		type end struct {
			res *runner.Result
			err error
		}
		ended := make(chan end, 1)
		go func() {
			res, err := d.run(t.Context())
			ended <- end{res, err}
		}()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		d.has("a", 1)
		for i := int64(0); i < 9; i += 3 {
			d.change("a", i)
			time.Sleep(time.Second)
			synctest.Wait()
			d.has("a", 1)
		}
		close(stop)
		got := <-ended
		require.NoError(t, got.err)
		require.Equal(t, engine.StatePaused, got.res.Run.State)

		d.change("a", 9)
		d.o.Continuous, d.o.Stop = false, nil
		res, err := d.run(t.Context())
		require.NoError(t, err)
		require.True(t, res.Resumed)
		require.Equal(t, engine.StateCompleted, res.Run.State)
		d.has("a", 1)
	})
}

func TestLostPositionFailsOrReadsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		d.changing("a", 12, engine.WriteMerge)
		_, err := d.run(t.Context())
		require.NoError(t, err)
		d.src.LoseSlots()
		d.change("a", 0)
		_, err = d.run(t.Context())
		require.ErrorIs(t, err, engine.ErrPositionLost)
		require.Contains(t, err.Error(), "on_lost")

		d.o.Settings.OnLost, d.o.Version = engine.OnLostResync, "v2"
		res, err := d.run(t.Context())
		require.NoError(t, err)
		d.has("a", 1)
		require.Equal(t, 1, d.facts(res, events.TypeStreamReplanned))
		require.EqualValues(t, 12, res.Receipt.Resources[0].RowsRead, "all rows are read again")

		// Lost while it is read.
		d.change("a", 3)
		lost := false
		d.at = func(c gate.Call) error {
			if c.Op == "source.receive" && !lost {
				lost = true
				d.src.LoseSlots()
			}
			return nil
		}
		_, err = d.run(t.Context())
		require.NoError(t, err)
		d.has("a", 1)
	})
}

// A row that was moved while the table was read, with a column that the log does not
// have: only a new read knows it.
func TestMovedRowWithAnUnknownColumnIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		d.changing("a", 12, engine.WriteMerge)
		moved := false
		d.at = func(c gate.Call) error {
			if c.Op == "source.fetch" && strings.HasPrefix(c.Subject, "a/0.2") && !moved {
				moved = true
				tx := d.src.Begin()
				tx.Move("a", 3, int64(100), "row 3")
				tx.Commit()
			}
			return nil
		}
		res, err := d.run(t.Context())
		require.NoError(t, err)
		d.has("a", 1)
		runs, err := d.state.ListRuns(t.Context(), "p", 0)
		require.NoError(t, err)
		require.Len(t, runs, 2, "a new run follows on")
		require.Equal(t, runs[0].ID, res.Run.ID)
	})
}

// A member that fails keeps what its changes were, and the others go on.
func TestStreamWithAFailingMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		d.changing("a", 12, engine.WriteMerge)
		d.changing("b", 12, engine.WriteMerge)
		d.at = func(c gate.Call) error {
			if c.Op == "source.fetch" && strings.HasPrefix(c.Subject, "a/0.1") {
				return engine.Permanentf("", "a broken page")
			}
			return nil
		}
		_, err := d.run(t.Context())
		require.ErrorContains(t, err, "a broken page")
		d.has("b", 1)
		d.change("a", 0)
		d.change("b", 0)
		d.at = nil
		res, err := d.run(t.Context())
		require.NoError(t, err)
		require.True(t, res.Resumed)
		d.has("a", 1)
		d.has("b", 1)
	})
}

// The structure changes: the run ends there, and the next one follows on.
func TestStreamIsPlannedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		d.changing("a", 12, engine.WriteMerge)
		_, err := d.run(t.Context())
		require.NoError(t, err)
		d.change("a", 0)
		open := d.o.OpenSource
		plans := 0
		d.o.OpenSource = func(ctx context.Context, o engine.OpenOptions) (engine.SourceSession, error) {
			s, err := open(ctx, o)
			return &altered{SourceSession: s, plans: &plans}, err
		}
		res, err := d.run(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, plans)
		d.has("a", 1)
		runs, err := d.state.ListRuns(t.Context(), "p", 0)
		require.NoError(t, err)
		require.Len(t, runs, 3)
		require.Equal(t, runs[0].ID, res.Run.ID)
		for _, r := range runs {
			require.Equal(t, engine.StateCompleted, r.State)
		}
	})
}

// altered is a source whose first plan is over when it has caught up.
type altered struct {
	engine.SourceSession
	plans *int
}

func (a *altered) stream() engine.Streamer { return a.SourceSession.(engine.Streamer) }

func (a *altered) Read(ctx context.Context, req engine.ReadRequest, out engine.Writer) (engine.ReadResult, error) {
	res, err := a.SourceSession.Read(ctx, req, out)
	if *a.plans == 1 && req.Members != nil && err == nil {
		res.Replan = "a column was added"
	}
	return res, err
}

func (a *altered) PlanStream(ctx context.Context, req engine.StreamRequest) (*engine.SourcePlan, *engine.StreamPlan, error) {
	*a.plans++
	return a.stream().PlanStream(ctx, req)
}

func (a *altered) PrepareStream(ctx context.Context, req engine.StreamRequest, p *engine.SourcePlan, s *engine.StreamPlan) error {
	return a.stream().PrepareStream(ctx, req, p, s)
}

func (a *altered) Settled(pos engine.Position, reads []engine.Position) (bool, error) {
	return a.stream().Settled(pos, reads)
}

func (a *altered) Lag(ctx context.Context, pos engine.Position) (engine.StreamLag, error) {
	return a.stream().Lag(ctx, pos)
}

func (a *altered) Streams(ctx context.Context) ([]engine.StreamInfo, error) {
	return a.stream().Streams(ctx)
}

func (a *altered) DropStream(ctx context.Context, name string) error {
	return a.stream().DropStream(ctx, name)
}

func (a *altered) Acknowledge(ctx context.Context, split engine.Split, pos engine.Position) error {
	return a.stream().Acknowledge(ctx, split, pos)
}

// Nothing is acknowledged that is not stored (invariant 3).
func TestAcknowledgedOnlyAfterTheCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		d.changing("a", 12, engine.WriteMerge)
		_, err := d.run(t.Context())
		require.NoError(t, err)
		before := d.src.Confirmed()
		d.change("a", 0)
		d.at = func(c gate.Call) error {
			if c.Op == "sink.apply.commit" {
				return errors.New("broken")
			}
			return nil
		}
		_, err = d.run(t.Context())
		require.Error(t, err)
		require.Equal(t, before, d.src.Confirmed())
	})
}

// A member that is added or reset is read beside the stream, which goes on for the
// others.
func TestMembersAreAddedAndReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		d.changing("a", 12, engine.WriteMerge)
		_, err := d.run(t.Context())
		require.NoError(t, err)

		d.change("a", 0)
		d.changing("b", 12, engine.WriteMerge)
		d.change("b", 0)
		d.o.Version = "v2"
		res, err := d.run(t.Context())
		require.NoError(t, err)
		d.has("a", 1)
		d.has("b", 1)
		require.EqualValues(t, 5, res.Receipt.Resources[0].RowsRead, "changes only")
		require.EqualValues(t, 12, res.Receipt.Resources[1].RowsRead, "its rows, and no change from before them")

		require.NoError(t, d.state.ResetResource(t.Context(), res.Run.Route, "a"))
		d.change("b", 3)
		res, err = d.run(t.Context())
		require.NoError(t, err)
		d.has("a", 1)
		d.has("b", 1)
		require.EqualValues(t, 12, res.Receipt.Resources[0].RowsRead)
		require.EqualValues(t, 5, res.Receipt.Resources[1].RowsRead)
	})
}

// initial: none begins with the changes from now on.
func TestChangesFromNowOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		d.changing("a", 12, engine.WriteAppend)
		d.o.Resources[0].Initial = engine.InitialNone
		res, err := d.run(t.Context())
		require.NoError(t, err)
		require.Zero(t, res.Receipt.Resources[0].RowsRead)
		d.change("a", 0)
		res, err = d.run(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 5, res.Receipt.Resources[0].RowsRead)
		rows, _ := d.dst.Rows("a")
		ops := make([]engine.Op, len(rows))
		for i, r := range rows {
			ops[i] = r.Op
		}
		require.Equal(t, []engine.Op{engine.OpUpdate, engine.OpDelete, engine.OpMove, engine.OpDelete, engine.OpInsert}, ops)
	})
}

// What can't be followed is refused before anything is made.
func TestEndsWithoutChangesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		d.changing("a", 3, engine.WriteMerge)
		open := d.o.OpenSource
		d.o.OpenSource = func(ctx context.Context, o engine.OpenOptions) (engine.SourceSession, error) {
			s, err := open(ctx, o)
			return struct{ engine.SourceSession }{s}, err
		}
		_, err := d.run(t.Context())
		require.ErrorContains(t, err, "no changes to read")
		require.Equal(t, engine.Permanent, engine.ClassOf(err))
		require.Empty(t, d.dst.Staging())
	})
}
