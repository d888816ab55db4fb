package timer_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/timer"
)

// clock is the bubble's time.
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

// source is a set of instants; those in broken cannot be done.
type source struct {
	mu      sync.Mutex
	due     []time.Time
	broken  map[time.Time]bool
	done    map[time.Time]time.Time
	queries int
}

func (s *source) Next(_ context.Context, after time.Time) (next time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queries++
	for _, at := range s.due {
		if at.After(after) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next, nil
}

func (s *source) Run(_ context.Context, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queries++
	var rest []time.Time
	var failed error
	for _, at := range s.due {
		switch {
		case at.After(now):
			rest = append(rest, at)
		case s.broken[at]:
			rest, failed = append(rest, at), errors.New("broken")
		default:
			s.done[at] = now
		}
	}
	s.due = rest
	return failed
}

func (s *source) add(at ...time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = append(s.due, at...)
}

func (s *source) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queries
}

func run(t *testing.T, s *source) *timer.Timer {
	t.Helper()
	if s.done == nil {
		s.done = map[time.Time]time.Time{}
	}
	tm := &timer.Timer{Name: "test", Source: s, Clock: clock{}, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); tm.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return tm
}

// With nothing due nothing is asked, for as long as it takes (invariant 14).
func TestIdleAsksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{}
		tm := run(t, s)
		synctest.Wait()
		before := s.asked()
		time.Sleep(24 * time.Hour)
		require.Equal(t, before, s.asked())
		at := time.Now().Add(3 * time.Hour)
		s.add(at)
		tm.Nudge()
		synctest.Wait()
		before = s.asked()
		time.Sleep(3*time.Hour - time.Second)
		require.Equal(t, before, s.asked())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, at, s.done[at])
	})
}

// What fails is tried again with growing pauses, and holds up nothing else.
func TestFailuresHoldUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := time.Now().Add(time.Minute)
		s := &source{broken: map[time.Time]bool{bad: true}}
		s.add(bad)
		var good []time.Time
		for i := range 60 {
			good = append(good, time.Now().Add(time.Minute+time.Second+time.Duration(i)*7*time.Second))
		}
		s.add(good...)
		run(t, s)
		time.Sleep(time.Hour)
		synctest.Wait()
		for _, at := range good {
			require.Equal(t, at, s.done[at])
		}
		require.Less(t, s.asked(), 500, "no hot loop")
		s.mu.Lock()
		s.broken = nil
		s.mu.Unlock()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Contains(t, s.done, bad)
	})
}
