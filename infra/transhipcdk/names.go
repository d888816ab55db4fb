package transhipcdk

import (
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// names of the installation's resources, and their ARNs. Rights are given by these
// rather than by references, so that functions that name one another make no
// cycle.
type names struct {
	stack awscdk.Stack
	name  string
}

// of returns the name of a part.
func (n names) of(part string) string { return n.name + "-" + part }

// arn of a resource of this account and Region.
func (n names) arn(service, resource string) string {
	return *n.stack.FormatArn(&awscdk.ArnComponents{
		Service: jsii.String(service), Resource: jsii.String(resource), ArnFormat: awscdk.ArnFormat_NO_RESOURCE_NAME,
	})
}

func (n names) function(f string) string { return n.arn("lambda", "function:"+n.of(f)) }
func (n names) queue(q string) string    { return n.arn("sqs", n.of(q)) }

// parameter is the name of an SSM parameter, and its ARN.
func (n names) parameter(p string) (name, arn string) {
	name = "/" + n.name + "/" + p
	return name, n.arn("ssm", "parameter"+name)
}

func (n names) scheduleGroup() string       { return n.arn("scheduler", "schedule-group/"+n.name) }
func (n names) schedules(one string) string { return n.arn("scheduler", "schedule/"+n.name+"/"+one) }

// secrets are those of connections in Secrets Manager.
func (n names) secrets() string { return n.arn("secretsmanager", "secret:"+n.name+"/connections/*") }

// output tells whoever deploys something, under a name without a hash.
func output(scope constructs.Construct, name, value, description string) {
	awscdk.NewCfnOutput(scope, jsii.String(name), &awscdk.CfnOutputProps{
		Value: jsii.String(value), Description: jsii.String(description),
	}).OverrideLogicalId(jsii.String(name))
}

// id makes the id of a construct from words.
func id(words ...string) *string { return jsii.String(strings.Join(words, "-")) }
