// Command authorizer tells API Gateway who may call: it checks keys and tokens
// offline, without the database.
package main

import (
	"context"
	"fmt"

	"github.com/aws/aws-lambda-go/events"

	"github.com/tranship-io/tranship/control/access"
	"github.com/tranship-io/tranship/internal/compose/cloud"
	"github.com/tranship-io/tranship/internal/compose/cloud/entry"
)

func main() {
	cloud.Main("authorizer", func(ctx context.Context, f *cloud.Function) (cloud.Handler[events.APIGatewayCustomAuthorizerRequestTypeRequest, events.APIGatewayCustomAuthorizerResponse], error) {
		e, err := entry.Open(ctx, f)
		if err != nil {
			return nil, err
		}
		v, err := access.NewVerifier(e.Signer, e.OIDC, nil)
		if err != nil {
			return nil, fmt.Errorf("read TRANSHIP_OIDC: %w", err)
		}
		return (&handler{verifier: v, log: f.Log}).handle, nil
	})
}
