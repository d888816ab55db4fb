package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/internal/compose/ends"
	"github.com/tranship-io/tranship/internal/redact"
	"github.com/tranship-io/tranship/pipeline"
)

// Exit codes; docs and the README list them.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitPaused   = 3
	exitCanceled = 4
)

// exitError carries an exit code; the error itself may be nil if everything was
// already said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usageError(hint, format string, args ...any) error {
	return &exitError{exitUsage, engine.Permanentf(hint, format, args...)}
}

// app is one invocation: what it talks to and the global flags.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	lookup         func(string) (string, bool)
	signals        <-chan os.Signal
	// exit ends the process at once, for a second signal.
	exit    func(int)
	version string

	redact  *redact.Redactor
	catalog *catalog.Catalog

	// interrupted is true once a signal ended a command other than run.
	interrupted atomic.Bool

	file      string
	context   string
	local     bool
	statePath string
	verbose   bool
}

// main runs one command line and returns the exit code. It is the only place
// that prints errors, each once.
func (a *app) main(ctx context.Context, args []string) int {
	a.redact = &redact.Redactor{}
	if a.catalog == nil {
		// Rows are data: they are written as they are.
		a.catalog = catalog.New(a.stdout)
	}
	a.stdout, a.stderr = &redact.Writer{Redactor: a.redact, Out: a.stdout}, &redact.Writer{Redactor: a.redact, Out: a.stderr}
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	code, shown := exitFailed, err
	var e *exitError
	var doc *pipeline.Error
	switch {
	case errors.Is(err, context.Canceled) && a.interrupted.Load():
		shown = errors.New("interrupted")
	case errors.As(err, &e):
		code, shown = e.code, e.err
	case errors.As(err, &doc), errors.Is(err, engine.ErrLocked):
		code = exitUsage
	case isUsage(err):
		code = exitUsage
		shown = engine.Permanentf("tranship --help lists commands and flags", "%w", err)
	}
	if shown != nil {
		a.printError(shown)
	}
	return code
}

// interruptible returns a context that the first signal cancels; the second ends
// the process. The command run has rules of its own: it stops at a safe position.
func (a *app) interruptible(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		<-a.signals
		a.interrupted.Store(true)
		cancel()
		<-a.signals
		a.exit(exitFailed)
	}()
	return ctx
}

// isUsage recognizes errors that cobra made: they have no class of ours.
func isUsage(err error) bool {
	var ours *engine.Error
	return !errors.As(err, &ours) && errors.Is(err, errFlags)
}

var errFlags = errors.New("wrong use")

// flagError marks an error of cobra's as wrong use and keeps its text.
type flagError struct{ err error }

func (e *flagError) Error() string   { return e.err.Error() }
func (e *flagError) Unwrap() []error { return []error{e.err, errFlags} }

// printError writes an error and its hint, each once.
func (a *app) printError(err error) {
	text, hint := withoutHint(err), engine.HintOf(err)
	if engine.ClassOf(err) == engine.Bug {
		hint = strings.TrimSpace(hint + " This is a defect of tranship: please report it with the command and its output.")
	}
	_, _ = fmt.Fprintln(a.stderr, "error: "+text)
	if hint != "" {
		_, _ = fmt.Fprintln(a.stderr, "  hint: "+hint)
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "tranship",
		Short: "Replicate data and prove that it arrived",
		Long: `Tranship replicates tables from PostgreSQL into PostgreSQL, Parquet, JSONL or
CSV, in parallel and resumably, and proves with a receipt that the content is the
same. A pipeline file says what goes where.

Commands that work on a server (context, apply, pipelines, connections, schedules,
facts, keys, and runs once a context is current) ask the one of the current context.

Exit codes: 0 completed, 1 failed, 2 wrong use or configuration, 3 stopped on
request (a plain run goes on), 4 canceled.`,
		SilenceErrors: true, SilenceUsage: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			hint := "tranship --help lists the commands"
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				hint = fmt.Sprintf("did you mean %q?", near[0])
			}
			return usageError(hint, "there is no command %q", args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			if cmd.Name() != "run" {
				cmd.SetContext(a.interruptible(cmd.Context()))
			}
		},
	}
	root.SuggestionsMinimumDistance = 2
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &flagError{err} })
	f := root.PersistentFlags()
	f.StringVarP(&a.file, "file", "f", "pipeline.yaml", "pipeline file")
	f.StringVar(&a.statePath, "state", ".tranship/state.db", "state file")
	f.StringVar(&a.context, "context", "", "server to talk to, instead of the current context")
	f.BoolVarP(&a.verbose, "verbose", "v", false, "log more")
	root.AddCommand(
		a.initCommand(), a.connectorsCommand(), a.checkCommand(), a.discoverCommand(), a.inspectCommand(),
		a.planCommand(), a.runCommand(), a.slotsCommand(), a.runsCommand(), a.showCommand(), a.cancelCommand(), a.pauseCommand(),
		a.resetCommand(), a.schemaCommand(), a.serveCommand(), a.versionCommand(),
		a.contextCommand(), a.applyCommand(), a.pipelinesCommand(), a.connectionsCommand(), a.schedulesCommand(),
		a.factsCommand(), a.metricsCommand(), a.keysCommand(),
	)
	root.InitDefaultCompletionCmd()
	return root
}

// noArgs refuses arguments as wrong use.
func noArgs(cmd *cobra.Command, args []string) error { return usage(cobra.NoArgs)(cmd, args) }

// usage marks the errors of an argument check as wrong use.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &flagError{err}
		}
		return nil
	}
}

// fileArg takes a pipeline file as the only argument, if there is one.
func (a *app) fileArg(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.Flags().Changed("file") {
		return usageError("keep one of them", "the pipeline file is given twice: --file %s and %s", a.file, args[0])
	}
	a.file = args[0]
	return nil
}

// document reads the pipeline file and learns its secrets.
func (a *app) document() (*pipeline.Document, error) {
	doc, err := pipeline.ReadFile(a.file, pipeline.Options{Env: a.lookup, Sources: a.catalog.SourceSpecs(), Sinks: a.catalog.SinkSpecs()})
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	a.redact.Add(ends.Ends{Doc: doc}.Secrets()...)
	return doc, nil
}

// log writes operational messages to w.
func (a *app) log(w io.Writer) *slog.Logger {
	level := slog.LevelInfo
	if a.verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// terminal tells whether w is one.
func terminal(w any) bool {
	if r, ok := w.(*redact.Writer); ok {
		w = r.Out
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
