package transhipcdk

import (
	"strconv"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsecs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awseventstargets"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// taskContainer is the name of the container in the task's definition.
const taskContainer = "worker"

// tasks is what functions need to know of attempts on Fargate.
type tasks struct {
	props *Fargate
	// cluster is its ARN.
	cluster, family string
	// roles that RunTask hands to the task; none for a task definition that was
	// made elsewhere: who makes it gives dispatch the right to pass its roles.
	roles []string
}

// choice tells those who dispatch whether there is Fargate at all.
func (t *tasks) choice() map[string]string {
	if t == nil {
		return nil
	}
	return map[string]string{"TRANSHIP_ECS_CLUSTER": t.cluster}
}

// env tells those who start and watch tasks how.
func (t *tasks) env() map[string]string {
	if t == nil {
		return nil
	}
	return merge(t.choice(), map[string]string{
		"TRANSHIP_ECS_TASK":            t.family,
		"TRANSHIP_ECS_CONTAINER":       taskContainer,
		"TRANSHIP_ECS_SUBNETS":         strings.Join(t.props.Subnets, ","),
		"TRANSHIP_ECS_SECURITY_GROUPS": strings.Join(t.props.SecurityGroups, ","),
		"TRANSHIP_ECS_PUBLIC_IP":       strconv.FormatBool(t.props.PublicIP),
	})
}

// addTasks makes the definition of the task, unless there is one.
func (t *Tranship) addTasks() {
	f := t.props.Fargate
	t.tasks = &tasks{
		props: f, cluster: t.names.arn("ecs", "cluster/"+f.Cluster), family: f.TaskDefinition,
	}
	if f.TaskDefinition != "" {
		return
	}
	t.tasks.family = t.names.of("worker")
	scope := constructs.NewConstruct(t.scope, jsii.String("task"))
	logs := t.logGroup(scope, "logs", "/aws/ecs/"+t.tasks.family)
	// Only tasks of this account may take on the roles (confused deputy).
	trust := awsiam.NewPrincipalWithConditions(awsiam.NewServicePrincipal(jsii.String("ecs-tasks.amazonaws.com"), nil), &map[string]any{
		"StringEquals": map[string]any{"aws:SourceAccount": t.names.stack.Account()},
		"ArnLike":      map[string]any{"aws:SourceArn": t.names.arn("ecs", "*")},
	})
	role := awsiam.NewRole(scope, jsii.String("role"), &awsiam.RoleProps{
		Description: jsii.String("Task " + t.tasks.family), AssumedBy: trust,
	})
	for _, g := range append(t.workerGrants(), t.names.connect(t.props.Database)) {
		if *g.Sid() != "ReceiveMessages" { // a task is given its command by dispatch
			role.AddToPolicy(g)
		}
	}
	start := awsiam.NewRole(scope, jsii.String("start"), &awsiam.RoleProps{
		Description: jsii.String("Starts task " + t.tasks.family), AssumedBy: trust,
	})
	start.AddToPolicy(t.names.writeLogs(logs))
	start.AddToPolicy(allow("PullImage", []string{"ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"}, []string{f.Repository}, nil))
	start.AddToPolicy(allow("LogInToRegistry", []string{"ecr:GetAuthorizationToken"}, []string{"*"}, nil))
	t.tasks.roles = []string{*role.RoleArn(), *start.RoleArn()}

	processor := "ARM64"
	if t.props.Architecture == AMD64 {
		processor = "X86_64"
	}
	env := merge(t.databaseEnv(), t.workerEnv(), map[string]string{
		"TRANSHIP_NAME":         t.names.name,
		"TRANSHIP_ATTEMPT_TIME": f.AttemptTime.String(),
		"TRANSHIP_TASK_MEMORY":  strconv.Itoa(f.Memory),
		"LOG_LEVEL":             t.props.LogLevel,
	})
	awsecs.NewCfnTaskDefinition(scope, jsii.String("definition"), &awsecs.CfnTaskDefinitionProps{
		Family:                  jsii.String(t.tasks.family),
		RequiresCompatibilities: jsii.Strings("FARGATE"),
		NetworkMode:             jsii.String("awsvpc"),
		Cpu:                     jsii.String(strconv.Itoa(f.CPU)),
		Memory:                  jsii.String(strconv.Itoa(f.Memory)),
		RuntimePlatform:         &awsecs.CfnTaskDefinition_RuntimePlatformProperty{CpuArchitecture: jsii.String(processor), OperatingSystemFamily: jsii.String("LINUX")},
		TaskRoleArn:             role.RoleArn(),
		ExecutionRoleArn:        start.RoleArn(),
		ContainerDefinitions: []any{&awsecs.CfnTaskDefinition_ContainerDefinitionProperty{
			Name:                   jsii.String(taskContainer),
			Image:                  jsii.String(f.Image),
			Essential:              jsii.Bool(true),
			ReadonlyRootFilesystem: jsii.Bool(true),
			MountPoints:            []any{&awsecs.CfnTaskDefinition_MountPointProperty{ContainerPath: jsii.String("/tmp"), SourceVolume: jsii.String("tmp"), ReadOnly: jsii.Bool(false)}},
			// Two minutes between SIGTERM and SIGKILL, the most that Fargate gives: an
			// attempt commits and hands over.
			StopTimeout: jsii.Number(120),
			Environment: pairs(env),
			LogConfiguration: &awsecs.CfnTaskDefinition_LogConfigurationProperty{
				LogDriver: jsii.String("awslogs"),
				Options: &map[string]*string{
					"awslogs-group": logs.LogGroupName(), "awslogs-region": t.names.stack.Region(), "awslogs-stream-prefix": jsii.String("task"),
				},
			},
		}},
		Volumes: []any{&awsecs.CfnTaskDefinition_VolumeProperty{Name: jsii.String("tmp")}},
	})
	suppressTask(scope)
}

func pairs(env map[string]string) []any {
	var out []any
	for _, name := range sortedKeys(env) {
		out = append(out, &awsecs.CfnTaskDefinition_KeyValuePairProperty{Name: jsii.String(name), Value: jsii.String(env[name])})
	}
	return out
}

// runTasks lets a function start, look at and end tasks, if there are any.
func (t *Tranship) runTasks() []awsiam.PolicyStatement {
	if t.tasks == nil {
		return nil
	}
	return t.names.runTasks(t.tasks)
}

// tellTasks lets the sweep know when a task has stopped. The event may come twice
// or not at all: the lease decides, this is only sooner.
func (t *Tranship) tellTasks() {
	awsevents.NewRule(t.scope, jsii.String("tasks"), &awsevents.RuleProps{
		RuleName:    jsii.String(t.names.of("tasks")),
		Description: jsii.String("Stopped tasks of " + t.names.name),
		EventPattern: &awsevents.EventPattern{
			Source:     jsii.Strings("aws.ecs"),
			DetailType: jsii.Strings("ECS Task State Change"),
			Detail: &map[string]any{
				"clusterArn": []string{t.tasks.cluster},
				"lastStatus": []string{"STOPPED"},
				"group":      []string{"family:" + t.tasks.family},
			},
		},
		Targets: &[]awsevents.IRuleTarget{awseventstargets.NewLambdaFunction(t.Functions["sweep"], &awseventstargets.LambdaFunctionProps{
			DeadLetterQueue: t.queues.scheduled,
		})},
	})
}
