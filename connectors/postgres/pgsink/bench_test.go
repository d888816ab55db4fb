package pgsink

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/internal/pgtest"
)

// BenchmarkReplaceStaging loads a table of 16 columns with logged and with
// unlogged staging, on a server that flushes to disk, key built and all.
// docs/protocol.md holds what it showed.
func BenchmarkReplaceStaging(bm *testing.B) {
	const rows = 400_000
	server := pgtest.StartT(bm, pgtest.Config{Params: map[string]string{"fsync": "on", "wal_level": "replica", "shared_buffers": "256MB"}})
	b := &bench{TB: bm, ctx: bm.Context(), options: map[string]any{}, route: engine.Route{Installation: "bench", Pipeline: "p", Source: "s", Sink: "d"}}
	b.from, b.to = pgtest.NewDatabase(bm, server), pgtest.NewDatabase(bm, server)
	b.src, b.dst = b.connect(b.from), b.connect(b.to)
	b.exec(b.src, `CREATE TABLE t (id bigint PRIMARY KEY, a int, b int, c bigint, d bigint, e text, f text, g text, h timestamptz, i timestamptz, j date, k numeric(12,2), l float8, m bool, n uuid, o text)`,
		`INSERT INTO t SELECT g, g, g % 1000, g * 7, g * 13, 'row ' || g, md5(g::text), 'status', now(), now(), current_date, g / 7.0, g / 3.0, g % 2 = 0, md5(g::text)::uuid, repeat('x', 40)
			FROM generate_series(1, `+itoa(rows)+`) g`)
	res := b.discover("public.t")
	for _, staging := range []string{StagingLogged, StagingUnlogged} {
		for _, verify := range []engine.Verify{engine.VerifyCounts, engine.VerifyDigest} {
			bm.Run(staging+" "+string(verify), func(bm *testing.B) {
				b.options["staging"] = staging
				s := b.open(b.to)
				load, publish := time.Hour, time.Hour
				for range bm.N {
					b.exec(b.dst, "DROP TABLE IF EXISTS t", "CHECKPOINT")
					p := b.start(s, job{resource: res, write: engine.WriteReplace, verify: verify})
					batches := b.rows(p, "", 4000)
					began := time.Now()
					r, err := b.apply(s, p, batches)
					require.NoError(bm, err)
					loaded := time.Now()
					_, err = b.publish(s, p, r)
					require.NoError(bm, err)
					// The best of all is what the machine's other work disturbed least.
					load, publish = min(load, loaded.Sub(began)), min(publish, time.Since(loaded))
				}
				bm.ReportMetric(load.Seconds(), "load-s")
				bm.ReportMetric(publish.Seconds(), "publish-s")
			})
		}
	}
}
