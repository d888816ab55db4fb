package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/runner"
	"github.com/tranship-io/tranship/pipeline"
)

// planned is what plan tells.
type planned struct {
	Pipeline  string            `json:"pipeline"`
	Version   string            `json:"version"`
	Source    string            `json:"source"`
	Sink      string            `json:"sink"`
	Resources []plannedResource `json:"resources"`
	// Changes is the stream of the resources that are read as changes.
	Changes *plannedChanges `json:"changes,omitempty"`
}

// plannedChanges is the change stream of a plan that was not begun.
type plannedChanges struct {
	Resources  []string `json:"resources"`
	Statements []string `json:"statements"`
	Error      string   `json:"error,omitempty"`
	Hint       string   `json:"hint,omitempty"`
}

// plannedResource is one resource of a plan that was not begun.
type plannedResource struct {
	Resource    string                `json:"resource"`
	Target      string                `json:"target"`
	Kind        string                `json:"kind"`
	Read        engine.ReadMode       `json:"read"`
	Write       engine.WriteMode      `json:"write"`
	Cursor      string                `json:"cursor,omitempty"`
	Continues   bool                  `json:"continues"`
	Key         []string              `json:"key"`
	Consistency engine.Consistency    `json:"consistency,omitempty"`
	Technique   string                `json:"technique"`
	Wire        engine.WireFormat     `json:"wire,omitempty"`
	Splits      int                   `json:"splits"`
	Rows        int64                 `json:"estimated_rows"`
	Bytes       int64                 `json:"estimated_bytes"`
	Coverage    string                `json:"coverage,omitempty"`
	Columns     []engine.TargetColumn `json:"columns"`
	Statements  []string              `json:"statements"`
	Warnings    []string              `json:"warnings"`
	// Error says why the resource can't be replicated; the rest is empty then.
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
}

func (a *app) planCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "plan [FILE]",
		Short: "Show what a run would do, and change nothing",
		Long: `Show, for each resource, where it goes and how: mapping of columns, statements
that would run, technique, pieces, estimates, what the read covers, and warnings.
Nothing is changed.`,
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.fileArg(cmd, args); err != nil {
				return err
			}
			doc, err := a.document()
			if err != nil {
				return err
			}
			out, failure, err := a.plan(cmd.Context(), doc)
			if err != nil {
				return beforeRun(err)
			}
			if asJSON {
				err = writeJSON(a.stdout, out)
			} else {
				err = out.print(a.stdout)
			}
			if err == nil && failure != nil {
				err = &exitError{code: beforeRunCode(failure)}
			}
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

// plan plans every resource; failure is an error of one of them, told in its place.
func (a *app) plan(ctx context.Context, doc *pipeline.Document) (out *planned, failure, err error) {
	e := a.ends(doc)
	opt, selected, err := e.Selected(ctx)
	if err != nil {
		return nil, nil, err
	}
	state, err := a.readState(ctx)
	if err != nil {
		return nil, nil, err
	}
	if state != nil {
		defer func() { _ = state.Close() }()
		opt.State = state
	}
	found, err := runner.Preview(ctx, opt)
	if err != nil {
		return nil, nil, err
	}
	out = &planned{Pipeline: doc.Name, Version: doc.Hash(), Source: found.Source, Sink: found.Sink}
	for i, p := range found.Resources {
		r := plannedOf(p)
		if p.Err != nil {
			failure = p.Err
		}
		r.Kind = selected[i].Resource.Kind
		out.Resources = append(out.Resources, r)
	}
	switch {
	case found.StreamErr != nil:
		failure = found.StreamErr
		out.Changes = &plannedChanges{Resources: []string{}, Statements: []string{}, Error: withoutHint(found.StreamErr), Hint: engine.HintOf(found.StreamErr)}
	case found.Stream != nil:
		out.Changes = &plannedChanges{Resources: found.Stream.Members, Statements: append([]string{}, found.Stream.Statements...)}
	}
	return out, failure, nil
}

func plannedOf(p runner.PreviewedResource) plannedResource {
	q := p.Request
	out := plannedResource{Resource: q.Resource, Read: q.Read, Write: q.Write, Rows: -1, Bytes: -1}
	if p.Err != nil {
		out.Error, out.Hint = withoutHint(p.Err), engine.HintOf(p.Err)
		return out
	}
	sp, t := p.Plan.Source, p.Plan.Target
	return plannedResource{
		Resource: q.Resource, Target: t.Name, Read: q.Read, Write: q.Write, Cursor: q.Cursor, Continues: p.Continues,
		Key: append([]string{}, sp.Resource.Schema.Key...), Consistency: sp.Consistency, Technique: t.Technique, Wire: t.Wire,
		Splits: len(sp.Splits), Rows: sp.Rows, Bytes: sp.Bytes, Coverage: sp.Coverage,
		Columns: t.Columns, Statements: append([]string{}, t.Statements...),
		Warnings: append(append([]string{}, sp.Warnings...), t.Warnings...),
	}
}

func (p *planned) print(w io.Writer) error {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s: %s → %s\n", p.Pipeline, p.Source, p.Sink)
	for _, r := range p.Resources {
		r.print(b)
	}
	if p.Changes != nil {
		p.Changes.print(b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (c *plannedChanges) print(b *strings.Builder) {
	b.WriteString("\nchanges")
	if len(c.Resources) > 0 {
		b.WriteString(" of " + strings.Join(c.Resources, ", "))
	}
	b.WriteByte('\n')
	if c.Error != "" {
		fmt.Fprintf(b, "  error: %s\n", c.Error)
	}
	if c.Hint != "" {
		fmt.Fprintf(b, "  hint:  %s\n", c.Hint)
	}
	for _, s := range c.Statements {
		fmt.Fprintf(b, "  would run: %s;\n", strings.TrimSuffix(s, ";"))
	}
}

func (r *plannedResource) print(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s → %s\n", r.Resource, orDash(r.Target))
	if r.Error != "" {
		fmt.Fprintf(b, "  error: %s\n", r.Error)
		if r.Hint != "" {
			fmt.Fprintf(b, "  hint:  %s\n", r.Hint)
		}
		return
	}
	read := string(r.Read)
	if r.Cursor != "" {
		read += " by " + r.Cursor
		if r.Continues {
			read += ", going on from the last run"
		} else {
			read += ", from the beginning"
		}
	}
	write := string(r.Write)
	if len(r.Key) > 0 && r.Write != engine.WriteAppend {
		write += " (key " + strings.Join(r.Key, ", ") + ")"
	}
	fmt.Fprintf(b, "  read   %s\n  write  %s", read, write)
	if r.Technique != "" {
		fmt.Fprintf(b, ": %s", r.Technique)
	}
	format := "columns"
	if r.Wire != "" {
		format = string(r.Wire)
	}
	fmt.Fprintf(b, "\n  moves  %s rows, %s in %s as %s", estimate(r.Rows), size(r.Bytes), plural(r.Splits, "piece"), format)
	if r.Consistency != "" {
		fmt.Fprintf(b, ", %s", r.Consistency)
	}
	b.WriteByte('\n')
	if r.Coverage != "" {
		fmt.Fprintf(b, "  covers %s\n", r.Coverage)
	}
	t := newTable()
	for _, c := range r.Columns {
		t.row(c.Source, "→ "+c.Name, c.Type)
	}
	_ = t.print(b, "    ")
	for _, s := range r.Statements {
		fmt.Fprintf(b, "  would run: %s;\n", strings.ReplaceAll(strings.TrimSuffix(s, ";"), "\n", "\n    "))
	}
	for _, s := range slices.Compact(r.Warnings) {
		fmt.Fprintf(b, "  warning: %s\n", s)
	}
}

// printReceipt writes a receipt for people.
func printReceipt(w io.Writer, r *engine.RunReceipt) error {
	b := &strings.Builder{}
	state := string(r.State)
	if r.State == engine.StateFailed && r.Resumable {
		state += " (a plain run goes on)"
	}
	fmt.Fprintf(b, "run %s of %s: %s\n", r.RunID, r.Pipeline, state)
	t := newTable("RESOURCE", "STATE", "READ", "WRITTEN", "SUPERSEDED", "SKIPPED", "ASIDE", "SIZE", "VERIFIED", "DIGEST")
	for _, x := range r.Resources {
		digest := x.SourceDigest.String()
		if i := strings.LastIndexByte(digest, ':'); i >= 0 {
			digest = digest[i+1:]
		}
		if x.DestinationDigest != nil && *x.DestinationDigest == x.SourceDigest {
			digest += " = destination"
		}
		t.row(x.Resource, x.State, count(x.RowsRead), count(x.RowsWritten), count(x.RowsSuperseded), count(x.RowsSkipped),
			count(x.RowsSetAside), size(x.Bytes), orDash(x.Verified), digest)
	}
	if len(r.Resources) > 0 {
		_ = t.print(b, "  ")
	}
	for _, x := range r.Resources {
		for _, p := range x.Policies {
			fmt.Fprintf(b, "  %s.%s: %s applied %s (%s)\n", x.Resource, p.Column, p.Policy, plural(p.Count, "time"), p.Reason)
		}
		for _, warning := range slices.Compact(x.Warnings) {
			fmt.Fprintf(b, "  %s: warning: %s\n", x.Resource, warning)
		}
	}
	fmt.Fprintf(b, "  %s, %s of CPU, %s at most, %s\n", span(seconds(r.Seconds)), span(seconds(r.CPUSeconds)), size(r.PeakMemoryBytes), plural(r.Attempts, "attempt"))
	_, err := io.WriteString(w, b.String())
	return err
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
