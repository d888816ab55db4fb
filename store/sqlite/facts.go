package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// addFacts numbers facts without gaps and stores them. A fact that is there
// already (a repeated call) keeps its number and isn't stored again (invariant 4).
func (t *tx) addFacts(run int64, runID uuid.UUID, facts []events.Fact) error {
	if len(facts) == 0 {
		return nil
	}
	var last int64
	if err := t.row(`SELECT last_fact FROM runs WHERE seq = ?`, run).Scan(&last); err != nil {
		return err
	}
	for _, f := range facts {
		if f.RunID != runID {
			return engine.Bugf("store fact %s %s: it belongs to run %s, not %s", f.Type, f.ID, f.RunID, runID)
		}
		n, err := t.exec(`INSERT INTO facts (run, number, id, type, version, at, payload)
			VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`,
			run, last+1, f.ID.String(), string(f.Type), f.Version, f.At.UnixNano(), []byte(f.Payload))
		if err != nil {
			return fmt.Errorf("store fact %s: %w", f.Type, err)
		}
		last += n
	}
	_, err := t.exec(`UPDATE runs SET last_fact = ? WHERE seq = ?`, last, run)
	return err
}

// AppendFacts implements [engine.RunStore].
func (s *Store) AppendFacts(ctx context.Context, f engine.Fence, facts []events.Fact) error {
	return s.update(ctx, fmt.Sprintf("store facts of run %s", f.RunID), func(t *tx) error {
		r, err := t.fence(f)
		if err != nil {
			return err
		}
		return t.addFacts(r.seq, f.RunID, facts)
	})
}

// Facts implements [engine.RunStore]; a limit of 0 or less means all.
func (s *Store) Facts(ctx context.Context, runID uuid.UUID, after int64, limit int) ([]events.Fact, error) {
	what := fmt.Sprintf("read facts of run %s", runID)
	if limit <= 0 {
		limit = -1
	}
	seq, err := s.runSeq(ctx, runID)
	if err != nil {
		return nil, err
	}
	var facts []events.Fact
	err = s.query(ctx, what, func(r scanner) error {
		f := events.Fact{RunID: runID}
		var id string
		var at int64
		var payload []byte
		if err := r.Scan(&f.Number, &id, &f.Type, &f.Version, &at, &payload); err != nil {
			return err
		}
		f.At, f.Payload = time.Unix(0, at).UTC(), payload
		var err error
		if f.ID, err = uuid.Parse(id); err != nil {
			return fmt.Errorf("fact %d: %w", f.Number, err)
		}
		facts = append(facts, f)
		return nil
	}, `SELECT number, id, type, version, at, payload FROM facts WHERE run = ? AND number > ? ORDER BY number LIMIT ?`,
		seq, after, limit)
	return facts, err
}

// runSeq finds a run's row.
func (s *Store) runSeq(ctx context.Context, runID uuid.UUID) (int64, error) {
	var seq int64
	err := s.read.QueryRowContext(ctx, `SELECT seq FROM runs WHERE id = ?`, runID.String()).Scan(&seq)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, unknownRun(runID)
	}
	return seq, s.fail(fmt.Sprintf("find run %s", runID), err)
}

func unknownRun(id uuid.UUID) error {
	return engine.Permanentf("list the runs that are kept", "run %s is not in this state", id)
}
