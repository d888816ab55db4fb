package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/store/internal/db"
)

func splitOf(r db.NextSplitRow) (engine.ClaimedSplit, error) {
	c := engine.ClaimedSplit{
		ID: r.ID, Resource: r.Resource, Kind: engine.SplitKind(r.Kind), Claim: r.Claim, Epoch: r.Epoch,
		Position: r.Position, Generation: int(r.Generation),
	}
	if len(r.Totals) == 0 {
		return c, nil
	}
	if err := json.Unmarshal(r.Totals, &c.Totals); err != nil {
		return c, engine.Bugf("read totals of split %q: %w", r.ID, err)
	}
	return c, nil
}

// ClaimSplit implements [engine.ProgressStore].
func (s *State) ClaimSplit(ctx context.Context, f engine.Fence, exclude []string) (*engine.ClaimedSplit, error) {
	if exclude == nil {
		exclude = []string{}
	}
	var got *engine.ClaimedSplit
	err := s.update(ctx, fmt.Sprintf("claim a split of run %s", f.RunID), func(t *stateTx) error {
		got = nil
		r, err := t.fence(f)
		if err != nil {
			return err
		}
		if engine.RunState(r.State) != engine.StateRunning {
			return fmt.Errorf("claim a split: the run is %s: %w", r.State,
				&engine.StaleError{What: "generation", Subject: slotName(f), Ours: f.Generation, Have: f.Generation})
		}
		if !r.Planned {
			return engine.Bugf("claim a split of run %s: it has no plan yet", f.RunID)
		}
		next, err := t.q.NextSplit(t.ctx, db.NextSplitParams{Run: f.RunID, Exclude: exclude})
		if none(err) {
			open, err := t.q.AnySplitOpen(t.ctx, db.AnySplitOpenParams{Run: f.RunID, Exclude: exclude})
			if err == nil && !open {
				return engine.ErrSplitDone
			}
			return err
		}
		if err != nil {
			return err
		}
		c, err := splitOf(next)
		if err != nil {
			return err
		}
		c.Claim++
		got = &c
		return t.q.ClaimSplit(t.ctx, db.ClaimSplitParams{Run: f.RunID, ID: c.ID, Claim: c.Claim, Owner: ref(int32(f.Slot)), OwnerGeneration: &f.Generation})
	})
	if err != nil {
		return nil, err
	}
	return got, nil
}

// split reads a split for a caller that passed the fence. Claim 0: it was
// dropped by a reset, and is stale like any other.
func (t *stateTx) split(f engine.Fence, id string) (db.GetSplitRow, error) {
	o, err := t.q.GetSplit(t.ctx, db.GetSplitParams{Run: f.RunID, ID: id, Slot: int32(f.Slot), Generation: f.Generation})
	if none(err) {
		return db.GetSplitRow{}, nil
	}
	return o, err
}

// RaiseClaim implements [engine.ProgressStore]. A claim that is greater than
// atLeast already stays.
func (s *State) RaiseClaim(ctx context.Context, f engine.Fence, split string, atLeast int64) (claim int64, err error) {
	err = s.update(ctx, fmt.Sprintf("raise the claim of split %q", split), func(t *stateTx) error {
		if _, err := t.fence(f); err != nil {
			return err
		}
		o, err := t.split(f, split)
		if err != nil {
			return err
		}
		if !o.Mine {
			return &engine.StaleError{What: "claim", Subject: "split " + split, Ours: atLeast, Have: o.Claim}
		}
		claim = max(o.Claim, atLeast+1)
		return t.q.RaiseClaim(t.ctx, db.RaiseClaimParams{Run: f.RunID, ID: split, Claim: claim})
	})
	return claim, err
}

// ReturnSplit implements [engine.ProgressStore]. Returning a split twice, or
// one that is done, changes nothing.
func (s *State) ReturnSplit(ctx context.Context, f engine.Fence, split string, claim int64) error {
	return s.update(ctx, fmt.Sprintf("return split %q", split), func(t *stateTx) error {
		if _, err := t.fence(f); err != nil {
			return err
		}
		n, err := t.q.ReturnSplit(t.ctx, db.ReturnSplitParams{Run: f.RunID, ID: split, Claim: claim, Slot: int32(f.Slot), Generation: f.Generation})
		if err != nil || n > 0 {
			return err
		}
		o, err := t.split(f, split)
		if err != nil {
			return err
		}
		return &engine.StaleError{What: "claim", Subject: "split " + split, Ours: claim, Have: o.Claim}
	})
}

// Splits implements [engine.ProgressStore]: in plan order, each resource's
// publish split after its read splits.
func (s *State) Splits(ctx context.Context, runID uuid.UUID) (all []engine.SplitStatus, err error) {
	err = s.alone(ctx, fmt.Sprintf("read splits of run %s", runID), func(q *db.Queries) error {
		all = nil
		rows, err := q.ListSplits(ctx, runID)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return known(ctx, q, runID)
		}
		for _, r := range rows {
			c, err := splitOf(db.NextSplitRow{ID: r.ID, Resource: r.Resource, Kind: r.Kind, Claim: r.Claim, Epoch: r.Epoch,
				Position: r.Position, Totals: r.Totals, Generation: r.Generation})
			if err != nil {
				return err
			}
			all = append(all, engine.SplitStatus{ClaimedSplit: c, Done: r.Done, Owned: r.Owned})
		}
		return nil
	})
	return all, err
}

// Artifacts implements [engine.ProgressStore].
func (s *State) Artifacts(ctx context.Context, runID uuid.UUID, resource string) (all []engine.Artifact, err error) {
	err = s.alone(ctx, fmt.Sprintf("read artifacts of %q", resource), func(q *db.Queries) error {
		all = nil
		bodies, err := q.ListArtifacts(ctx, db.ListArtifactsParams{Run: runID, Resource: resource})
		if err != nil {
			return err
		}
		if len(bodies) == 0 {
			return known(ctx, q, runID)
		}
		for _, body := range bodies {
			var a engine.Artifact
			if err := json.Unmarshal(body, &a); err != nil {
				return engine.Bugf("read artifact of %q: %w", resource, err)
			}
			all = append(all, a)
		}
		return nil
	})
	return all, err
}

// SeenRows implements [engine.ProgressStore]: each row once, in order of ids.
func (s *State) SeenRows(ctx context.Context, runID uuid.UUID, resource string) (ids []engine.RowID, err error) {
	err = s.alone(ctx, fmt.Sprintf("read remembered rows of %q", resource), func(q *db.Queries) error {
		ids = nil
		packs, err := q.ListSeenRows(ctx, db.ListSeenRowsParams{Run: runID, Resource: resource})
		if err != nil {
			return err
		}
		if len(packs) == 0 {
			return known(ctx, q, runID)
		}
		for _, p := range packs {
			if ids, err = unpackIDs(ids, p); err != nil {
				return err
			}
		}
		return nil
	})
	slices.SortFunc(ids, func(a, b engine.RowID) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(ids), err
}
