package runner

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// steady is the State of attempts: what a worker with a lease asks of a store
// that is away is asked again for the lease time, in which nobody takes the run
// over. So an outage that ends in time costs time, and is no interruption (P24).
//
// A repetition may follow a call that was done and whose answer was lost. Nearly
// all calls may be repeated by their contracts (invariant 4); SavePlan and
// ClaimSplit look first at what the lost call has left. What comes before the
// lease, and taking it, is tried once: until then an attempt is an offer.
type steady struct {
	engine.State
	set Settings
	log *slog.Logger
	// over ends all waiting: the process ends.
	over <-chan struct{}
}

// again calls f until it succeeds, fails otherwise than retryably, or until is
// closed (nil: never), the context or the lease time is over.
func (s *steady) again(ctx context.Context, what string, until <-chan struct{}, f func() error) error {
	began := time.Now()
	w := backoff.NewExponentialBackOff()
	w.InitialInterval, w.MaxInterval, w.RandomizationFactor = 100*time.Millisecond, s.set.heartbeat(), max(s.set.Jitter, 0)
	for {
		err := f()
		if err == nil || ctx.Err() != nil || isStale(err) || engine.ClassOf(err) != engine.Retryable || time.Since(began) >= s.set.LeaseTime {
			return err
		}
		wait := w.NextBackOff()
		s.log.Warn("the state is away: trying again", "what", what, "in", wait.Round(time.Millisecond), "error", err)
		t := time.NewTimer(wait)
		select {
		case <-t.C:
			continue
		case <-ctx.Done():
		case <-s.over:
		case <-until:
		}
		t.Stop()
		return err
	}
}

// ask is again for calls that answer something.
func ask[T any](ctx context.Context, s *steady, what string, f func() (T, error)) (v T, err error) {
	err = s.again(ctx, what, nil, func() (err error) {
		v, err = f()
		return err
	})
	return v, err
}

// take is Acquire for a slot beside the first, given up when until is closed.
func (s *steady) take(ctx context.Context, until <-chan struct{}, run uuid.UUID, slot int, holder string) (l engine.Lease, err error) {
	err = s.again(ctx, "take a slot", until, func() (err error) {
		l, err = s.Acquire(ctx, run, slot, holder, s.set.LeaseTime)
		return err
	})
	return l, err
}

// SavePlan implements [engine.PlanStore].
func (s *steady) SavePlan(ctx context.Context, f engine.Fence, plan *engine.RunPlan, facts []events.Fact) error {
	tried := false
	return s.again(ctx, "save the plan", nil, func() error {
		if tried {
			// Only who holds the lease saves one: it is ours, or we have lost the lease.
			if have, err := s.State.LoadPlan(ctx, f.RunID); err != nil || have != nil {
				return err
			}
		}
		tried = true
		return s.State.SavePlan(ctx, f, plan, facts)
	})
}

// ClaimSplit implements [engine.ProgressStore]. A slot works on one split at a
// time: one that it has when it claims was given by an answer that was lost, and
// would be nobody else's for as long as we live.
func (s *steady) ClaimSplit(ctx context.Context, f engine.Fence, exclude []string) (*engine.ClaimedSplit, error) {
	tried := false
	return ask(ctx, s, "claim a split", func() (*engine.ClaimedSplit, error) {
		if tried {
			if err := s.returnOwn(ctx, f); err != nil {
				return nil, err
			}
		}
		tried = true
		return s.State.ClaimSplit(ctx, f, exclude)
	})
}

// returnOwn gives back whatever the slot has.
func (s *steady) returnOwn(ctx context.Context, f engine.Fence) error {
	all, err := s.State.Splits(ctx, f.RunID)
	if err != nil {
		return err
	}
	for _, sp := range all {
		if !sp.Owned {
			continue
		}
		err := s.State.ReturnSplit(ctx, f, sp.ID, sp.Claim)
		var stale *engine.StaleError
		if err != nil && (!errors.As(err, &stale) || stale.What != "claim") {
			return err
		}
	}
	return nil
}

// LoadPlan implements [engine.PlanStore].
func (s *steady) LoadPlan(ctx context.Context, run uuid.UUID) (*engine.RunPlan, error) {
	return ask(ctx, s, "load the plan", func() (*engine.RunPlan, error) { return s.State.LoadPlan(ctx, run) })
}

// ReplaceResource implements [engine.PlanStore].
func (s *steady) ReplaceResource(ctx context.Context, f engine.Fence, rp *engine.ResourcePlan, facts []events.Fact) error {
	return s.again(ctx, "plan a resource anew", nil, func() error { return s.State.ReplaceResource(ctx, f, rp, facts) })
}

// RaiseClaim implements [engine.ProgressStore].
func (s *steady) RaiseClaim(ctx context.Context, f engine.Fence, split string, atLeast int64) (int64, error) {
	return ask(ctx, s, "raise a claim", func() (int64, error) { return s.State.RaiseClaim(ctx, f, split, atLeast) })
}

// Commit implements [engine.ProgressStore].
func (s *steady) Commit(ctx context.Context, f engine.Fence, p engine.Progress) error {
	return s.again(ctx, "store a checkpoint", nil, func() error { return s.State.Commit(ctx, f, p) })
}

// CommitPublish implements [engine.ProgressStore].
func (s *steady) CommitPublish(ctx context.Context, f engine.Fence, p engine.Progress, cursor json.RawMessage, seen []engine.RowID) error {
	return s.again(ctx, "store a publish", nil, func() error { return s.State.CommitPublish(ctx, f, p, cursor, seen) })
}

// ReturnSplit implements [engine.ProgressStore].
func (s *steady) ReturnSplit(ctx context.Context, f engine.Fence, split string, claim int64) error {
	return s.again(ctx, "return a split", nil, func() error { return s.State.ReturnSplit(ctx, f, split, claim) })
}

// Splits implements [engine.ProgressStore].
func (s *steady) Splits(ctx context.Context, run uuid.UUID) ([]engine.SplitStatus, error) {
	return ask(ctx, s, "read splits", func() ([]engine.SplitStatus, error) { return s.State.Splits(ctx, run) })
}

// Artifacts implements [engine.ProgressStore].
func (s *steady) Artifacts(ctx context.Context, run uuid.UUID, resource string) ([]engine.Artifact, error) {
	return ask(ctx, s, "read artifacts", func() ([]engine.Artifact, error) { return s.State.Artifacts(ctx, run, resource) })
}

// SeenRows implements [engine.ProgressStore].
func (s *steady) SeenRows(ctx context.Context, run uuid.UUID, resource string) ([]engine.RowID, error) {
	return ask(ctx, s, "read remembered rows", func() ([]engine.RowID, error) { return s.State.SeenRows(ctx, run, resource) })
}

// Cursor implements [engine.RunStore].
func (s *steady) Cursor(ctx context.Context, r engine.Route, resource string) (engine.RouteCursor, error) {
	return ask(ctx, s, "read a cursor", func() (engine.RouteCursor, error) { return s.State.Cursor(ctx, r, resource) })
}

// GetRun implements [engine.RunStore].
func (s *steady) GetRun(ctx context.Context, run uuid.UUID) (engine.Run, error) {
	return ask(ctx, s, "read the run", func() (engine.Run, error) { return s.State.GetRun(ctx, run) })
}

// AppendFacts implements [engine.RunStore].
func (s *steady) AppendFacts(ctx context.Context, f engine.Fence, facts []events.Fact) error {
	return s.again(ctx, "store facts", nil, func() error { return s.State.AppendFacts(ctx, f, facts) })
}

// FinishRun implements [engine.RunStore].
func (s *steady) FinishRun(ctx context.Context, f engine.Fence, end engine.RunEnd) error {
	return s.again(ctx, "finish the run", nil, func() error { return s.State.FinishRun(ctx, f, end) })
}

// EndAttempt implements [engine.LeaseStore].
func (s *steady) EndAttempt(ctx context.Context, l engine.Lease, facts []events.Fact) error {
	return s.again(ctx, "end the attempt", nil, func() error { return s.State.EndAttempt(ctx, l, facts) })
}
