package transhipcdk

import (
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/jsii-runtime-go"
)

// Rights of functions. Each statement's Sid says what it is for; docs/security.md
// has the table, which a test compares with the synthesized templates.

type condition = map[string]map[string]any

func allow(sid string, actions, resources []string, when condition) awsiam.PolicyStatement {
	props := &awsiam.PolicyStatementProps{
		Sid:       jsii.String(sid),
		Effect:    awsiam.Effect_ALLOW,
		Actions:   jsii.Strings(actions...),
		Resources: jsii.Strings(resources...),
	}
	if when != nil {
		conditions := make(map[string]any, len(when))
		for k, v := range when {
			conditions[k] = v
		}
		props.Conditions = &conditions
	}
	return awsiam.NewPolicyStatement(props)
}

func (n names) writeLogs(group awslogs.LogGroup) awsiam.PolicyStatement {
	// The streams are named by Lambda and ECS at their start.
	return allow("WriteLogs", []string{"logs:CreateLogStream", "logs:PutLogEvents"},
		[]string{n.arn("logs", "log-group:"+*group.LogGroupName()+":log-stream:*")}, nil)
}

func (n names) connect(d Database) awsiam.PolicyStatement {
	if d.SecretARN != "" {
		return allow("ReadDatabaseSecret", []string{"secretsmanager:GetSecretValue"}, []string{d.SecretARN}, nil)
	}
	return allow("ConnectToDatabase", []string{"rds-db:connect"}, []string{n.arn("rds-db", "dbuser:"+d.ResourceID+"/"+d.User)}, nil)
}

// attachToNetwork are the rights that Lambda, not our code, uses to attach a
// function to a VPC. EC2 knows no narrower resource for them. The second
// statement takes them from the code of the function.
func (n names) attachToNetwork(function string) []awsiam.PolicyStatement {
	actions := []string{
		"ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface", "ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets",
		"ec2:AssignPrivateIpAddresses", "ec2:UnassignPrivateIpAddresses",
	}
	deny := awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Sid:       jsii.String("NotFromTheCode"),
		Effect:    awsiam.Effect_DENY,
		Actions:   jsii.Strings(actions...),
		Resources: jsii.Strings("*"),
		Conditions: &map[string]any{
			"ArnEquals": map[string]any{"lambda:SourceFunctionArn": n.function(function)},
		},
	})
	return []awsiam.PolicyStatement{allow("AttachToNetwork", actions, []string{"*"}, nil), deny}
}

func (n names) send(queues ...string) awsiam.PolicyStatement {
	arns := make([]string, len(queues))
	for i, q := range queues {
		arns[i] = n.queue(q)
	}
	return allow("SendMessages", []string{"sqs:SendMessage"}, arns, nil)
}

// receive are the rights that Lambda's pollers use in the function's name.
func (n names) receive(queue string) awsiam.PolicyStatement {
	return allow("ReceiveMessages",
		[]string{"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueAttributes"},
		[]string{n.queue(queue)}, nil)
}

func (n names) readSigningKey() awsiam.PolicyStatement {
	_, arn := n.parameter("signing")
	return allow("ReadSigningKey", []string{"ssm:GetParameter"}, []string{arn}, nil)
}

func (n names) makeParameters() awsiam.PolicyStatement {
	_, signing := n.parameter("signing")
	_, first := n.parameter("first-key")
	return allow("MakeParameters", []string{"ssm:GetParameter", "ssm:PutParameter"}, []string{signing, first}, nil)
}

// The key is used with the encryption context of one organization's secret.
func (n names) wrapSecrets(key string) awsiam.PolicyStatement {
	return allow("WrapSecrets", []string{"kms:Encrypt", "kms:Decrypt"}, []string{key}, nil)
}

func (n names) unwrapSecrets(key string) awsiam.PolicyStatement {
	return allow("UnwrapSecrets", []string{"kms:Decrypt"}, []string{key}, nil)
}

func (n names) readSecrets() awsiam.PolicyStatement {
	return allow("ReadSecrets", []string{"secretsmanager:GetSecretValue"}, []string{n.secrets()}, nil)
}

// switchSweep arms and disarms the sweep (P23). UpdateSchedule replaces a whole
// schedule, so it is read first, and its role is passed on again.
func (n names) switchSweep(role string) []awsiam.PolicyStatement {
	return []awsiam.PolicyStatement{
		allow("SwitchSweep", []string{"scheduler:GetSchedule", "scheduler:UpdateSchedule"}, []string{n.schedules(n.of("sweep"))}, nil),
		n.passTo("PassScheduleRole", "scheduler.amazonaws.com", role),
	}
}

// keepSchedules keeps the group's schedules as the database wants them.
func (n names) keepSchedules(role string) []awsiam.PolicyStatement {
	return []awsiam.PolicyStatement{
		allow("KeepSchedules",
			[]string{"scheduler:GetSchedule", "scheduler:CreateSchedule", "scheduler:UpdateSchedule", "scheduler:DeleteSchedule"},
			[]string{n.schedules("*")}, nil),
		n.passTo("PassScheduleRole", "scheduler.amazonaws.com", role),
	}
}

// listSchedules is for the repair; IAM knows no resource for it.
func (n names) listSchedules() awsiam.PolicyStatement {
	return allow("ListSchedules", []string{"scheduler:ListSchedules"}, []string{"*"}, nil)
}

func (n names) passTo(sid, service string, roles ...string) awsiam.PolicyStatement {
	return allow(sid, []string{"iam:PassRole"}, roles, condition{"StringEquals": {"iam:PassedToService": service}})
}

func (n names) invoke(functions ...string) awsiam.PolicyStatement {
	arns := make([]string, len(functions))
	for i, f := range functions {
		arns[i] = n.function(f)
	}
	return allow("InvokeFunctions", []string{"lambda:InvokeFunction"}, arns, nil)
}

func (n names) useBuckets(buckets []string) []awsiam.PolicyStatement {
	if len(buckets) == 0 {
		return nil
	}
	var of, in []string
	for _, b := range buckets {
		arn := "arn:" + *n.stack.Partition() + ":s3:::" + b
		of, in = append(of, arn), append(in, arn+"/*")
	}
	return []awsiam.PolicyStatement{
		allow("ListBuckets", []string{"s3:ListBucket", "s3:GetBucketLocation"}, of, nil),
		allow("UseObjects", []string{"s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"}, in, nil),
	}
}

// runTasks starts tasks of the one family, in the one cluster.
func (n names) runTasks(t *tasks) []awsiam.PolicyStatement {
	inCluster := condition{"ArnEquals": {"ecs:cluster": t.cluster}}
	out := []awsiam.PolicyStatement{
		allow("RunTasks", []string{"ecs:RunTask"}, []string{n.arn("ecs", "task-definition/"+t.family+":*")}, inCluster),
		n.watchTasks(t),
	}
	if len(t.roles) > 0 {
		out = append(out, n.passTo("PassTaskRoles", "ecs-tasks.amazonaws.com", t.roles...))
	}
	return out
}

// watchTasks looks at tasks of the one cluster and ends them.
func (n names) watchTasks(t *tasks) awsiam.PolicyStatement {
	return allow("WatchTasks", []string{"ecs:DescribeTasks", "ecs:StopTask"}, []string{n.arn("ecs", "task/"+t.props.Cluster+"/*")},
		condition{"ArnEquals": {"ecs:cluster": t.cluster}})
}
