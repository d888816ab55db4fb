package pipelines

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/connections"
)

// EndsOf finds the connections of a pair as they are now.
func EndsOf(ctx context.Context, conns Connections, organization uuid.UUID, g Graph, p Pair) (Ends, error) {
	var found [2]connections.Connection
	for i, id := range []string{p.From, p.To} {
		n := g.Node(id)
		if n == nil {
			return Ends{}, fmt.Errorf("the graph has no node %q", id)
		}
		var err error
		if found[i], err = conns.Connection(ctx, organization, n.Connection); err != nil {
			return Ends{}, fmt.Errorf("find the connection of node %q: %w", id, err)
		}
	}
	return g.ends(p, found[0], found[1])
}

// PairOf finds the pair of that key; *control.NotFoundError.
func (g *Graph) PairOf(key string) (Pair, error) {
	for _, p := range g.Pairs() {
		if p.Key() == key {
			return p, nil
		}
	}
	return Pair{}, &control.NotFoundError{Kind: "route", Ref: key}
}
