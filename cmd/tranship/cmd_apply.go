package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/tranship-io/tranship/api/client"
	"github.com/tranship-io/tranship/pipeline"
)

func (a *app) applyCommand() *cobra.Command {
	var asJSON, dryRun bool
	c := &cobra.Command{
		Use: "apply [FILE]", Short: "Bring a pipeline file's connections and pipeline to a server",
		Long: `Create or update on the server what a pipeline file says: the file that run takes.
Its source and sink become connections, and their URLs and secret fields become
secrets that the server keeps encrypted. References such as ${DB_URL} are read
from this command's environment.`,
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.fileArg(cmd, args); err != nil {
				return err
			}
			input, err := a.applyInput()
			if err != nil {
				return err
			}
			input.DryRun = dryRun
			c, err := a.remote()
			if err != nil {
				return err
			}
			result, body, err := fetch[client.ApplyResult](c.ApplyDocument(cmd.Context(), &client.ApplyDocumentParams{IdempotencyKey: idempotency()}, input))
			if err != nil {
				return err
			}
			if asJSON {
				return a.writeAnswer(body)
			}
			for _, x := range result.Changes {
				if _, err := fmt.Fprintf(a.stdout, "%-10s %s %s\n", x.Action, x.Kind, x.Name); err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write the server's answer as JSON")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would change")
	return c
}

// applyInput reads the pipeline file and the variables that it refers to, and
// checks both before anything is sent.
func (a *app) applyInput() (client.ApplyInput, error) {
	text, err := os.ReadFile(a.file)
	if err != nil {
		return client.ApplyInput{}, usageError("name another one with --file", "read pipeline file: %v", errors.Unwrap(err))
	}
	variables := map[string]string{}
	lookup := func(name string) (string, bool) {
		v, ok := a.lookup(name)
		if ok {
			variables[name] = v
		}
		return v, ok
	}
	doc, err := pipeline.Parse(text, pipeline.Options{Env: lookup, Sources: a.catalog.SourceSpecs(), Sinks: a.catalog.SinkSpecs()})
	if err != nil {
		return client.ApplyInput{}, &exitError{exitUsage, err}
	}
	a.redact.Add(doc.Secrets()...)
	return client.ApplyInput{Document: string(text), Variables: variables}, nil
}
