package transhipcdk

import (
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsscheduler"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// schedules is the installation's group in EventBridge Scheduler. Users' schedules
// are made in it by the functions; the fixed ones are made here.
type schedules struct {
	scope constructs.Construct
	names names
	group awsscheduler.CfnScheduleGroup
	// role that Scheduler takes on to invoke functions.
	role awsiam.Role
	dead awssqs.Queue
}

func newSchedules(t *Tranship, n names, dead awssqs.Queue) *schedules {
	scope := constructs.NewConstruct(t.scope, jsii.String("schedules"))
	group := awsscheduler.NewCfnScheduleGroup(scope, jsii.String("group"), &awsscheduler.CfnScheduleGroupProps{Name: jsii.String(n.name)})
	// Only schedules of this group may take on the role (confused deputy).
	role := awsiam.NewRole(scope, jsii.String("role"), &awsiam.RoleProps{
		Description: jsii.String("Schedules of " + n.name),
		AssumedBy: awsiam.NewPrincipalWithConditions(awsiam.NewServicePrincipal(jsii.String("scheduler.amazonaws.com"), nil), &map[string]any{
			"StringEquals": map[string]any{"aws:SourceAccount": n.stack.Account(), "aws:SourceArn": n.scheduleGroup()},
		}),
	})
	targets := []string{"compile", "sweep"}
	if t.props.Network != nil {
		targets = append(targets, keptAwake...)
		if t.props.Fargate != nil {
			targets = append(targets, "dispatch")
		}
	}
	role.AddToPolicy(n.invoke(targets...))
	role.AddToPolicy(n.send("schedules-dead"))
	return &schedules{scope: scope, names: n, group: group, role: role, dead: dead}
}

// keptAwake are the functions in a VPC that may be without invocations for 14 days,
// after which Lambda takes their network away and fails the next one. An empty
// message each week keeps it; compile is repaired daily, and migrate's caller waits.
var keptAwake = []string{"api", "worker", "project", "deliver", "inspect"}

// addFixed makes the schedules that every installation has.
func (s *schedules) addFixed(t *Tranship) {
	// Enabled, so that a deployment that replaces it never leaves work without a
	// sweep (P23): a sweep that finds no work disables it again.
	s.add("sweep", "rate(1 minute)", "sweep", `{"sweep":true}`)
	s.add("repair", "rate(1 day)", "compile", `{"repair":true}`)
	if t.props.Network == nil {
		return
	}
	for _, f := range keptAwake {
		s.add("awake-"+f, "rate(7 days)", f, `{"Records":[]}`)
	}
	s.add("awake-sweep", "rate(7 days)", "sweep", `{"sweep":true}`)
	if t.tasks != nil {
		s.add("awake-dispatch", "rate(7 days)", "dispatch", `{"Records":[]}`)
	}
}

func (s *schedules) add(part, rate, function, input string) {
	schedule := awsscheduler.NewCfnSchedule(s.scope, jsii.String(part), &awsscheduler.CfnScheduleProps{
		Name:               jsii.String(s.names.of(part)),
		GroupName:          s.group.Ref(),
		ScheduleExpression: jsii.String(rate),
		State:              jsii.String("ENABLED"),
		FlexibleTimeWindow: &awsscheduler.CfnSchedule_FlexibleTimeWindowProperty{Mode: jsii.String("OFF")},
		Target: &awsscheduler.CfnSchedule_TargetProperty{
			Arn:              jsii.String(s.names.function(function)),
			RoleArn:          s.role.RoleArn(),
			Input:            jsii.String(input),
			DeadLetterConfig: &awsscheduler.CfnSchedule_DeadLetterConfigProperty{Arn: s.dead.QueueArn()},
			// A later turn does what this one did not.
			RetryPolicy: &awsscheduler.CfnSchedule_RetryPolicyProperty{MaximumEventAgeInSeconds: jsii.Number(3600), MaximumRetryAttempts: jsii.Number(3)},
		},
	})
	// The role's policy is a resource of its own, without which nothing is invoked.
	schedule.Node().AddDependency(s.role)
}
