package pgsink

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest"
	"github.com/tranship-io/tranship/internal/pgtest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, staging := range []string{StagingLogged, StagingUnlogged} {
		t.Run(staging, func(t *testing.T) {
			t.Parallel()
			url := pgtest.NewDatabase(t, pgtest.Shared(t))
			b := benchOn(t, url, url)
			b.options["staging"] = staging
			reader := b.open(url)
			enginetest.RunSink(t, enginetest.SinkCase{
				Spec: New().Spec(),
				Open: func(t *testing.T) engine.SinkSession {
					t.Helper()
					return b.open(url)
				},
				Rows: func(t *testing.T, target *engine.Target) [][]byte {
					t.Helper()
					return visibleRows(t, b, reader, target)
				},
				// PostgreSQL keeps microseconds and refuses what is finer, as its spec says.
				Skip: []string{"timestamp_ns"},
			})
		})
	}
}

// visibleRows reads a target as verification does, tuple by tuple.
func visibleRows(t *testing.T, b *bench, s *Session, target *engine.Target) [][]byte {
	t.Helper()
	d, err := s.detailOf(target)
	require.NoError(t, err)
	if b.count(b.dst, "SELECT count(to_regclass("+literal(d.place().sql())+"))") == 0 {
		return nil
	}
	exprs, digester, err := (&writer{t: target, d: d}).reader((*column).readBack, "t.")
	require.NoError(t, err)
	var rows [][]byte
	scanner := pgcopy.NewScanner(len(d.Columns))
	take := copied(func(p []byte) error {
		return scanner.Scan(p, func(tuple []byte) error {
			row, err := digester.AppendCanonical(nil, tuple)
			rows = append(rows, row)
			return err
		})
	})
	_, err = b.dst.PgConn().CopyTo(context.Background(), take, "COPY (SELECT "+exprs+" FROM "+d.place().sql()+" t) TO STDOUT (FORMAT binary)")
	require.NoError(t, err)
	return rows
}

type copied func(p []byte) error

func (f copied) Write(p []byte) (int, error) { return len(p), f(p) }
