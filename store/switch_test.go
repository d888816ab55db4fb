package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/runs"
)

// lever is a switch of a test's own.
type lever struct {
	mu      sync.Mutex
	on      bool
	changes int
	calls   []string
	fail    func() error
}

func (l *lever) set(on bool, name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on, l.calls = on, append(l.calls, name)
	l.changes++
	if l.fail != nil {
		// The answer is lost: what was asked for happened all the same.
		return l.fail()
	}
	return nil
}

func (l *lever) On(context.Context) error  { return l.set(true, "on") }
func (l *lever) Off(context.Context) error { return l.set(false, "off") }

func (l *lever) look() (on bool, changes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.on, l.changes
}

// TestSwitch: it is turned on with the first work and off with the last, and a
// start whose switch fails makes nothing.
func TestSwitch(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	l := &lever{}
	d.config.Switch = l
	f := newFleet(t, d, "acme")
	f.pipeline("shop")
	f.pipeline("other")

	l.fail = func() error { return errors.New("no answer") }
	_, err := f.svc.Start(t.Context(), f.a, runs.StartRequest{Pipeline: "shop"})
	var away *control.UnavailableError
	require.ErrorAs(t, err, &away)
	require.ErrorContains(t, err, "the switch of the sweep cannot be reached")
	l.fail, l.calls = nil, nil
	off, err := d.Disarm(t.Context())
	require.NoError(t, err)
	require.True(t, off, "nothing was made: the next sweep turns it off")
	require.Equal(t, []string{"off"}, l.calls)

	l.calls = nil
	a, b := f.start("shop"), f.start("other")
	require.Equal(t, []string{"on"}, l.calls, "only what arms first turns it on")
	off, err = d.Disarm(t.Context())
	require.NoError(t, err)
	require.False(t, off)
	for _, r := range []runs.Run{a, b} {
		_, err = f.svc.Cancel(t.Context(), f.a, r.ID)
		require.NoError(t, err)
	}
	require.NoError(t, d.Maintain(t.Context(), func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM fact_relays`)
		return err
	}))
	off, err = d.Disarm(t.Context())
	require.NoError(t, err)
	require.True(t, off)
	require.Equal(t, []string{"on", "off"}, l.calls)
}

// TestNoWorkIsCommittedWithTheSwitchOff: whatever the switch answers, while many
// make work and sweeps disarm, and sweeps die between disarming and turning off,
// there is never committed work with the switch off (P23).
func TestNoWorkIsCommittedWithTheSwitchOff(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	l := &lever{}
	l.fail = func() error {
		time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
		if rand.IntN(4) == 0 {
			return errors.New("no answer")
		}
		return nil
	}
	d.config.Switch = l
	f := newFleet(t, d, "acme")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	for i := range 3 {
		f.pipeline(fmt.Sprint("p", i))
	}
	var wait sync.WaitGroup
	var offs, looks atomic.Int32
	for i := range 3 {
		wait.Go(func() {
			for ctx.Err() == nil {
				s, err := f.svc.Start(ctx, f.a, runs.StartRequest{Pipeline: fmt.Sprint("p", i)})
				if err != nil {
					continue
				}
				_, _ = f.svc.Cancel(ctx, f.a, s.Runs[0].ID)
				_ = d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
					_, err := tx.Exec(ctx, `DELETE FROM fact_relays`)
					return err
				})
			}
		})
	}
	wait.Go(func() {
		for ctx.Err() == nil {
			if off, err := d.Disarm(ctx); off && err == nil {
				offs.Add(1)
			}
		}
	})
	wait.Go(func() {
		for ctx.Err() == nil {
			// A sweep that dies after it disarmed.
			_ = d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
				_, err := tx.Q().Disarm(ctx)
				return err
			})
			time.Sleep(5 * time.Millisecond)
		}
	})
	wait.Go(func() {
		for ctx.Err() == nil {
			before, was := l.look()
			var open bool
			err := d.Maintain(ctx, func(ctx context.Context, tx Tx) error { return tx.QueryRow(ctx, `SELECT open_work()`).Scan(&open) })
			_, is := l.look()
			if err != nil || was != is {
				continue
			}
			looks.Add(1)
			if open && !before {
				t.Error("there is work, and nothing wakes the sweep")
				return
			}
		}
	})
	wait.Wait()
	require.Positive(t, offs.Load())
	require.Positive(t, looks.Load())
}
