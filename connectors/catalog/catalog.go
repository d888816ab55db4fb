// Package catalog is the one explicit table of the connectors that are built in.
package catalog

import (
	"cmp"
	"io"
	"slices"

	"github.com/tranship-io/tranship/connectors/files"
	"github.com/tranship-io/tranship/connectors/postgres"
	"github.com/tranship-io/tranship/connectors/sample"
	"github.com/tranship-io/tranship/connectors/stdout"
	"github.com/tranship-io/tranship/engine"
)

// Catalog is a set of connectors, found by name. It does not change once made
// and may be used concurrently.
type Catalog struct {
	sources []engine.Source
	sinks   []engine.Sink
}

// New returns every connector that is built in; out is where the sink stdout
// prints. A new connector is one line here.
func New(out io.Writer) *Catalog {
	return Of(
		[]engine.Source{postgres.NewSource(), sample.NewSource()},
		[]engine.Sink{postgres.NewSink(), files.NewSink(), stdout.NewSink(out)},
	)
}

// Of returns a catalog of the given connectors, ordered by name.
func Of(sources []engine.Source, sinks []engine.Sink) *Catalog {
	c := &Catalog{sources: slices.Clone(sources), sinks: slices.Clone(sinks)}
	slices.SortFunc(c.sources, func(a, b engine.Source) int { return cmp.Compare(a.Spec().Name, b.Spec().Name) })
	slices.SortFunc(c.sinks, func(a, b engine.Sink) int { return cmp.Compare(a.Spec().Name, b.Spec().Name) })
	return c
}

// Source returns the source of that name.
func (c *Catalog) Source(name string) (engine.Source, bool) {
	for _, s := range c.sources {
		if s.Spec().Name == name {
			return s, true
		}
	}
	return nil, false
}

// Sink returns the sink of that name.
func (c *Catalog) Sink(name string) (engine.Sink, bool) {
	for _, s := range c.sinks {
		if s.Spec().Name == name {
			return s, true
		}
	}
	return nil, false
}

// SourceSpecs returns the specs of all sources, by name.
func (c *Catalog) SourceSpecs() []engine.Spec {
	out := make([]engine.Spec, len(c.sources))
	for i, s := range c.sources {
		out[i] = s.Spec()
	}
	return out
}

// SinkSpecs returns the specs of all sinks, by name.
func (c *Catalog) SinkSpecs() []engine.Spec {
	out := make([]engine.Spec, len(c.sinks))
	for i, s := range c.sinks {
		out[i] = s.Spec()
	}
	return out
}
