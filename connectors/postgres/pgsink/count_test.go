package pgsink

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
)

// TestKeyCountsStaging: what the server counted while it built the key stands for
// a count of its own only where it is the ledger's sum and proved to be new (P7).
func TestKeyCountsStaging(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before  []string
		applied int64
		counted bool
	}{
		"as the ledger says":         {nil, 100, true},
		"another number":             {nil, 99, false},
		"a row is gone":              {[]string{"DELETE FROM staging WHERE id = 3"}, 100, false},
		"an older reader sees it":    {[]string{"old", "DELETE FROM staging WHERE id = 3"}, 100, false},
		"emptied, with old numbers":  {[]string{"ANALYZE staging", "DELETE FROM staging"}, 100, false},
		"statistics of its own mind": {[]string{"ALTER TABLE staging SET (autovacuum_enabled = off)"}, 100, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			p := b.start(b.open(b.to), job{resource: simple(b, 1), write: engine.WriteReplace})
			s := b.open(b.to)
			d, err := s.detailOf(p.Target)
			require.NoError(t, err)
			at := d.staging().sql()
			b.exec(b.dst, "INSERT INTO "+at+" SELECT g, 'row ' || g FROM generate_series(1, 100) g")
			for _, sql := range c.before {
				if sql == "old" {
					reader := b.connect(b.to)
					b.exec(reader, "BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1 FROM pg_class LIMIT 1")
					continue
				}
				b.exec(b.dst, strings.ReplaceAll(sql, "staging", at))
			}
			require.NoError(t, s.with(b.ctx, "", func(conn *conn) error {
				pub := &publisher{s: s, c: conn, t: p.Target, d: d, totals: engine.Totals{Applied: c.applied}}
				if err := pub.build(b.ctx, "k", "ALTER TABLE "+at+" ADD CONSTRAINT k PRIMARY KEY (id)"); err != nil {
					return err
				}
				require.Equal(t, c.counted, pub.counted)
				return nil
			}))
		})
	}
}
