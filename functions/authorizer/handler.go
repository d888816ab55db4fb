package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/access"
)

// errUnauthorized is the text that API Gateway answers with 401; with any other
// error it fails, which the deployment maps to 503.
var errUnauthorized = errors.New("Unauthorized")

// handler decides who may call the API at all. What a caller may do there, and
// whether its key was revoked, the API decides itself.
type handler struct {
	verifier *access.Verifier
	log      *slog.Logger
}

func (h *handler) handle(ctx context.Context, event events.APIGatewayCustomAuthorizerRequestTypeRequest) (events.APIGatewayCustomAuthorizerResponse, error) {
	scheme, token, ok := strings.Cut(header(event, "Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return events.APIGatewayCustomAuthorizerResponse{}, errUnauthorized
	}
	pass, err := h.verifier.Verify(ctx, strings.TrimSpace(token))
	var bad *control.UnauthenticatedError
	switch {
	case errors.As(err, &bad) && bad.Expired:
		h.log.InfoContext(ctx, "refused", "reason", bad.Reason)
		return policy("expired", event.MethodArn, "Deny"), nil
	case errors.As(err, &bad):
		h.log.InfoContext(ctx, "refused", "reason", bad.Reason)
		return events.APIGatewayCustomAuthorizerResponse{}, errUnauthorized
	case err != nil:
		return events.APIGatewayCustomAuthorizerResponse{}, err
	}
	organization, subject, role := pass.Organization, pass.Identity.Subject, pass.Identity.Role
	if c := pass.Claims; c != nil {
		organization, subject, role = c.Organization.String(), c.Key.String(), c.Role
	}
	out := policy(subject, event.MethodArn, "Allow")
	out.Context = map[string]any{"organization": organization, "subject": subject, "role": string(role)}
	return out, nil
}

func header(e events.APIGatewayCustomAuthorizerRequestTypeRequest, name string) string {
	for k, v := range e.Headers {
		if strings.EqualFold(k, name) {
			return v
		}
	}
	return ""
}

// policy allows or denies every method of the stage that a method belongs to: the
// answer is cached for the caller, whatever it calls next.
func policy(principal, method, effect string) events.APIGatewayCustomAuthorizerResponse {
	// arn:aws:execute-api:region:account:api/stage/GET/path
	stage := method
	if parts := strings.SplitN(method, "/", 3); len(parts) == 3 {
		stage = parts[0] + "/" + parts[1]
	}
	return events.APIGatewayCustomAuthorizerResponse{
		PrincipalID: principal,
		PolicyDocument: events.APIGatewayCustomAuthorizerPolicy{Version: "2012-10-17", Statement: []events.IAMPolicyStatement{
			{Action: []string{"execute-api:Invoke"}, Effect: effect, Resource: []string{stage + "/*/*"}},
		}},
	}
}
