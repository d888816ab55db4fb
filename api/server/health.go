package server

import (
	"context"

	"github.com/tranship-io/tranship/api"
	"github.com/tranship-io/tranship/api/internal/rest"
)

// GetHealth answers once the checks before it found the server ready.
func (o *operations) GetHealth(context.Context, rest.GetHealthRequestObject) (rest.GetHealthResponseObject, error) {
	return rest.GetHealth200JSONResponse{Status: rest.HealthStatusOk, Version: o.version}, nil
}

// GetDocument answers with the document.
func (o *operations) GetDocument(context.Context, rest.GetDocumentRequestObject) (rest.GetDocumentResponseObject, error) {
	doc, err := api.Document()
	if err != nil {
		return nil, err
	}
	return raw(doc), nil
}
