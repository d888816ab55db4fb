package transhipcdk

import (
	"fmt"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigateway"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/jsii-runtime-go"
)

// stage is the first part of every path behind API Gateway's own host name.
const stage = "live"

// newAPI makes the REST API (v1): one proxy for all paths, behind one authorizer.
// No path is open: a stranger must not be able to keep the database awake
// (invariant 14).
func (t *Tranship) newAPI() awsapigateway.RestApi {
	logs := t.logGroup(t.scope, "access-logs", "/aws/apigateway/"+t.names.of("access"))
	rest := awsapigateway.NewRestApi(t.scope, jsii.String("rest"), &awsapigateway.RestApiProps{
		RestApiName:           jsii.String(t.names.name),
		Description:           jsii.String("API of " + t.names.name),
		EndpointConfiguration: &awsapigateway.EndpointConfiguration{Types: &[]awsapigateway.EndpointType{awsapigateway.EndpointType_REGIONAL}},
		CloudWatchRole:        jsii.Bool(!t.props.NoAPIAccount),
		// Other APIs of the account log by it too.
		CloudWatchRoleRemovalPolicy: awscdk.RemovalPolicy_RETAIN,
		DeployOptions: &awsapigateway.StageOptions{
			StageName:            jsii.String(stage),
			ThrottlingRateLimit:  jsii.Number(t.props.Rate),
			ThrottlingBurstLimit: jsii.Number(t.props.Burst),
			AccessLogDestination: awsapigateway.NewLogGroupLogDestination(logs),
			AccessLogFormat:      awsapigateway.AccessLogFormat_Custom(jsii.String(accessLog())),
			LoggingLevel:         awsapigateway.MethodLoggingLevel_ERROR,
			DataTraceEnabled:     jsii.Bool(false), // bodies may hold secrets (invariant 10)
		},
	})
	options := &awsapigateway.MethodOptions{AuthorizationType: awsapigateway.AuthorizationType_IAM}
	if t.props.Authorization == Keys {
		options = &awsapigateway.MethodOptions{
			AuthorizationType: awsapigateway.AuthorizationType_CUSTOM,
			Authorizer: awsapigateway.NewRequestAuthorizer(t.scope, jsii.String("authorizer-of-requests"), &awsapigateway.RequestAuthorizerProps{
				AuthorizerName:  jsii.String(t.names.of("authorizer")),
				Handler:         t.Functions["authorizer"],
				IdentitySources: jsii.Strings(*awsapigateway.IdentitySource_Header(jsii.String("Authorization"))),
				// How long an answer is reused. The API checks for itself whether a key is
				// revoked, so this only bounds what strangers cost.
				ResultsCacheTtl: awscdk.Duration_Seconds(jsii.Number(60)),
			}),
		}
	}
	to := awsapigateway.NewLambdaIntegration(t.Functions["api"].(awslambda.IFunction), &awsapigateway.LambdaIntegrationOptions{
		Proxy: jsii.Bool(true), AllowTestInvoke: jsii.Bool(false),
	})
	rest.Root().AddMethod(jsii.String("ANY"), to, options)
	rest.Root().AddResource(jsii.String("{proxy+}"), nil).AddMethod(jsii.String("ANY"), to, options)
	for _, r := range gatewayResponses() {
		r.add(rest)
	}
	t.keepExecutionLogs(rest)
	return rest
}

// keepExecutionLogs makes the log group that API Gateway would make by itself, and
// keep for ever, for requests that failed in it.
func (t *Tranship) keepExecutionLogs(rest awsapigateway.RestApi) {
	group := t.logGroup(t.scope, "execution-logs", "API-Gateway-Execution-Logs_"+*rest.RestApiId()+"/"+stage)
	rest.DeploymentStage().Node().AddDependency(group)
}

// accessLog is one line of JSON for each request. Neither headers nor the query are
// in it.
func accessLog() string {
	var fields []string
	for _, f := range [][2]string{
		{"time", "$context.requestTimeEpoch"}, {"request_id", "$context.requestId"}, {"source_ip", "$context.identity.sourceIp"},
		{"organization", "$context.authorizer.organization"}, {"subject", "$context.authorizer.subject"},
		{"method", "$context.httpMethod"}, {"path", "$context.path"}, {"status", "$context.status"},
		{"milliseconds", "$context.responseLatency"}, {"integration_milliseconds", "$context.integrationLatency"},
		{"bytes", "$context.responseLength"}, {"error", "$context.error.responseType"},
	} {
		fields = append(fields, fmt.Sprintf("%q:%q", f[0], f[1]))
	}
	return "{" + strings.Join(fields, ",") + "}"
}

// gatewayResponse is what API Gateway itself answers, as a problem like those of
// the API.
type gatewayResponse struct {
	of                        awsapigateway.ResponseType
	status                    int
	code, title, detail, hint string
	retryAfter                int
	headers                   map[string]string
}

func gatewayResponses() []gatewayResponse {
	const key = "send Authorization: Bearer with an API key (trk_…) or a token of the configured issuer"
	away := func(of awsapigateway.ResponseType, detail string) gatewayResponse {
		return gatewayResponse{
			of: of, status: 503, code: "unavailable", title: "Not available", detail: detail,
			hint: "repeat the request; with its Idempotency-Key if it has one", retryAfter: 2,
		}
	}
	unauthenticated := func(of awsapigateway.ResponseType) gatewayResponse {
		return gatewayResponse{
			of: of, status: 401, code: "unauthenticated", title: "No valid key or token", detail: "the request is not signed by a valid key or token", hint: key,
			headers: map[string]string{"WWW-Authenticate": `'Bearer realm="tranship"'`},
		}
	}
	forbidden := func(of awsapigateway.ResponseType) gatewayResponse {
		return gatewayResponse{of: of, status: 403, code: "forbidden", title: "Not allowed", detail: "the key or token has expired or may not do this", hint: "use another, or ask an admin"}
	}
	return []gatewayResponse{
		unauthenticated(awsapigateway.ResponseType_UNAUTHORIZED()),
		unauthenticated(awsapigateway.ResponseType_MISSING_AUTHENTICATION_TOKEN()),
		forbidden(awsapigateway.ResponseType_ACCESS_DENIED()),
		forbidden(awsapigateway.ResponseType_EXPIRED_TOKEN()),
		forbidden(awsapigateway.ResponseType_INVALID_SIGNATURE()),
		// An authorizer that fails is our trouble, and passes: not the 500 that API
		// Gateway would answer.
		away(awsapigateway.ResponseType_AUTHORIZER_FAILURE(), "the key or token could not be verified now"),
		away(awsapigateway.ResponseType_AUTHORIZER_CONFIGURATION_ERROR(), "the key or token could not be verified now"),
		away(awsapigateway.ResponseType_INTEGRATION_FAILURE(), "the API could not answer; whether something was done is not known"),
		away(awsapigateway.ResponseType_INTEGRATION_TIMEOUT(), "the API did not answer in time; whether something was done is not known"),
		{
			of: awsapigateway.ResponseType_THROTTLED(), status: 429, code: "too_many_requests", title: "Too many",
			detail: "requests come faster than this installation allows", hint: "repeat the request later", retryAfter: 1,
		},
		{
			of: awsapigateway.ResponseType_REQUEST_TOO_LARGE(), status: 413, code: "too_large", title: "The body is too large",
			detail: "API Gateway takes 10 MB", hint: "send less at once",
		},
		{
			of: awsapigateway.ResponseType_DEFAULT_4XX(), code: "bad_request", title: "The request cannot be read",
			detail: "API Gateway refused the request", hint: "compare it with /openapi.json",
		},
		{
			of: awsapigateway.ResponseType_DEFAULT_5XX(), code: "unavailable", title: "Not available",
			detail: "API Gateway could not answer", hint: "repeat the request; with its Idempotency-Key if it has one", retryAfter: 2,
		},
	}
}

func (r gatewayResponse) add(rest awsapigateway.RestApi) {
	status := "$context.responseOverride.status"
	options := &awsapigateway.GatewayResponseOptions{Type: r.of}
	if r.status != 0 {
		status = fmt.Sprint(r.status)
		options.StatusCode = jsii.String(status)
	}
	headers := map[string]string{"Content-Type": "'application/problem+json'"}
	for name, value := range r.headers {
		headers[name] = value
	}
	if r.retryAfter > 0 {
		headers["Retry-After"] = fmt.Sprintf("'%d'", r.retryAfter)
	}
	options.ResponseHeaders = texts(headers)
	options.Templates = &map[string]*string{"application/json": jsii.String(fmt.Sprintf(
		`{"type":"urn:tranship:problem:%s","title":%q,"status":%s,"detail":%q,"hint":%q,"code":%q,"request_id":"$context.requestId"}`,
		r.code, r.title, status, r.detail, r.hint, r.code))}
	rest.AddGatewayResponse(id("response", strings.ToLower(*r.of.ResponseType())), options)
}
