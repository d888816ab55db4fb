package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/runner"
	"github.com/tranship-io/tranship/internal/redact"
	"github.com/tranship-io/tranship/pipeline"
)

// runFlags are the flags of run; empty ones leave the document's settings.
type runFlags struct {
	slots                int
	memory, attemptTime  string
	verify, receipt      string
	json, restart, quiet bool
	continuous           bool
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run [FILE]",
		Short: "Replicate: resume the unfinished run, or begin the next",
		Long: `Replicate what the pipeline file says. An unfinished run of the same file goes on
where it stopped; after a completed one the next begins. An interrupt ends the
run at a safe position, a second one at once; both can be resumed.

Changes (read: cdc) are followed up to where the source is, and the run ends; with
--continuous it follows them until it is stopped. A plain run then catches up and
ends.

Exit codes: 0 completed, 1 failed, 2 wrong use or configuration, 3 stopped on
request, 4 canceled.`,
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.fileArg(cmd, args); err != nil {
				return err
			}
			doc, err := a.document()
			if err != nil {
				return err
			}
			if err := f.apply(&doc.Settings); err != nil {
				return err
			}
			if f.continuous && !doc.ReadsChanges() {
				return usageError("give a resource read: cdc, or run without --continuous", "no resource of pipeline %s is read as changes, so there is nothing to follow", doc.Name)
			}
			return a.run(cmd.Context(), doc, f)
		},
	}
	fl := c.Flags()
	fl.IntVar(&f.slots, "slots", 0, "pieces read and written at once (instead of settings.slots)")
	fl.StringVar(&f.memory, "memory", "", "bound of memory, such as 256MiB (instead of settings.memory)")
	fl.StringVar(&f.attemptTime, "attempt-time", "", "longest life of an attempt, such as 14m (instead of settings.attempt_time)")
	fl.StringVar(&f.verify, "verify", "", "counts or digest (instead of settings.verify)")
	fl.StringVar(&f.receipt, "receipt", "", "also write the receipt to this file, as JSON")
	fl.BoolVar(&f.json, "json", false, "write the run's facts to standard output, one JSON object a line")
	fl.BoolVar(&f.continuous, "continuous", false, "follow changes (read: cdc) until the run is stopped")
	fl.BoolVar(&f.restart, "restart", false, "begin a new run even if an unfinished one could go on")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "show no progress")
	return c
}

// apply puts flags in the place of settings, under the document's own rules.
func (f *runFlags) apply(s *pipeline.Settings) error {
	if f.slots < 0 || f.slots > 256 {
		return usageError("", "--slots %d is not between 1 and 256", f.slots)
	}
	if f.slots > 0 {
		s.Slots = f.slots
	}
	if f.memory != "" {
		v, err := pipeline.ParseSize(f.memory)
		if err != nil || v < pipeline.MinMemory {
			return usageError(fmt.Sprintf("a size of at least %s", pipeline.MinMemory), "--memory %s cannot be", f.memory)
		}
		s.Memory = v
	}
	if f.attemptTime != "" {
		v, err := pipeline.ParseDuration(f.attemptTime)
		if err != nil || v == 0 {
			return usageError("a duration such as 14m", "--attempt-time %s cannot be", f.attemptTime)
		}
		s.AttemptTime = v
	}
	switch v := engine.Verify(f.verify); v {
	case "":
	case engine.VerifyCounts, engine.VerifyDigest:
		s.Verify = v
	default:
		return usageError("counts or digest", "--verify %s cannot be", f.verify)
	}
	return nil
}

// run replicates and turns the outcome into an exit code.
func (a *app) run(ctx context.Context, doc *pipeline.Document, f runFlags) error {
	rowsOnStdout := doc.Sink.Connector == "stdout"
	if f.json && rowsOnStdout {
		return usageError("use one of them", "both --json and the sink stdout write to standard output")
	}
	if f.receipt != "" {
		if info, err := os.Stat(filepath.Dir(f.receipt)); err != nil || !info.IsDir() {
			return usageError("make the folder first", "the receipt's folder %s is not there", filepath.Dir(f.receipt))
		}
	}
	limitMemory(doc.Settings.Memory, a.lookup)
	state, err := a.openState(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = state.Close() }()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	live := newProgress(a.stderr, f.quiet)
	log := a.log(live)
	facts := newFactStream(state, a.stdout, f.json)
	stop := a.watchSignals(ctx, cancel, facts.begun, func(text string) { log.Warn(text) })

	opt, err := a.ends(doc).Options(ctx)
	if err != nil {
		live.close(nil)
		return beforeRun(stoppedEarly(err, stop))
	}
	counters := new(runner.Progress)
	live.follow(counters)
	opt.Continuous = f.continuous
	opt.State, opt.Restart, opt.Stop, opt.Progress, opt.Holder, opt.Log = facts, f.restart, stop, counters, holder(), log
	opt.Planned = limitProcessors(max(doc.Settings.Slots, 2), a.lookup)
	result, err := runner.Run(ctx, opt)
	live.close(counters)
	if ferr := facts.close(); ferr != nil && err == nil {
		err = ferr
	}
	if result == nil || result.Receipt == nil {
		if result == nil {
			return beforeRun(stoppedEarly(err, stop))
		}
		return &exitError{exitFailed, err}
	}
	if result.Resumed && keptVerify(result.Receipt, doc.Settings.Verify) {
		log.Warn("the run went on as it was planned, without verify: digest; --restart begins anew")
	}
	return a.conclude(result, err, f, rowsOnStdout)
}

// keptVerify tells whether a resumed run's frozen plan proves less than what is
// asked for now.
func keptVerify(r *engine.RunReceipt, want engine.Verify) bool {
	return want == engine.VerifyDigest && slices.ContainsFunc(r.Resources, func(x engine.ResourceReceipt) bool {
		return x.Verified == string(engine.VerifyCounts)
	})
}

// stoppedEarly makes an interrupt before any run was begun what it is.
func stoppedEarly(err error, stop <-chan struct{}) error {
	select {
	case <-stop:
		return &exitError{exitPaused, errors.New("stopped before a run was begun")}
	default:
		return err
	}
}

// conclude prints and saves the receipt and gives the exit code.
func (a *app) conclude(result *runner.Result, failure error, f runFlags, rowsOnStdout bool) error {
	if f.receipt != "" {
		if err := writeReceipt(f.receipt, a.redact, result.Receipt); err != nil {
			failure = errors.Join(failure, err)
		}
	}
	out := a.stdout
	if f.json || rowsOnStdout {
		out = a.stderr
	}
	if err := printReceipt(out, result.Receipt); err != nil {
		failure = errors.Join(failure, err)
	}
	switch {
	case result.Run.State == engine.StatePaused || result.Receipt.State == engine.StatePaused:
		return &exitError{exitPaused, failure}
	case result.Receipt.State == engine.StateCanceled:
		return &exitError{exitCanceled, failure}
	case failure != nil:
		return &exitError{exitFailed, failure}
	}
	return nil
}

// writeReceipt writes the file whole or not at all.
func writeReceipt(path string, r *redact.Redactor, receipt *engine.RunReceipt) error {
	text, err := json.MarshalIndent(receipt, "", "  ")
	if err != nil {
		return fmt.Errorf("write receipt: %w", err)
	}
	return replaceFile(path, r.Clean(append(text, '\n')))
}

// replaceFile writes a receipt's file whole or not at all.
func replaceFile(path string, text []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".receipt-*")
	if err != nil {
		return engine.Permanentf("name a writable file with --receipt", "write receipt: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = tmp.Write(text)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chmod(tmp.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return engine.Permanentf("name a writable file with --receipt", "write receipt: %w", err)
	}
	return nil
}

// watchSignals returns a channel that the first signal closes: the run ends at a
// safe position. Before a run is begun the first signal ends everything. A second
// one cancels the work, a third or a few seconds end the process; killed at any
// instruction, a run can be resumed (invariant 13).
func (a *app) watchSignals(ctx context.Context, cancel context.CancelFunc, begun <-chan struct{}, say func(string)) <-chan struct{} {
	stop := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
			return
		case <-a.signals:
		}
		close(stop)
		select {
		case <-begun:
			say("stopping at a safe position; interrupt again to end at once")
		default:
			cancel()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-a.signals:
		}
		say("ending at once; a plain run goes on")
		cancel()
		select {
		case <-a.signals:
		case <-time.After(5 * time.Second):
		}
		a.exit(exitFailed)
	}()
	return stop
}

// limitProcessors keeps rows that pass through verbatim on few processors: they
// cost so little that further ones mostly wake each other up, a third of the
// whole CPU time at two slots. One moves about 2 M rows a second, more than four
// slots' servers do. GOMAXPROCS in the environment wins.
func limitProcessors(slots int, lookup func(string) (string, bool)) func(*engine.RunPlan) {
	return func(plan *engine.RunPlan) {
		if _, set := lookup("GOMAXPROCS"); set {
			return
		}
		for _, rp := range plan.Resources {
			if rp.Target.Wire == "" || rp.Target.Verify == engine.VerifyDigest {
				return
			}
		}
		if n := (slots + 3) / 4; n < runtime.GOMAXPROCS(0) {
			runtime.GOMAXPROCS(n)
		}
	}
}

// limitMemory tells Go's collector the bound. Three eighths of it are left for what
// the collector does not count (the binary's pages, stacks of the system, SQLite)
// and for what it frees late: with only one eighth a long run into Parquet met
// greater peaks than a short one, 236 MiB with 20 M rows and 191 with 2 M. Under a
// small bound an eighth must do, and it also runs before the heap has doubled: 65
// MiB became 58 at 64 MiB, since the binary's pages alone take 30. GOMEMLIMIT and
// GOGC in the environment win.
func limitMemory(memory pipeline.Size, lookup func(string) (string, bool)) {
	if memory == 0 {
		memory = 256 << 20
	}
	limit := int64(memory) * 5 / 8
	if memory < 128<<20 {
		limit = int64(memory) * 7 / 8
		if _, set := lookup("GOGC"); !set {
			debug.SetGCPercent(40)
		}
	}
	if _, set := lookup("GOMEMLIMIT"); set {
		return
	}
	debug.SetMemoryLimit(limit)
}

// holder names this process in leases.
func holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "local"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

var _ io.Writer = (*progress)(nil)
