package transhipcdk

import (
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"
)

// Rules of cdk-nag (AwsSolutions) that are broken on purpose, each with the reason.

func suppress(c constructs.IConstruct, rule, reason string) {
	cdknag.NagSuppressions_AddResourceSuppressions(c, &[]*cdknag.NagPackSuppression{
		{Id: jsii.String(rule), Reason: jsii.String(reason)},
	}, jsii.Bool(true))
}

func suppressFunction(scope constructs.Construct) {
	suppress(scope, "AwsSolutions-IAM5",
		"Wildcards end ARNs of what is named at run time: log streams, schedules, secrets and objects under the installation's names. "+
			"scheduler:ListSchedules and the network rights of Lambda know no resource; a statement denies the latter to the code. docs/security.md lists each; a test compares.")
}

func suppressTask(scope constructs.Construct) {
	suppress(scope, "AwsSolutions-IAM5",
		"Wildcards end ARNs of what is named at run time, and ecr:GetAuthorizationToken knows no resource. docs/security.md lists each; a test compares.")
	suppress(scope, "AwsSolutions-ECS2", "The variables hold names and addresses. Secrets are read at run time by their ARN.")
}

func suppressApp(t *Tranship) {
	suppress(t.API, "AwsSolutions-APIG2", "The function validates each request against the OpenAPI document and tells every problem of it.")
	suppress(t.API, "AwsSolutions-APIG3", "A web ACL costs from $6 a month in a design that idles at $2.50; the stage is throttled, and one can be associated from outside.")
	suppress(t.API, "AwsSolutions-COG4", "Keys and tokens of any OIDC issuer are verified by an authorizer of our own, or requests are signed (SigV4); Cognito is one such issuer.")
	suppress(t.API, "AwsSolutions-IAM4", "The role by which API Gateway writes logs is the account's, and AWS defines its rights.")
	suppress(t.queues.scheduled, "AwsSolutions-SQS3", "It is a queue of dead letters: of Scheduler and of event rules, which the rule does not look at.")
}
