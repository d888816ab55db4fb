package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/internal/compose/ends"
	"github.com/tranship-io/tranship/pipeline"
)

func (a *app) discoverCommand() *cobra.Command {
	var asJSON, selected bool
	c := &cobra.Command{
		Use:   "discover [PATTERN…]",
		Short: "List what the source offers",
		Long: `List the resources of the pipeline's source: all of them, those that match the
patterns (such as 'public.*'), or with --selected those that the pipeline chooses.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			doc, err := a.document()
			if err != nil {
				return err
			}
			return beforeRun(a.discover(cmd.Context(), doc, args, selected, asJSON))
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	c.Flags().BoolVar(&selected, "selected", false, "only what the pipeline chooses")
	return c
}

func (a *app) discover(ctx context.Context, doc *pipeline.Document, patterns []string, selected, asJSON bool) error {
	src, err := a.ends(doc).OpenSource(ctx, engine.OpenOptions{})
	if err != nil {
		return fmt.Errorf("open source: %w", err)
	}
	defer ends.Close(src)
	var found []engine.Resource
	if selected {
		chosen, err := a.ends(doc).Choose(ctx, src)
		if err != nil {
			return err
		}
		for _, s := range chosen {
			found = append(found, s.Resource)
		}
	} else if found, err = src.Discover(ctx, patterns); err != nil {
		return fmt.Errorf("discover resources: %w", err)
	}
	slices.SortFunc(found, func(x, y engine.Resource) int { return cmp.Compare(x.Name, y.Name) })
	if asJSON {
		return writeJSON(a.stdout, found)
	}
	if len(found) == 0 {
		_, err := fmt.Fprintln(a.stdout, "nothing found")
		return err
	}
	t := newTable("RESOURCE", "KIND", "ROWS", "SIZE", "COLUMNS", "KEY")
	for _, r := range found {
		t.row(r.Name, r.Kind, estimate(r.Rows), size(r.Bytes), fmt.Sprint(len(r.Schema.Fields)), orDash(strings.Join(r.Schema.Key, ", ")))
	}
	return t.print(a.stdout, "")
}

// estimate marks a count as what it is.
func estimate(n int64) string {
	if n < 0 {
		return "?"
	}
	return "~" + count(n)
}

// inspection is what inspect tells about a resource.
type inspection struct {
	Resource engine.Resource       `json:"resource"`
	Cursors  []engine.CursorChoice `json:"cursors"`
}

func (a *app) inspectCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "inspect RESOURCE",
		Short: "Show a resource's columns and which of them can be cursors",
		Args:  usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			doc, err := a.document()
			if err != nil {
				return err
			}
			return beforeRun(a.inspect(cmd.Context(), doc, args[0], asJSON))
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

func (a *app) inspect(ctx context.Context, doc *pipeline.Document, name string, asJSON bool) error {
	src, err := a.ends(doc).OpenSource(ctx, engine.OpenOptions{})
	if err != nil {
		return fmt.Errorf("open source: %w", err)
	}
	defer ends.Close(src)
	r, err := ends.FindResource(ctx, src, name)
	if err != nil {
		return err
	}
	out := inspection{Resource: r, Cursors: []engine.CursorChoice{}}
	if ranker, ok := src.(engine.CursorRanker); ok {
		if out.Cursors, err = ranker.RankCursors(ctx, r.Name); err != nil {
			return fmt.Errorf("rank the columns of %s: %w", r.Name, err)
		}
	}
	if asJSON {
		return writeJSON(a.stdout, out)
	}
	return out.print(a.stdout)
}

func (i inspection) print(w io.Writer) error {
	r := i.Resource
	_, err := fmt.Fprintf(w, "%s  %s, %s rows, %s, key: %s\n", r.Name, r.Kind, estimate(r.Rows), size(r.Bytes), orDash(strings.Join(r.Schema.Key, ", ")))
	if err != nil {
		return err
	}
	if r.Schema.Comment != "" {
		if _, err := fmt.Fprintln(w, r.Schema.Comment); err != nil {
			return err
		}
	}
	t := newTable("COLUMN", "TYPE", "LOGICAL", "NULL", "NOTES")
	for _, f := range r.Schema.Fields {
		null := "no"
		if f.Nullable {
			null = "yes"
		}
		var notes []string
		if f.Generated {
			notes = append(notes, "generated")
		}
		if f.Identity != "" {
			notes = append(notes, "identity "+f.Identity)
		}
		if f.Comment != "" {
			notes = append(notes, f.Comment)
		}
		t.row(f.Name, orDash(f.Native.Type), f.Type.String(), null, strings.Join(notes, "; "))
	}
	if err := t.print(w, "  "); err != nil {
		return err
	}
	if len(i.Cursors) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w, "as cursors, best first:"); err != nil {
		return err
	}
	t = newTable()
	for _, c := range i.Cursors {
		mark := "no"
		if c.Eligible {
			mark = "yes"
		}
		t.row(mark, c.Column, c.Type, c.Reason)
	}
	return t.print(w, "  ")
}
