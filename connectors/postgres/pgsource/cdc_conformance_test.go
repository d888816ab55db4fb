package pgsource_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest"
	"github.com/tranship-io/tranship/engine/schema"
)

func TestStreamConformance(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE t (id int PRIMARY KEY, u int, v text); INSERT INTO t SELECT g, g, 'v' || g FROM generate_series(1, 500) g; ANALYZE t`)
	t.Cleanup(func() {
		ctx := context.Background()
		conn, err := pgx.Connect(ctx, d.url)
		require.NoError(t, err)
		defer func() { _ = conn.Close(ctx) }()
		require.Eventually(t, func() bool {
			_, err := conn.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()`)
			return err == nil
		}, 10*time.Second, 50*time.Millisecond)
	})
	change := func(t *testing.T, n int) {
		t.Helper()
		d.exec(fmt.Sprintf(`INSERT INTO t VALUES (%d, 1, NULL) ON CONFLICT (id) DO UPDATE SET u = t.u + 1; UPDATE t SET u = u + 1 WHERE id %% 11 = %d;
			DELETE FROM t WHERE id = %d; UPDATE t SET id = id + 10000 WHERE id = %d`, 2000+n, n%11, 3*n+1, 3*n+2))
	}
	rows := func(t *testing.T) [][]byte {
		t.Helper()
		s := d.open()
		p, err := s.Plan(t.Context(), full("public.t"))
		require.NoError(t, err)
		w := &tuples{}
		for _, split := range p.Splits {
			_, err := s.Read(t.Context(), engine.ReadRequest{Split: split, Plan: p, Selection: engine.Selection{Resource: "public.t"}, Wire: engine.WirePostgresCopy}, w)
			require.NoError(t, err)
		}
		out, err := canonicalTuples("", &p.Resource.Schema, &engine.Batch{Wire: w.buf})
		require.NoError(t, err)
		require.NoError(t, s.Close(t.Context()))
		return out
	}
	enginetest.RunStreamer(t, enginetest.StreamCase{
		Open:   func(t *testing.T) engine.SourceSession { t.Helper(); return open(t, d.url) },
		Decode: decodeTuples, Table: "public.t", Change: change, Rows: rows, Write: engine.WriteMerge,
	})
}

// tuples keeps the rows that are written to it.
type tuples struct{ buf []byte }

func (w *tuples) Reserve(context.Context, int64) error { return nil }
func (w *tuples) Unreserve(int64)                      {}
func (w *tuples) Write(_ context.Context, b *engine.Batch) error {
	w.buf = append(w.buf, b.Wire...)
	b.Release()
	return nil
}
func (w *tuples) Mark(context.Context, engine.Position) error { return nil }
func (w *tuples) Keep(context.Context, engine.Position) error { return nil }

// decodeTuples reads COPY tuples as canonical rows.
func decodeTuples(f engine.WireFormat, s *schema.Schema, b *engine.Batch) ([][]byte, error) {
	rows, err := canonicalTuples(f, s, b)
	if err == nil && len(rows) != b.Rows {
		err = fmt.Errorf("%d rows in a batch that says %d", len(rows), b.Rows)
	}
	return rows, err
}
