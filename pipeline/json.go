package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/tranship-io/tranship/engine"
)

// ParseJSON reads and checks a document that is written as JSON, by the rules of
// [Parse]. Its problems have paths and no lines.
func ParseJSON(text []byte, opt Options) (*Document, error) {
	root, err := readJSON(text)
	if err != nil {
		return nil, &Error{File: opt.File, Problems: []Problem{{Message: err.Error()}}}
	}
	return parseTree(root, nil, opt)
}

// CheckConfig returns what is wrong with a connector's configuration; in the
// place of any value a reference ${NAME} may stand.
func CheckConfig(config []byte, spec engine.Spec) []Problem {
	root, err := readJSON(config)
	if err != nil {
		return []Problem{{Message: err.Error()}}
	}
	var secrets []string
	r := &reader{}
	r.replaceEnv(root, nil, &secrets)
	d := &decoder{reader: r, secrets: &secrets}
	if root.kind != kindMap {
		d.problem(root, "", "want a mapping of keys, not %s", root.kind)
	} else if t := reflect.TypeOf(spec.Config); t != nil && t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct {
		d.structOf(root, reflect.New(t.Elem()).Elem())
	}
	return d.problems
}

// DecodeJSON fills a struct from JSON as a document's parts are: unknown keys,
// values that are not admitted, and numbers out of range are problems, all of
// which are returned. Texts are literal.
func DecodeJSON(text []byte, into any) []Problem {
	root, err := readJSON(text)
	if err != nil {
		return []Problem{{Message: err.Error()}}
	}
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return []Problem{{Message: "this cannot be read into anything"}}
	}
	d := &decoder{reader: &reader{}, secrets: new([]string), literal: true}
	d.structOf(root, v.Elem())
	return d.problems
}

// SecretFields returns the paths of the fields of a connector's configuration
// that hold secrets, such as "url" and "ssh.password", sorted.
func SecretFields(spec engine.Spec) []string {
	t := reflect.TypeOf(spec.Config)
	if t == nil {
		return nil
	}
	var out []string
	secretFields(t, "", 0, &out)
	slices.Sort(out)
	return out
}

func secretFields(t reflect.Type, path string, depth int, out *[]string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || depth > maxDepth {
		return
	}
	for _, f := range fieldsOf(t) {
		if f.secret {
			*out = append(*out, path+f.key)
			continue
		}
		secretFields(f.typ, path+f.key+".", depth+1, out)
	}
}

// PasswordsIn returns the passwords within a connection string that is written as
// a URL or as key=value pairs.
func PasswordsIn(s string) []string { return passwordsOf(s) }

// SecretVariable tells whether an environment variable is named like a secret.
func SecretVariable(name string) bool { return secretName.MatchString(name) }

// References returns the names of the references ${NAME} in a text.
func References(s string) []string {
	var out []string
	for _, m := range reference.FindAllStringSubmatch(s, -1) {
		if m[1] != "" {
			out = append(out, m[1])
		}
	}
	return out
}

// EscapeReferences makes every text within a JSON value literal: "${" becomes
// "$${", which stands for it in a document.
func EscapeReferences(value []byte) ([]byte, error) {
	if !bytes.Contains(value, []byte("${")) {
		return value, nil
	}
	root, err := readJSON(value)
	if err != nil {
		return nil, err
	}
	escapeReferences(root)
	return root.json(false), nil
}

func escapeReferences(n *node) {
	for _, c := range n.items {
		escapeReferences(c)
	}
	for _, e := range n.entries {
		escapeReferences(e.value)
	}
	if n.kind == kindString {
		n.raw = strings.ReplaceAll(n.raw, "${", "$${")
	}
}

// readJSON reads a JSON value into a tree, strictly: one value, no key twice,
// within the bounds of a document.
func readJSON(text []byte) (*node, error) {
	if len(text) > maxDocument {
		return nil, fmt.Errorf("the document is larger than %s", Size(maxDocument))
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	j := jsonReader{Decoder: d}
	root, err := j.value("", 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON value")
	}
	return root, nil
}

type jsonReader struct {
	*json.Decoder
	nodes int
}

// errJSON replaces the library's messages, which may quote the text.
var errJSON = errors.New("this is not valid JSON")

func (j *jsonReader) value(path string, depth int) (*node, error) {
	j.nodes++
	if j.nodes > maxNodes || depth > maxDepth {
		return nil, errors.New("the document is nested too deep or too large")
	}
	t, err := j.Token()
	if err != nil {
		return nil, errJSON
	}
	n := &node{path: path}
	switch v := t.(type) {
	case nil:
		n.raw = nullWord
	case bool:
		n.kind, n.raw = kindBool, fmt.Sprint(v)
	case json.Number:
		n.kind, n.raw = kindInt, v.String()
		if strings.ContainsAny(n.raw, ".eE") {
			n.kind = kindFloat
		}
	case string:
		n.kind, n.raw = kindString, v
	case json.Delim:
		if v == '[' {
			return n, j.list(n, depth)
		}
		return n, j.mapping(n, depth)
	}
	n.value = n.raw
	return n, nil
}

func (j *jsonReader) list(n *node, depth int) error {
	n.kind = kindList
	for j.More() {
		item, err := j.value(fmt.Sprintf("%s[%d]", n.path, len(n.items)), depth+1)
		if err != nil {
			return err
		}
		n.items = append(n.items, item)
	}
	if _, err := j.Token(); err != nil {
		return errJSON
	}
	return nil
}

func (j *jsonReader) mapping(n *node, depth int) error {
	n.kind = kindMap
	seen := map[string]bool{}
	for j.More() {
		t, err := j.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return errJSON
		}
		path := key
		if n.path != "" {
			path = n.path + "." + key
		}
		if seen[key] {
			return fmt.Errorf("%s: the key is here twice", path)
		}
		seen[key] = true
		value, err := j.value(path, depth+1)
		if err != nil {
			return err
		}
		n.entries = append(n.entries, entry{key: key, value: value})
	}
	if _, err := j.Token(); err != nil {
		return errJSON
	}
	return nil
}

// Resolve replaces the references in a configuration and returns it as connectors
// take it; it holds secrets then, which it returns too: they must not appear in any
// output.
func Resolve(config []byte, lookup func(name string) (string, bool)) (resolved engine.Config, secrets []string, err error) {
	root, err := readJSON(config)
	if err != nil {
		return nil, nil, err
	}
	r := &reader{}
	r.replaceEnv(root, lookup, &secrets)
	if len(r.problems) > 0 {
		return nil, nil, &Error{Problems: r.problems}
	}
	collectPasswords(root, &secrets)
	return engine.Config(root.json(true)), secrets, nil
}
