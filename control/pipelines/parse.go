package pipelines

import (
	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/pipeline"
)

// ParseGraph reads a graph from JSON and returns every problem with its form; what
// it means is for [Service.Validate] to check.
func ParseGraph(text []byte) (Graph, []control.Problem) {
	var g Graph
	var out []control.Problem
	for _, p := range pipeline.DecodeJSON(text, &g) {
		out = append(out, control.Problem{Path: p.Path, Message: p.Message, Hint: p.Hint})
	}
	return g, out
}
