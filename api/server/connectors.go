package server

import (
	"context"

	"github.com/tranship-io/tranship/api/internal/rest"
)

func (o *operations) ListConnectors(context.Context, rest.ListConnectorsRequestObject) (rest.ListConnectorsResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) GetConnector(context.Context, rest.GetConnectorRequestObject) (rest.GetConnectorResponseObject, error) {
	return nil, errNotHere
}
