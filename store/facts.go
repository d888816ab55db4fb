package store

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
	"github.com/tranship-io/tranship/store/internal/db"
)

// factColumns are facts as the database takes them.
type factColumns struct {
	ids      []uuid.UUID
	types    []string
	versions []int32
	ats      []time.Time
	nanos    []int32
	payloads []string
}

func columnsOf(run uuid.UUID, facts []events.Fact) (factColumns, error) {
	n := len(facts)
	c := factColumns{make([]uuid.UUID, 0, n), make([]string, 0, n), make([]int32, 0, n), make([]time.Time, 0, n), make([]int32, 0, n), make([]string, 0, n)}
	for _, f := range facts {
		if f.RunID != run {
			return c, engine.Bugf("store fact %s %s: it belongs to run %s, not %s", f.Type, f.ID, f.RunID, run)
		}
		at := f.At.Truncate(time.Microsecond)
		c.ids, c.types, c.versions = append(c.ids, f.ID), append(c.types, string(f.Type)), append(c.versions, int32(f.Version))
		c.ats, c.nanos = append(c.ats, at), append(c.nanos, int32(f.At.Sub(at)))
		c.payloads = append(c.payloads, string(f.Payload))
	}
	return c, nil
}

// AddFacts numbers and stores facts of a run whose row the transaction has
// locked. A fact that is there already keeps its number and isn't stored again
// (invariant 4).
func (t Tx) AddFacts(ctx context.Context, run uuid.UUID, facts ...events.Fact) error {
	if len(facts) == 0 {
		return nil
	}
	c, err := columnsOf(run, facts)
	if err != nil {
		return err
	}
	_, err = t.Q().AddFacts(ctx, db.AddFactsParams{Run: run, Ids: c.ids, Types: c.types, Versions: c.versions, Ats: c.ats, Nanos: c.nanos, Payloads: c.payloads})
	if err != nil {
		return fmt.Errorf("store %d facts of run %s: %w", len(facts), run, err)
	}
	return nil
}

// AddFact is [Tx.AddFacts] for something that happens now.
func (t Tx) AddFact(ctx context.Context, run uuid.UUID, p events.Payload) error {
	f, err := events.New(run, time.Now(), p)
	if err != nil {
		return err
	}
	return t.AddFacts(ctx, run, f)
}

// AppendFacts implements [engine.RunStore].
func (s *State) AppendFacts(ctx context.Context, f engine.Fence, facts []events.Fact) error {
	return s.update(ctx, fmt.Sprintf("store facts of run %s", f.RunID), func(t *stateTx) error {
		if _, err := t.fence(f); err != nil {
			return err
		}
		return t.AddFacts(t.ctx, f.RunID, facts...)
	})
}

// Facts implements [engine.RunStore]; a limit of 0 or less means all.
func (s *State) Facts(ctx context.Context, runID uuid.UUID, after int64, limit int) ([]events.Fact, error) {
	if limit <= 0 || limit > math.MaxInt32 {
		limit = math.MaxInt32
	}
	var facts []events.Fact
	err := s.alone(ctx, fmt.Sprintf("read facts of run %s", runID), func(q *db.Queries) error {
		rows, err := q.ListFacts(ctx, db.ListFactsParams{Run: runID, Number: after, Limit: int32(limit)})
		if err != nil {
			return err
		}
		if len(rows) == 0 && after <= 0 {
			return known(ctx, q, runID)
		}
		facts = make([]events.Fact, len(rows))
		for i, r := range rows {
			facts[i] = factOf(runID, r)
		}
		return nil
	})
	return facts, err
}

func factOf(run uuid.UUID, r db.ListFactsRow) events.Fact {
	return events.Fact{
		ID: r.ID, RunID: run, Number: r.Number, Type: events.Type(r.Type), Version: int(r.Version),
		At: r.At.UTC().Add(time.Duration(r.Nanos)), Payload: r.Payload,
	}
}

// known returns an error if there is no such run.
func known(ctx context.Context, q *db.Queries, run uuid.UUID) error {
	ok, err := q.RunExists(ctx, run)
	if err == nil && !ok {
		return unknownRun(run)
	}
	return err
}

// clean makes a text one that PostgreSQL takes.
func clean(text string) string {
	return strings.ReplaceAll(string(bytes.ToValidUTF8([]byte(text), []byte("\uFFFD"))), "\x00", "")
}
