package pipelines

import (
	"context"
	"fmt"
	"strings"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/pipeline"
)

// Export writes a route of a version as the file that tranship run takes, with
// ${NAME} in the place of each secret. number 0 means the current version, route
// "" the only one.
func (s *Service) Export(ctx context.Context, a control.Actor, ref string, number int64, route string) ([]byte, error) {
	have, err := s.Get(ctx, a, ref)
	if err != nil {
		return nil, err
	}
	v := have.Current
	if number != 0 && number != v.Number {
		if v, err = s.Store.PipelineVersion(ctx, a.Organization, have.ID, number); err != nil {
			return nil, err
		}
	}
	p, err := choose(v.Graph, route)
	if err != nil {
		return nil, err
	}
	name := have.Name
	if len(v.Routes) > 1 {
		name = fmt.Sprintf("%s-%s-%s", have.Name, p.From, p.To)
		name = name[:min(len(name), 63)]
	}
	ends, err := EndsOf(ctx, s.Connections, a.Organization, v.Graph, p)
	if err != nil {
		return nil, err
	}
	text, err := v.Graph.Text(name, p, ends)
	if err != nil {
		return nil, err
	}
	// Without a look-up all references, and what only looks like one, stay as they
	// are written.
	doc, err := pipeline.ParseJSON(text, pipeline.Options{Sources: s.Catalog.SourceSpecs(), Sinks: s.Catalog.SinkSpecs()})
	if err != nil {
		return nil, invalid(err)
	}
	return pipeline.Marshal(doc)
}

// choose finds the route of that key; "" is the only one.
func choose(g Graph, key string) (Pair, error) {
	var keys []string
	pairs := g.Pairs()
	for _, p := range pairs {
		if p.Key() == key || key == "" && len(pairs) == 1 {
			return p, nil
		}
		keys = append(keys, p.Key())
	}
	if key == "" {
		return Pair{}, control.Invalid("route", "routes: "+strings.Join(keys, ", "), "the pipeline has %d routes, and a file holds one", len(pairs))
	}
	return Pair{}, &control.NotFoundError{Kind: "route", Ref: key}
}
