// Command killtest runs the tranship binary for real, kills it with SIGKILL at
// random moments, lets it go on, and compares every row of source and
// destination afterwards. It also severs connections, stops the source for a
// while, and fills the destination's disk.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tranship-io/tranship/internal/pgtest"
)

func main() { os.Exit(command()) }

func command() int {
	var (
		kills  = flag.Int("n", 60, "how many processes to kill")
		seed   = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the random moments")
		binary = flag.String("binary", "bin/tranship", "the binary to run")
		only   = flag.String("only", "", "run only scenarios whose name contains this")
		rows   = flag.Int("rows", 60_000, "rows of the table at the beginning")
		keep   = flag.Bool("keep", false, "keep the working folder")
		outage = flag.Duration("outage", 30*time.Second, "how long the source is stopped once")
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *binary, *only, *kills, *rows, *seed, *outage, *keep); err != nil {
		fmt.Fprintf(os.Stderr, "killtest: %v\n(seed %d)\n", err, *seed)
		return 1
	}
	return 0
}

func run(ctx context.Context, binary, only string, kills, rows int, seed uint64, outage time.Duration, keep bool) error {
	abs, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	if _, err := os.Stat(abs); err != nil {
		return fmt.Errorf("find the binary (make build): %w", err)
	}
	dir, err := os.MkdirTemp("", "tranship-kill-")
	if err != nil {
		return err
	}
	if !keep {
		defer func() { _ = os.RemoveAll(dir) }()
	}
	h := &harness{binary: abs, dir: dir, rng: rand.New(rand.NewPCG(seed, 1)), rows: rows}
	if h.source, err = pgtest.Start(ctx, pgtest.Config{}); err != nil {
		return err
	}
	defer func() { _ = h.source.Stop() }()
	if h.sink, err = pgtest.Start(ctx, pgtest.Config{}); err != nil {
		return err
	}
	defer func() { _ = h.sink.Stop() }()
	var chosen []scenario
	for _, s := range scenarios() {
		if strings.Contains(s.name, only) {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 && kills > 0 {
		return fmt.Errorf("no scenario's name contains %q", only)
	}
	began := time.Now()
	passed := 0
	for i, s := range chosen {
		want := kills / len(chosen)
		if i < kills%len(chosen) {
			want++
		}
		st, err := h.killed(ctx, s, want)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		passed += st.compared
		fmt.Printf("%-26s %3d killed, %3d runs completed, %3d comparisons equal, %7d rows at the end, %s\n",
			s.name, st.killed, st.completed, st.compared, st.rows, st.took.Round(time.Second))
	}
	for _, f := range faults(outage) {
		if !strings.Contains(f.name, only) {
			continue
		}
		t := time.Now()
		note, err := f.run(ctx, h)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		passed++
		fmt.Printf("%-26s %s, %s\n", f.name, note, time.Since(t).Round(time.Second))
	}
	fmt.Printf("killtest: seed %d, %s\n%d passed, 0 failed\n", seed, time.Since(began).Round(time.Second), passed)
	return nil
}
