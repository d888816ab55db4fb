package main

import (
	"context"
	"errors"
	"sync"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/internal/awsadapter/queue"
	"github.com/tranship-io/tranship/internal/compose/cloud"
	"github.com/tranship-io/tranship/internal/compose/cloud/database"
)

// handler sends the deliveries that messages name, if the ledger says that they are
// due.
type handler struct {
	db        *database.Database
	batch     cloud.Batch[queue.Delivery]
	deliverer *notify.Deliverer
	forward   *notify.Forwarder
}

func (h *handler) handle(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
	if err := h.db.Ready(ctx); err != nil {
		return events.SQSEventResponse{}, err
	}
	return h.batch.Handle(ctx, event, h.deliver), nil
}

// deliver sends side by side: a receiver that hangs holds up no other.
func (h *handler) deliver(ctx context.Context, messages []queue.Delivery) []error {
	errs := make([]error, len(messages))
	var wait sync.WaitGroup
	for i, m := range messages {
		wait.Go(func() { errs[i] = h.deliverOne(ctx, notify.DeliveryRef(m)) })
	}
	wait.Wait()
	return errs
}

func (h *handler) deliverOne(ctx context.Context, r notify.DeliveryRef) error {
	next, err := h.deliverer.Deliver(ctx, r)
	if err != nil {
		return err
	}
	if err := h.forward.Again(ctx, r, next); err != nil {
		// The ledger knows when; the sweep's alarm brings it back.
		h.deliverer.Log.WarnContext(ctx, "the next attempt is left to the sweep", "organization", r.Organization, "delivery", r.Delivery, "error", err)
	}
	return nil
}

// check refuses a message that names no delivery.
func check(d queue.Delivery) error {
	if d.Organization == uuid.Nil || d.Rule == uuid.Nil || d.Delivery == uuid.Nil {
		return errors.New("it names no delivery")
	}
	return nil
}
