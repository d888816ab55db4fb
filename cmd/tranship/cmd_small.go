package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"
	"github.com/spf13/cobra"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/pipeline"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(a.stdout, "tranship %s %s/%s %s\n", a.version, runtime.GOOS, runtime.GOARCH, runtime.Version())
			return err
		},
	}
}

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of the pipeline file", Args: noArgs,
		Long: `Print the JSON Schema of the pipeline file, for editors and other tools.`,
		RunE: func(*cobra.Command, []string) error {
			text, err := pipeline.JSONSchema(a.catalog.SourceSpecs(), a.catalog.SinkSpecs())
			if err != nil {
				return err
			}
			_, err = a.stdout.Write(text)
			return err
		},
	}
}

// connectorInfo is what connectors tells of one end of a connector.
type connectorInfo struct {
	Name          string               `json:"name"`
	End           string               `json:"end"`
	Title         string               `json:"title"`
	Summary       string               `json:"summary"`
	Reads         []engine.ReadMode    `json:"reads,omitempty"`
	Writes        []engine.WriteMode   `json:"writes,omitempty"`
	Consistencies []engine.Consistency `json:"consistencies,omitempty"`
	Delivery      string               `json:"delivery,omitempty"`
	Notes         []string             `json:"notes,omitempty"`
	Config        *jsonschema.Schema   `json:"config"`
}

func (a *app) connectorInfos() []connectorInfo {
	info := func(end string, s engine.Spec) connectorInfo {
		return connectorInfo{
			Name: s.Name, End: end, Title: s.Title, Summary: s.Summary, Reads: s.Reads, Writes: s.Writes,
			Consistencies: s.Consistencies, Delivery: s.Delivery, Notes: s.Notes, Config: pipeline.ConfigSchema(s),
		}
	}
	var out []connectorInfo
	for _, s := range a.catalog.SourceSpecs() {
		out = append(out, info("source", s))
	}
	for _, s := range a.catalog.SinkSpecs() {
		out = append(out, info("sink", s))
	}
	return out
}

func (a *app) connectorsCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "connectors [NAME]", Short: "List the connectors, or describe one",
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			infos := a.connectorInfos()
			if len(args) == 1 {
				infos = slices.DeleteFunc(infos, func(i connectorInfo) bool { return i.Name != args[0] })
				if len(infos) == 0 {
					return usageError("tranship connectors lists them", "there is no connector %q", args[0])
				}
			}
			switch {
			case asJSON:
				return writeJSON(a.stdout, infos)
			case len(args) == 1:
				return describeConnector(a.stdout, infos)
			}
			t := newTable("CONNECTOR", "END", "MODES", "SUMMARY")
			for _, i := range infos {
				t.row(i.Name, i.End, modes(i), i.Summary)
			}
			return t.print(a.stdout, "")
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}

func modes(i connectorInfo) string {
	var out []string
	for _, m := range i.Reads {
		out = append(out, string(m))
	}
	for _, m := range i.Writes {
		out = append(out, string(m))
	}
	return orDash(strings.Join(out, ", "))
}

func describeConnector(w io.Writer, infos []connectorInfo) error {
	for n, i := range infos {
		if n > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(w, "%s %s: %s\n  %s\n  modes: %s\n", i.Name, i.End, i.Title, i.Summary, modes(i)); err != nil {
			return err
		}
		if i.Delivery != "" {
			if _, err := fmt.Fprintf(w, "  delivery: %s\n", i.Delivery); err != nil {
				return err
			}
		}
		t := newTable("KEY", "TYPE", "")
		if i.Config.Properties != nil {
			for p := i.Config.Properties.Oldest(); p != nil; p = p.Next() {
				note := p.Value.Description
				if slices.Contains(i.Config.Required, p.Key) {
					note = "required. " + note
				}
				t.row(p.Key, orDash(p.Value.Type), note)
			}
		}
		if err := t.print(w, "  "); err != nil {
			return err
		}
		for _, note := range i.Notes {
			if _, err := fmt.Fprintln(w, "  - "+note); err != nil {
				return err
			}
		}
	}
	return nil
}
