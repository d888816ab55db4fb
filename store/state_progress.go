package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/store/internal/db"
)

// Commit implements [engine.ProgressStore] in one round trip. Repeating it
// changes nothing more.
func (s *State) Commit(ctx context.Context, f engine.Fence, p engine.Progress) error {
	return s.commit(ctx, f, p, engine.SplitRead, nil, nil)
}

// CommitPublish implements [engine.ProgressStore]. The split is done whatever
// p.Done says. A nil cursor clears the resource's cursor.
func (s *State) CommitPublish(ctx context.Context, f engine.Fence, p engine.Progress, cursor json.RawMessage, seen []engine.RowID) error {
	p.Done = true
	return s.commit(ctx, f, p, engine.SplitPublish, cursor, seen)
}

func (s *State) commit(ctx context.Context, f engine.Fence, p engine.Progress, kind engine.SplitKind, cursor json.RawMessage, seen []engine.RowID) error {
	totals, err := json.Marshal(p.Totals)
	if err != nil {
		return engine.Bugf("encode totals of split %q: %w", p.Split, err)
	}
	facts, err := columnsOf(f.RunID, p.Facts)
	if err != nil {
		return err
	}
	names, bodies := make([]string, len(p.Artifacts)), make([]string, len(p.Artifacts))
	for i, a := range p.Artifacts {
		body, err := json.Marshal(a)
		if err != nil {
			return engine.Bugf("encode artifact %q: %w", a.Name, err)
		}
		names[i], bodies[i] = a.Name, string(body)
	}
	var outcome []string
	err = s.alone(ctx, fmt.Sprintf("commit split %q", p.Split), func(q *db.Queries) (err error) {
		outcome, err = q.CommitProgress(ctx, db.CommitProgressParams{
			Run: f.RunID, Slot: int32(f.Slot), Generation: f.Generation, Split: p.Split, Claim: p.Claim, Kind: string(kind),
			Epoch: p.Epoch, Position: document(p.Position), Done: p.Done, Totals: totals,
			ArtifactNames: names, ArtifactBodies: bodies, Seen: packIDs(p.Seen),
			FactIds: facts.ids, FactTypes: facts.types, FactVersions: facts.versions, FactAts: facts.ats, FactNanos: facts.nanos, FactPayloads: facts.payloads,
			NextCursor: document(cursor), NextSeen: packIDs(seen),
		})
		return err
	})
	if err != nil {
		return err
	}
	return refused(f, p, outcome)
}

// refused is the error of a commit that was not done (invariant 2).
func refused(f engine.Fence, p engine.Progress, outcome []string) error {
	if len(outcome) != 3 {
		return engine.Bugf("commit split %q: the database answers %q", p.Split, outcome)
	}
	have, err := strconv.ParseInt(outcome[1], 10, 64)
	if err != nil {
		return engine.Bugf("commit split %q: the database answers %q", p.Split, outcome)
	}
	switch outcome[0] {
	case "":
		return nil
	case "generation":
		return &engine.StaleError{What: "generation", Subject: slotName(f), Ours: f.Generation, Have: have}
	case "claim":
		return &engine.StaleError{What: "claim", Subject: "split " + p.Split, Ours: p.Claim, Have: have}
	case "unread":
		return engine.Bugf("commit the publish of %q: %d of its read splits are not done", outcome[2], have)
	}
	return engine.Bugf("commit split %q: it is of another kind", p.Split)
}
