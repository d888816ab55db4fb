package sweep_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/control/sweep"
)

// desk is a store of which each call counts as a query.
type desk struct {
	mu      sync.Mutex
	queries int
	found   []sweep.Found
	work    bool
	fail    error
	done    []string
}

func (d *desk) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queries
}

func (d *desk) kept() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.done)
}

func (d *desk) set(work bool, found ...sweep.Found) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.work, d.found = work, found
}

func (d *desk) Look(context.Context, int) (sweep.Found, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queries++
	if d.fail != nil || len(d.found) == 0 {
		return sweep.Found{Now: time.Now()}, d.fail
	}
	f := d.found[0]
	f.Now = time.Now()
	d.found = d.found[1:]
	return f, nil
}

func (d *desk) TakeOver(_ context.Context, r sweep.Ref, _ func(*runs.Run, []runs.Lost) runs.Change) error {
	return d.did("take over", r)
}

func (d *desk) Settle(_ context.Context, r sweep.Ref, _ func(*runs.Run) runs.Change) error {
	return d.did("settle", r)
}

func (d *desk) did(what string, r sweep.Ref) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queries++
	d.done = append(d.done, what+" "+r.Run.String())
	if what == "take over" {
		return errors.New("this run cannot be taken over")
	}
	return nil
}

func (d *desk) Disarm(context.Context) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queries++
	return !d.work, nil
}

type clock struct{}

func (clock) Now() time.Time { return time.Now() }
func (clock) Sleep(ctx context.Context, until time.Time) error {
	select {
	case <-time.After(time.Until(until)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func loop(d *desk) *sweep.Loop {
	log := slog.New(slog.DiscardHandler)
	return (&sweep.Loop{Sweeper: &sweep.Sweeper{Store: d, Log: log}, Clock: clock{}, Log: log}).Init()
}

// TestIdleSendsNothing: with nothing to do no query leaves for as long as nobody
// arms, and whoever arms wakes the loop at once (P23, invariant 14).
func TestIdleSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{}
		l := loop(d)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.Run(ctx)
		synctest.Wait()
		began := d.count()
		require.Positive(t, began, "whoever comes up looks first")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Equal(t, began, d.count(), "queries within ten idle minutes")

		d.set(true)
		l.Wake()
		synctest.Wait()
		require.Greater(t, d.count(), began)
		before := d.count()
		time.Sleep(time.Minute)
		synctest.Wait()
		rounds := (d.count() - before) / 2
		require.GreaterOrEqual(t, rounds, 12, "open work is looked after every 5 s (P25)")
		require.LessOrEqual(t, rounds, 13)

		d.set(false)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		before = d.count()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, before, d.count())
		cancel()
	})
}

// TestObligationsAreKeptWhenDue: the loop wakes for the next dated obligation, and
// one that fails does not keep it from the others.
func TestObligationsAreKeptWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost, idle := sweep.Ref{Run: uuid.Must(uuid.NewV7())}, sweep.Ref{Run: uuid.Must(uuid.NewV7())}
		d := &desk{}
		d.set(true, sweep.Found{Next: time.Now().Add(700 * time.Millisecond)}, sweep.Found{Lost: []sweep.Ref{lost}, Idle: []sweep.Ref{idle}})
		l := loop(d)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.Run(ctx)
		time.Sleep(699 * time.Millisecond)
		synctest.Wait()
		require.Empty(t, d.kept())
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Equal(t, []string{"take over " + lost.Run.String(), "settle " + idle.Run.String()}, d.kept())
		cancel()
	})
}

// TestALostDatabaseIsAskedAgain: errors neither end the loop nor make it spin.
func TestALostDatabaseIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{fail: errors.New("away")}
		l := loop(d)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.Run(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.GreaterOrEqual(t, d.count(), 12)
		require.LessOrEqual(t, d.count(), 14)
		cancel()
	})
}
