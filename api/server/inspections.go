package server

import (
	"context"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/api/internal/rest"
	"github.com/tranship-io/tranship/control/inspections"
)

func inspectionOf(i inspections.Inspection) rest.Inspection {
	return rest.Inspection{
		Id: i.ID, Kind: rest.InspectionKind(i.Kind), State: rest.InspectionState(i.State), Connection: i.Connection, Pipeline: i.Pipeline, Resource: i.Resource,
		Result: i.Result, Error: i.Error, Hint: i.Hint, CreatedAt: i.CreatedAt, StartedAt: i.StartedAt, EndedAt: i.EndedAt, ExpiresAt: i.ExpiresAt,
	}
}

// ListInspections lists inspections.
func (o *operations) ListInspections(ctx context.Context, r rest.ListInspectionsRequestObject) (rest.ListInspectionsResponseObject, error) {
	f := inspections.Filter{Connection: r.Params.Connection, Kind: inspections.Kind(r.Params.Kind), State: inspections.State(r.Params.State)}
	l, err := o.Inspections.List(ctx, actorOf(ctx), f, page(r.Params.Limit, r.Params.After))
	if err != nil {
		return nil, err
	}
	return rest.ListInspections200JSONResponse{Items: each(l.Items, inspectionOf), Next: next(l.Next)}, nil
}

// StartInspection asks for a look at a live system.
func (o *operations) StartInspection(ctx context.Context, r rest.StartInspectionRequestObject) (rest.StartInspectionResponseObject, error) {
	i, err := o.Inspections.Start(ctx, actorOf(ctx), inspections.Request{
		Kind: inspections.Kind(r.Body.Kind), Connection: idText(r.Body.Connection), Pipeline: idText(r.Body.Pipeline),
		Resource: r.Body.Resource, Pattern: r.Body.Pattern, Overlay: r.Body.Overlay,
	})
	if err != nil {
		return nil, err
	}
	return rest.StartInspection202JSONResponse(inspectionOf(i)), nil
}

// idText is empty for no id.
func idText(id uuid.UUID) string {
	if id == uuid.Nil {
		return ""
	}
	return id.String()
}

// GetInspection answers with an inspection and its result.
func (o *operations) GetInspection(ctx context.Context, r rest.GetInspectionRequestObject) (rest.GetInspectionResponseObject, error) {
	i, err := o.Inspections.Get(ctx, actorOf(ctx), r.Id)
	if err != nil {
		return nil, err
	}
	return rest.GetInspection200JSONResponse(inspectionOf(i)), nil
}
