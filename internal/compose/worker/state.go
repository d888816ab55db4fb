package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// state is the run's State as one attempt sees it. It notes when the attempt has
// its lease, lets full refreshes begin anew, and turns a failure that another
// attempt follows into the end of this one.
type state struct {
	engine.State
	attempt *attempt
	run     runs.Run

	// leased is closed once the first slot's lease is ours.
	leased     chan struct{}
	leasedOnce sync.Once
	// moved tells that the checkpoint moved.
	moved chan struct{}

	mu       sync.Mutex
	lease    engine.Lease
	progress time.Time
	started  time.Time
	// finished is the state that the run ended in; retry what follows instead.
	finished engine.RunState
	retry    func(*runs.Run) runs.Change
	ended    bool
}

// Acquire implements [engine.LeaseStore].
func (s *state) Acquire(ctx context.Context, run uuid.UUID, slot int, holder string, ttl time.Duration) (engine.Lease, error) {
	l, err := s.State.Acquire(ctx, run, slot, holder, ttl)
	if err == nil && slot == 0 {
		s.mu.Lock()
		s.lease, s.ended = l, false
		if s.started.IsZero() {
			s.started = time.Now()
		}
		s.mu.Unlock()
		s.leasedOnce.Do(func() { close(s.leased) })
		s.tell()
	}
	return l, err
}

// EndAttempt implements [engine.LeaseStore].
func (s *state) EndAttempt(ctx context.Context, l engine.Lease, facts []events.Fact) error {
	err := s.State.EndAttempt(ctx, l, facts)
	if err == nil && l.Slot == 0 {
		s.mu.Lock()
		s.ended = true
		s.mu.Unlock()
	}
	return err
}

// hasLease tells whether the first slot may still be ours.
func (s *state) hasLease() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease.Generation != 0 && !s.ended
}

// Commit implements [engine.ProgressStore].
func (s *state) Commit(ctx context.Context, f engine.Fence, p engine.Progress) error {
	err := s.State.Commit(ctx, f, p)
	if err == nil {
		s.mu.Lock()
		s.progress = time.Now()
		s.mu.Unlock()
		s.tell()
		s.attempt.pool.c.Committed()
	}
	return err
}

func (s *state) tell() {
	select {
	case s.moved <- struct{}{}:
	default:
	}
}

// deadline is when the run reaches a limit, by this process's clock: the store's
// times are taken as ages.
func (s *state) deadline() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.run
	age := time.Since(r.Now)
	if r.StartedAt.IsZero() {
		r.StartedAt = s.started
	} else {
		r.StartedAt = r.StartedAt.Add(age - time.Since(r.Now))
	}
	if s.progress.After(r.ProgressAt) {
		r.ProgressAt = s.progress
	}
	return r.Deadline()
}

// Cursor implements [engine.RunStore]: a full refresh reads as after a reset.
func (s *state) Cursor(ctx context.Context, r engine.Route, resource string) (engine.RouteCursor, error) {
	c, err := s.State.Cursor(ctx, r, resource)
	if err == nil && slices.Contains(s.run.Options.FullRefresh, resource) {
		c = engine.RouteCursor{Reset: true}
	}
	return c, err
}

// errEnded: the process had to end in the middle of the attempt, which is no failure
// of the run. The lease is left to whoever takes it over, and counts an
// interruption (P24).
var errEnded = errors.New("the process had to end before a safe position")

// FinishRun implements [engine.RunStore]. A failure that another attempt follows,
// or that a cancel overtakes, ends this attempt only.
func (s *state) FinishRun(ctx context.Context, f engine.Fence, end engine.RunEnd) error {
	if end.State == engine.StateFailed && s.attempt.pool.hard.Err() != nil {
		return errEnded
	}
	if end.State == engine.StateFailed {
		failure, err := failureIn(end)
		if err != nil {
			return err
		}
		again, err := s.again(ctx, failure)
		if err != nil {
			return err
		}
		if again != nil {
			s.mu.Lock()
			l := s.lease
			s.mu.Unlock()
			reason := events.AttemptHandedOver{Slot: l.Slot, Generation: l.Generation, Reason: "error"}
			fact, err := events.New(f.RunID, time.Now(), reason)
			if err != nil {
				return err
			}
			if err := s.EndAttempt(ctx, l, []events.Fact{fact}); err != nil {
				return err
			}
			s.retry = again
			return nil
		}
	}
	err := s.State.FinishRun(ctx, f, end)
	if err == nil {
		s.mu.Lock()
		s.finished, s.ended = end.State, true
		if end.State == engine.StatePaused {
			// A cancel that came too late for the attempt.
			s.retry = runs.Idle
		}
		s.mu.Unlock()
	}
	return err
}

// again returns what follows the failure if the run does not end with it.
func (s *state) again(ctx context.Context, f runs.Failure) (func(*runs.Run) runs.Change, error) {
	r, err := s.attempt.pool.c.Store.Run(ctx, s.attempt.command.Organization, s.attempt.command.Run)
	if err != nil {
		return nil, fmt.Errorf("read the run: %w", err)
	}
	random := s.attempt.pool.c.Random()
	decide := func(r *runs.Run) runs.Change { return runs.Failed(r, f, random) }
	if c := decide(&r); c.State == engine.StateFailed || c.Nothing {
		return nil, nil //nolint:nilnil // No decision is a decision: the run ends.
	}
	return decide, nil
}

// failureIn reads the failure out of the facts of a run's end.
func failureIn(end engine.RunEnd) (runs.Failure, error) {
	f := runs.Failure{Class: engine.Permanent, Error: end.Error, Resumable: end.Resumable}
	for _, fact := range end.Facts {
		if fact.Type != events.TypeRunFailed {
			continue
		}
		var p events.RunFailed
		if err := json.Unmarshal(fact.Payload, &p); err != nil {
			return f, fmt.Errorf("decode fact %s: %w", fact.Type, err)
		}
		f.Class, f.Error, f.Hint = engine.Class(p.Class), p.Error, p.Hint
	}
	return f, nil
}
