package server

import (
	"context"

	"github.com/tranship-io/tranship/api/internal/rest"
)

func (o *operations) ListInspections(context.Context, rest.ListInspectionsRequestObject) (rest.ListInspectionsResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) StartInspection(context.Context, rest.StartInspectionRequestObject) (rest.StartInspectionResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) GetInspection(context.Context, rest.GetInspectionRequestObject) (rest.GetInspectionResponseObject, error) {
	return nil, errNotHere
}
