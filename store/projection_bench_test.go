package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/events"
)

// BenchmarkProjection folds what waits, in runs of many facts and of few, with a
// rule that wants the endings:
//
//	.tools/bin/pgtest run -- go test ./store -run xxx -bench Projection -benchtime 1x
func BenchmarkProjection(b *testing.B) {
	for _, c := range []struct{ runs, epochs int }{{200, 200}, {5000, 2}} {
		b.Run(fmt.Sprintf("runs=%d/epochs=%d", c.runs, c.epochs), func(b *testing.B) {
			total := 0
			for range b.N {
				b.StopTimer()
				s := newTold(b, newDB(b), "a")
				_, err := s.d.Notifications().CreateRule(b.Context(), s.a, notify.Rule{
					ID: uuid.Must(uuid.NewV7()), Name: "all", Events: []string{notify.RunCompleted}, Channel: notify.Email, To: []string{"a@example.org"},
				})
				require.NoError(b, err)
				s.fill(b, c.runs, c.epochs)
				p := s.projector()
				b.StartTimer()
				n, err := p.Drain(b.Context())
				b.StopTimer()
				require.NoError(b, err)
				total += n
				b.StartTimer()
			}
			b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "facts/s")
		})
	}
}

// fill makes runs with their facts, many in a transaction.
func (s told) fill(tb testing.TB, runs, epochs int) {
	tb.Helper()
	at := instant("2026-11-30T11:00:00Z")
	for begin := 0; begin < runs; begin += 50 {
		require.NoError(tb, s.d.Tx(tb.Context(), s.a.Organization, func(ctx context.Context, tx Tx) error {
			for range min(50, runs-begin) {
				run := uuid.Must(uuid.NewV7())
				if _, err := tx.Exec(ctx, `INSERT INTO runs (organization, id, pipeline, pipeline_name, version, route_key, state)
					VALUES ($1, $2, $3, 'shop', 'v', 'a->b', 'completed')`, s.a.Organization, run, s.pipeline); err != nil {
					return err
				}
				list := []events.Payload{events.AttemptStarted{Attempt: 1, Generation: 1}, events.RunStarted{}}
				for i := range epochs {
					list = append(list, events.EpochCommitted{Resource: fmt.Sprintf("t%d", i%4), Counts: events.Counts{Read: 10, Applied: 10, Bytes: 1000}},
						events.CheckpointSaved{Resource: fmt.Sprintf("t%d", i%4)})
				}
				list = append(list, events.RunCompleted{})
				facts := make([]events.Fact, len(list))
				for i, p := range list {
					var err error
					if facts[i], err = events.New(run, at.Add(time.Duration(i)*time.Second), p); err != nil {
						return err
					}
				}
				if err := tx.AddFacts(ctx, run, facts...); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}
