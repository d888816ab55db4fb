package server

import (
	"context"

	"github.com/tranship-io/tranship/api/internal/rest"
)

func (o *operations) ListConnections(context.Context, rest.ListConnectionsRequestObject) (rest.ListConnectionsResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) CreateConnection(context.Context, rest.CreateConnectionRequestObject) (rest.CreateConnectionResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) DeleteConnection(context.Context, rest.DeleteConnectionRequestObject) (rest.DeleteConnectionResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) GetConnection(context.Context, rest.GetConnectionRequestObject) (rest.GetConnectionResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) UpdateConnection(context.Context, rest.UpdateConnectionRequestObject) (rest.UpdateConnectionResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) ListConnectionVersions(context.Context, rest.ListConnectionVersionsRequestObject) (rest.ListConnectionVersionsResponseObject, error) {
	return nil, errNotHere
}
