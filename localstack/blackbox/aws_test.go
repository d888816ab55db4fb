package blackbox

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"
	"github.com/aws/aws-sdk-go-v2/service/scheduler/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/localstack/rig"
)

// environments of one function that are in a state.
func environments(t *testing.T, function, state string) []rig.Environment {
	t.Helper()
	all, err := rigWorld.core.Environments(t.Context())
	require.NoError(t, err)
	return slices.DeleteFunc(all, func(e rig.Environment) bool { return e.Function != "tranship-"+function || e.State != state })
}

// allSchedules lists what EventBridge Scheduler has.
func allSchedules(t *testing.T) []*scheduler.GetScheduleOutput {
	t.Helper()
	api := scheduler.NewFromConfig(rigWorld.aws())
	var all []*scheduler.GetScheduleOutput
	pages := scheduler.NewListSchedulesPaginator(api, &scheduler.ListSchedulesInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		require.NoError(t, err)
		for _, s := range page.Schedules {
			full, err := api.GetSchedule(t.Context(), &scheduler.GetScheduleInput{Name: s.Name, GroupName: s.GroupName})
			require.NoError(t, err)
			all = append(all, full)
		}
	}
	return all
}

// findSchedule returns the schedule whose name ends with a text, or nil.
func findSchedule(t *testing.T, suffix string) *scheduler.GetScheduleOutput {
	t.Helper()
	for _, s := range allSchedules(t) {
		name := aws.ToString(s.Name)
		if len(name) >= len(suffix) && name[len(name)-len(suffix):] == suffix {
			return s
		}
	}
	return nil
}

// sweep invokes the sweep now: its schedule would do so within a minute.
func sweep(ctx context.Context) error {
	_, err := lambda.NewFromConfig(rigWorld.aws()).Invoke(ctx, &lambda.InvokeInput{
		FunctionName: aws.String("tranship-sweep"), Payload: []byte(`{"sweep":true}`),
	})
	return err
}

// sweepOften sweeps every few seconds until the test's end, so that a test of many
// takeovers does not wait a minute for each.
func sweepOften(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(3 * time.Second):
				if err := sweep(ctx); err != nil && ctx.Err() == nil {
					t.Logf("sweep: %v", err)
				}
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// queue is one of the installation's, past the proxy.
type queue struct {
	t   *testing.T
	api *sqs.Client
	url *string
}

func queueOf(t *testing.T, name string) *queue {
	t.Helper()
	api := sqs.NewFromConfig(rigWorld.aws())
	out, err := api.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("tranship-" + name)})
	require.NoError(t, err)
	return &queue{t: t, api: api, url: out.QueueUrl}
}

func (q *queue) send(body, group string) {
	q.t.Helper()
	in := &sqs.SendMessageInput{QueueUrl: q.url, MessageBody: &body}
	if group != "" {
		in.MessageGroupId, in.MessageDeduplicationId = &group, aws.String(rig.Name(q.t))
	}
	_, err := q.api.SendMessage(q.t.Context(), in)
	require.NoError(q.t, err)
}

// waitFor waits until a message with that body is there, and takes it.
func (q *queue) waitFor(body string, patience time.Duration) {
	q.t.Helper()
	require.Eventually(q.t, func() bool {
		out, err := q.api.ReceiveMessage(q.t.Context(), &sqs.ReceiveMessageInput{QueueUrl: q.url, MaxNumberOfMessages: 10, VisibilityTimeout: 1})
		require.NoError(q.t, err)
		for _, m := range out.Messages {
			if aws.ToString(m.Body) != body {
				continue
			}
			_, err := q.api.DeleteMessage(q.t.Context(), &sqs.DeleteMessageInput{QueueUrl: q.url, ReceiptHandle: m.ReceiptHandle})
			require.NoError(q.t, err)
			return true
		}
		return false
	}, patience, 500*time.Millisecond)
}

// depth is how many messages wait or are being worked on.
func (q *queue) depth() string {
	q.t.Helper()
	out, err := q.api.GetQueueAttributes(q.t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: q.url, AttributeNames: []sqstypes.QueueAttributeName{"All"}})
	require.NoError(q.t, err)
	return out.Attributes["ApproximateNumberOfMessages"] + "+" + out.Attributes["ApproximateNumberOfMessagesNotVisible"]
}

const enabled = types.ScheduleStateEnabled
