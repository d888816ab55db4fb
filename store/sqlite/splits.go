package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
)

const splitColumns = `s.id, s.resource, s.kind, s.claim, s.epoch, s.position, s.totals, s.generation`

func scanSplit(row scanner, into *engine.ClaimedSplit, more ...any) error {
	var position, totals []byte
	if err := row.Scan(append([]any{&into.ID, &into.Resource, &into.Kind, &into.Claim, &into.Epoch,
		&position, &totals, &into.Generation}, more...)...); err != nil {
		return err
	}
	into.Position = position
	if len(totals) == 0 {
		return nil
	}
	if err := json.Unmarshal(totals, &into.Totals); err != nil {
		return engine.Bugf("read totals of split %q: %w", into.ID, err)
	}
	return nil
}

// liveOwner joins the slot that owns a split, if its lease is not over.
const liveOwner = ` LEFT JOIN slots o ON o.run = s.run AND o.slot = s.owner AND o.generation = s.owner_generation
	AND o.holder <> '' AND o.expires > ` + nowMillis

// Publishing comes first, so that a resource becomes visible as soon as its
// last row is there; then reading in plan order, which sets all slots to the
// same resource.
const (
	nextPublish = `SELECT ` + splitColumns + ` FROM splits s` + liveOwner + `
		WHERE s.run = ?1 AND s.kind = 'publish' AND s.done = 0 AND o.slot IS NULL
		AND s.resource NOT IN (SELECT value FROM json_each(?2))
		AND NOT EXISTS (SELECT 1 FROM splits r WHERE r.run = s.run AND r.kind = 'read' AND r.resource_seq = s.resource_seq AND r.done = 0)
		ORDER BY s.resource_seq, s.seq LIMIT 1`
	nextRead = `SELECT ` + splitColumns + ` FROM splits s` + liveOwner + `
		WHERE s.run = ?1 AND s.kind = 'read' AND s.done = 0 AND o.slot IS NULL
		AND s.resource NOT IN (SELECT value FROM json_each(?2))
		ORDER BY s.resource_seq, s.seq LIMIT 1`
	anyOpen = `SELECT EXISTS (SELECT 1 FROM splits s WHERE s.run = ?1 AND s.done = 0
		AND s.resource NOT IN (SELECT value FROM json_each(?2)))`
)

// ClaimSplit implements [engine.ProgressStore].
func (s *Store) ClaimSplit(ctx context.Context, f engine.Fence, exclude []string) (*engine.ClaimedSplit, error) {
	skip, err := json.Marshal(append([]string{}, exclude...))
	if err != nil {
		return nil, engine.Bugf("claim a split of run %s: %w", f.RunID, err)
	}
	var got *engine.ClaimedSplit
	err = s.update(ctx, fmt.Sprintf("claim a split of run %s", f.RunID), func(t *tx) error {
		r, err := t.fence(f)
		if err != nil {
			return err
		}
		if r.state != engine.StateRunning {
			return fmt.Errorf("claim a split: the run is %s: %w", r.state,
				&engine.StaleError{What: "generation", Subject: slotName(f), Ours: f.Generation, Have: f.Generation})
		}
		if !r.planned {
			return engine.Bugf("claim a split of run %s: it has no plan yet", f.RunID)
		}
		for _, q := range []string{nextPublish, nextRead} {
			var c engine.ClaimedSplit
			err := scanSplit(t.row(q, r.seq, string(skip)), &c)
			if errors.Is(err, sql.ErrNoRows) {
				continue
			}
			if err != nil {
				return err
			}
			c.Claim++
			got = &c
			_, err = t.exec(`UPDATE splits SET claim = ?, owner = ?, owner_generation = ? WHERE run = ? AND id = ?`,
				c.Claim, f.Slot, f.Generation, r.seq, c.ID)
			return err
		}
		var open bool
		if err := t.row(anyOpen, r.seq, string(skip)).Scan(&open); err != nil {
			return err
		}
		if !open {
			return engine.ErrSplitDone
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return got, nil
}

// owned is a split as its claim's check found it.
type owned struct {
	resource string
	kind     engine.SplitKind
	claim    int64
	done     bool
	mine     bool
}

// split reads a split for a caller that passed the fence.
func (t *tx) split(run int64, f engine.Fence, id string) (owned, error) {
	var o owned
	err := t.row(`SELECT resource, kind, claim, done, coalesce(owner = ?3 AND owner_generation = ?4, 0) FROM splits WHERE run = ?1 AND id = ?2`,
		run, id, f.Slot, f.Generation).Scan(&o.resource, &o.kind, &o.claim, &o.done, &o.mine)
	if errors.Is(err, sql.ErrNoRows) {
		return owned{}, nil // Claim 0: dropped by a reset, stale like any other.
	}
	return o, err
}

// ownedSplit checks that the caller still owns the split under its claim (invariant 2).
func (t *tx) ownedSplit(run int64, f engine.Fence, id string, claim int64) (owned, error) {
	o, err := t.split(run, f, id)
	if err != nil {
		return o, err
	}
	if o.claim != claim || !o.mine {
		return o, &engine.StaleError{What: "claim", Subject: "split " + id, Ours: claim, Have: o.claim}
	}
	return o, nil
}

// RaiseClaim implements [engine.ProgressStore]. A claim that is greater than
// atLeast already stays.
func (s *Store) RaiseClaim(ctx context.Context, f engine.Fence, split string, atLeast int64) (claim int64, err error) {
	err = s.update(ctx, fmt.Sprintf("raise claim of split %q", split), func(t *tx) error {
		r, err := t.fence(f)
		if err != nil {
			return err
		}
		o, err := t.split(r.seq, f, split)
		if err != nil {
			return err
		}
		if !o.mine {
			return &engine.StaleError{What: "claim", Subject: "split " + split, Ours: atLeast, Have: o.claim}
		}
		claim = max(o.claim, atLeast+1)
		_, err = t.exec(`UPDATE splits SET claim = ? WHERE run = ? AND id = ?`, claim, r.seq, split)
		return err
	})
	return claim, err
}

// ReturnSplit implements [engine.ProgressStore]. Returning a split twice, or
// one that is done, changes nothing.
func (s *Store) ReturnSplit(ctx context.Context, f engine.Fence, split string, claim int64) error {
	return s.update(ctx, fmt.Sprintf("return split %q", split), func(t *tx) error {
		r, err := t.fence(f)
		if err != nil {
			return err
		}
		n, err := t.exec(`UPDATE splits SET owner = NULL, owner_generation = NULL
			WHERE run = ? AND id = ? AND claim = ? AND (done = 1 OR owner IS NULL OR owner = ? AND owner_generation = ?)`,
			r.seq, split, claim, f.Slot, f.Generation)
		if err != nil || n > 0 {
			return err
		}
		_, err = t.ownedSplit(r.seq, f, split, claim)
		return err
	})
}

// Splits implements [engine.ProgressStore]: in plan order, each resource's
// publish split after its read splits.
func (s *Store) Splits(ctx context.Context, runID uuid.UUID) ([]engine.SplitStatus, error) {
	seq, err := s.runSeq(ctx, runID)
	if err != nil {
		return nil, err
	}
	var all []engine.SplitStatus
	err = s.query(ctx, fmt.Sprintf("read splits of run %s", runID), func(r scanner) error {
		var st engine.SplitStatus
		err := scanSplit(r, &st.ClaimedSplit, &st.Done, &st.Owned)
		all = append(all, st)
		return err
	}, `SELECT `+splitColumns+`, s.done, s.done = 0 AND o.slot IS NOT NULL FROM splits s`+liveOwner+`
		WHERE s.run = ? ORDER BY s.resource_seq, s.seq`, seq)
	return all, err
}

// Artifacts implements [engine.ProgressStore].
func (s *Store) Artifacts(ctx context.Context, runID uuid.UUID, resource string) ([]engine.Artifact, error) {
	seq, err := s.runSeq(ctx, runID)
	if err != nil {
		return nil, err
	}
	var all []engine.Artifact
	err = s.query(ctx, fmt.Sprintf("read artifacts of %q", resource), func(r scanner) error {
		var body []byte
		if err := r.Scan(&body); err != nil {
			return err
		}
		var a engine.Artifact
		if err := json.Unmarshal(body, &a); err != nil {
			return engine.Bugf("read artifact of %q: %w", resource, err)
		}
		all = append(all, a)
		return nil
	}, `SELECT body FROM artifacts WHERE run = ? AND resource = ? ORDER BY name`, seq, resource)
	return all, err
}

// SeenRows implements [engine.ProgressStore]: each row once, in order of ids.
func (s *Store) SeenRows(ctx context.Context, runID uuid.UUID, resource string) ([]engine.RowID, error) {
	seq, err := s.runSeq(ctx, runID)
	if err != nil {
		return nil, err
	}
	var ids []engine.RowID
	err = s.query(ctx, fmt.Sprintf("read remembered rows of %q", resource), func(r scanner) error {
		var packed []byte
		if err := r.Scan(&packed); err != nil {
			return err
		}
		var err error
		ids, err = unpackIDs(ids, packed)
		return err
	}, `SELECT ids FROM seen WHERE run = ? AND resource = ?`, seq, resource)
	slices.SortFunc(ids, func(a, b engine.RowID) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(ids), err
}
