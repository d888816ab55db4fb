package pipelines

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/pipeline"
)

// Graph is the content of a version.
type Graph struct {
	Nodes []Node `json:"nodes"`
	Edges []Edge `json:"edges"`
	// Defaults hold for every edge that does not say otherwise.
	Defaults pipeline.Defaults `json:"defaults,omitzero"`
	Settings pipeline.Settings `json:"settings,omitzero"`
	Service  pipeline.Service  `json:"service,omitzero"`
}

// Node is a source or a sink of the graph.
type Node struct {
	// ID is unique within the graph. It is part of a route's key: give a node
	// another id and its routes begin new histories.
	ID   string           `json:"id"`
	Role connections.Role `json:"role"`
	// Connection is the connection's id; a draft may have its name instead.
	Connection string `json:"connection"`
	// Overlay is put over the connection's configuration for this pipeline.
	Overlay json.RawMessage `json:"overlay,omitempty"`
}

// Edge says what is replicated from a source into a sink: one resource, or what a
// pattern matches.
type Edge struct {
	From string `json:"from"`
	To   string `json:"to"`

	Resource string             `json:"resource,omitempty"`
	Pattern  string             `json:"pattern,omitempty"`
	Exclude  []string           `json:"exclude,omitempty"`
	Views    bool               `json:"views,omitempty"`
	Read     engine.ReadMode    `json:"read,omitempty"`
	Write    engine.WriteMode   `json:"write,omitempty"`
	Cursor   string             `json:"cursor,omitempty"`
	Lookback pipeline.Duration  `json:"lookback,omitzero"`
	Key      []string           `json:"key,omitempty"`
	Columns  *pipeline.Columns  `json:"columns,omitempty"`
	Where    string             `json:"where,omitempty"`
	Target   string             `json:"target,omitempty"`
	Policies *pipeline.Policies `json:"policies,omitempty"`
	SetAside string             `json:"set_aside,omitempty"`
	Options  json.RawMessage    `json:"options,omitempty"`
}

// entry is the edge as a document has it.
func (e Edge) entry() pipeline.Resource {
	return pipeline.Resource{
		Name: e.Resource, Pattern: e.Pattern, Exclude: e.Exclude, Views: e.Views, Read: e.Read, Write: e.Write,
		Cursor: e.Cursor, Lookback: e.Lookback, Key: e.Key, Columns: e.Columns, Where: e.Where, Target: e.Target,
		Policies: e.Policies, SetAside: e.SetAside, Options: e.Options,
	}
}

// edgeOf is the edge of a document's entry.
func edgeOf(from, to string, r pipeline.Resource) Edge {
	e := Edge{
		From: from, To: to, Resource: r.Name, Pattern: r.Pattern, Exclude: r.Exclude, Views: r.Views, Read: r.Read,
		Write: r.Write, Cursor: r.Cursor, Lookback: r.Lookback, Key: r.Key, Columns: r.Columns, Where: r.Where,
		Target: r.Target, Policies: r.Policies, SetAside: r.SetAside, Options: r.Options,
	}
	if string(e.Options) == "null" {
		e.Options = nil
	}
	return e
}

// Node returns the node of that id, or nil.
func (g *Graph) Node(id string) *Node {
	for i := range g.Nodes {
		if g.Nodes[i].ID == id {
			return &g.Nodes[i]
		}
	}
	return nil
}

// Equal tells whether two graphs are written alike.
func (g Graph) Equal(other Graph) (bool, error) {
	x, err := json.Marshal(g)
	if err != nil {
		return false, fmt.Errorf("write graph: %w", err)
	}
	y, err := json.Marshal(other)
	if err != nil {
		return false, fmt.Errorf("write graph: %w", err)
	}
	return bytes.Equal(x, y), nil
}

// Pair is a source and a sink that edges join.
type Pair struct {
	From, To string
	// Edges are the indexes of the edges between them.
	Edges []int
}

// Key names the pair within the graph.
func (p Pair) Key() string { return p.From + "->" + p.To }

// Pairs returns the graph's pairs in the order of their first edges.
func (g *Graph) Pairs() []Pair {
	var out []Pair
	at := map[string]int{}
	for i, e := range g.Edges {
		p := Pair{From: e.From, To: e.To}
		n, ok := at[p.Key()]
		if !ok {
			n = len(out)
			at[p.Key()] = n
			out = append(out, p)
		}
		out[n].Edges = append(out[n].Edges, i)
	}
	return out
}
