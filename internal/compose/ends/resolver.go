package ends

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/control/pipelines"
	"github.com/tranship-io/tranship/control/secrets"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/runner"
	"github.com/tranship-io/tranship/pipeline"
)

// Store is what a resolver reads.
type Store interface {
	pipelines.Connections
	PipelineVersion(ctx context.Context, organization, id uuid.UUID, number int64) (pipelines.Version, error)
}

// Resolver makes documents of what is stored.
type Resolver struct {
	Store   Store
	Secrets connections.Resolver
	Catalog *catalog.Catalog
}

// Route names a route of a stored pipeline's version.
type Route struct {
	Organization uuid.UUID
	Pipeline     uuid.UUID
	// Name is the pipeline's.
	Name string
	// Number is the version's, Key the route's key in its graph.
	Number int64
	Key    string
	// Hash is what the route's document was when its run was accepted; empty: it is
	// taken now.
	Hash string
}

// Options returns what the engine needs for a run of the route: everything but
// State and what belongs to the process. Connections and secrets are taken as they
// are now, so that a corrected password lets a failed run go on; a run whose
// connections lead elsewhere by now is told apart by its route's identity.
// learn is told the secrets before any of them is used.
func (r *Resolver) Options(ctx context.Context, route Route, learn func(secrets ...string)) (runner.Options, error) {
	e, err := r.Ends(ctx, route)
	if err != nil {
		return runner.Options{}, err
	}
	learn(e.Secrets()...)
	opt, err := e.Options(ctx)
	if route.Hash != "" {
		opt.Version = route.Hash
	}
	return opt, err
}

// Ends returns the two ends of the route, its secrets resolved.
func (r *Resolver) Ends(ctx context.Context, route Route) (Ends, error) {
	v, err := r.Store.PipelineVersion(ctx, route.Organization, route.Pipeline, route.Number)
	if err != nil {
		return Ends{}, classified(err, fmt.Sprintf("version %d of pipeline %q", route.Number, route.Name))
	}
	name := ""
	for _, x := range v.Routes {
		if x.Key == route.Key {
			name = x.Name
		}
	}
	return r.ends(ctx, route, v.Graph, name)
}

// Draft returns the two ends of a pair of a graph that may not be stored.
func (r *Resolver) Draft(ctx context.Context, organization uuid.UUID, name string, g pipelines.Graph, p pipelines.Pair) (Ends, error) {
	return r.ends(ctx, Route{Organization: organization, Name: name, Key: p.Key()}, g, name)
}

func (r *Resolver) ends(ctx context.Context, route Route, g pipelines.Graph, name string) (Ends, error) {
	what := fmt.Sprintf("route %s of pipeline %q", route.Key, route.Name)
	pair, err := g.PairOf(route.Key)
	if err != nil || name == "" {
		return Ends{}, engine.Bugf("find %s: its version does not have it", what)
	}
	found, err := pipelines.EndsOf(ctx, r.Store, route.Organization, g, pair)
	if err != nil {
		return Ends{}, classified(err, what)
	}
	var lookups [2]pipelines.Lookup
	for i, end := range []connections.End{found.Source, found.Sink} {
		if lookups[i], err = end.Lookup(ctx, route.Organization, r.Secrets); err != nil {
			return Ends{}, classified(err, what)
		}
	}
	doc, err := g.Document(r.Catalog, route.Name, pair, found, lookups[0], lookups[1])
	var bad *pipeline.Error
	if errors.As(err, &bad) {
		return Ends{}, engine.Permanentf("change the pipeline or its connections", "%s cannot run: %w", what, bad)
	}
	if err != nil {
		return Ends{}, err
	}
	return Ends{Catalog: r.Catalog, Doc: doc, Name: name}, nil
}

// Session opens one connection by itself, for an inspection. learn is told its
// secrets before any of them is used.
func (r *Resolver) Session(ctx context.Context, organization uuid.UUID, c connections.Connection, overlay []byte, opt engine.OpenOptions, learn func(secrets ...string)) (Closer, error) {
	what := fmt.Sprintf("connection %q", c.Name)
	end, err := c.End(overlay)
	if err != nil {
		return nil, engine.Permanentf("", "%s: %w", what, err)
	}
	lookup, err := end.Lookup(ctx, organization, r.Secrets)
	if err != nil {
		return nil, classified(err, what)
	}
	config, secrets, err := pipeline.Resolve(end.Config, func(name string) (string, bool) {
		// What a connection refers to is a secret, whatever it is called; of a whole
		// address only the password is.
		v, ok := lookup(name)
		if ok && v != c.Connector && !strings.Contains(v, "://") {
			learn(v)
		}
		return v, ok
	})
	if err != nil {
		return nil, engine.Permanentf("change the connection", "%s: %w", what, err)
	}
	learn(slices.DeleteFunc(secrets, func(s string) bool { return s == c.Connector })...)
	if c.Role == connections.Source {
		source, ok := r.Catalog.Source(c.Connector)
		if !ok {
			return nil, engine.Permanentf("", "%s: this build has no source connector %q", what, c.Connector)
		}
		return source.Open(ctx, config, opt)
	}
	sink, ok := r.Catalog.Sink(c.Connector)
	if !ok {
		return nil, engine.Permanentf("", "%s: this build has no sink connector %q", what, c.Connector)
	}
	return sink.Open(ctx, config, opt)
}

// classified gives an error of the control plane the engine's class.
func classified(err error, what string) error {
	var away *control.UnavailableError
	var missing *control.NotFoundError
	var unresolved *secrets.UnresolvedError
	switch {
	case errors.As(err, &away):
		return engine.Retryablef("read %s: %w", what, err)
	case errors.As(err, &missing):
		return engine.Permanentf("it was deleted; give the pipeline another one", "%s: %w", what, err)
	case errors.As(err, &unresolved):
		return engine.Permanentf(unresolved.Hint, "%s: %w", what, err)
	}
	return fmt.Errorf("read %s: %w", what, err)
}
