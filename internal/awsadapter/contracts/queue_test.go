package contracts

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/dispatch/dispatchtest"
	"github.com/tranship-io/tranship/internal/awsadapter/queue"
	"github.com/tranship-io/tranship/localstack/rig"
)

// newQueue makes a queue and returns it with what reads it.
func newQueue(t *testing.T, fifo bool) (*queue.Queue, func() []types.Message) {
	t.Helper()
	c := rig.Shared(t).AWS()
	client := sqs.NewFromConfig(c)
	name, attributes := rig.Name(t), map[string]string{}
	if fifo {
		name += ".fifo"
		attributes["FifoQueue"] = "true"
	}
	made, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	require.NoError(t, err)
	return queue.New(c, aws.ToString(made.QueueUrl)), func() []types.Message {
		out, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: made.QueueUrl, MaxNumberOfMessages: 10,
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"}, MessageAttributeNames: []string{"All"}})
		require.NoError(t, err)
		for _, m := range out.Messages {
			_, err := client.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: made.QueueUrl, ReceiptHandle: m.ReceiptHandle})
			require.NoError(t, err)
		}
		return out.Messages
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	q, receive := newQueue(t, false)
	dispatchtest.TestQueue(t, queue.Commands{Queue: q}, func() []dispatch.Command {
		var out []dispatch.Command
		for _, m := range receive() {
			var c dispatch.Command
			require.NoError(t, json.Unmarshal([]byte(aws.ToString(m.Body)), &c))
			require.Equal(t, c.Organization.String(), m.Attributes["MessageGroupId"])
			out = append(out, c)
		}
		return out
	})
}

// TestManyMessages: any number goes, in few calls, in order within a group, a
// repeated one once.
func TestManyMessages(t *testing.T) {
	t.Parallel()
	q, receive := newQueue(t, true)
	var send []queue.Message
	for i := range 25 {
		send = append(send, queue.Message{Body: fmt.Sprint(i), Group: "g", Once: fmt.Sprint("id", i)})
	}
	// Three of these do not fit into one call.
	for i := range 3 {
		send = append(send, queue.Message{Body: strings.Repeat("x", 100<<10), Group: "g", Once: fmt.Sprint("large", i)})
	}
	require.NoError(t, q.Send(t.Context(), send...))
	require.NoError(t, q.Send(t.Context(), send[:5]...), "a repetition")
	require.NoError(t, q.Send(t.Context()))
	var got []string
	for {
		messages := receive()
		if len(messages) == 0 {
			break
		}
		for _, m := range messages {
			got = append(got, aws.ToString(m.Body))
		}
	}
	require.Len(t, got, len(send))
	for i, m := range send {
		require.Equal(t, m.Body, got[i])
	}
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	for _, fifo := range []bool{false, true} {
		q, receive := newQueue(t, fifo)
		dead := queue.Dead{Queue: q, Fifo: fifo}
		for range 2 {
			require.NoError(t, dead.Bury(t.Context(), "nonsense", "g", strings.Repeat("ü", 2000)))
		}
		got := receive()
		if len(got) < 2 {
			got = append(got, receive()...)
		}
		require.Len(t, got, 2, "the same text twice is two messages")
		require.Equal(t, "nonsense", aws.ToString(got[0].Body))
		require.True(t, strings.HasPrefix(aws.ToString(got[0].MessageAttributes["reason"].StringValue), "üü"))
	}
}

func TestAQueueThatIsNotThereIsNamed(t *testing.T) {
	t.Parallel()
	url := rig.Shared(t).Endpoint() + "/000000000000/" + rig.Name(t)
	err := queue.New(rig.Shared(t).AWS(), url).Send(t.Context(), queue.Message{Body: "x"})
	require.ErrorContains(t, err, url)
	require.ErrorContains(t, err, "SendMessageBatch")
}
