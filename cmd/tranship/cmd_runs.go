package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tranship-io/tranship/api/client"
	"github.com/tranship-io/tranship/engine"
)

// runsFilter are the flags that choose runs.
type runsFilter struct {
	listFlags
	pipeline string
	states   []string
}

func (a *app) runsCommand() *cobra.Command {
	var f runsFilter
	c := &cobra.Command{
		Use: "runs", Short: "List runs, the newest first; start and steer them on a server", Args: noArgs,
		Long: `List runs, and start and steer those of a server.

With a current context (tranship context) these commands talk to its server.
Without one, or with --local, runs, runs list, runs pause and runs cancel work on
the local state file, as show, pause and cancel always do.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listRuns(cmd.Context(), f, false) },
	}
	a.runsFlags(c, &f)
	c.AddCommand(a.runsList(), a.runsStart(), a.runsWatch())
	for _, steer := range []struct{ verb, short, done string }{
		{"pause", "Stop a run at safe positions", "run %s is asked to pause"},
		{"resume", "Go on with a paused run, or a failed one that is resumable", "run %s goes on"},
		{"cancel", "End a run for good", "run %s is asked to cancel"},
		{"retry", "Try a failed run again", "run %s is tried again"},
	} {
		c.AddCommand(a.runsSteer(steer.verb, steer.short, steer.done))
	}
	return c
}

func (a *app) runsFlags(c *cobra.Command, f *runsFilter) {
	c.Flags().BoolVar(&f.json, "json", false, "write JSON")
	c.Flags().StringVar(&f.pipeline, "pipeline", "", "only runs of this pipeline")
	c.Flags().StringSliceVar(&f.states, "status", nil, "only runs in these states (of a server)")
	c.Flags().IntVar(&f.limit, "limit", 20, "at most so many")
	c.Flags().StringVar(&f.after, "after", "", "go on behind an earlier part: its next (of a server)")
	c.Flags().BoolVar(&a.local, "local", false, "the local state file, even if a context is current")
}

func (a *app) runsList() *cobra.Command {
	var f runsFilter
	c := &cobra.Command{
		Use: "list", Short: "List runs, the newest first", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listRuns(cmd.Context(), f, true) },
	}
	a.runsFlags(c, &f)
	return c
}

// here tells whether a command works on the local state file.
func (a *app) here() (bool, error) {
	if a.local {
		return true, nil
	}
	_, ok, err := a.server()
	return !ok, err
}

// listRuns lists runs of the server or of the state file; asList writes local ones
// as the server would.
func (a *app) listRuns(ctx context.Context, f runsFilter, asList bool) error {
	here, err := a.here()
	if err != nil {
		return err
	}
	if here {
		return a.localRuns(ctx, f, asList)
	}
	c, err := a.remote()
	if err != nil {
		return err
	}
	limit, after := f.page()
	params := &client.ListRunsParams{Pipeline: given(f.pipeline), Limit: limit, After: after}
	if len(f.states) > 0 {
		states := make([]client.RunState, len(f.states))
		for i, s := range f.states {
			states[i] = client.RunState(s)
		}
		params.State = &states
	}
	list, body, err := fetch[client.RunList](c.ListRuns(ctx, params))
	if err != nil {
		return err
	}
	if f.json {
		return a.writeAnswer(body)
	}
	if len(list.Items) == 0 {
		_, err := fmt.Fprintln(a.stdout, "no runs")
		return err
	}
	t := newTable("RUN", "PIPELINE", "STATE", "TRIGGER", "CREATED", "TOOK", "ATTEMPTS", "ROWS", "BYTES")
	for _, x := range list.Items {
		t.row(x.Id.String(), x.Pipeline, remoteState(x), x.Trigger, whenAt(x.CreatedAt), tookOf(x), fmt.Sprint(x.Attempts), count(x.RowsWritten), size(x.Bytes))
	}
	if err := t.print(a.stdout, ""); err != nil {
		return err
	}
	return a.more(list.Next)
}

func remoteState(r client.Run) string {
	if r.State == client.RunStateFailed && r.Resumable {
		return "failed (resumable)"
	}
	return string(r.State)
}

func tookOf(r client.Run) string {
	if r.StartedAt.IsZero() || r.EndedAt.IsZero() {
		return "-"
	}
	return span(r.EndedAt.Sub(r.StartedAt))
}

// remoteRun finds a run by its id, the beginning or end of it, or latest.
func remoteRun(ctx context.Context, c *client.Client, name string) (client.Run, error) {
	if id, err := uuid.Parse(name); err == nil {
		return getRun(ctx, c, id)
	}
	limit := 500
	list, _, err := fetch[client.RunList](c.ListRuns(ctx, &client.ListRunsParams{Limit: &limit}))
	if err != nil {
		return client.Run{}, err
	}
	if name == "latest" && len(list.Items) > 0 {
		return list.Items[0], nil
	}
	var found []client.Run
	for _, x := range list.Items {
		id := x.Id.String()
		if len(name) >= 4 && (strings.HasPrefix(id, name) || strings.HasSuffix(id, name)) {
			found = append(found, x)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return client.Run{}, usageError("tranship runs list lists them; latest names the newest", "the server has no run %q", name)
	}
	return client.Run{}, usageError("write more of the id", "%d runs begin or end with %q", len(found), name)
}

func getRun(ctx context.Context, c *client.Client, id uuid.UUID) (client.Run, error) {
	run, _, err := fetch[client.Run](c.GetRun(ctx, id))
	if err != nil {
		return client.Run{}, err
	}
	return run, nil
}

func (a *app) runsSteer(verb, short, done string) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: verb + " RUN", Short: short, Args: usage(cobra.ExactArgs(1)),
		Long: short + `. RUN is a run's id, the beginning or end of it, or latest.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if here, err := a.here(); err != nil {
				return err
			} else if here {
				switch verb {
				case "pause":
					return a.setDesired(ctx, args[0], engine.DesiredPause, done)
				case "cancel":
					return a.setDesired(ctx, args[0], engine.DesiredCancel, done)
				}
				return usageError("a plain tranship run goes on with a local one; for a server: tranship context add", "runs %s asks a server, and no context is current", verb)
			}
			c, err := a.remote()
			if err != nil {
				return err
			}
			run, err := remoteRun(ctx, c, args[0])
			if err != nil {
				return err
			}
			body, err := steer(ctx, c, verb, run.Id)
			if err != nil {
				return err
			}
			if asJSON {
				return a.writeAnswer(body)
			}
			_, err = fmt.Fprintf(a.stdout, done+"\n", run.Id)
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write the run as JSON (of a server)")
	c.Flags().BoolVar(&a.local, "local", false, "the local state file, even if a context is current")
	return c
}

// steer sends one of the requests that change a run.
func steer(ctx context.Context, c *client.Client, verb string, id uuid.UUID) ([]byte, error) {
	switch verb {
	case "pause":
		return answer(c.PauseRun(ctx, id, &client.PauseRunParams{IdempotencyKey: idempotency()}))
	case "resume":
		return answer(c.ResumeRun(ctx, id, &client.ResumeRunParams{IdempotencyKey: idempotency()}))
	case "cancel":
		return answer(c.CancelRun(ctx, id, &client.CancelRunParams{IdempotencyKey: idempotency()}))
	}
	return answer(c.RetryRun(ctx, id, &client.RetryRunParams{IdempotencyKey: idempotency()}))
}

// startFlags are the flags of runs start.
type startFlags struct {
	wait, json        bool
	receipt, key      string
	only, fullRefresh []string
	backfill          []string
}

// ranges reads the flags --backfill.
func (f *startFlags) ranges() ([]client.BackfillRange, error) {
	if len(f.backfill) == 0 {
		return nil, nil
	}
	out := make([]client.BackfillRange, len(f.backfill))
	for i, text := range f.backfill {
		resource, span, ok := strings.Cut(text, "=")
		from, to, both := strings.Cut(span, "..")
		if !ok || !both || resource == "" {
			return nil, usageError("write it as RESOURCE=FROM..TO, such as public.orders=2026-01-01..2026-01-31; either end may be left out", "%q is no range to backfill", text)
		}
		out[i] = client.BackfillRange{Resource: resource, From: from, To: to}
	}
	return out, nil
}

func (a *app) runsStart() *cobra.Command {
	var f startFlags
	c := &cobra.Command{
		Use: "start PIPELINE", Short: "Start a pipeline on a server", Args: usage(cobra.ExactArgs(1)),
		Long: `Start a pipeline: one run for each of its routes. With --wait the command ends with
the runs, and with the exit code of run: 0 completed, 1 failed, 3 paused, 4
canceled; the worst of several. An interrupt ends the waiting, not the runs.`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.startRuns(cmd.Context(), args[0], f) },
	}
	c.Flags().BoolVar(&f.wait, "wait", false, "wait until the runs end")
	c.Flags().StringVar(&f.receipt, "receipt", "", "with --wait: write the receipt to this file, as JSON")
	c.Flags().BoolVar(&f.json, "json", false, "write the runs as JSON; with --wait as they ended")
	c.Flags().StringSliceVar(&f.only, "only", nil, "only these resources")
	c.Flags().StringSliceVar(&f.fullRefresh, "full-refresh", nil, "read these resources from the beginning")
	c.Flags().StringArrayVar(&f.backfill, "backfill", nil, "read a part of an incremental resource again, and nothing else: RESOURCE=FROM..TO, both included")
	c.Flags().StringVar(&f.key, "idempotency-key", "", "start at most once with this key")
	return c
}

func (a *app) startRuns(ctx context.Context, pipeline string, f startFlags) error {
	if f.receipt != "" {
		if !f.wait {
			return usageError("add --wait", "--receipt needs the run's end")
		}
		if info, err := os.Stat(filepath.Dir(f.receipt)); err != nil || !info.IsDir() {
			return usageError("make the folder first", "the receipt's folder %s is not there", filepath.Dir(f.receipt))
		}
	}
	c, err := a.remote()
	if err != nil {
		return err
	}
	key := given(f.key)
	if key == nil {
		key = idempotency()
	}
	ranges, err := f.ranges()
	if err != nil {
		return err
	}
	input := client.RunInput{Pipeline: pipeline, Options: client.RunOptions{Only: f.only, FullRefresh: f.fullRefresh}, Backfill: ranges}
	list, body, err := fetch[client.RunList](c.StartRun(ctx, &client.StartRunParams{IdempotencyKey: key}, input))
	if err != nil {
		return err
	}
	if !f.wait {
		if f.json {
			return a.writeAnswer(body)
		}
		for _, x := range list.Items {
			if _, err := fmt.Fprintf(a.stdout, "run %s of %s is %s\n", x.Id, x.Pipeline, x.State); err != nil {
				return err
			}
		}
		return nil
	}
	return a.awaitRuns(ctx, c, list.Items, f)
}

// awaitRuns waits for runs, shows their receipts and gives the exit code.
func (a *app) awaitRuns(ctx context.Context, c *client.Client, runs []client.Run, f startFlags) error {
	var receipts []json.RawMessage
	var failure *exitError
	ended := []client.Run{}
	for _, x := range runs {
		run, err := a.awaitRun(ctx, c, x, !f.json)
		if err != nil {
			return err
		}
		ended = append(ended, run)
		receipt, err := receiptOfRemote(ctx, c, run.Id)
		if err != nil {
			return err
		}
		if receipt != nil {
			receipts = append(receipts, receipt)
			if err := a.showReceipt(receipt, f.json); err != nil {
				return err
			}
		}
		if e := endOf(run); e != nil && (failure == nil || worse(e.code, failure.code)) {
			failure = e
		}
	}
	if f.receipt != "" {
		if err := saveReceipts(f.receipt, receipts); err != nil {
			return err
		}
	}
	if f.json {
		if err := writeJSON(a.stdout, client.RunList{Items: ended}); err != nil {
			return err
		}
	}
	if failure == nil {
		return nil
	}
	return failure
}

// worse orders exit codes: failed is worse than canceled, and that than paused.
func worse(x, y int) bool {
	order := map[int]int{exitPaused: 1, exitCanceled: 2, exitFailed: 3}
	return order[x] > order[y]
}

// endOf is the exit of a run's end; nil for a completed one.
func endOf(r client.Run) *exitError {
	switch r.State {
	case client.RunStateCompleted:
		return nil
	case client.RunStatePaused:
		return &exitError{exitPaused, nil}
	case client.RunStateCanceled:
		return &exitError{exitCanceled, nil}
	}
	text := r.Error
	if text == "" {
		text = "the run failed"
	}
	return &exitError{exitFailed, engine.Permanentf(r.Hint, "run %s: %s", r.Id, text)}
}

// awaitRun follows a run's facts until it ends or is paused.
func (a *app) awaitRun(ctx context.Context, c *client.Client, run client.Run, tell bool) (client.Run, error) {
	if tell {
		if _, err := fmt.Fprintf(a.stderr, "waiting for run %s of %s\n", run.Id, run.Pipeline); err != nil {
			return run, err
		}
	}
	after, wait := int64(0), "20s"
	for {
		// The state is read before the facts: a run that has ended then has told all.
		now, err := getRun(ctx, c, run.Id)
		if err != nil {
			return run, err
		}
		switch now.State {
		case client.RunStateCompleted, client.RunStateFailed, client.RunStateCanceled, client.RunStatePaused:
			return now, nil
		}
		resp, err := c.ListFacts(ctx, run.Id, &client.ListFactsParams{After: &after, Wait: &wait})
		list, _, err := fetch[client.FactList](resp, err)
		if err != nil {
			return run, err
		}
		if len(list.Items) > 0 {
			after = list.Items[len(list.Items)-1].Number
		} else if err := pauseFor(ctx, max(restOf(resp), 200*time.Millisecond)); err != nil {
			return run, err
		}
	}
}

func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// restOf is how long the server wants a caller to rest who waited in vain.
func restOf(resp *http.Response) time.Duration {
	s, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || s < 0 {
		return 0
	}
	return time.Duration(s) * time.Second
}

// receiptOfRemote returns a run's receipt; nil if it has none.
func receiptOfRemote(ctx context.Context, c *client.Client, id uuid.UUID) (json.RawMessage, error) {
	body, err := answer(c.GetReceipt(ctx, id))
	var failed *remoteError
	if errors.As(err, &failed) && failed.problem.Status == http.StatusNotFound {
		return nil, nil
	}
	return body, err
}

func (a *app) showReceipt(text json.RawMessage, quiet bool) error {
	out := a.stdout
	if quiet {
		out = a.stderr
	}
	var receipt engine.RunReceipt
	if err := json.Unmarshal(text, &receipt); err != nil {
		return fmt.Errorf("read receipt: %w", err)
	}
	return printReceipt(out, &receipt)
}

// saveReceipts writes a receipt as run does, and several as a list.
func saveReceipts(path string, receipts []json.RawMessage) error {
	switch len(receipts) {
	case 0:
		return &exitError{exitFailed, errors.New("the run ended without a receipt")}
	case 1:
		return writeWhole(path, receipts[0])
	}
	text, err := json.Marshal(map[string]any{"items": receipts, "next": nil})
	if err != nil {
		return fmt.Errorf("write receipts: %w", err)
	}
	return writeWhole(path, text)
}

// writeWhole writes a JSON file whole or not at all.
func writeWhole(path string, text json.RawMessage) error {
	pretty, err := json.MarshalIndent(text, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return replaceFile(path, append(pretty, '\n'))
}

func (a *app) runsWatch() *cobra.Command {
	return &cobra.Command{
		Use: "watch RUN", Short: "Follow a run of a server until it ends", Args: usage(cobra.ExactArgs(1)),
		Long: `Follow a run: show its facts as they come, then its receipt, and end with the exit
code of run. RUN is a run's id, the beginning or end of it, or latest.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			c, err := a.remote()
			if err != nil {
				return err
			}
			run, err := remoteRun(ctx, c, args[0])
			if err != nil {
				return err
			}
			if err := a.followFacts(ctx, c, run.Id, factsFlags{follow: true, untilPaused: true}); err != nil {
				return err
			}
			return a.awaitRuns(ctx, c, []client.Run{run}, startFlags{})
		},
	}
}
