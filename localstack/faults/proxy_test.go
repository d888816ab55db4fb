package faults_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/localstack/faults"
	"github.com/tranship-io/tranship/localstack/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }

// behind starts a proxy in front of the shared AWS.
func behind(t *testing.T) (url string, config aws.Config) {
	t.Helper()
	core := rig.Shared(t)
	proxy, err := faults.New(core.Endpoint(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	config = core.AWS()
	config.BaseEndpoint = &server.URL
	config.Retryer = func() aws.Retryer { return aws.NopRetryer{} }
	return server.URL, config
}

func set(t *testing.T, url, document string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url+"/_rig/faults", strings.NewReader(document))
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusNoContent, answer.StatusCode)
}

func counts(t *testing.T, url string) (c faults.Counts) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/_rig/counts", http.NoBody)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&c))
	return c
}

// queue makes a queue and returns functions that send to it and empty it.
func queue(t *testing.T, config aws.Config, fifo bool) (send func(body string) error, receive func(want int) []string) {
	t.Helper()
	client := sqs.NewFromConfig(config)
	name := rig.Name(t)
	attributes := map[string]string{}
	if fifo {
		name += ".fifo"
		attributes["FifoQueue"] = "true"
	}
	q, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	require.NoError(t, err)
	send = func(body string) error {
		in := &sqs.SendMessageInput{QueueUrl: q.QueueUrl, MessageBody: &body}
		if fifo {
			in.MessageGroupId, in.MessageDeduplicationId = aws.String("g"), &body
		}
		_, err := client.SendMessage(t.Context(), in)
		return err
	}
	receive = func(want int) []string {
		var bodies []string
		for {
			in := &sqs.ReceiveMessageInput{QueueUrl: q.QueueUrl, MaxNumberOfMessages: 10, VisibilityTimeout: 30}
			if len(bodies) < want {
				in.WaitTimeSeconds = 5
			}
			out, err := client.ReceiveMessage(t.Context(), in)
			require.NoError(t, err)
			if len(out.Messages) == 0 {
				return bodies
			}
			for _, m := range out.Messages {
				bodies = append(bodies, *m.Body)
				_, err := client.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: q.QueueUrl, ReceiptHandle: m.ReceiptHandle})
				require.NoError(t, err)
			}
		}
	}
	return send, receive
}

func TestErrors(t *testing.T) {
	t.Parallel()
	url, config := behind(t)
	send, receive := queue(t, config, false)
	set(t, url, `{"fail":true}`)
	require.ErrorContains(t, send("a"), "500")
	store := s3.NewFromConfig(config)
	_, err := store.ListBuckets(t.Context(), &s3.ListBucketsInput{})
	require.ErrorContains(t, err, "500")
	set(t, url, `{}`)
	require.NoError(t, send("b"))
	require.Equal(t, []string{"b"}, receive(1))
	require.Equal(t, 2, counts(t, url).Failed)
}

func TestMessagesComeTwice(t *testing.T) {
	t.Parallel()
	url, config := behind(t)
	set(t, url, `{"duplicate":true}`)
	for _, fifo := range []bool{false, true} {
		send, receive := queue(t, config, fifo)
		require.NoError(t, send("a"))
		require.Equal(t, []string{"a", "a"}, receive(2))
	}
	require.Equal(t, 2, counts(t, url).Duplicated)
}

func TestMessagesAreLost(t *testing.T) {
	t.Parallel()
	url, config := behind(t)
	send, receive := queue(t, config, false)
	set(t, url, `{"lose":1,"only":"another-queue"}`)
	require.NoError(t, send("kept"))
	require.Equal(t, []string{"kept"}, receive(1))
	set(t, url, `{"lose":1}`)
	require.NoError(t, send("lost"))
	require.NoError(t, send("after"))
	require.Equal(t, []string{"after"}, receive(1))
	require.Equal(t, 1, counts(t, url).Lost)
}

func TestBatchesAndDelays(t *testing.T) {
	t.Parallel()
	url, config := behind(t)
	client := sqs.NewFromConfig(config)
	name := rig.Name(t)
	q, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name})
	require.NoError(t, err)
	set(t, url, `{"shuffle":1,"duplicate":true}`)
	entries := []types.SendMessageBatchRequestEntry{
		{Id: aws.String("1"), MessageBody: aws.String("x")}, {Id: aws.String("2"), MessageBody: aws.String("y")},
	}
	out, err := client.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: q.QueueUrl, Entries: entries})
	require.NoError(t, err)
	require.Len(t, out.Successful, 2)
	require.Equal(t, 2, counts(t, url).Duplicated)
	set(t, url, `{"lose":1}`)
	out, err = client.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: q.QueueUrl, Entries: entries})
	require.NoError(t, err)
	require.Len(t, out.Successful, 2, "the sender does not notice")
	seen := map[string]int{}
	require.Eventually(t, func() bool {
		got, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: q.QueueUrl, MaxNumberOfMessages: 10})
		require.NoError(t, err)
		for _, m := range got.Messages {
			seen[*m.Body]++
		}
		return seen["x"]+seen["y"] == 4
	}, 20*time.Second, 50*time.Millisecond)
	require.Equal(t, map[string]int{"x": 2, "y": 2}, seen)
}
