package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tranship-io/tranship/engine"
)

// Commit implements [engine.ProgressStore]. Repeating it changes nothing more.
func (s *Store) Commit(ctx context.Context, f engine.Fence, p engine.Progress) error {
	return s.update(ctx, fmt.Sprintf("commit split %q", p.Split), func(t *tx) error {
		_, _, err := t.commit(f, p, engine.SplitRead)
		return err
	})
}

// CommitPublish implements [engine.ProgressStore]. The split is done whatever
// p.Done says. A nil cursor clears the resource's cursor.
func (s *Store) CommitPublish(ctx context.Context, f engine.Fence, p engine.Progress, cursor json.RawMessage, seen []engine.RowID) error {
	p.Done = true
	return s.update(ctx, fmt.Sprintf("commit split %q", p.Split), func(t *tx) error {
		r, o, err := t.commit(f, p, engine.SplitPublish)
		if err != nil {
			return err
		}
		var open int
		if err := t.row(`SELECT count(*) FROM splits WHERE run = ? AND resource = ? AND kind = 'read' AND done = 0`,
			r.seq, o.resource).Scan(&open); err != nil {
			return err
		}
		if open > 0 {
			// Invariant 1: the cursor would pass rows that are not applied.
			return engine.Bugf("commit the publish of %q: %d of its read splits are not done", o.resource, open)
		}
		var reset int64
		if err := t.row(`SELECT coalesce(max(reset_ordinal), 0) FROM cursors WHERE route = ? AND resource = ?`,
			r.route, o.resource).Scan(&reset); err != nil {
			return err
		}
		if r.ordinal <= reset {
			return nil // The user reset the resource after this run began.
		}
		return t.setCursor(r.route, o.resource, cursor, seen)
	})
}

// commit stores a step of a split if fence and claim still hold.
func (t *tx) commit(f engine.Fence, p engine.Progress, kind engine.SplitKind) (fenced, owned, error) {
	r, err := t.fence(f)
	if err != nil {
		return r, owned{}, err
	}
	o, err := t.ownedSplit(r.seq, f, p.Split, p.Claim)
	if err != nil {
		return r, o, err
	}
	if o.kind != kind {
		return r, o, engine.Bugf("commit split %q: it is a %s split", p.Split, o.kind)
	}
	totals, err := json.Marshal(p.Totals)
	if err != nil {
		return r, o, engine.Bugf("encode totals of split %q: %w", p.Split, err)
	}
	if _, err := t.exec(`UPDATE splits SET epoch = ?, position = ?, done = ?, totals = ? WHERE run = ? AND id = ?`,
		p.Epoch, nullable(p.Position), p.Done, totals, r.seq, p.Split); err != nil {
		return r, o, err
	}
	for _, a := range p.Artifacts {
		body, err := json.Marshal(a)
		if err != nil {
			return r, o, engine.Bugf("encode artifact %q: %w", a.Name, err)
		}
		if _, err := t.exec(`INSERT INTO artifacts (run, resource, name, body) VALUES (?, ?, ?, ?)
			ON CONFLICT DO UPDATE SET body = excluded.body`, r.seq, o.resource, a.Name, body); err != nil {
			return r, o, fmt.Errorf("register artifact %q: %w", a.Name, err)
		}
	}
	if len(p.Seen) > 0 {
		if _, err := t.exec(`INSERT INTO seen (run, resource, ids) VALUES (?, ?, ?)`, r.seq, o.resource, packIDs(p.Seen)); err != nil {
			return r, o, err
		}
	}
	return r, o, t.addFacts(r.seq, f.RunID, p.Facts)
}
