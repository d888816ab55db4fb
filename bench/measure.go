package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/internal/pgtest"
)

type bench struct {
	binary, dir  string
	rows, n      int
	source, sink *pgtest.Server
	src, dst     *pgx.Conn
}

// The table is taxi-like: 16 columns of the kinds that such tables have.
const (
	tableDDL = `CREATE TABLE %s (id bigint NOT NULL, vendor smallint NOT NULL, pickup timestamptz NOT NULL, dropoff timestamptz NOT NULL,
  passengers smallint, distance numeric(10,2) NOT NULL, rate int NOT NULL, flag text NOT NULL, pu int NOT NULL, dropped int NOT NULL,
  payment int NOT NULL, fare numeric(10,2) NOT NULL, extra float8 NOT NULL, tip float8, note text, total numeric(12,2) NOT NULL)`
	tableRows = `INSERT INTO %s SELECT g, (g %% 3)::smallint, timestamptz '2024-01-01' + g * interval '1.3 s', timestamptz '2024-01-01 00:10' + g * interval '1.3 s',
  CASE WHEN g %% 20 = 0 THEN NULL ELSE (g %% 6)::smallint END, ((g * 7919) %% 4000) / 100.0, (g %% 5)::int, CASE WHEN g %% 50 = 0 THEN 'Y' ELSE 'N' END,
  ((g * 31) %% 263)::int, ((g * 17) %% 263)::int, (g %% 4)::int, ((g * 104729) %% 9000) / 100.0, (g %% 7) * 0.5, sqrt((g %% 1000)::float8),
  'trip ' || (g %% 100000), ((g * 104729) %% 12000) / 100.0 FROM generate_series(1::bigint, %d) g`
)

func newBench(ctx context.Context, binary string, rows, n int) (*bench, error) {
	if _, err := exec.LookPath("psql"); err != nil {
		return nil, fmt.Errorf("the peer psql is missing (Debian: apt-get install postgresql-client): %w", err)
	}
	dir, err := os.MkdirTemp("", "tranship-bench-")
	if err != nil {
		return nil, err
	}
	b := &bench{binary: binary, dir: dir, rows: rows, n: n}
	// Servers as in production: everything durable.
	params := map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "shared_buffers": "512MB",
		"max_wal_size": "8GB", "maintenance_work_mem": "256MB", "autovacuum": "off"}
	for _, e := range []struct {
		srv  **pgtest.Server
		conn **pgx.Conn
	}{{&b.source, &b.src}, {&b.sink, &b.dst}} {
		if *e.srv, err = pgtest.Start(ctx, pgtest.Config{Params: params}); err != nil {
			return nil, err
		}
		if *e.conn, err = pgx.Connect(ctx, (*e.srv).URL("")); err != nil {
			return nil, err
		}
	}
	err = b.table(ctx, "public.trips", rows)
	return b, err
}

// table makes a source table of n rows.
func (b *bench) table(ctx context.Context, name string, n int) error {
	for _, q := range []string{fmt.Sprintf(tableDDL, name), fmt.Sprintf(tableRows, name, n), "ALTER TABLE " + name + " ADD PRIMARY KEY (id)",
		"VACUUM (FREEZE, ANALYZE) " + name, "CHECKPOINT"} {
		if _, err := b.src.Exec(ctx, q); err != nil {
			return fmt.Errorf("make %s: %w", name, err)
		}
	}
	return nil
}

func (b *bench) close() {
	ctx := context.Background()
	_ = b.src.Close(ctx)
	_ = b.dst.Close(ctx)
	_ = b.source.Stop()
	_ = b.sink.Stop()
	_ = os.RemoveAll(b.dir)
}

func has(list, name string) bool { return slices.Contains(strings.Split(list, ","), name) }

// figure is what the operating system says of a finished command and what it waited for.
type figure struct {
	wall, cpu float64
	rss       int64
}

func measure(ctx context.Context, dir string, env []string, name string, args ...string) (figure, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	err := cmd.Run()
	wall := time.Since(began).Seconds()
	if err != nil {
		return figure{}, fmt.Errorf("%s: %w\n%s", filepath.Base(name), err, out.String())
	}
	u := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return figure{wall: wall, cpu: cmd.ProcessState.UserTime().Seconds() + cmd.ProcessState.SystemTime().Seconds(), rss: u.Maxrss * 1024}, nil
}

// contender is one command of a comparison.
type contender struct {
	name  string
	run   func(context.Context) (figure, error)
	check func(context.Context) (string, error)
	got   []figure
}

// compare runs the contenders in turn, a warm-up first, and prints medians and
// ratios to the first one. All must leave equal content.
func (b *bench) compare(ctx context.Context, title string, rows int, list []*contender) error {
	want := ""
	for round := range b.n + 1 {
		for _, c := range list {
			fig, err := c.run(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if round == 0 {
				// The warm-up compares contents.
				got, err := c.check(ctx)
				if err != nil {
					return fmt.Errorf("%s: content: %w", c.name, err)
				}
				if want == "" {
					want = got
				}
				if got != want {
					return fmt.Errorf("%s: content differs: %s, want %s", c.name, got, want)
				}
				continue
			}
			c.got = append(c.got, fig)
		}
	}
	fmt.Printf("\n### %s (%d rows, median of %d, contents equal)\n\n| command | wall s | CPU s | rows per CPU-s | RSS MiB | wall ratio | CPU-efficiency ratio |\n|---|---|---|---|---|---|---|\n", title, rows, b.n)
	first := list[0]
	for _, c := range list {
		wall, cpu := med(c.got, func(f figure) float64 { return f.wall }), med(c.got, func(f figure) float64 { return f.cpu })
		var wr, cr []float64
		for i := range c.got {
			wr = append(wr, c.got[i].wall/first.got[i].wall)
			cr = append(cr, first.got[i].cpu/c.got[i].cpu)
		}
		slices.Sort(wr)
		slices.Sort(cr)
		fmt.Printf("| %s | %.2f | %.2f | %.0f | %.0f | %.2f (%.2f–%.2f) | %.2f |\n", c.name, wall, cpu, float64(rows)/cpu,
			med(c.got, func(f figure) float64 { return float64(f.rss) })/(1<<20), wr[len(wr)/2], wr[0], wr[len(wr)-1], cr[len(cr)/2])
	}
	return nil
}

func med(figs []figure, f func(figure) float64) float64 {
	v := make([]float64, len(figs))
	for i := range figs {
		v[i] = f(figs[i])
	}
	slices.Sort(v)
	return v[len(v)/2]
}
