package server

import (
	"context"

	"github.com/tranship-io/tranship/api/internal/rest"
	"github.com/tranship-io/tranship/control/pipelines"
	"github.com/tranship-io/tranship/control/runs"
)

// ApplyDocument applies a pipeline file.
func (o *operations) ApplyDocument(ctx context.Context, r rest.ApplyDocumentRequestObject) (rest.ApplyDocumentResponseObject, error) {
	p, changes, err := o.Pipelines.Apply(ctx, actorOf(ctx), pipelines.File{Text: []byte(r.Body.Document), Variables: r.Body.Variables, DryRun: r.Body.DryRun})
	if err != nil {
		return nil, err
	}
	out := rest.ApplyDocument200JSONResponse{Changes: each(changes, func(c pipelines.AppliedChange) rest.ApplyChange {
		return rest.ApplyChange{Kind: c.Kind, Name: c.Name, Action: rest.ApplyChangeAction(c.Action), Id: c.ID}
	})}
	if p != nil {
		if out.Pipeline, err = pipelineOf(*p); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ListPipelines lists pipelines.
func (o *operations) ListPipelines(ctx context.Context, r rest.ListPipelinesRequestObject) (rest.ListPipelinesResponseObject, error) {
	l, err := o.Pipelines.List(ctx, actorOf(ctx), pipelines.Filter{Name: r.Params.Name}, page(r.Params.Limit, r.Params.After))
	if err != nil {
		return nil, err
	}
	items, err := tryEach(l.Items, pipelineOf)
	return rest.ListPipelines200JSONResponse{Items: items, Next: next(l.Next)}, err
}

// CreatePipeline makes a pipeline.
func (o *operations) CreatePipeline(ctx context.Context, r rest.CreatePipelineRequestObject) (rest.CreatePipelineResponseObject, error) {
	d, err := pipelineDraft(r.Body)
	if err != nil {
		return nil, err
	}
	p, err := o.Pipelines.Create(ctx, actorOf(ctx), d)
	if err != nil {
		return nil, requestPaths(err)
	}
	out, err := pipelineOf(p)
	return rest.CreatePipeline201JSONResponse(out), err
}

// GetPipeline answers with a pipeline.
func (o *operations) GetPipeline(ctx context.Context, r rest.GetPipelineRequestObject) (rest.GetPipelineResponseObject, error) {
	p, err := o.Pipelines.Get(ctx, actorOf(ctx), r.Id.String())
	if err != nil {
		return nil, err
	}
	out, err := pipelineOf(p)
	return rest.GetPipeline200JSONResponse(out), err
}

// UpdatePipeline changes a pipeline; another graph makes the next version.
func (o *operations) UpdatePipeline(ctx context.Context, r rest.UpdatePipelineRequestObject) (rest.UpdatePipelineResponseObject, error) {
	d, err := pipelineDraft(r.Body)
	if err != nil {
		return nil, err
	}
	p, err := o.Pipelines.Update(ctx, actorOf(ctx), r.Id.String(), ifMatch(r.Params.IfMatch), d)
	if err != nil {
		return nil, requestPaths(err)
	}
	out, err := pipelineOf(p)
	return rest.UpdatePipeline200JSONResponse(out), err
}

// DeletePipeline ends a pipeline.
func (o *operations) DeletePipeline(ctx context.Context, r rest.DeletePipelineRequestObject) (rest.DeletePipelineResponseObject, error) {
	if err := o.Pipelines.Delete(ctx, actorOf(ctx), r.Id.String(), ifMatch(r.Params.IfMatch)); err != nil {
		return nil, err
	}
	return rest.DeletePipeline204Response{}, nil
}

// PausePipeline lets no further run of a pipeline begin.
func (o *operations) PausePipeline(ctx context.Context, r rest.PausePipelineRequestObject) (rest.PausePipelineResponseObject, error) {
	p, err := o.Pipelines.SetPaused(ctx, actorOf(ctx), r.Id.String(), true)
	if err != nil {
		return nil, err
	}
	out, err := pipelineOf(p)
	return rest.PausePipeline200JSONResponse(out), err
}

// ResumePipeline ends the pause of a pipeline.
func (o *operations) ResumePipeline(ctx context.Context, r rest.ResumePipelineRequestObject) (rest.ResumePipelineResponseObject, error) {
	p, err := o.Pipelines.SetPaused(ctx, actorOf(ctx), r.Id.String(), false)
	if err != nil {
		return nil, err
	}
	out, err := pipelineOf(p)
	return rest.ResumePipeline200JSONResponse(out), err
}

// ResetPipeline forgets where resources stand.
func (o *operations) ResetPipeline(ctx context.Context, r rest.ResetPipelineRequestObject) (rest.ResetPipelineResponseObject, error) {
	names, err := o.Pipelines.Reset(ctx, actorOf(ctx), r.Id.String(), r.Body.Resources)
	if err != nil {
		return nil, err
	}
	return rest.ResetPipeline200JSONResponse{Resources: names}, nil
}

// BackfillPipeline starts runs that read resources again from their beginning.
func (o *operations) BackfillPipeline(ctx context.Context, r rest.BackfillPipelineRequestObject) (rest.BackfillPipelineResponseObject, error) {
	if o.Runs == nil {
		return nil, errNotHere
	}
	started, err := o.Runs.Start(ctx, actorOf(ctx), runs.StartRequest{
		Pipeline: r.Id.String(), Trigger: runs.Trigger{Kind: runs.TriggerBackfill},
		Options: runs.Options{FullRefresh: r.Body.Resources, Only: r.Body.Resources},
	})
	if err != nil {
		return nil, err
	}
	return rest.BackfillPipeline202JSONResponse{Items: each(started.Runs, runFrom)}, nil
}

// ExportPipeline answers with the file of a route.
func (o *operations) ExportPipeline(ctx context.Context, r rest.ExportPipelineRequestObject) (rest.ExportPipelineResponseObject, error) {
	text, err := o.Pipelines.Export(ctx, actorOf(ctx), r.Id.String(), r.Params.Version, r.Params.Route)
	return rest.ExportPipeline200TextResponse(text), err
}

// ListPipelineVersions lists the versions of a pipeline.
func (o *operations) ListPipelineVersions(ctx context.Context, r rest.ListPipelineVersionsRequestObject) (rest.ListPipelineVersionsResponseObject, error) {
	l, err := o.Pipelines.Versions(ctx, actorOf(ctx), r.Id.String(), page(r.Params.Limit, r.Params.After))
	if err != nil {
		return nil, err
	}
	items, err := tryEach(l.Items, versionOf)
	return rest.ListPipelineVersions200JSONResponse{Items: items, Next: next(l.Next)}, err
}

// GetPipelineVersion answers with one version.
func (o *operations) GetPipelineVersion(ctx context.Context, r rest.GetPipelineVersionRequestObject) (rest.GetPipelineVersionResponseObject, error) {
	v, err := o.Pipelines.Version(ctx, actorOf(ctx), r.Id.String(), r.Number)
	if err != nil {
		return nil, err
	}
	out, err := versionOf(v)
	return rest.GetPipelineVersion200JSONResponse(out), err
}

// ValidatePipeline answers with every problem of a pipeline.
func (o *operations) ValidatePipeline(ctx context.Context, r rest.ValidatePipelineRequestObject) (rest.ValidatePipelineResponseObject, error) {
	d, err := pipelineDraft(r.Body)
	if err != nil {
		return nil, err
	}
	problems, routes, err := o.Pipelines.Validate(ctx, actorOf(ctx), d)
	if err != nil {
		return nil, err
	}
	return rest.ValidatePipeline200JSONResponse{Valid: len(problems) == 0, Problems: items(inRequest(problems)), Routes: routesOf(routes)}, nil
}
