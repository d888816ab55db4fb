package plugintest

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"
)

// feed maps a queue to a function and returns how to send to it.
func (f *function) feed(t *testing.T) func(body string) {
	t.Helper()
	queues := sqs.NewFromConfig(f.core.AWS())
	q, err := queues.CreateQueue(t.Context(), &sqs.CreateQueueInput{
		QueueName: &f.name, Attributes: map[string]string{"VisibilityTimeout": "120"},
	})
	require.NoError(t, err)
	got, err := queues.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: q.QueueUrl, AttributeNames: []sqstypes.QueueAttributeName{"QueueArn"}})
	require.NoError(t, err)
	mapping, err := f.api.CreateEventSourceMapping(t.Context(), &lambda.CreateEventSourceMappingInput{
		FunctionName: &f.name, EventSourceArn: aws.String(got.Attributes["QueueArn"]), BatchSize: aws.Int32(1),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		_, _ = f.api.DeleteEventSourceMapping(context.Background(), &lambda.DeleteEventSourceMappingInput{UUID: mapping.UUID})
	})
	return func(body string) {
		_, err := queues.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: q.QueueUrl, MessageBody: &body})
		require.NoError(t, err)
	}
}

// running waits until so many environments run.
func (f *function) running(t *testing.T, want int) []string {
	t.Helper()
	var ids []string
	require.Eventually(t, func() bool {
		ids = nil
		for _, e := range f.environments(t) {
			if e.State == "running" {
				ids = append(ids, e.ID)
			}
		}
		return len(ids) == want
	}, time.Minute, 50*time.Millisecond)
	return ids
}

func TestStandardQueueFeedsSeveralEnvironments(t *testing.T) {
	t.Parallel()
	f := deploy(t, settings{timeout: 100, env: map[string]string{"ALWAYS": "hang"}})
	send := f.feed(t)
	for range 5 {
		send("{}")
	}
	for _, id := range f.running(t, 5) {
		require.NoError(t, f.core.Kill(t.Context(), id))
	}
}
