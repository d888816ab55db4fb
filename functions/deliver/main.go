// Command deliver sends notifications by webhook, Slack and email.
package main

import (
	"context"
	"fmt"

	"github.com/aws/aws-lambda-go/events"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/internal/awsadapter/queue"
	"github.com/tranship-io/tranship/internal/awsadapter/sweepswitch"
	"github.com/tranship-io/tranship/internal/compose/cloud"
	"github.com/tranship-io/tranship/internal/compose/cloud/database"
	"github.com/tranship-io/tranship/internal/compose/cloud/vault"
	"github.com/tranship-io/tranship/store"
)

func main() {
	cloud.Main("deliver", func(ctx context.Context, f *cloud.Function) (cloud.Handler[events.SQSEvent, events.SQSEventResponse], error) {
		h, err := wire(ctx, f)
		if err != nil {
			return nil, err
		}
		return h.handle, nil
	})
}

func wire(ctx context.Context, f *cloud.Function) (*handler, error) {
	deliveries, dead := f.Env.Need("TRANSHIP_DELIVERIES_QUEUE"), f.Env.Need("TRANSHIP_DEAD_QUEUE")
	// An attempt that has to be repeated falls due later, which arms the sweep.
	wake := sweepswitch.New(f.AWS, f.Env.Need("TRANSHIP_SCHEDULE_GROUP"), f.Env.Need("TRANSHIP_SWEEP_SCHEDULE"))
	db, err := database.Open(ctx, f, database.Options{Switch: wake, Hints: func(store.Hint) {}})
	if err != nil {
		return nil, err
	}
	var guard notify.Guard
	f.Env.JSON("TRANSHIP_WEBHOOKS", &guard)
	email, err := notify.NewEmailSender(notify.EmailConfig{URL: f.Env.Get("TRANSHIP_SMTP_URL", ""), From: f.Env.Get("TRANSHIP_SMTP_FROM", "")})
	if err != nil {
		return nil, fmt.Errorf("read TRANSHIP_SMTP_URL and TRANSHIP_SMTP_FROM: %w", err)
	}
	secrets, clock, ledger := vault.Open(f, db).Secrets, control.SystemClock{}, db.Notifications()
	return &handler{
		db:    db,
		batch: cloud.Batch[queue.Delivery]{Check: check, Dead: queue.Dead{Queue: queue.New(f.AWS, dead)}, Log: f.Log},
		deliverer: &notify.Deliverer{Ledger: ledger, Clock: clock, Log: f.Log, Senders: map[notify.Channel]notify.Sender{
			notify.Webhook: &notify.WebhookSender{Client: guard.Client(), Secrets: secrets},
			notify.Slack:   &notify.SlackSender{Client: guard.Client(), Secrets: secrets, AllowHTTP: guard.AllowHTTP},
			notify.Email:   email,
		}},
		forward: &notify.Forwarder{Ledger: ledger, Queue: queue.Deliveries{Queue: queue.New(f.AWS, deliveries)}, Clock: clock},
	}, nil
}
