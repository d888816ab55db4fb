// Command demo runs the main job on real data, on servers that it starts
// itself: PostgreSQL to PostgreSQL and to Parquet with content verified, a run
// killed half-way and resumed, and an incremental run after changes.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/examples/nycflights"
	"github.com/tranship-io/tranship/internal/pgtest"
)

func main() { os.Exit(command()) }

func command() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	d := &demo{dir: "demo-output", began: time.Now()}
	if err := d.run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		return 1
	}
	return 0
}

type demo struct {
	dir, binary  string
	source, sink string
	began        time.Time
}

// say prints a step's heading with the time since the start.
func (d *demo) say(format string, args ...any) {
	fmt.Printf("\n[%5.1f s] %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

func (d *demo) run(ctx context.Context) error {
	binary, err := filepath.Abs("bin/tranship")
	if err != nil {
		return err
	}
	d.binary = binary
	if err := os.RemoveAll(d.dir); err != nil {
		return fmt.Errorf("clear the last demo's output: %w", err)
	}
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return err
	}
	d.say("Starting two PostgreSQL servers (fetched once, nothing needs to be installed)")
	source, err := pgtest.Start(ctx, pgtest.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = source.Stop() }()
	sink, err := pgtest.Start(ctx, pgtest.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = sink.Stop() }()
	d.source, d.sink = source.URL(""), sink.URL("")
	d.say("Loading all flights that left New York City in 2013 (nycflights13, CC0) into the source")
	if err := nycflights.Load(ctx, d.source); err != nil {
		return err
	}
	for name, body := range map[string]string{"postgres.yaml": postgresFile, "parquet.yaml": parquetFile} {
		if err := os.WriteFile(filepath.Join(d.dir, name), []byte(body), 0o644); err != nil {
			return err
		}
	}
	for _, step := range []func(context.Context) error{d.killAndResume, d.incremental, d.parquet} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	d.say("Done. Look into %s: receipts, pipeline files, Parquet files, and the state file", d.dir)
	return nil
}

// The pipelines are small on purpose: short splits and transactions leave
// something to resume on a table that loads in a second.
const (
	postgresFile = `version: 1
name: flights
source: {connector: postgres, url: "${SOURCE_URL}"}
sink: {connector: postgres, url: "${SINK_URL}", schema: replica}
defaults: {read: full, write: replace}
resources:
  - {name: public.flights, read: incremental, write: upsert, cursor: updated_at}
  - {name: "public.*"}
settings: {slots: 2, memory: 128MiB, split_size: 4MiB, epoch_size: 2MiB, verify: digest}
`
	parquetFile = `version: 1
name: flights-lake
source: {connector: postgres, url: "${SOURCE_URL}"}
sink: {connector: files, path: lake, format: parquet}
defaults: {read: full, write: replace}
resources:
  - {name: "public.*"}
settings: {slots: 2, memory: 256MiB, verify: digest}
`
)

// command prepares a tranship process in the output folder.
func (d *demo) command(file string, more ...string) *exec.Cmd {
	args := append([]string{"run", "-f", file, "--state", "state.db"}, more...)
	cmd := exec.Command(d.binary, args...)
	cmd.Dir = d.dir
	cmd.Env = append(os.Environ(), "SOURCE_URL="+d.source, "SINK_URL="+d.sink)
	return cmd
}

// killAndResume kills the first run when the destination has some of the rows.
func (d *demo) killAndResume(ctx context.Context) error {
	d.say("PostgreSQL → PostgreSQL, 5 tables, verified by content digest; killed half-way with SIGKILL")
	cmd := d.command("postgres.yaml")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	conn, err := pgx.Connect(ctx, d.sink)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	const flights = 336_776
	for {
		var rows int64
		// The table appears during the run; until then there is nothing to count.
		if err := conn.QueryRow(ctx, "SELECT count(*) FROM replica.flights").Scan(&rows); err == nil && rows > flights/4 {
			if err := cmd.Process.Kill(); err != nil {
				return fmt.Errorf("kill the run: %w", err)
			}
			if err := <-exited; err == nil {
				return errors.New("the run ended before it could be killed")
			}
			fmt.Printf("          killed: %d of %d flights were committed at the destination\n", rows, flights)
			break
		}
		select {
		case err := <-exited:
			return fmt.Errorf("the run ended before it could be killed: %w\n%s", errors.Join(err, ctx.Err()), out.String())
		case <-time.After(5 * time.Millisecond):
		}
	}
	d.say("The same command again: it resumes from what the destination's ledger says")
	return d.complete("postgres.yaml", "receipt-resumed.json")
}

func (d *demo) incremental(ctx context.Context) error {
	d.say("Changing 1,000 flights at the source, adding one, and running again: only those are read")
	conn, err := pgx.Connect(ctx, d.source)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, q := range []string{
		"UPDATE flights SET dep_delay = coalesce(dep_delay, 0) + 1 WHERE id BETWEEN 1000 AND 1999",
		`INSERT INTO flights (year, month, day, sched_dep_time, sched_arr_time, carrier, flight, origin, dest, distance, hour, minute, time_hour)
		 SELECT year, month, day, sched_dep_time, sched_arr_time, carrier, flight + 1, origin, dest, distance, hour, minute, time_hour FROM flights WHERE id = 1`,
	} {
		if _, err := conn.Exec(ctx, q); err != nil {
			return fmt.Errorf("change the source: %w", err)
		}
	}
	return d.complete("postgres.yaml", "receipt-incremental.json")
}

func (d *demo) parquet(context.Context) error {
	d.say("PostgreSQL → Parquet, verified by reading the files back")
	if err := d.complete("parquet.yaml", "receipt-parquet.json"); err != nil {
		return err
	}
	fmt.Printf("          %s\n", filepath.Join(d.dir, "lake", "public.flights", "manifest.json"))
	return nil
}

// complete runs to the end and prints the receipt's lines that matter.
func (d *demo) complete(file, receipt string) error {
	cmd := d.command(file, "--receipt", receipt)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w\n%s", file, err, out)
	}
	body, err := os.ReadFile(filepath.Join(d.dir, receipt))
	if err != nil {
		return err
	}
	var r engine.RunReceipt
	if err := json.Unmarshal(body, &r); err != nil {
		return fmt.Errorf("read the receipt: %w", err)
	}
	fmt.Printf("          run %s %s in %.1f s, %.1f CPU-s, %d MiB at most; receipt in %s\n",
		r.RunID, r.State, r.Seconds, r.CPUSeconds, r.PeakMemoryBytes>>20, filepath.Join(d.dir, receipt))
	for _, x := range r.Resources {
		proof := "NOT EQUAL"
		if x.DestinationDigest != nil && *x.DestinationDigest == x.SourceDigest {
			proof = "equal"
		}
		fmt.Printf("          %-16s %8d read %8d written  digests %s (%s)\n", x.Resource, x.RowsRead, x.RowsWritten, proof, x.SourceDigest)
	}
	return nil
}
