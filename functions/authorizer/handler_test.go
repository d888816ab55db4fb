package main

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/access"
)

const method = "arn:aws:execute-api:eu-west-1:1:api/prod/GET/v1/runs"

func TestAuthorizer(t *testing.T) {
	t.Parallel()
	signer, err := access.NewSigner([][]byte{bytes.Repeat([]byte{7}, 32)})
	require.NoError(t, err)
	verifier, err := access.NewVerifier(signer, nil, nil)
	require.NoError(t, err)
	var log bytes.Buffer
	h := &handler{verifier: verifier, log: slog.New(slog.NewJSONHandler(&log, nil))}
	claims := access.Claims{Organization: uuid.New(), Account: uuid.New(), Key: uuid.New(), Role: control.RoleOperator}
	good, err := signer.Mint(claims)
	require.NoError(t, err)
	claims.ExpiresAt = time.Now().Add(-time.Hour)
	expired, err := signer.Mint(claims)
	require.NoError(t, err)
	other, err := access.NewSigner([][]byte{bytes.Repeat([]byte{8}, 32)})
	require.NoError(t, err)
	foreign, err := other.Mint(claims)
	require.NoError(t, err)

	ask := func(header, value string) (events.APIGatewayCustomAuthorizerResponse, error) {
		return h.handle(t.Context(), events.APIGatewayCustomAuthorizerRequestTypeRequest{MethodArn: method, Headers: map[string]string{header: value}})
	}
	for _, name := range []string{"Authorization", "authorization"} {
		answer, err := ask(name, "Bearer "+good)
		require.NoError(t, err)
		require.Equal(t, claims.Key.String(), answer.PrincipalID)
		require.Equal(t, map[string]any{"organization": claims.Organization.String(), "subject": claims.Key.String(), "role": "operator"}, answer.Context)
		statement := answer.PolicyDocument.Statement[0]
		require.Equal(t, "Allow", statement.Effect)
		require.Equal(t, []string{"arn:aws:execute-api:eu-west-1:1:api/prod/*/*"}, statement.Resource, "one policy for the whole stage, since it is cached")
	}
	answer, err := ask("Authorization", "Bearer "+expired)
	require.NoError(t, err)
	require.Equal(t, "Deny", answer.PolicyDocument.Statement[0].Effect)
	for _, value := range []string{"", "Bearer", "Bearer nonsense", "Basic " + good, good, "Bearer " + foreign, "Bearer a.b.c"} {
		_, err := ask("Authorization", value)
		require.EqualError(t, err, "Unauthorized", "the text that API Gateway answers with 401")
	}
	require.NotContains(t, log.String(), expired)
}
