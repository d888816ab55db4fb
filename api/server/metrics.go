package server

import (
	"context"

	"github.com/tranship-io/tranship/api/internal/rest"
)

func (o *operations) ListMetricAggregates(context.Context, rest.ListMetricAggregatesRequestObject) (rest.ListMetricAggregatesResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) ListCosts(context.Context, rest.ListCostsRequestObject) (rest.ListCostsResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) ListPipelineHealth(context.Context, rest.ListPipelineHealthRequestObject) (rest.ListPipelineHealthResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) ListMetricSeries(context.Context, rest.ListMetricSeriesRequestObject) (rest.ListMetricSeriesResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) GetPipelineHealth(context.Context, rest.GetPipelineHealthRequestObject) (rest.GetPipelineHealthResponseObject, error) {
	return nil, errNotHere
}
