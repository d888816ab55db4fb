package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
	"github.com/tranship-io/tranship/internal/compose/ends"
	"github.com/tranship-io/tranship/pipeline"
	"github.com/tranship-io/tranship/store/sqlite"
)

// localRuns lists the runs of the state file; asList writes them as a server would.
func (a *app) localRuns(ctx context.Context, f runsFilter, asList bool) error {
	state, err := a.needState(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = state.Close() }()
	runs, err := state.ListRuns(ctx, f.pipeline, f.limit)
	if err != nil {
		return err
	}
	if f.json {
		return a.writeLocalRuns(runs, asList)
	}
	if len(runs) == 0 {
		_, err := fmt.Fprintln(a.stdout, "no runs yet")
		return err
	}
	t := newTable("RUN", "PIPELINE", "STATE", "STARTED", "TOOK", "ATTEMPTS", "ROWS")
	for _, r := range runs {
		t.row(r.ID.String(), r.Route.Pipeline, stateText(r), when(r.StartedAt), took(r), fmt.Sprint(r.Attempts), rowsOf(r))
	}
	return t.print(a.stdout, "")
}

// localRun is a run of the state file in the form of a server's.
type localRun struct {
	engine.Run
	Pipeline string `json:"pipeline"`
}

func (a *app) writeLocalRuns(runs []engine.Run, asList bool) error {
	if !asList {
		if runs == nil {
			runs = []engine.Run{}
		}
		return writeJSON(a.stdout, runs)
	}
	items := make([]localRun, len(runs))
	for i, r := range runs {
		items[i] = localRun{r, r.Route.Pipeline}
	}
	return writeJSON(a.stdout, map[string]any{"items": items, "next": nil})
}

func stateText(r engine.Run) string {
	if r.State == engine.StateFailed && r.Resumable {
		return "failed (resumable)"
	}
	return string(r.State)
}

func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

func took(r engine.Run) string {
	if r.StartedAt.IsZero() || r.EndedAt.IsZero() {
		return "-"
	}
	return span(r.EndedAt.Sub(r.StartedAt))
}

func rowsOf(r engine.Run) string {
	receipt := receiptOf(r)
	if receipt == nil {
		return "-"
	}
	var n int64
	for _, res := range receipt.Resources {
		n += res.RowsWritten
	}
	return count(n)
}

func receiptOf(r engine.Run) *engine.RunReceipt {
	var out engine.RunReceipt
	if len(r.Receipt) == 0 || json.Unmarshal(r.Receipt, &out) != nil {
		return nil
	}
	return &out
}

// findRun finds a run by its id, the beginning or end of it, or "latest".
func findRun(ctx context.Context, state *sqlite.Store, name string) (engine.Run, error) {
	if id, err := uuid.Parse(name); err == nil {
		return state.GetRun(ctx, id)
	}
	runs, err := state.ListRuns(ctx, "", 10000)
	if err != nil {
		return engine.Run{}, err
	}
	if name == "latest" && len(runs) > 0 {
		return runs[0], nil
	}
	var found []engine.Run
	for _, r := range runs {
		id := r.ID.String()
		if len(name) >= 4 && (strings.HasPrefix(id, name) || strings.HasSuffix(id, name)) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return engine.Run{}, usageError("tranship runs lists them; latest names the newest", "there is no run %q", name)
	}
	return engine.Run{}, usageError("write more of the id", "%d runs begin or end with %q", len(found), name)
}

// shown is what show tells of a run.
type shown struct {
	Run     engine.Run      `json:"run"`
	Receipt json.RawMessage `json:"receipt"`
	Facts   []events.Fact   `json:"facts"`
}

func (a *app) showCommand() *cobra.Command {
	var asJSON, facts bool
	c := &cobra.Command{
		Use: "show RUN", Short: "Show a run: its receipt and its facts",
		Long: `Show a run's receipt and, with --facts, what happened. RUN is a run's id, the
beginning or end of it, or latest.`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			state, err := a.needState(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = state.Close() }()
			run, err := findRun(ctx, state, args[0])
			if err != nil {
				return beforeRun(err)
			}
			out := shown{Run: run, Receipt: run.Receipt, Facts: []events.Fact{}}
			out.Run.Receipt = nil
			if asJSON || facts {
				if out.Facts, err = allFacts(ctx, state, run.ID); err != nil {
					return err
				}
			}
			if asJSON {
				return writeJSON(a.stdout, out)
			}
			return a.printRun(run, out.Facts)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON: run, receipt and facts")
	c.Flags().BoolVar(&facts, "facts", false, "also list the facts")
	return c
}

func allFacts(ctx context.Context, state engine.RunStore, run uuid.UUID) ([]events.Fact, error) {
	out := []events.Fact{}
	for {
		after := int64(0)
		if len(out) > 0 {
			after = out[len(out)-1].Number
		}
		page, err := state.Facts(ctx, run, after, 1000)
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			return out, nil
		}
		out = append(out, page...)
	}
}

func (a *app) printRun(run engine.Run, facts []events.Fact) error {
	if receipt := receiptOf(run); receipt != nil {
		if err := printReceipt(a.stdout, receipt); err != nil {
			return err
		}
	} else if _, err := fmt.Fprintf(a.stdout, "run %s of %s: %s, started %s, %s; no receipt yet\n",
		run.ID, run.Route.Pipeline, stateText(run), when(run.StartedAt), plural(run.Attempts, "attempt")); err != nil {
		return err
	}
	for _, f := range facts {
		if _, err := fmt.Fprintf(a.stdout, "%6d  %s  %-20s %s\n", f.Number, f.At.Local().Format("15:04:05.000"), f.Type, f.Payload); err != nil {
			return err
		}
	}
	return nil
}

// desiredCommand asks the workers of a run for something.
func (a *app) desiredCommand(use, short, long, done string, d engine.Desired) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long, Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.setDesired(cmd.Context(), args[0], d, done)
		},
	}
}

// setDesired asks the workers of a run of the state file for something.
func (a *app) setDesired(ctx context.Context, name string, d engine.Desired, done string) error {
	state, err := a.needState(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = state.Close() }()
	run, err := findRun(ctx, state, name)
	if err != nil {
		return beforeRun(err)
	}
	if err := state.SetDesired(ctx, run.ID, d); err != nil {
		return beforeRun(err)
	}
	_, err = fmt.Fprintf(a.stdout, done+"\n", run.ID)
	return err
}

func (a *app) cancelCommand() *cobra.Command {
	return a.desiredCommand("cancel RUN", "End a local run for good",
		`Ask a run of the local state file to end for good. A process that works on it drops what it has staged
and ends with exit code 4; what is published stays, and appended rows stay. RUN is
a run's id, the beginning or end of it, or latest. tranship runs cancel and runs
pause ask a server.`, "run %s is asked to cancel", engine.DesiredCancel)
}

func (a *app) pauseCommand() *cobra.Command {
	return a.desiredCommand("pause RUN", "Stop a local run at a safe position",
		`Ask a run of the local state file to stop at safe positions, as a first interrupt does. The process that
works on it ends with exit code 3, and the next tranship run goes on. RUN is a
run's id, the beginning or end of it, or latest.`, "run %s is asked to pause", engine.DesiredPause)
}

func (a *app) resetCommand() *cobra.Command {
	return &cobra.Command{
		Use: "reset RESOURCE", Short: "Forget where incremental reads of a resource stand",
		Long: `Forget a resource's cursor, so that the next run reads all of it. Nothing at the
destination is changed; with write: append the next run appends all rows again.`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return beforeRun(a.reset(cmd.Context(), args[0]))
		},
	}
}

func (a *app) reset(ctx context.Context, resource string) error {
	doc, err := a.document()
	if err != nil {
		return err
	}
	state, err := a.needState(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = state.Close() }()
	src, err := a.ends(doc).OpenSource(ctx, engine.OpenOptions{})
	if err != nil {
		return fmt.Errorf("open source: %w", err)
	}
	defer ends.Close(src)
	r, err := ends.FindResource(ctx, src, resource)
	if err != nil {
		return err
	}
	chosen, err := a.ends(doc).Choose(ctx, src)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(chosen, func(s pipeline.Selected) bool { return s.Resource.Name == r.Name }); i < 0 {
		return usageError("tranship discover --selected lists what it replicates", "pipeline %q does not replicate %s", doc.Name, r.Name)
	}
	sink, err := a.ends(doc).OpenSink(ctx, engine.OpenOptions{})
	if err != nil {
		return fmt.Errorf("open sink: %w", err)
	}
	defer ends.Close(sink)
	route, err := routeOf(ctx, state, doc.Name, src, sink)
	if err != nil {
		return err
	}
	if err := state.ResetResource(ctx, route, r.Name); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s is reset: the next run reads all of it\n", r.Name)
	return err
}

// routeOf names the route as a run would.
func routeOf(ctx context.Context, state *sqlite.Store, name string, src engine.SourceSession, sink engine.SinkSession) (engine.Route, error) {
	r := engine.Route{Pipeline: name, Source: src.Identity(), Sink: sink.Identity()}
	own, err := state.Installation(ctx)
	if err != nil {
		return r, err
	}
	r.Installation = own
	known, ok, err := state.RouteKnown(ctx, r)
	if err != nil {
		return r, err
	}
	if ok {
		r.Installation = known
	}
	return r, nil
}
