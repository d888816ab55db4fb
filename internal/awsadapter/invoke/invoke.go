// Package invoke calls functions of ours without waiting for them.
package invoke

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control/inspections"
)

// Inspections begins inspections in a function of their own.
type Inspections struct {
	client   *lambda.Client
	function string
	log      *slog.Logger
}

var _ inspections.Starter = (*Inspections)(nil)

// NewInspections calls the function of an ARN.
func NewInspections(c aws.Config, function string, log *slog.Logger) *Inspections {
	return &Inspections{lambda.NewFromConfig(c), function, log}
}

// Begin implements [inspections.Starter].
func (i *Inspections) Begin(ctx context.Context, r inspections.Ref) {
	payload, err := json.Marshal(map[string]uuid.UUID{"organization": r.Organization, "inspection": r.ID})
	if err == nil {
		_, err = i.client.Invoke(ctx, &lambda.InvokeInput{FunctionName: &i.function, InvocationType: types.InvocationTypeEvent, Payload: payload})
	}
	if err != nil {
		// The sweep asks again.
		i.log.WarnContext(ctx, "an inspection could not be begun", "function", i.function, "organization", r.Organization, "inspection", r.ID, "error", err)
	}
}
