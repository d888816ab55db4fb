// Package queue sends messages to SQS: commands, facts, and what cannot be
// handled.
package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// Limits of SQS.
const (
	mostAtOnce = 10
	// maxBytes is below the 256 KiB that every queue takes, with room for attributes.
	maxBytes = 240 << 10
	// maxDelay is in seconds.
	maxDelay = 900
)

// Queue is one queue.
type Queue struct {
	client *sqs.Client
	url    string
}

// New sends to the queue at a URL.
func New(c aws.Config, url string) *Queue { return &Queue{client: sqs.NewFromConfig(c), url: url} }

// Message is what is sent.
type Message struct {
	Body string
	// Group orders the messages of a FIFO queue, and keeps the tenants of another
	// one fair to each other; empty: none.
	Group string
	// Once is the id by which a FIFO queue drops a repetition within 5 minutes.
	Once string
	// Delay holds it back, in whole seconds and at most 15 min; not in a FIFO queue.
	Delay time.Duration
	// Reason goes along as an attribute; empty: none.
	Reason string
}

// Send sends messages in their order, in as few calls as they fit in. After an
// error some may have been sent.
func (q *Queue) Send(ctx context.Context, messages ...Message) error {
	for len(messages) > 0 {
		n := fitting(messages)
		if err := q.send(ctx, messages[:n]); err != nil {
			return fmt.Errorf("send %d messages to %s: %w", n, q.url, err)
		}
		messages = messages[n:]
	}
	return nil
}

// fitting is how many of the messages one call takes.
func fitting(messages []Message) int {
	size := 0
	for i, m := range messages[:min(len(messages), mostAtOnce)] {
		if size += len(m.Body); size > maxBytes && i > 0 {
			return i
		}
	}
	return min(len(messages), mostAtOnce)
}

func (q *Queue) send(ctx context.Context, messages []Message) error {
	entries := make([]types.SendMessageBatchRequestEntry, len(messages))
	for i, m := range messages {
		e := types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: &m.Body}
		if m.Group != "" {
			e.MessageGroupId = &m.Group
		}
		if m.Delay > 0 {
			e.DelaySeconds = int32(min((m.Delay+time.Second-1)/time.Second, maxDelay))
		}
		if m.Once != "" {
			e.MessageDeduplicationId = &m.Once
		}
		if m.Reason != "" {
			e.MessageAttributes = map[string]types.MessageAttributeValue{"reason": {DataType: aws.String("String"), StringValue: &m.Reason}}
		}
		entries[i] = e
	}
	out, err := q.client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &q.url, Entries: entries})
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range out.Failed {
		errs = append(errs, fmt.Errorf("%s: %s", aws.ToString(f.Code), aws.ToString(f.Message)))
	}
	return errors.Join(errs...)
}
