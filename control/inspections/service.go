package inspections

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/control/pipelines"
)

// Request asks for an inspection.
type Request struct {
	Kind Kind
	// Connection and Pipeline are ids or names.
	Connection string
	Pipeline   string
	Resource   string
	Pattern    string
	Overlay    json.RawMessage
}

// Connections finds connections.
type Connections interface {
	Connection(ctx context.Context, organization uuid.UUID, ref string) (connections.Connection, error)
}

// Pipelines finds pipelines.
type Pipelines interface {
	Pipeline(ctx context.Context, organization uuid.UUID, ref string) (pipelines.Pipeline, error)
}

// Service starts and shows inspections.
type Service struct {
	Store       Store
	Connections Connections
	Pipelines   Pipelines
	Catalog     connections.Catalog
	// Starter, if not nil, is told of each request; else a worker is woken.
	Starter Starter
}

// Start records a request; a worker executes it.
func (s *Service) Start(ctx context.Context, a control.Actor, r Request) (Inspection, error) {
	made, err := s.record(ctx, a, r)
	if err == nil && s.Starter != nil && made.State == Requested {
		s.Starter.Begin(ctx, Ref{a.Organization, made.ID})
	}
	return made, err
}

func (s *Service) record(ctx context.Context, a control.Actor, r Request) (Inspection, error) {
	if err := control.Authorize(a, control.StartInspections); err != nil {
		return Inspection{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Inspection{}, fmt.Errorf("make id: %w", err)
	}
	i := Inspection{ID: id, Kind: r.Kind, State: Requested, Resource: r.Resource, Pattern: r.Pattern}
	if p := r.check(); len(p) > 0 {
		return Inspection{}, &control.InvalidError{Problems: p}
	}
	if r.Kind == Validate {
		p, err := s.Pipelines.Pipeline(ctx, a.Organization, r.Pipeline)
		if err != nil {
			return Inspection{}, err
		}
		i.Pipeline, i.Number = p.ID, p.Current.Number
		return s.Store.CreateInspection(ctx, a, i, Keep)
	}
	c, err := s.Connections.Connection(ctx, a.Organization, r.Connection)
	if err != nil {
		return Inspection{}, err
	}
	if c.Role != connections.Source && r.Kind != Test {
		return Inspection{}, control.Invalid("connection", "sources have resources; a sink can be tested", "the connection %q is a %s", c.Name, c.Role)
	}
	var bad []control.Problem
	for _, p := range c.CheckOverlay(s.Catalog, r.Overlay) {
		bad = append(bad, control.Problem{Path: "overlay." + p.Path, Message: p.Message, Hint: p.Hint})
	}
	if len(bad) > 0 {
		return Inspection{}, &control.InvalidError{Problems: bad}
	}
	i.Connection, i.Overlay = c.ID, r.Overlay
	return s.Store.CreateInspection(ctx, a, i, Keep)
}

// check finds what is wrong with a request by itself.
func (r Request) check() []control.Problem {
	var out []control.Problem
	add := func(path, format string, args ...any) {
		out = append(out, control.Problem{Path: path, Message: fmt.Sprintf(format, args...)})
	}
	switch r.Kind {
	case Test, Discover, Columns, Validate:
	default:
		add("kind", "%q is not a kind: test, discover, columns or validate", r.Kind)
		return out
	}
	if r.Kind == Validate {
		if r.Pipeline == "" {
			add("pipeline", "name the pipeline to validate")
		}
		if r.Connection != "" || len(r.Overlay) > 0 {
			add("connection", "a pipeline is validated with its own connections")
		}
	} else {
		if r.Connection == "" {
			add("connection", "name the connection to look at")
		}
		if r.Pipeline != "" {
			add("pipeline", "only a validation is about a pipeline")
		}
	}
	if (r.Resource != "") != (r.Kind == Columns) {
		add("resource", "columns, and nothing else, needs the name of a resource")
	}
	if r.Pattern != "" && r.Kind != Discover {
		add("pattern", "only discover takes a pattern")
	}
	return out
}

// Get returns an inspection.
func (s *Service) Get(ctx context.Context, a control.Actor, id uuid.UUID) (Inspection, error) {
	if err := control.Authorize(a, control.ReadInspections); err != nil {
		return Inspection{}, err
	}
	return s.Store.Inspection(ctx, a.Organization, id)
}

// List returns inspections, the newest first.
func (s *Service) List(ctx context.Context, a control.Actor, f Filter, p control.Page) (control.List[Inspection], error) {
	if err := control.Authorize(a, control.ReadInspections); err != nil {
		return control.List[Inspection]{}, err
	}
	return s.Store.Inspections(ctx, a.Organization, f, p)
}
