package transhipcdk

import (
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/jsii-runtime-go"
)

// newDashboard shows what the alarms watch, by function and queue.
func (t *Tranship) newDashboard() {
	names := sortedKeys(t.Functions)
	functions := func(title, metric, statistic string) awscloudwatch.IWidget {
		var left []awscloudwatch.IMetric
		for _, f := range names {
			left = append(left, newMetric("AWS/Lambda", metric, statistic, map[string]string{"FunctionName": t.names.of(f)}))
		}
		return graph(title, left)
	}
	queues := func(title, metric string, of ...string) awscloudwatch.IWidget {
		var left []awscloudwatch.IMetric
		for _, q := range of {
			left = append(left, newMetric("AWS/SQS", metric, "Maximum", map[string]string{"QueueName": t.names.of(q)}))
		}
		return graph(title, left)
	}
	api := func(title, metric, statistic string) awscloudwatch.IWidget {
		return graph(title, []awscloudwatch.IMetric{
			newMetric("AWS/ApiGateway", metric, statistic, map[string]string{"ApiName": t.names.name, "Stage": stage}),
		})
	}
	awscloudwatch.NewDashboard(t.scope, jsii.String("dashboard"), &awscloudwatch.DashboardProps{
		DashboardName: jsii.String(t.names.name),
		Widgets: &[]*[]awscloudwatch.IWidget{
			{functions("Invocations", "Invocations", "Sum"), functions("Errors", "Errors", "Sum"), functions("Throttles", "Throttles", "Sum")},
			{functions("Running at once", "ConcurrentExecutions", "Maximum"), functions("Duration, p99", "Duration", "p99"), functions("Loops stopped", "RecursiveInvocationsDropped", "Sum")},
			{
				queues("Oldest message", "ApproximateAgeOfOldestMessage", sortedKeys(t.Queues)...),
				queues("Dead letters", "ApproximateNumberOfMessagesVisible", "attempts-dead", "facts-dead.fifo", "deliveries-dead", "schedules-dead"),
			},
			{api("Requests", "Count", "Sum"), api("5xx", "5XXError", "Sum"), api("Latency, p99", "Latency", "p99")},
		},
	})
}

func graph(title string, left []awscloudwatch.IMetric) awscloudwatch.IWidget {
	return awscloudwatch.NewGraphWidget(&awscloudwatch.GraphWidgetProps{Title: jsii.String(title), Left: &left, Width: jsii.Number(8)})
}
