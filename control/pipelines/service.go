package pipelines

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/control/dispatch"
)

// Service is the pipelines of all organizations.
type Service struct {
	Store       Store
	Connections Connections
	Catalog     connections.Catalog
	// Drafts prepares the connections of imported files.
	Drafts *connections.Service
	// Secrets resolves secrets, to compare them with those of an imported file.
	Secrets connections.Resolver
	// Cursors forgets where resources stand.
	Cursors Cursors
	// Platform is what attempts can run on.
	Platform dispatch.Platform
}

// Create makes a pipeline with its first version.
func (s *Service) Create(ctx context.Context, a control.Actor, d Draft) (Pipeline, error) {
	if err := control.Authorize(a, control.WritePipelines); err != nil {
		return Pipeline{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Pipeline{}, fmt.Errorf("make id: %w", err)
	}
	k, err := s.check(ctx, a.Organization, d, nil)
	if err != nil {
		return Pipeline{}, err
	}
	c, err := k.change(id)
	if err != nil {
		return Pipeline{}, err
	}
	return s.Store.CreatePipeline(ctx, a, c)
}

// Update changes a pipeline whose version is still the given one. Another graph
// makes the next version.
func (s *Service) Update(ctx context.Context, a control.Actor, ref string, version int64, d Draft) (Pipeline, error) {
	if err := control.Authorize(a, control.WritePipelines); err != nil {
		return Pipeline{}, err
	}
	have, err := s.Store.Pipeline(ctx, a.Organization, ref)
	if err != nil {
		return Pipeline{}, err
	}
	if version != 0 && have.Version != version {
		return Pipeline{}, &control.StaleVersionError{Kind: "pipeline", Ref: have.Name, Given: version, Current: have.Version}
	}
	k, err := s.check(ctx, a.Organization, d, nil)
	if err != nil {
		return Pipeline{}, err
	}
	c, err := k.change(have.ID)
	if err != nil {
		return Pipeline{}, err
	}
	return s.Store.UpdatePipeline(ctx, a, version, c)
}

// Validate returns every problem of a draft, and its routes if there is none.
// Problems that only live systems can tell are for an inspection.
func (s *Service) Validate(ctx context.Context, a control.Actor, d Draft) ([]control.Problem, []Route, error) {
	if err := control.Authorize(a, control.ReadPipelines); err != nil {
		return nil, nil, err
	}
	k, err := s.check(ctx, a.Organization, d, nil)
	if err != nil || len(k.problems) > 0 {
		return k.found(), nil, err
	}
	routes := make([]Route, len(k.routes))
	for i, r := range k.routes {
		routes[i] = r.Route
		routes[i].Name = r.Names[0]
	}
	return nil, routes, nil
}

func (k *checked) found() []control.Problem {
	if k == nil {
		return nil
	}
	return k.problems
}

// SetPaused pauses a pipeline or ends its pause. A paused pipeline begins no runs;
// those that go on are left alone.
func (s *Service) SetPaused(ctx context.Context, a control.Actor, ref string, paused bool) (Pipeline, error) {
	if err := control.Authorize(a, control.OperatePipelines); err != nil {
		return Pipeline{}, err
	}
	have, err := s.Store.Pipeline(ctx, a.Organization, ref)
	if err != nil {
		return Pipeline{}, err
	}
	return s.Store.SetPaused(ctx, a, have.ID, paused)
}

// Delete ends a pipeline; version 0 means whatever it is.
func (s *Service) Delete(ctx context.Context, a control.Actor, ref string, version int64) error {
	if err := control.Authorize(a, control.WritePipelines); err != nil {
		return err
	}
	have, err := s.Store.Pipeline(ctx, a.Organization, ref)
	if err != nil {
		return err
	}
	return s.Store.DeletePipeline(ctx, a, have.ID, version)
}

// Get returns a pipeline by id or name.
func (s *Service) Get(ctx context.Context, a control.Actor, ref string) (Pipeline, error) {
	if err := control.Authorize(a, control.ReadPipelines); err != nil {
		return Pipeline{}, err
	}
	return s.Store.Pipeline(ctx, a.Organization, ref)
}

// List returns pipelines by name.
func (s *Service) List(ctx context.Context, a control.Actor, f Filter, p control.Page) (control.List[Pipeline], error) {
	if err := control.Authorize(a, control.ReadPipelines); err != nil {
		return control.List[Pipeline]{}, err
	}
	return s.Store.Pipelines(ctx, a.Organization, f, p)
}

// Version returns one version of a pipeline.
func (s *Service) Version(ctx context.Context, a control.Actor, ref string, number int64) (Version, error) {
	have, err := s.Get(ctx, a, ref)
	if err != nil {
		return Version{}, err
	}
	return s.Store.PipelineVersion(ctx, a.Organization, have.ID, number)
}

// Versions returns a pipeline's versions, the newest first.
func (s *Service) Versions(ctx context.Context, a control.Actor, ref string, p control.Page) (control.List[Version], error) {
	have, err := s.Get(ctx, a, ref)
	if err != nil {
		return control.List[Version]{}, err
	}
	return s.Store.PipelineVersions(ctx, a.Organization, have.ID, p)
}

// Cursors forgets where a route's resources stand.
type Cursors interface {
	// ResetResources forgets the cursors of these resources of the routes of that
	// name, so that the next run reads all of them, and returns those it knew.
	// *control.ConflictError ("run_open") while a run of the route is open.
	ResetResources(ctx context.Context, a control.Actor, pipeline uuid.UUID, route string, resources []string) ([]string, error)
}

// Reset forgets where resources of a pipeline's routes stand: the next run reads
// all of them. Nothing at the destination changes; with write mode append the next
// run appends all rows again.
func (s *Service) Reset(ctx context.Context, a control.Actor, ref string, resources []string) ([]string, error) {
	if err := control.Authorize(a, control.OperatePipelines); err != nil {
		return nil, err
	}
	have, err := s.Store.Pipeline(ctx, a.Organization, ref)
	if err != nil {
		return nil, err
	}
	if len(resources) == 0 {
		return nil, control.Invalid("resources", "", "name at least one resource")
	}
	known := map[string]bool{}
	for _, r := range have.Current.Routes {
		names, err := s.Cursors.ResetResources(ctx, a, have.ID, r.Name, resources)
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			known[n] = true
		}
	}
	var bad []control.Problem
	for i, r := range resources {
		if !known[r] {
			bad = append(bad, control.Problem{Path: fmt.Sprintf("resources[%d]", i), Message: fmt.Sprintf("no run of the pipeline has published %q", r),
				Hint: "resources are named as the source names them, such as public.orders"})
		}
	}
	if len(bad) > 0 {
		return nil, &control.InvalidError{Problems: bad}
	}
	return resources, nil
}
