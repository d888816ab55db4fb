package pipeline

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/tranship-io/tranship/engine"
)

// Options say how a document is read.
type Options struct {
	// File names the document in errors; may be empty.
	File string
	// Env looks up references ${NAME}, as os.LookupEnv does; nil leaves them in place.
	Env func(name string) (string, bool)
	// EndEnv, if not nil, gives the look-up of references within "source" and
	// "sink" in the place of Env; a look-up of nil leaves them in place.
	EndEnv func(end string) func(name string) (string, bool)
	// Sources and Sinks are the connectors' specs, against whose configuration
	// types source and sink are checked; with both nil they are not checked.
	Sources []engine.Spec
	Sinks   []engine.Spec
}

// ReadFile reads and checks a document from a file; File of opt is set to path.
// Every problem with the document is in an error of type *[Error]; a file that
// cannot be read is a permanent error too.
func ReadFile(path string, opt Options) (*Document, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, engine.Permanentf("name another one with --file, or write a first one with tranship init", "there is no pipeline file %s", path)
	case err != nil:
		return nil, engine.Permanentf("", "open the pipeline file: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err != nil {
		return nil, engine.Permanentf("", "read the pipeline file: %w", err)
	}
	opt.File = path
	return Parse(text, opt)
}

// Parse reads and checks a document. The error is an *[Error] that holds every
// problem found.
func Parse(text []byte, opt Options) (*Document, error) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	root, problems := readNode(text)
	return parseTree(root, problems, opt)
}

// parseTree makes the document of a tree and checks it.
func parseTree(root *node, problems []Problem, opt Options) (*Document, error) {
	fail := func(p []Problem) (*Document, error) {
		slices.SortStableFunc(p, func(a, b Problem) int {
			if a.Line != b.Line {
				return a.Line - b.Line
			}
			return a.Column - b.Column
		})
		return nil, &Error{File: opt.File, Problems: slices.CompactFunc(p, func(a, b Problem) bool { return a == b })}
	}
	if root == nil || (len(problems) > 0 && root.kind != kindMap) {
		return fail(problems)
	}
	doc := &Document{hash: hashOf(root)}
	r := &reader{problems: problems}
	r.replaceAll(root, opt, &doc.secrets)
	doc.replaced = anyFromEnv(root)
	d := &decoder{reader: r, secrets: &doc.secrets}
	d.structOf(root, reflect.ValueOf(doc).Elem())
	d.endpoint(root.get("source"), &doc.Source, opt.Sources, opt.Sources != nil || opt.Sinks != nil)
	d.endpoint(root.get("sink"), &doc.Sink, opt.Sinks, opt.Sources != nil || opt.Sinks != nil)
	d.check(root, doc, opt)
	if len(d.problems) > 0 {
		hideEnv(root, d.problems)
		return fail(d.problems)
	}
	return doc, nil
}

// replaceAll replaces references, those of source and sink by their own look-up.
func (r *reader) replaceAll(root *node, opt Options, secrets *[]string) {
	if opt.EndEnv == nil || root.kind != kindMap {
		r.replaceEnv(root, opt.Env, secrets)
		return
	}
	for _, e := range root.entries {
		lookup := opt.Env
		if e.key == "source" || e.key == "sink" {
			lookup = opt.EndEnv(e.key)
		}
		r.replaceEnv(e.value, lookup, secrets)
	}
}

// hideEnv puts references back where a message repeats what they stand for
// (invariant 10). Values of less than four characters are no secrets, and
// replacing them would make messages unreadable.
func hideEnv(n *node, problems []Problem) {
	for _, c := range n.items {
		hideEnv(c, problems)
	}
	for _, e := range n.entries {
		hideEnv(e.value, problems)
	}
	if !n.fromEnv || len(n.value) < 4 {
		return
	}
	for i := range problems {
		problems[i].Message = strings.ReplaceAll(problems[i].Message, n.value, n.raw)
		problems[i].Hint = strings.ReplaceAll(problems[i].Hint, n.value, n.raw)
	}
}

func anyFromEnv(n *node) bool {
	if n.fromEnv {
		return true
	}
	return slices.ContainsFunc(n.items, anyFromEnv) ||
		slices.ContainsFunc(n.entries, func(e entry) bool { return anyFromEnv(e.value) })
}

// UnmarshalJSON takes the endpoint as the document has it.
func (e *Endpoint) UnmarshalJSON(b []byte) error {
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(b, &parts); err != nil {
		return errors.New("want a mapping with the key connector")
	}
	if raw, ok := parts["connector"]; ok {
		if err := json.Unmarshal(raw, &e.Connector); err != nil {
			return errors.New("connector is the name of a connector")
		}
	}
	delete(parts, "connector")
	config, err := json.Marshal(parts)
	if err != nil {
		return fmt.Errorf("encode configuration: %w", err)
	}
	e.Config = config
	return nil
}

// endpoint checks a source or sink against its connector's configuration type.
func (d *decoder) endpoint(n *node, e *Endpoint, specs []engine.Spec, check bool) {
	if n == nil || n.kind != kindMap {
		return
	}
	name := n.get("connector")
	if name == nil || name.kind != kindString || name.value == "" {
		d.problem(n, "connectors: "+strings.Join(specNames(specs), ", "), `the key "connector" is missing`)
		return
	}
	e.Connector = name.value
	config := &node{kind: kindMap, path: n.path, line: n.line, column: n.column}
	for _, c := range n.entries {
		if c.key != "connector" {
			config.entries = append(config.entries, c)
		}
	}
	e.Config = config.json(false)
	if check {
		i := slices.IndexFunc(specs, func(s engine.Spec) bool { return s.Name == name.value })
		if i < 0 {
			hint := "connectors: " + strings.Join(specNames(specs), ", ")
			if near := nearest(name.value, specNames(specs)); near != "" && !name.fromEnv {
				hint = fmt.Sprintf("did you mean %q?", near)
			}
			d.problem(name, hint, "there is no %s connector %s", n.path, name.shown())
			return
		}
		if t := reflect.TypeOf(specs[i].Config); t != nil && t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct {
			d.structOf(n, reflect.New(t.Elem()).Elem(), "connector")
		}
	}
	e.resolved = engine.Config(config.json(true))
	collectPasswords(config, d.secrets)
}

// collectPasswords finds passwords in connection strings that are written into
// the file itself.
func collectPasswords(n *node, secrets *[]string) {
	for _, c := range n.items {
		collectPasswords(c, secrets)
	}
	for _, e := range n.entries {
		collectPasswords(e.value, secrets)
	}
	if n.kind == kindString {
		*secrets = append(*secrets, passwordsOf(n.value)...)
	}
}

func specNames(specs []engine.Spec) []string {
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = s.Name
	}
	slices.Sort(names)
	return names
}

// speedSettings, like the key "service", only say how fast and within which bounds a run works; changing
// them leaves an unfinished run resumable.
var speedSettings = []string{"slots", "memory", "attempt_time", "split_size", "epoch_size", "retry", "connect_timeout"}

// hashOf is taken before references are replaced (invariant 10).
func hashOf(root *node) string {
	var content any
	numbers := json.NewDecoder(bytes.NewReader(root.json(false)))
	numbers.UseNumber()
	if err := numbers.Decode(&content); err != nil {
		return ""
	}
	if m, ok := content.(map[string]any); ok {
		delete(m, "service")
		if s, ok := m["settings"].(map[string]any); ok {
			for _, k := range speedSettings {
				delete(s, k)
			}
			if len(s) == 0 {
				delete(m, "settings")
			}
		}
	}
	canonical, err := json.Marshal(content)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}
