package memstate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// fenced finds the run of a caller that still holds its slot (invariant 2).
func (s *Store) fenced(f engine.Fence) (*runRec, error) {
	r := s.m.data.find(f.RunID)
	var have int64
	if r != nil {
		have = r.slots[f.Slot].generation
	}
	if r == nil || have != f.Generation {
		return nil, &engine.StaleError{What: "generation", Subject: slotName(f), Ours: f.Generation, Have: have}
	}
	return r, nil
}

func slotName(f engine.Fence) string { return fmt.Sprintf("slot %d of run %s", f.Slot, f.RunID) }

func unknownRun(id uuid.UUID) error {
	return engine.Permanentf("list the runs that are kept", "run %s is not in this state", id)
}

// enter checks the context and takes the State's lock; the caller unlocks.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.m.mu.Lock()
	return nil
}

// StartRun implements [engine.RunStore].
func (s *Store) StartRun(ctx context.Context, req engine.StartRequest) (engine.Run, bool, error) {
	if err := s.enter(ctx); err != nil {
		return engine.Run{}, false, err
	}
	defer s.m.mu.Unlock()
	d, now, key := s.m.data, s.m.opt.Now(), keyOf(req.Route)
	taken, err := s.lock(key)
	if err != nil {
		return engine.Run{}, false, err
	}
	var open []*runRec
	for _, r := range slices.Backward(d.runs) {
		if r.route != key || !r.open() {
			continue
		}
		open = append(open, r)
		for _, sl := range r.slots {
			if sl.live(now) && !taken {
				return engine.Run{}, false, engine.Permanentf("wait until it ends or stop it",
					"run %s of pipeline %q has live workers: %w", r.run.ID, key.pipeline, engine.ErrLocked)
			}
		}
	}
	rt := d.route(req.Route)
	id := s.m.opt.NewID()
	var resume *runRec
	for i, r := range open {
		r.voidLeases()
		// Only the route's latest run can go on (P21).
		if i == 0 && !req.Restart && r.run.Version == req.Version && r.desired != engine.DesiredCancel && r.run.Ordinal >= rt.last {
			resume = r
			continue
		}
		if err := s.supersede(r, id); err != nil {
			return engine.Run{}, false, err
		}
	}
	if resume != nil {
		u := &resume.run
		u.State, u.Resumable, u.Error, u.EndedAt = engine.StateRunning, false, "", time.Time{}
		resume.desired = engine.DesiredRun
		return *u, true, nil
	}
	rt.last = max(rt.last, req.AtLeastOrdinal) + 1
	r := &runRec{route: key, desired: engine.DesiredRun, slots: map[int]slotRec{}, known: map[uuid.UUID]bool{}, run: engine.Run{
		ID: id, Route: d.full(key), Version: req.Version, Ordinal: rt.last, State: engine.StateRunning,
		CreatedAt: now.UTC(), StartedAt: now.UTC()}}
	d.runs = append(d.runs, r)
	return r.run, false, nil
}

// supersede ends an unfinished run for good, as store/sqlite does.
func (s *Store) supersede(r *runRec, by uuid.UUID) error {
	if r.desired == engine.DesiredCancel {
		return s.end(r, engine.StateCanceled, "", events.RunCanceled{Reason: "asked for while no process worked on it"})
	}
	text := fmt.Sprintf("superseded by run %s", by)
	return s.end(r, engine.StateFailed, text, events.RunFailed{Class: string(engine.Permanent), Error: text})
}

func (s *Store) end(r *runRec, state engine.RunState, text string, p events.Payload) error {
	f, err := s.m.fact(r.run.ID, p)
	if err != nil {
		return err
	}
	r.run.State, r.run.Resumable, r.run.EndedAt = state, false, s.m.opt.Now().UTC()
	if text != "" {
		r.run.Error = text
	}
	r.addFacts([]events.Fact{f})
	return nil
}

// RaiseOrdinal implements [engine.RunStore].
func (s *Store) RaiseOrdinal(ctx context.Context, runID uuid.UUID, atLeast int64) (engine.Run, error) {
	if err := s.enter(ctx); err != nil {
		return engine.Run{}, err
	}
	defer s.m.mu.Unlock()
	r := s.m.data.find(runID)
	if r == nil {
		return engine.Run{}, unknownRun(runID)
	}
	if r.run.State != engine.StateRunning {
		return engine.Run{}, fmt.Errorf("raise ordinal of run %s: it is %s: %w", runID, r.run.State,
			&engine.StaleError{What: "generation", Subject: "run " + runID.String()})
	}
	if r.run.Ordinal <= atLeast {
		if r.planned {
			return engine.Run{}, engine.Bugf("raise ordinal of run %s: its plan is frozen with ordinal %d", runID, r.run.Ordinal)
		}
		rt := s.m.data.routes[r.route]
		rt.last = max(rt.last, atLeast) + 1
		r.run.Ordinal = rt.last
	}
	return r.run, nil
}

// FinishRun implements [engine.RunStore].
func (s *Store) FinishRun(ctx context.Context, f engine.Fence, end engine.RunEnd) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.m.mu.Unlock()
	r, err := s.fenced(f)
	if err != nil {
		return err
	}
	switch end.State {
	case engine.StateCompleted, engine.StateFailed, engine.StateCanceled, engine.StatePaused:
	default:
		return engine.Bugf("finish run %s: %q is no end of a run", f.RunID, end.State)
	}
	if r.run.State != engine.StateRunning && r.run.State != end.State {
		return engine.Bugf("finish run %s as %s: it is %s", f.RunID, end.State, r.run.State)
	}
	if err := r.checkFacts(end.Facts); err != nil {
		return err
	}
	r.run.State, r.run.Error, r.run.Receipt = end.State, end.Error, slices.Clone(end.Receipt)
	r.run.Resumable = end.Resumable && end.State == engine.StateFailed
	r.run.EndedAt = s.m.opt.Now().UTC()
	if end.State == engine.StateCompleted {
		for _, res := range r.resources {
			clear(res.seen)
		}
	}
	r.addFacts(end.Facts)
	r.freeSlot(f)
	s.unlockIdle(r)
	return nil
}

// GetRun implements [engine.RunStore].
func (s *Store) GetRun(ctx context.Context, runID uuid.UUID) (engine.Run, error) {
	if err := s.enter(ctx); err != nil {
		return engine.Run{}, err
	}
	defer s.m.mu.Unlock()
	r := s.m.data.find(runID)
	if r == nil {
		return engine.Run{}, unknownRun(runID)
	}
	return r.run, nil
}

// ListRuns implements [engine.RunStore]; a limit of 0 or less means all.
func (s *Store) ListRuns(ctx context.Context, pipeline string, limit int) ([]engine.Run, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.m.mu.Unlock()
	var runs []engine.Run
	for _, r := range slices.Backward(s.m.data.runs) {
		if pipeline != "" && r.route.pipeline != pipeline {
			continue
		}
		if runs = append(runs, r.run); len(runs) == limit {
			break
		}
	}
	return runs, nil
}

// AppendFacts implements [engine.RunStore].
func (s *Store) AppendFacts(ctx context.Context, f engine.Fence, facts []events.Fact) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.m.mu.Unlock()
	r, err := s.fenced(f)
	if err != nil {
		return err
	}
	if err := r.checkFacts(facts); err != nil {
		return err
	}
	r.addFacts(facts)
	return nil
}

// Facts implements [engine.RunStore]; a limit of 0 or less means all.
func (s *Store) Facts(ctx context.Context, runID uuid.UUID, after int64, limit int) ([]events.Fact, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.m.mu.Unlock()
	r := s.m.data.find(runID)
	if r == nil {
		return nil, unknownRun(runID)
	}
	page := r.facts[min(max(after, 0), int64(len(r.facts))):]
	if limit > 0 {
		page = page[:min(limit, len(page))]
	}
	return slices.Clone(page), nil
}
