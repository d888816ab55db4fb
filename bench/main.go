// Command bench measures Tranship beside peers on this machine: whole processes,
// alternately, contents compared, figures as medians and ratios of one run.
//
//	go run ./bench              all parts
//	go run ./bench -part pg     PostgreSQL to PostgreSQL beside psql | psql
//	go run ./bench -part parquet  PostgreSQL to Parquet beside connectorx and DuckDB
//	go run ./bench -part memory   memory against table size, and one 50 MB row
//	go run ./bench -part control  the control plane's store: commits, heartbeats, intake
//	go run ./bench -part api      reads of the API at 100 a second on many runs
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() { os.Exit(command()) }

func command() int {
	var (
		part = flag.String("part", "pg,parquet,memory,control,api", "parts to measure")
		rows = flag.Int("rows", 4_000_000, "rows of the table")
		n    = flag.Int("n", 5, "counted runs of each command")
		big  = flag.Int("big", 20_000_000, "rows of the large table of the memory part")
		runs = flag.Int("runs", 1_000_000, "runs of the api part")
		each = flag.Int("facts", 10, "facts of each of them")
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *part, *rows, *n, *big, *runs, *each); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, parts string, rows, n, big, runs, factsEach int) error {
	if has(parts, "control") {
		if err := controlPlane(ctx); err != nil {
			return fmt.Errorf("control: %w", err)
		}
	}
	if has(parts, "api") {
		if err := readAPI(ctx, runs, factsEach); err != nil {
			return fmt.Errorf("api: %w", err)
		}
	}
	if !has(parts, "pg") && !has(parts, "parquet") && !has(parts, "memory") {
		return nil
	}
	binary, err := filepath.Abs("bin/tranship")
	if err != nil {
		return err
	}
	b, err := newBench(ctx, binary, rows, n)
	if err != nil {
		return err
	}
	defer b.close()
	for _, p := range []struct {
		name string
		f    func(context.Context) error
	}{{"pg", b.postgres}, {"parquet", b.parquet}, {"memory", func(ctx context.Context) error { return b.memory(ctx, big) }}} {
		if !has(parts, p.name) {
			continue
		}
		if err := p.f(ctx); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}
