package server

import (
	"context"

	"github.com/tranship-io/tranship/api/internal/rest"
)

func (o *operations) ApplyDocument(context.Context, rest.ApplyDocumentRequestObject) (rest.ApplyDocumentResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) ListPipelines(context.Context, rest.ListPipelinesRequestObject) (rest.ListPipelinesResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) CreatePipeline(context.Context, rest.CreatePipelineRequestObject) (rest.CreatePipelineResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) DeletePipeline(context.Context, rest.DeletePipelineRequestObject) (rest.DeletePipelineResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) GetPipeline(context.Context, rest.GetPipelineRequestObject) (rest.GetPipelineResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) UpdatePipeline(context.Context, rest.UpdatePipelineRequestObject) (rest.UpdatePipelineResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) BackfillPipeline(context.Context, rest.BackfillPipelineRequestObject) (rest.BackfillPipelineResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) ExportPipeline(context.Context, rest.ExportPipelineRequestObject) (rest.ExportPipelineResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) PausePipeline(context.Context, rest.PausePipelineRequestObject) (rest.PausePipelineResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) ResetPipeline(context.Context, rest.ResetPipelineRequestObject) (rest.ResetPipelineResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) ResumePipeline(context.Context, rest.ResumePipelineRequestObject) (rest.ResumePipelineResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) ListPipelineVersions(context.Context, rest.ListPipelineVersionsRequestObject) (rest.ListPipelineVersionsResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) GetPipelineVersion(context.Context, rest.GetPipelineVersionRequestObject) (rest.GetPipelineVersionResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) ValidatePipeline(context.Context, rest.ValidatePipelineRequestObject) (rest.ValidatePipelineResponseObject, error) {
	return nil, errNotHere
}
