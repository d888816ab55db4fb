package memstate

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
)

// Commit implements [engine.ProgressStore].
func (s *Store) Commit(ctx context.Context, f engine.Fence, p engine.Progress) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.m.mu.Unlock()
	r, sp, err := s.owned(f, p, engine.SplitRead)
	if err != nil {
		return err
	}
	r.store(sp, p)
	return nil
}

// CommitPublish implements [engine.ProgressStore].
func (s *Store) CommitPublish(ctx context.Context, f engine.Fence, p engine.Progress, cursor json.RawMessage, seen []engine.RowID) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.m.mu.Unlock()
	r, sp, err := s.owned(f, p, engine.SplitPublish)
	if err != nil {
		return err
	}
	for _, other := range r.splits {
		if other.Resource == sp.Resource && other.Kind == engine.SplitRead && !other.done {
			// Invariant 1: the cursor would pass rows that are not applied.
			return engine.Bugf("commit the publish of %q: read split %q is not done", sp.Resource, other.ID)
		}
	}
	p.Done = true
	r.store(sp, p)
	rt := s.m.data.routes[r.route]
	if r.run.Ordinal <= rt.cursors[sp.Resource].reset {
		return nil // The user reset the resource after this run began.
	}
	rt.cursors[sp.Resource] = cursorRec{cursor: slices.Clone(cursor), seen: slices.Clone(seen)}
	return nil
}

// owned checks fence and claim (invariant 2) and all else that could fail.
func (s *Store) owned(f engine.Fence, p engine.Progress, kind engine.SplitKind) (*runRec, *splitRec, error) {
	r, err := s.fenced(f)
	if err != nil {
		return nil, nil, err
	}
	sp, have, mine := r.mine(f, p.Split)
	if !mine || have != p.Claim {
		return nil, nil, &engine.StaleError{What: "claim", Subject: "split " + p.Split, Ours: p.Claim, Have: have}
	}
	if sp.Kind != kind {
		return nil, nil, engine.Bugf("commit split %q: it is a %s split", p.Split, sp.Kind)
	}
	if err := r.checkFacts(p.Facts); err != nil {
		return nil, nil, err
	}
	return r, sp, nil
}

func (r *runRec) store(sp *splitRec, p engine.Progress) {
	sp.Epoch, sp.Position, sp.done, sp.Totals = p.Epoch, slices.Clone(p.Position), p.Done, copyTotals(p.Totals)
	res := r.resource(sp.Resource)
	for _, a := range p.Artifacts {
		res.artifacts[a.Name] = a
	}
	for _, id := range p.Seen {
		res.seen[id] = struct{}{}
	}
	r.addFacts(p.Facts)
}

// Splits implements [engine.ProgressStore].
func (s *Store) Splits(ctx context.Context, runID uuid.UUID) ([]engine.SplitStatus, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.m.mu.Unlock()
	r := s.m.data.find(runID)
	if r == nil {
		return nil, unknownRun(runID)
	}
	var all []engine.SplitStatus
	for _, sp := range r.splits {
		st := engine.SplitStatus{ClaimedSplit: sp.ClaimedSplit, Done: sp.done, Owned: !sp.done && r.ownedNow(sp, s.m.opt.Now())}
		st.Position, st.Totals = slices.Clone(st.Position), copyTotals(st.Totals)
		all = append(all, st)
	}
	return all, nil
}

// Artifacts implements [engine.ProgressStore].
func (s *Store) Artifacts(ctx context.Context, runID uuid.UUID, resource string) ([]engine.Artifact, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.m.mu.Unlock()
	r := s.m.data.find(runID)
	if r == nil {
		return nil, unknownRun(runID)
	}
	var all []engine.Artifact
	if res := r.resource(resource); res != nil {
		for _, a := range res.artifacts {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b engine.Artifact) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return all, nil
}

// SeenRows implements [engine.ProgressStore]: in order of ids.
func (s *Store) SeenRows(ctx context.Context, runID uuid.UUID, resource string) ([]engine.RowID, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.m.mu.Unlock()
	r := s.m.data.find(runID)
	if r == nil {
		return nil, unknownRun(runID)
	}
	var ids []engine.RowID
	if res := r.resource(resource); res != nil {
		for id := range res.seen {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b engine.RowID) int { return bytes.Compare(a[:], b[:]) })
	return ids, nil
}
