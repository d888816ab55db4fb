package pipelines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/pipeline"
)

// Bounds of a graph.
const (
	maxNodes = 64
	maxEdges = 10_000
)

// checked is a draft whose problems are known; without any it can be stored.
type checked struct {
	draft    Draft
	problems []control.Problem
	// conns are the connections by node.
	conns  map[string]connections.Connection
	routes []Wanted
}

func (k *checked) add(path, hint, format string, args ...any) {
	k.problems = append(k.problems, control.Problem{Path: path, Message: fmt.Sprintf(format, args...), Hint: hint})
}

// check finds every problem of a draft that can be found without its live ends.
// have are connections that are about to be made with it, by name.
func (s *Service) check(ctx context.Context, organization uuid.UUID, d Draft, have map[string]connections.Connection) (*checked, error) {
	k := &checked{draft: d, conns: map[string]connections.Connection{}}
	g := &k.draft.Graph
	if !connections.NamePattern.MatchString(d.Name) {
		k.add("name", "use 1 to 63 letters, digits, dots, dashes and underscores, and begin with a letter or digit", "%q is not a pipeline name", d.Name)
	}
	if len(g.Nodes) > maxNodes {
		k.add("nodes", "", "there are %d nodes, more than %d", len(g.Nodes), maxNodes)
		return k, nil
	}
	if len(g.Edges) > maxEdges {
		k.add("edges", "use patterns", "there are %d edges, more than %d", len(g.Edges), maxEdges)
		return k, nil
	}
	g.Nodes = append([]Node(nil), g.Nodes...)
	if err := k.nodes(ctx, s.Connections, s.Catalog, organization, have); err != nil {
		return nil, err
	}
	k.edges()
	if len(g.Edges) == 0 {
		k.add("edges", "join a source with a sink", "nothing is replicated: there is no edge")
	}
	for _, p := range g.Pairs() {
		if err := k.route(s.Catalog, p); err != nil {
			return nil, err
		}
	}
	k.names()
	var impossible *control.InvalidError
	if errors.As(s.Platform.Check("service.compute", g.Service.Compute), &impossible) {
		k.problems = append(k.problems, impossible.Problems...)
	}
	return k, nil
}

// nodes checks the nodes and puts ids in the place of connections' names.
func (k *checked) nodes(ctx context.Context, conns Connections, cat connections.Catalog, organization uuid.UUID, have map[string]connections.Connection) error {
	g := &k.draft.Graph
	first := map[string]int{}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		at := fmt.Sprintf("nodes[%d]", i)
		if !connections.NamePattern.MatchString(n.ID) {
			k.add(at+".id", "use letters, digits, dots, dashes and underscores, and begin with a letter or digit", "%q is not the id of a node", n.ID)
		}
		if before, twice := first[n.ID]; twice {
			k.add(at+".id", "", "nodes[%d] has the id %q too", before, n.ID)
			continue
		}
		first[n.ID] = i
		if n.Role != connections.Source && n.Role != connections.Sink {
			k.add(at+".role", "source or sink", "%q is not a role", n.Role)
			continue
		}
		if n.Connection == "" {
			k.add(at+".connection", "give the id or name of a connection", "the node has no connection")
			continue
		}
		c, ok := have[n.Connection]
		if !ok {
			var err error
			c, err = conns.Connection(ctx, organization, n.Connection)
			var missing *control.NotFoundError
			if errors.As(err, &missing) {
				k.add(at+".connection", "make it first", "there is no connection %q", n.Connection)
				continue
			}
			if err != nil {
				return err
			}
		}
		if c.Role != n.Role {
			k.add(at+".connection", "", "the connection %q is a %s, the node a %s", c.Name, c.Role, n.Role)
			continue
		}
		if string(n.Overlay) == "null" || string(n.Overlay) == "{}" {
			n.Overlay = nil
		}
		overlay := c.CheckOverlay(cat, n.Overlay)
		for _, p := range overlay {
			k.add(strings.TrimSuffix(at+".overlay."+p.Path, "."), p.Hint, "%s", p.Message)
		}
		if len(overlay) == 0 {
			n.Connection = c.ID.String()
			k.conns[n.ID] = c
		}
	}
	return nil
}

// edges checks what edges join.
func (k *checked) edges() {
	g := &k.draft.Graph
	used := map[string]bool{}
	for i, e := range g.Edges {
		for _, end := range []struct {
			key, id string
			role    connections.Role
		}{{"from", e.From, connections.Source}, {"to", e.To, connections.Sink}} {
			used[end.id] = true
			n := g.Node(end.id)
			switch {
			case n == nil:
				k.add(fmt.Sprintf("edges[%d].%s", i, end.key), "", "there is no node %q", end.id)
			case n.Role != end.role && (n.Role == connections.Source || n.Role == connections.Sink):
				k.add(fmt.Sprintf("edges[%d].%s", i, end.key), "edges go from sources to sinks", "the node %q is a %s", end.id, n.Role)
			}
		}
	}
	for i, n := range g.Nodes {
		if !used[n.ID] && n.ID != "" {
			k.add(fmt.Sprintf("nodes[%d]", i), "add an edge, or remove the node", "no edge uses the node %q", n.ID)
		}
	}
}

// route checks the document of a pair whose ends are known.
func (k *checked) route(cat connections.Catalog, p Pair) error {
	g := &k.draft.Graph
	from, okFrom := k.conns[p.From]
	to, okTo := k.conns[p.To]
	if !okFrom || !okTo || from.Role != connections.Source || to.Role != connections.Sink {
		// The entries are checked all the same, against no connectors.
		return k.document(noCatalog{}, p, Ends{Source: connections.End{Connector: "none"}, Sink: connections.End{Connector: "none"}})
	}
	ends, err := g.ends(p, from, to)
	if err != nil {
		return err
	}
	return k.document(cat, p, ends)
}

// ends are the connections of a pair with the overlays of its nodes.
func (g *Graph) ends(p Pair, from, to connections.Connection) (Ends, error) {
	var out Ends
	source, sink := g.Node(p.From), g.Node(p.To)
	if source == nil || sink == nil {
		return out, fmt.Errorf("the graph has no route %s", p.Key())
	}
	var err error
	if out.Source, err = from.End(source.Overlay); err != nil {
		return out, err
	}
	out.Sink, err = to.End(sink.Overlay)
	return out, err
}

func (k *checked) document(cat connections.Catalog, p Pair, ends Ends) error {
	g := &k.draft.Graph
	name := k.draft.Name
	if !connections.NamePattern.MatchString(name) {
		name = "unnamed" // the problem is told once, at the name
	}
	doc, err := g.Document(cat, name, p, ends, nil, nil)
	var bad *pipeline.Error
	switch {
	case errors.As(err, &bad):
		for _, x := range bad.Problems {
			message := x.Message
			if message == `the key "name" is missing` {
				message = "the edge has neither a resource nor a pattern"
			}
			k.problem(control.Problem{Path: g.Place(p, x.Path), Message: message, Hint: x.Hint})
		}
		return nil
	case err != nil:
		return err
	}
	k.routes = append(k.routes, Wanted{Route: Route{Key: p.Key(), From: p.From, To: p.To, Hash: doc.Hash()}})
	return nil
}

// problem adds one that is not there yet: what several routes share is checked
// with each of them.
func (k *checked) problem(p control.Problem) {
	for _, x := range k.problems {
		if x == p {
			return
		}
	}
	k.problems = append(k.problems, p)
}

// noCatalog has no connectors: documents are then checked without their ends.
type noCatalog struct{}

func (noCatalog) SourceSpecs() []engine.Spec { return nil }
func (noCatalog) SinkSpecs() []engine.Spec   { return nil }

var entryPath = regexp.MustCompile(`^resources\[([0-9]+)\](?:\.name\b|\.)?(.*)$`)

// NodePath is the path of a node's connection within the graph.
func (g *Graph) NodePath(id string) string {
	for i := range g.Nodes {
		if g.Nodes[i].ID == id {
			return fmt.Sprintf("nodes[%d].connection", i)
		}
	}
	return "nodes"
}

// Place says where in the graph a path of a pair's document is.
func (g *Graph) Place(p Pair, path string) string {
	if m := entryPath.FindStringSubmatch(path); m != nil {
		i, err := strconv.Atoi(m[1])
		if err != nil || i >= len(p.Edges) {
			return "edges"
		}
		at := fmt.Sprintf("edges[%d]", p.Edges[i])
		switch {
		case strings.HasSuffix(path, "].name"):
			return at + ".resource"
		case m[2] == "":
			return at
		}
		return at + "." + m[2]
	}
	for end, id := range map[string]string{"source": p.From, "sink": p.To} {
		rest, ok := strings.CutPrefix(path, end)
		if !ok || rest != "" && !strings.HasPrefix(rest, ".") {
			continue
		}
		for i := range g.Nodes {
			if g.Nodes[i].ID != id {
				continue
			}
			key, _, _ := strings.Cut(strings.TrimPrefix(rest, "."), ".")
			var overlay map[string]json.RawMessage
			if json.Unmarshal(g.Nodes[i].Overlay, &overlay) == nil && overlay[key] != nil {
				return fmt.Sprintf("nodes[%d].overlay%s", i, rest)
			}
			return fmt.Sprintf("nodes[%d].connection", i)
		}
	}
	if path == "resources" {
		return "edges"
	}
	return path
}

// names says which names the routes may have, the best first.
func (k *checked) names() {
	for i := range k.routes {
		r := &k.routes[i]
		r.Names = []string{k.draft.Name + "/" + r.Key}
		if len(k.routes) == 1 {
			r.Names = []string{k.draft.Name, k.draft.Name + "/" + r.Key}
		}
	}
}

// change is the write of a draft without problems.
func (k *checked) change(id uuid.UUID) (Change, error) {
	if len(k.problems) > 0 {
		return Change{}, &control.InvalidError{Problems: k.problems}
	}
	c := Change{ID: id, Name: k.draft.Name, Description: k.draft.Description, Graph: k.draft.Graph, Routes: k.routes, Hash: hashOf(k.routes)}
	seen := map[uuid.UUID]bool{}
	for _, n := range k.draft.Graph.Nodes {
		if c2 := k.conns[n.ID]; !seen[c2.ID] {
			seen[c2.ID] = true
			c.Uses = append(c.Uses, c2.ID)
		}
	}
	return c, nil
}
