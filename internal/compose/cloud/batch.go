package cloud

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/aws/aws-lambda-go/events"
)

// DeadLetters takes messages that nobody can ever handle.
type DeadLetters interface {
	// Bury stores a message's body with what is wrong with it.
	Bury(ctx context.Context, body, group, reason string) error
}

// Batch handles the messages of a queue, each a JSON document of type M.
type Batch[M any] struct {
	// Check refuses a document that can be decoded and still makes no sense; nil:
	// none.
	Check func(M) error
	// Dead gets what cannot be parsed: to receive it again and again until the queue
	// gives up would take hours, with attempts a day.
	Dead DeadLetters
	Log  *slog.Logger
}

// Handle parses the event's messages, lets do handle those that can be, and
// answers which have to come again: those whose error, by their index, is not nil.
// do is not called without messages; a nil slice means that all went well.
func (b *Batch[M]) Handle(ctx context.Context, event events.SQSEvent, do func(ctx context.Context, messages []M) []error) events.SQSEventResponse {
	// Never null: some emulators take that as an error of the whole batch.
	failed := []events.SQSBatchItemFailure{}
	fail := func(r *events.SQSMessage, err error) {
		b.Log.WarnContext(ctx, "a message has to come again", "message", r.MessageId, "received", r.Attributes["ApproximateReceiveCount"], "error", err)
		failed = append(failed, events.SQSBatchItemFailure{ItemIdentifier: r.MessageId})
	}
	var messages []M
	var from []*events.SQSMessage
	for i := range event.Records {
		r := &event.Records[i]
		m, err := b.parse(r.Body)
		if err == nil {
			messages, from = append(messages, m), append(from, r)
			continue
		}
		b.Log.ErrorContext(ctx, "a message cannot be parsed: it goes to the dead letters", "message", r.MessageId, "error", err)
		if err := b.Dead.Bury(ctx, r.Body, r.Attributes["MessageGroupId"], err.Error()); err != nil {
			fail(r, err)
		}
	}
	if len(messages) > 0 {
		for i, err := range do(ctx, messages) {
			if err != nil {
				fail(from[i], err)
			}
		}
	}
	return events.SQSEventResponse{BatchItemFailures: failed}
}

func (b *Batch[M]) parse(body string) (M, error) {
	var m M
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		return m, fmt.Errorf("parse message: %w", err)
	}
	if b.Check != nil {
		if err := b.Check(m); err != nil {
			return m, fmt.Errorf("check message: %w", err)
		}
	}
	return m, nil
}
