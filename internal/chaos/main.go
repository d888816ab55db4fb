// Command chaos runs the control plane for real and breaks it: two processes of
// tranship serve on one database, pipelines between real PostgreSQL databases,
// and, at random moments, SIGKILL of either process, severed connections, and
// restarts of both database servers. In the end every run must have completed,
// no row may be missing or doubled, facts have no gaps, each run is in the read
// model once and has one notification in the ledger, which came under its id,
// nothing may have been stuck, and everything must be at rest.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

func main() { os.Exit(command()) }

func command() int {
	o := options{}
	flag.DurationVar(&o.duration, "duration", 3*time.Minute, "how long things are broken")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of the random moments")
	flag.StringVar(&o.binary, "binary", "bin/tranship", "the binary to run")
	flag.IntVar(&o.pipelines, "pipelines", 30, "how many pipelines")
	flag.IntVar(&o.rows, "rows", 3000, "rows of each source table")
	flag.DurationVar(&o.lease, "lease", 3*time.Second, "the lease time")
	flag.BoolVar(&o.keep, "keep", false, "keep the working folder, with the logs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "chaos: %v\n(seed %d)\n", err, o.seed)
		return 1
	}
	return 0
}

type options struct {
	duration, lease time.Duration
	seed            uint64
	binary          string
	pipelines, rows int
	keep            bool
}

func run(ctx context.Context, o options) (err error) {
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return err
	}
	if _, err := os.Stat(o.binary); err != nil {
		return fmt.Errorf("find the binary (make build): %w", err)
	}
	dir, err := os.MkdirTemp("", "tranship-chaos-")
	if err != nil {
		return err
	}
	defer func() {
		if o.keep || err != nil {
			fmt.Fprintln(os.Stderr, "logs are in", dir)
			return
		}
		_ = os.RemoveAll(dir)
	}()
	c := &chaos{options: o, dir: dir, rng: rand.New(rand.NewPCG(o.seed, 1))}
	defer c.close()
	if err := c.setup(ctx); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	began := time.Now()
	over, end := context.WithTimeout(ctx, o.duration)
	defer end()
	var wait sync.WaitGroup
	errs := make([]error, len(c.pipes))
	for i, p := range c.pipes {
		wait.Go(func() { errs[i] = c.drive(ctx, over, p) })
	}
	var faults error
	wait.Go(func() { faults = c.breakThings(over) })
	wait.Wait()
	if err := errors.Join(errors.Join(errs...), faults); err != nil {
		return err
	}
	if err := c.check(ctx); err != nil {
		return err
	}
	c.report(time.Since(began))
	return ctx.Err()
}
