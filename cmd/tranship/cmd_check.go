package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/internal/compose/ends"
	"github.com/tranship-io/tranship/pipeline"
)

// checked is what check tells.
type checked struct {
	Pipeline string           `json:"pipeline"`
	Version  string           `json:"version"`
	OK       bool             `json:"ok"`
	Findings []engine.Finding `json:"findings"`
	// failure is the class of the worst error.
	failure error
}

func (c *checked) add(level, subject, message, hint string) {
	c.Findings = append(c.Findings, engine.Finding{Level: level, Subject: subject, Message: message, Hint: hint})
}

func (c *checked) fail(subject string, err error) {
	c.add("error", subject, withoutHint(err), engine.HintOf(err))
	if c.failure == nil || engine.ClassOf(err) == engine.Permanent {
		c.failure = err
	}
}

func (a *app) checkCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check the pipeline file, the connections and their rights",
		Args:  usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.fileArg(cmd, args); err != nil {
				return err
			}
			doc, err := a.document()
			if err != nil {
				return err
			}
			out := a.check(cmd.Context(), doc)
			if asJSON {
				err = writeJSON(a.stdout, out)
			} else {
				err = a.printFindings(out)
			}
			if err == nil && !out.OK {
				err = &exitError{code: beforeRunCode(out.failure)}
			}
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

func beforeRunCode(err error) int {
	if err != nil && engine.ClassOf(err) == engine.Retryable {
		return exitFailed
	}
	return exitUsage
}

func (a *app) check(ctx context.Context, doc *pipeline.Document) *checked {
	out := &checked{Pipeline: doc.Name, Version: doc.Hash()}
	out.add("ok", "file", fmt.Sprintf("%s is valid (version %.12s)", a.file, doc.Hash()), "")
	src, err := a.ends(doc).OpenSource(ctx, engine.OpenOptions{})
	if err != nil {
		out.fail("source", err)
	} else {
		defer ends.Close(src)
		out.test(ctx, "source", src.Identity(), src)
		if chosen, err := a.ends(doc).Choose(ctx, src); err != nil {
			out.fail("resources", err)
		} else {
			out.add("ok", "resources", plural(len(chosen), "resource")+" chosen", "")
		}
	}
	sink, err := a.ends(doc).OpenSink(ctx, engine.OpenOptions{})
	if err != nil {
		out.fail("sink", err)
	} else {
		defer ends.Close(sink)
		out.test(ctx, "sink", sink.Identity(), sink)
	}
	out.OK = true
	for _, f := range out.Findings {
		out.OK = out.OK && f.Level != "error"
	}
	return out
}

// test adds what a session finds out about itself.
func (c *checked) test(ctx context.Context, what, identity string, session any) {
	c.add("ok", what, "open: "+identity, "")
	tester, ok := session.(engine.ConnectionTester)
	if !ok {
		return
	}
	findings, err := tester.TestConnection(ctx)
	for _, f := range findings {
		c.add(f.Level, what+" "+f.Subject, f.Message, f.Hint)
	}
	if err != nil {
		c.fail(what, err)
	}
}

func (a *app) printFindings(c *checked) error {
	for _, f := range c.Findings {
		if _, err := fmt.Fprintf(a.stdout, "%-7s  %s: %s\n", f.Level, f.Subject, f.Message); err != nil {
			return err
		}
		if f.Hint != "" {
			if _, err := fmt.Fprintf(a.stdout, "         hint: %s\n", f.Hint); err != nil {
				return err
			}
		}
	}
	return nil
}
