package server

import (
	"context"

	"github.com/tranship-io/tranship/api/internal/rest"
)

func (o *operations) ListRuns(context.Context, rest.ListRunsRequestObject) (rest.ListRunsResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) StartRun(context.Context, rest.StartRunRequestObject) (rest.StartRunResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) GetRun(context.Context, rest.GetRunRequestObject) (rest.GetRunResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) CancelRun(context.Context, rest.CancelRunRequestObject) (rest.CancelRunResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) ListFacts(context.Context, rest.ListFactsRequestObject) (rest.ListFactsResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) GetRunLogs(context.Context, rest.GetRunLogsRequestObject) (rest.GetRunLogsResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) PauseRun(context.Context, rest.PauseRunRequestObject) (rest.PauseRunResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) GetReceipt(context.Context, rest.GetReceiptRequestObject) (rest.GetReceiptResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) ListRunResources(context.Context, rest.ListRunResourcesRequestObject) (rest.ListRunResourcesResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) ResumeRun(context.Context, rest.ResumeRunRequestObject) (rest.ResumeRunResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) RetryRun(context.Context, rest.RetryRunRequestObject) (rest.RetryRunResponseObject, error) {
	return nil, errNotHere
}
