package pgsource_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/connectors/postgres/pgsource"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/internal/pgtest"
)

// counter takes batches and forgets them.
type counter struct{ rows, bytes int64 }

func (*counter) Reserve(context.Context, int64) error                  { return nil }
func (*counter) Unreserve(int64)                                       {}
func (c *counter) Keep(ctx context.Context, pos engine.Position) error { return c.Mark(ctx, pos) }

func (*counter) Mark(context.Context, engine.Position) error { return nil }
func (c *counter) Write(_ context.Context, b *engine.Batch) error {
	c.rows += int64(b.Rows)
	c.bytes += b.Bytes
	b.Release()
	return nil
}

// BenchmarkRead reads a table of 16 columns; the figure to watch is client CPU per row.
func BenchmarkRead(b *testing.B) {
	const rows = 200_000
	ctx := context.Background()
	url := pgtest.Shared(b).URL("postgres")
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, fmt.Sprintf(`DROP TABLE IF EXISTS bench; CREATE TABLE bench AS SELECT i AS id, i * 7 AS a, i::bigint * 1000003 AS b, (i / 7.0)::float8 AS c,
		(i / 100.0)::numeric(12,2) AS d, 'name ' || i AS e, md5(i::text) AS f, now() + i * interval '1 s' AS g, (now() + i * interval '1 s')::date AS h,
		i %% 2 = 0 AS j, CASE WHEN i %% 3 = 0 THEN NULL ELSE i END AS k, repeat('x', i %% 40) AS l, (i %% 100)::smallint AS m, md5(i::text)::uuid AS n,
		'city ' || i %% 1000 AS o, i %% 12 AS p FROM generate_series(1, %d) i; ALTER TABLE bench ADD PRIMARY KEY (id); ANALYZE bench`, rows)); err != nil {
		b.Fatal(err)
	}
	s, err := pgsource.New().Open(ctx, engine.Config(fmt.Sprintf(`{"url": %q}`, url)), engine.OpenOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close(ctx) }()
	for _, c := range []struct {
		name        string
		consistency engine.Consistency
		wire        engine.WireFormat
	}{{"blocks/wire", engine.ConsistencySnapshot, engine.WirePostgresCopy}, {"keys/wire", engine.ConsistencyChunked, engine.WirePostgresCopy},
		{"blocks/columns", engine.ConsistencySnapshot, ""}} {
		b.Run(c.name, func(b *testing.B) {
			var cpu time.Duration
			var read int64
			for b.Loop() {
				p, err := s.Plan(ctx, engine.PlanRequest{Selection: engine.Selection{Resource: "public.bench"}, Read: engine.ReadFull, Consistency: c.consistency, HolderLives: true})
				if err != nil {
					b.Fatal(err)
				}
				begin, out := cpuTime(b), &counter{}
				for _, split := range p.Splits {
					if _, err := s.Read(ctx, engine.ReadRequest{Split: split, Plan: p, Wire: c.wire}, out); err != nil {
						b.Fatal(err)
					}
				}
				if out.rows != rows {
					b.Fatalf("read %d rows", out.rows)
				}
				cpu, read = cpu+cpuTime(b)-begin, read+out.rows
				b.SetBytes(out.bytes)
			}
			b.ReportMetric(float64(cpu)/float64(read), "cpu-ns/row")
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
