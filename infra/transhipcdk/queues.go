package transhipcdk

import (
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// queueSpec is one queue with its dead letters.
type queueSpec struct {
	// name of the queue; that of its dead letters; FIFO queues end in .fifo.
	name, dead string
	fifo       bool
	// visibility of a received message. The lease decides who works, not this; but
	// it must not be below the function's timeout.
	visibility time.Duration
	// receives until a message is dead. Throttled invocations burn them too.
	receives int
}

// queues of an installation by their parts' names.
type queues struct {
	main, dead map[string]awssqs.Queue
	// all has both, each under its own name.
	all map[string]awssqs.Queue
	// scheduled keeps what Scheduler, event rules and asynchronous invocations
	// could not deliver.
	scheduled awssqs.Queue
}

// How long messages live. Dead letters outlive the queue that they come from,
// because their age counts from the first sending; and 14 days are less than
// idempotency keys are kept (P27).
const (
	messageDays = 4
	deadDays    = 14
)

func newQueues(scope constructs.Construct, n names, specs []queueSpec) *queues {
	q := &queues{main: map[string]awssqs.Queue{}, dead: map[string]awssqs.Queue{}, all: map[string]awssqs.Queue{}}
	for _, s := range specs {
		q.dead[s.name] = newQueue(scope, n, s.dead, &awssqs.QueueProps{
			Fifo: fifo(s.fifo), RetentionPeriod: awscdk.Duration_Days(jsii.Number(deadDays)),
			// What redrives a dead command has the sweep's time.
			VisibilityTimeout: duration(6 * time.Minute),
		})
		props := &awssqs.QueueProps{
			Fifo:              fifo(s.fifo),
			RetentionPeriod:   awscdk.Duration_Days(jsii.Number(messageDays)),
			VisibilityTimeout: duration(s.visibility),
			DeadLetterQueue:   &awssqs.DeadLetterQueue{Queue: q.dead[s.name], MaxReceiveCount: jsii.Number(s.receives)},
		}
		if s.fifo {
			// High throughput: each group, a run, has its own limit and its own ids.
			props.DeduplicationScope = awssqs.DeduplicationScope_MESSAGE_GROUP
			props.FifoThroughputLimit = awssqs.FifoThroughputLimit_PER_MESSAGE_GROUP_ID
		}
		q.main[s.name] = newQueue(scope, n, s.name, props)
		q.all[s.name], q.all[s.dead] = q.main[s.name], q.dead[s.name]
	}
	q.scheduled = newQueue(scope, n, "schedules-dead", &awssqs.QueueProps{RetentionPeriod: awscdk.Duration_Days(jsii.Number(deadDays))})
	return q
}

func newQueue(scope constructs.Construct, n names, part string, props *awssqs.QueueProps) awssqs.Queue {
	props.QueueName = jsii.String(n.of(part))
	props.Encryption = awssqs.QueueEncryption_SQS_MANAGED
	props.EnforceSSL = jsii.Bool(true)
	return awssqs.NewQueue(scope, id("queue", part), props)
}

// fifo is nil for a standard queue: SQS refuses an explicit false.
func fifo(is bool) *bool {
	if is {
		return jsii.Bool(true)
	}
	return nil
}

// feed lets a queue invoke a function. atOnce bounds how many batches are worked
// on at once; 0: the function's reserved concurrency does.
func feed(f awslambda.Function, queue awssqs.Queue, batch, atOnce int) {
	props := &awslambda.EventSourceMappingOptions{
		EventSourceArn:          queue.QueueArn(),
		BatchSize:               jsii.Number(batch),
		ReportBatchItemFailures: jsii.Bool(true),
	}
	if atOnce > 0 {
		props.MaxConcurrency = jsii.Number(atOnce)
	}
	f.AddEventSourceMapping(jsii.String("messages"), props)
}
