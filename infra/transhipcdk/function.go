package transhipcdk

import (
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsec2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// functionSpec is what one function has of its own.
type functionSpec struct {
	name        string
	description string
	timeout     time.Duration
	memory      int
	// reserved bounds its environments; 0: a mapping does.
	reserved int
	// database: it connects to the control plane's, and runs in the network.
	database bool
	// loop: it hands over to itself through queues, which Lambda would stop after
	// about 16 hops. Our guards are the cap on attempts and on attempts without
	// progress (P24).
	loop   bool
	env    map[string]string
	grants []awsiam.PolicyStatement
	// retries of an asynchronous invocation that failed; nil: Lambda's two.
	retries *float64
}

// builder makes functions alike.
type builder struct {
	scope constructs.Construct
	base  Base
	names names
}

func newBuilder(scope constructs.Construct, base Base) *builder {
	return &builder{scope: scope, base: base, names: names{stack: awscdk.Stack_Of(scope), name: base.Name}}
}

// function makes a function with its role and its log group.
func (b *builder) function(s functionSpec) awslambda.Function {
	zip, err := b.base.zip(s.name)
	if err != nil {
		panic(err.Error())
	}
	scope := constructs.NewConstruct(b.scope, jsii.String(s.name))
	logs := b.logGroup(scope, "logs", "/aws/lambda/"+b.names.of(s.name))

	role := awsiam.NewRole(scope, jsii.String("role"), &awsiam.RoleProps{
		Description: jsii.String("Function " + b.names.of(s.name)),
		AssumedBy:   awsiam.NewServicePrincipal(jsii.String("lambda.amazonaws.com"), nil),
	})
	grants := append([]awsiam.PolicyStatement{b.names.writeLogs(logs)}, s.grants...)
	if s.database {
		grants = append(grants, b.names.connect(b.base.Database))
	}
	props := &awslambda.FunctionProps{
		FunctionName:  jsii.String(b.names.of(s.name)),
		Description:   jsii.String(s.description),
		Runtime:       awslambda.Runtime_PROVIDED_AL2023(),
		Handler:       jsii.String("bootstrap"),
		Code:          awslambda.Code_FromAsset(jsii.String(zip), nil),
		Architecture:  b.architecture(),
		Timeout:       duration(s.timeout),
		MemorySize:    jsii.Number(s.memory),
		Role:          role,
		LogGroup:      logs,
		LoggingFormat: awslambda.LoggingFormat_JSON,
		RetryAttempts: s.retries,
	}
	if s.loop {
		props.RecursiveLoop = awslambda.RecursiveLoop_ALLOW
	}
	if s.reserved > 0 && !b.base.Unreserved {
		props.ReservedConcurrentExecutions = jsii.Number(s.reserved)
	}
	env := map[string]string{"TRANSHIP_NAME": b.base.Name, "LOG_LEVEL": b.base.LogLevel}
	if s.database {
		maps.Copy(env, b.databaseEnv())
		if n := b.base.Network; n != nil {
			props.Vpc = n.VPC
			props.VpcSubnets = n.Subnets
			props.SecurityGroups = &[]awsec2.ISecurityGroup{n.SecurityGroup}
			props.Ipv6AllowedForDualStack = jsii.Bool(n.DualStack)
			grants = append(grants, b.names.attachToNetwork(s.name)...)
			if n.DualStack {
				env["AWS_USE_DUALSTACK_ENDPOINT"] = "true"
			}
		}
	}
	maps.Copy(env, s.env)
	props.Environment = texts(env)
	for _, g := range grants {
		role.AddToPolicy(g)
	}
	f := awslambda.NewFunction(scope, jsii.String("function"), props)
	suppressFunction(scope)
	return f
}

func (b *builder) databaseEnv() map[string]string {
	env := map[string]string{"TRANSHIP_DATABASE": b.base.Database.URL}
	if arn := b.base.Database.SecretARN; arn != "" {
		env["TRANSHIP_DATABASE_SECRET"] = arn
	}
	return env
}

func (b *builder) architecture() awslambda.Architecture {
	if b.base.Architecture == AMD64 {
		return awslambda.Architecture_X86_64()
	}
	return awslambda.Architecture_ARM_64()
}

// logGroup makes a log group with the retention that was asked for; one that
// Lambda makes by itself keeps logs for ever.
func (b *builder) logGroup(scope constructs.Construct, id, name string) awslogs.LogGroup {
	group := awslogs.NewLogGroup(scope, jsii.String(id), &awslogs.LogGroupProps{
		LogGroupName: jsii.String(name),
		// One that stayed would be in the way of the next installation of that name.
		RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
	})
	group.Node().DefaultChild().(awslogs.CfnLogGroup).SetRetentionInDays(jsii.Number(b.base.LogRetention))
	return group
}

// removal is what happens to what holds something of worth.
func (b *builder) removal() awscdk.RemovalPolicy {
	if b.base.Disposable {
		return awscdk.RemovalPolicy_DESTROY
	}
	return awscdk.RemovalPolicy_RETAIN
}

func duration(d time.Duration) awscdk.Duration {
	return awscdk.Duration_Seconds(jsii.Number(d.Seconds()))
}

func texts(m map[string]string) *map[string]*string {
	out := make(map[string]*string, len(m))
	for k, v := range m {
		out[k] = jsii.String(v)
	}
	return &out
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
