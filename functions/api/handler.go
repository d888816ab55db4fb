package main

import (
	"context"
	"net/http"

	"github.com/aws/aws-lambda-go/events"

	"github.com/tranship-io/tranship/internal/compose/cloud/plane"
)

// handler answers requests of the API.
type handler struct {
	plane *plane.Plane
	api   http.Handler
}

func (h *handler) handle(ctx context.Context, event events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
	r, err := request(ctx, event)
	if err != nil {
		h.plane.Log.WarnContext(ctx, "a request cannot be read", "error", err)
		return events.APIGatewayProxyResponse{StatusCode: http.StatusBadRequest}, nil
	}
	a := &answer{header: http.Header{}}
	h.api.ServeHTTP(a, r)
	// What was committed stands, whether or not the rest can be done now.
	if err := h.plane.After(ctx); err != nil {
		h.plane.Log.WarnContext(ctx, "what follows a request is left to the sweep", "error", err)
	}
	return a.response(), nil
}
