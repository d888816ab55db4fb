package pipeline

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

type kind int

const (
	kindNull kind = iota
	kindBool
	kindInt
	kindFloat
	kindString
	kindList
	kindMap
)

func (k kind) String() string {
	return [...]string{"nothing", "true or false", "a whole number", "a number", "text", "a list", "a mapping"}[k]
}

// node is a value of the document with its place. Aliases and merge keys are
// resolved; a tree that they made too large is refused.
type node struct {
	kind         kind
	path         string
	line, column int
	// raw is a scalar as written; value the same with references replaced.
	raw, value string
	// fromEnv is true if a reference was replaced in value.
	fromEnv bool
	items   []*node
	entries []entry
}

type entry struct {
	key          string
	line, column int
	value        *node
}

func (n *node) get(key string) *node {
	for _, e := range n.entries {
		if e.key == key {
			return e.value
		}
	}
	return nil
}

// Bounds of a document: far beyond any real one, near enough to stop a file
// whose aliases multiply without end.
const (
	maxNodes    = 200_000
	maxDepth    = 64
	maxDocument = 8 << 20
)

// nullWord is YAML's null written out.
const nullWord = "null"

type reader struct {
	lines    []string
	problems []Problem
	anchors  map[string]ast.Node
	open     map[string]bool
	nodes    int
	stopped  bool
}

func (r *reader) add(line, column int, path, hint, format string, args ...any) {
	r.problems = append(r.problems, Problem{Path: path, Line: line, Column: column, Message: fmt.Sprintf(format, args...), Hint: hint})
}

// readNode parses the text into a tree; nil if there is nothing to go on with.
func readNode(text []byte) (*node, []Problem) {
	if len(text) > maxDocument {
		return nil, []Problem{{Message: fmt.Sprintf("the document is larger than %s", Size(maxDocument))}}
	}
	file, err := parse(text)
	if err != nil {
		return nil, []Problem{syntaxProblem(err)}
	}
	r := &reader{lines: strings.Split(string(text), "\n"), anchors: map[string]ast.Node{}, open: map[string]bool{}}
	var body ast.Node
	for _, d := range file.Docs {
		if d.Body == nil {
			continue
		}
		if body != nil {
			line, column := place(d.Body)
			r.add(line, column, "", "keep one pipeline per file", "a second document begins here")
			return nil, r.problems
		}
		body = d.Body
	}
	if _, isComment := body.(*ast.CommentGroupNode); body == nil || isComment {
		return nil, []Problem{{Message: "the document is empty", Hint: "tranship init writes a first one"}}
	}
	root := r.read(body, "", 0)
	return root, r.problems
}

// parse keeps a defect of the YAML library from ending the process: what it
// cannot read is a document that is not valid.
func parse(text []byte) (file *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("this is not valid YAML")
		}
	}()
	return parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
}

// syntaxProblem takes message and place only: the library's own rendering
// repeats the source lines, which may hold a password (invariant 10).
func syntaxProblem(err error) Problem {
	p := Problem{Message: "this is not valid YAML"}
	var e yaml.Error
	if errors.As(err, &e) {
		p.Message += ": " + e.GetMessage()
		if t := e.GetToken(); t != nil && t.Position != nil {
			p.Line, p.Column = t.Position.Line, t.Position.Column
			if strings.Contains(t.Value, "$") || (t.Prev != nil && strings.Contains(t.Prev.Value, "$")) || t.Value == "{" {
				p.Hint = `within { } a reference needs quotes: "${NAME}"`
			}
		}
	}
	return p
}

func place(n ast.Node) (line, column int) {
	t := n.GetToken()
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		t = m.Values[0].Key.GetToken()
	}
	if m, ok := n.(*ast.MappingValueNode); ok {
		t = m.Key.GetToken()
	}
	if t == nil || t.Position == nil {
		return 0, 0
	}
	return t.Position.Line, max(t.Position.Column, 1)
}

func (r *reader) read(n ast.Node, path string, depth int) *node {
	line, column := place(n)
	out := &node{path: path, line: line, column: column}
	r.nodes++
	if r.nodes > maxNodes || depth > maxDepth {
		if !r.stopped {
			r.stopped = true
			r.add(line, column, path, "", "the document is nested too deep or its aliases make it too large")
		}
		return out
	}
	switch v := n.(type) {
	case *ast.NullNode:
		if r.writtenNull(line, column) {
			out.raw = nullWord
		}
	case *ast.BoolNode:
		out.kind, out.raw = kindBool, fmt.Sprint(v.Value)
	case *ast.IntegerNode:
		out.kind, out.raw = kindInt, fmt.Sprint(v.Value)
	case *ast.FloatNode:
		out.kind, out.raw = kindFloat, v.GetToken().Value
	case *ast.InfinityNode, *ast.NanNode:
		out.kind, out.raw = kindString, v.GetToken().Value
	case *ast.StringNode:
		out.kind, out.raw = kindString, v.Value
	case *ast.LiteralNode:
		out.kind, out.raw = kindString, v.Value.Value
	case *ast.TagNode:
		return r.readTag(v, out, depth)
	case *ast.AnchorNode:
		name := v.Name.GetToken().Value
		if r.open[name] {
			r.add(line, column, path, "", "anchor %q holds itself", name)
			return out
		}
		r.anchors[name] = v.Value
		r.open[name] = true
		defer delete(r.open, name)
		return r.read(v.Value, path, depth+1)
	case *ast.AliasNode:
		return r.readAlias(v, out, depth)
	case *ast.SequenceNode:
		out.kind = kindList
		for i, item := range v.Values {
			out.items = append(out.items, r.read(item, fmt.Sprintf("%s[%d]", path, i), depth+1))
		}
	case *ast.MappingNode:
		out.kind = kindMap
		r.readMap(out, v.Values, depth)
	case *ast.MappingValueNode:
		out.kind = kindMap
		r.readMap(out, []*ast.MappingValueNode{v}, depth)
	default:
		r.add(line, column, path, "", "this kind of YAML is not understood here")
	}
	out.value = out.raw
	return out
}

// writtenNull tells the word null from a value that is not there; the library
// makes the same token of both.
func (r *reader) writtenNull(line, column int) bool {
	if line < 1 || line > len(r.lines) {
		return false
	}
	rest := []rune(r.lines[line-1])
	if column < 1 || column > len(rest) {
		return false
	}
	rest = rest[column-1:]
	return len(rest) >= len(nullWord) && strings.EqualFold(string(rest[:len(nullWord)]), nullWord)
}

func (r *reader) readTag(v *ast.TagNode, out *node, depth int) *node {
	if v.Start.Value != "!!str" {
		r.add(out.line, out.column, out.path, "", "the YAML tag %s is not understood here", v.Start.Value)
		return out
	}
	inner := r.read(v.Value, out.path, depth+1)
	if inner.kind < kindList {
		if inner.kind != kindString && v.Value.GetToken() != nil {
			inner.raw = v.Value.GetToken().Value
		}
		inner.kind, inner.value = kindString, inner.raw
	}
	return inner
}

func (r *reader) readAlias(v *ast.AliasNode, out *node, depth int) *node {
	name := v.Value.GetToken().Value
	target, ok := r.anchors[name]
	switch {
	case !ok:
		r.add(out.line, out.column, out.path, "define it above as &"+name, "alias %q has no anchor", name)
		return out
	case r.open[name]:
		r.add(out.line, out.column, out.path, "", "alias %q holds itself", name)
		return out
	}
	return r.read(target, out.path, depth+1)
}

func (r *reader) readMap(out *node, values []*ast.MappingValueNode, depth int) {
	var merged []*node
	first := make(map[string]int, len(values))
	for _, mv := range values {
		line, column := place(mv)
		key := mv.Key
		if key.IsMergeKey() {
			merged = append(merged, r.read(mv.Value, out.path, depth+1))
			continue
		}
		name, ok := keyText(key)
		if !ok {
			r.add(line, column, out.path, "", "a key must be plain text")
			continue
		}
		path := name
		if out.path != "" {
			path = out.path + "." + name
		}
		value := r.read(mv.Value, path, depth+1)
		if before, twice := first[name]; twice {
			r.add(line, column, path, "", "the key %q is here twice; the first is in line %d", name, before)
			continue
		}
		first[name] = line
		out.entries = append(out.entries, entry{key: name, line: line, column: column, value: value})
	}
	for _, m := range merged {
		sources := []*node{m}
		if m.kind == kindList {
			sources = m.items
		}
		for _, s := range sources {
			if s.kind != kindMap {
				r.add(s.line, s.column, out.path, "", "<< merges mappings only")
				continue
			}
			for _, e := range s.entries {
				if _, own := first[e.key]; !own {
					first[e.key] = e.line
					out.entries = append(out.entries, e)
				}
			}
		}
	}
}

func keyText(k ast.MapKeyNode) (string, bool) {
	switch v := k.(type) {
	case *ast.StringNode:
		return v.Value, true
	case *ast.MappingKeyNode:
		if s, ok := v.Value.(*ast.StringNode); ok {
			return s.Value, true
		}
		return "", false
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		return v.GetToken().Value, true
	}
	return "", false
}
