package transhipcdk

import (
	"fmt"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// metricsNamespace and the names in it are written by the functions (docs/aws.md).
const metricsNamespace = "Tranship"

// alarmSpec is one alarm: an expression over metrics that must not pass a
// threshold.
type alarmSpec struct {
	part, tells string
	metrics     map[string]awscloudwatch.IMetric
	// expression over the metrics; empty: the only one itself.
	expression string
	above      float64
	period     awscdk.Duration
	periods    int
}

// newAlarms makes few alarms: one about runs, and one composite that wakes a person
// because the installation is broken. Its parts only show which part it is. An
// alarm costs by its metrics (docs/cost.md), so each has as few as it needs.
func (t *Tranship) newAlarms() {
	scope := constructs.NewConstruct(t.scope, jsii.String("alarms"))
	minutes := func(n int) awscdk.Duration { return awscdk.Duration_Minutes(jsii.Number(n)) }
	queue := func(name, metric string) awscloudwatch.IMetric {
		return newMetric("AWS/SQS", metric, "Maximum", map[string]string{"QueueName": t.names.of(name)})
	}
	function := func(name, metric string) awscloudwatch.IMetric {
		return newMetric("AWS/Lambda", metric, "Sum", map[string]string{"FunctionName": t.names.of(name)})
	}
	own := func(name, metric, statistic string) awscloudwatch.IMetric {
		return newMetric(metricsNamespace, metric, statistic, map[string]string{"installation": t.names.name, "function": name})
	}
	dead := map[string]awscloudwatch.IMetric{
		// Dead commands are the sweep's work: attempts-dead empties itself.
		"facts":      queue("facts-dead.fifo", "ApproximateNumberOfMessagesVisible"),
		"deliveries": queue("deliveries-dead", "ApproximateNumberOfMessagesVisible"),
		"schedules":  queue("schedules-dead", "ApproximateNumberOfMessagesVisible"),
	}
	if t.tasks != nil {
		dead["tasks"] = queue("tasks-dead", "ApproximateNumberOfMessagesVisible")
	}
	broken := []alarmSpec{
		{
			part: "dead-letters", tells: "messages could not be worked on: look at the function's log, mend, and redrive the queue",
			metrics: dead, expression: strings.Join(sortedKeys(dead), " + "), above: 0, period: minutes(5), periods: 1,
		},
		{
			part: "waiting", tells: "messages wait: concurrency is used up, or a function fails",
			// A command is in its queue for as long as its attempt lives.
			metrics: map[string]awscloudwatch.IMetric{
				"attempts": queue("attempts", "ApproximateAgeOfOldestMessage"),
				"facts":    queue("facts.fifo", "ApproximateAgeOfOldestMessage"),
			},
			expression: fmt.Sprintf("MAX([attempts - %d, facts])", int(t.props.WorkerTimeout.Seconds())),
			above:      900, period: minutes(5), periods: 2,
		},
		{
			part: "recursion", tells: "Lambda stopped a chain of invocations: RecursiveLoop must be Allow on the functions that hand over through queues",
			metrics: map[string]awscloudwatch.IMetric{
				"worker": function("worker", "RecursiveInvocationsDropped"), "sweep": function("sweep", "RecursiveInvocationsDropped"),
			},
			expression: "FILL(worker, 0) + FILL(sweep, 0)", above: 0, period: minutes(5), periods: 1,
		},
		{
			part: "unswept", tells: "attempts run and nothing sweeps: the schedule " + t.names.of("sweep") + " is off while work is open (P23)",
			metrics:    map[string]awscloudwatch.IMetric{"worker": function("worker", "Invocations"), "sweep": function("sweep", "Invocations")},
			expression: "IF(FILL(worker, 0) > 0 AND FILL(sweep, 0) < 1, 1, 0)", above: 0, period: minutes(15), periods: 2,
		},
		{
			part: "api", tells: "requests fail with 5xx: look at the log of " + t.names.of("api"),
			metrics: map[string]awscloudwatch.IMetric{"errors": newMetric("AWS/ApiGateway", "5XXError", "Sum", map[string]string{"ApiName": t.names.name, "Stage": stage})},
			above:   5, period: minutes(5), periods: 2,
		},
		{
			part: "lag", tells: "what the API shows of runs is older than a minute",
			metrics: map[string]awscloudwatch.IMetric{"lag": own("project", "FactAge", "Maximum")},
			above:   60_000, period: minutes(5), periods: 3,
		},
	}
	var rule []string
	for _, s := range broken {
		alarm := t.newAlarm(scope, s)
		rule = append(rule, fmt.Sprintf(`ALARM("%s")`, *alarm.AlarmName()))
	}
	var actions *[]any
	if t.props.AlarmTopic != "" {
		actions = &[]any{t.props.AlarmTopic}
	}
	composite := awscloudwatch.NewCfnCompositeAlarm(scope, jsii.String("broken"), &awscloudwatch.CfnCompositeAlarmProps{
		AlarmName:        jsii.String(t.names.of("broken")),
		AlarmDescription: jsii.String("The installation needs a person; its parts say where. docs/operations.md"),
		AlarmRule:        jsii.String(strings.Join(rule, " OR ")),
		AlarmActions:     actions,
		OkActions:        actions,
	})
	composite.Node().AddDependency(scope.Node().TryFindChild(jsii.String("parts")))

	failures := t.newAlarm(scope, alarmSpec{
		part: "run-failures", tells: "runs failed: tranship runs list --status failed",
		metrics: map[string]awscloudwatch.IMetric{"failed": own("project", "RunsFailed", "Sum")},
		above:   0, period: minutes(5), periods: 1,
	})
	if t.props.AlarmTopic != "" {
		failures.SetAlarmActions(jsii.Strings(t.props.AlarmTopic))
	}
}

func (t *Tranship) newAlarm(scope constructs.Construct, s alarmSpec) awscloudwatch.CfnAlarm {
	parts := scope.Node().TryFindChild(jsii.String("parts"))
	if parts == nil {
		parts = constructs.NewConstruct(scope, jsii.String("parts"))
	}
	var metric awscloudwatch.IMetric
	if s.expression != "" {
		metric = awscloudwatch.NewMathExpression(&awscloudwatch.MathExpressionProps{
			Expression: jsii.String(s.expression), UsingMetrics: &s.metrics, Period: s.period, Label: jsii.String(s.part),
		})
	} else {
		for _, m := range s.metrics {
			metric = m.(awscloudwatch.Metric).With(&awscloudwatch.MetricOptions{Period: s.period})
		}
	}
	alarm := awscloudwatch.NewAlarm(parts.(constructs.Construct), jsii.String(s.part), &awscloudwatch.AlarmProps{
		AlarmName:          jsii.String(t.names.of(s.part)),
		AlarmDescription:   jsii.String(s.tells),
		Metric:             metric,
		Threshold:          jsii.Number(s.above),
		ComparisonOperator: awscloudwatch.ComparisonOperator_GREATER_THAN_THRESHOLD,
		EvaluationPeriods:  jsii.Number(s.periods),
		// An idle installation measures nothing, and that is well.
		TreatMissingData: awscloudwatch.TreatMissingData_NOT_BREACHING,
	})
	return alarm.Node().DefaultChild().(awscloudwatch.CfnAlarm)
}

func newMetric(namespace, name, statistic string, dimensions map[string]string) awscloudwatch.IMetric {
	return awscloudwatch.NewMetric(&awscloudwatch.MetricProps{
		Namespace: jsii.String(namespace), MetricName: jsii.String(name), Statistic: jsii.String(statistic), DimensionsMap: texts(dimensions),
	})
}
