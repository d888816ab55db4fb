package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/pipeline"
)

// initFlags are the answers that init otherwise asks for.
type initFlags struct {
	name, source, sink string
	set, resources     []string
	force              bool
}

func (a *app) initCommand() *cobra.Command {
	var f initFlags
	c := &cobra.Command{
		Use:   "init",
		Short: "Write a first pipeline file",
		Long: `Write a pipeline file. What no flag says is asked for on a terminal, and has a
default elsewhere. Connection strings are best written as references such as
${SOURCE_URL}, which the environment resolves at each run.`,
		Example: `  tranship init --name shop --source postgres --sink files --set sink.path=./out --resource 'public.*'`,
		Args:    noArgs,
		RunE:    func(*cobra.Command, []string) error { return a.initialize(f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.name, "name", "", "name of the pipeline (default: the folder's name)")
	fl.StringVar(&f.source, "source", "", "source connector (default postgres)")
	fl.StringVar(&f.sink, "sink", "", "sink connector (default postgres)")
	fl.StringArrayVar(&f.set, "set", nil, "a key of source or sink, such as sink.path=./out; repeatable")
	fl.StringArrayVar(&f.resources, "resource", nil, "a resource or pattern (default public.*); repeatable")
	fl.BoolVar(&f.force, "force", false, "overwrite an existing file")
	return c
}

// asker asks on a terminal, and takes defaults elsewhere.
type asker struct {
	app  *app
	in   *bufio.Reader
	asks bool
}

func (q *asker) ask(question, fallback string) (string, error) {
	if !q.asks {
		return fallback, nil
	}
	if _, err := fmt.Fprintf(q.app.stdout, "%s [%s]: ", question, fallback); err != nil {
		return "", err
	}
	line, err := q.in.ReadString('\n')
	if err != nil && line == "" {
		return "", usageError("give the answers as flags", "no answer to %q", question)
	}
	if line = strings.TrimSpace(line); line == "" {
		return fallback, nil
	}
	return line, nil
}

func (a *app) initialize(f initFlags) error {
	if _, err := os.Stat(a.file); err == nil && !f.force {
		return usageError("name another one with --file, or overwrite it with --force", "%s is there already", a.file)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return usageError("", "look for %s: %w", a.file, err)
	}
	q := &asker{app: a, in: bufio.NewReader(a.stdin), asks: terminal(a.stdin) && terminal(a.stdout)}
	doc, err := a.compose(q, f)
	if err != nil {
		return err
	}
	text, err := pipeline.Marshal(doc)
	if err != nil {
		return err
	}
	opt := pipeline.Options{Sources: a.catalog.SourceSpecs(), Sinks: a.catalog.SinkSpecs()}
	checked, err := pipeline.Parse(text, opt)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	if err := os.WriteFile(a.file, text, 0o600); err != nil {
		return usageError("name a writable file with --file", "write %s: %w", a.file, err)
	}
	if len(checked.Secrets()) > 0 {
		a.redact.Add(checked.Secrets()...)
		if _, err := fmt.Fprintf(a.stderr, "%s holds connection settings as they are; a reference such as ${SOURCE_URL} keeps a password out of it\n", a.file); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(a.stdout, "wrote %s; next: tranship check, tranship plan, tranship run\n", a.file)
	return err
}

// compose puts the document together from flags and answers.
func (a *app) compose(q *asker, f initFlags) (*pipeline.Document, error) {
	doc := &pipeline.Document{Format: pipeline.FormatVersion}
	var err error
	if doc.Name = f.name; doc.Name == "" {
		if doc.Name, err = q.ask("name of the pipeline", folderName()); err != nil {
			return nil, err
		}
	}
	set := map[string]map[string]string{"source": {}, "sink": {}}
	for _, s := range f.set {
		key, value, ok := strings.Cut(s, "=")
		end, key, ok2 := strings.Cut(key, ".")
		if !ok || !ok2 || set[end] == nil || key == "" {
			return nil, usageError("write source.KEY=VALUE or sink.KEY=VALUE", "--set %s cannot be", s)
		}
		set[end][key] = value
	}
	for _, end := range []struct {
		name, chosen, fallback string
		specs                  []engine.Spec
		to                     *pipeline.Endpoint
	}{
		{"source", f.source, "postgres", a.catalog.SourceSpecs(), &doc.Source},
		{"sink", f.sink, "postgres", a.catalog.SinkSpecs(), &doc.Sink},
	} {
		if end.chosen == "" {
			names := make([]string, len(end.specs))
			for i, s := range end.specs {
				names[i] = s.Name
			}
			if end.chosen, err = q.ask(fmt.Sprintf("%s connector (%s)", end.name, strings.Join(names, ", ")), end.fallback); err != nil {
				return nil, err
			}
		}
		if err := a.composeEnd(q, end.name, end.chosen, end.specs, set[end.name], end.to); err != nil {
			return nil, err
		}
	}
	names := f.resources
	if len(names) == 0 {
		answer, err := q.ask("resources, separated by spaces", defaultResources(doc.Source.Connector))
		if err != nil {
			return nil, err
		}
		names = strings.Fields(answer)
	}
	for _, n := range names {
		doc.Resources = append(doc.Resources, pipeline.Resource{Name: n})
	}
	return doc, nil
}

// asked are the keys that say where an end is; others have defaults.
var asked = []string{"url", "path"}

func (a *app) composeEnd(q *asker, end, name string, specs []engine.Spec, set map[string]string, to *pipeline.Endpoint) error {
	i := slices.IndexFunc(specs, func(s engine.Spec) bool { return s.Name == name })
	if i < 0 {
		return usageError("tranship connectors lists them", "there is no %s connector %q", end, name)
	}
	properties := pipeline.ConfigSchema(specs[i]).Properties
	config := &orderedConfig{}
	if properties != nil {
		for p := properties.Oldest(); p != nil; p = p.Next() {
			value, given := set[p.Key]
			if !given && slices.Contains(asked, p.Key) && !namesPlace(set) {
				fallback := "${" + strings.ToUpper(end+"_"+p.Key) + "}"
				if p.Key == "path" {
					fallback = "./out"
				}
				var err error
				if value, err = q.ask(end+" "+p.Key, fallback); err != nil {
					return err
				}
				given = true
			}
			if given {
				config.add(p.Key, value, p.Value.Type)
				delete(set, p.Key)
			}
		}
	}
	for key, value := range set {
		config.add(key, value, "")
	}
	to.Connector, to.Config = name, config.json()
	return nil
}

// namesPlace tells whether the keys given say already where an end is.
func namesPlace(set map[string]string) bool {
	return set["host"] != "" || set["service"] != ""
}

func folderName() string {
	dir, err := os.Getwd()
	if err != nil {
		return "pipeline"
	}
	name := strings.Map(func(r rune) rune {
		if r < 128 && (r == '-' || r == '_' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			return r
		}
		return '-'
	}, filepath.Base(dir))
	if name = strings.Trim(name, "-_."); name == "" {
		return "pipeline"
	}
	return name[:min(len(name), 63)]
}

func defaultResources(connector string) string {
	if connector == "postgres" {
		return "public.*"
	}
	return "*"
}
