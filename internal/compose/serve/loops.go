package serve

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/control/projection"
	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/control/schedules"
	"github.com/tranship-io/tranship/control/timer"
	"github.com/tranship-io/tranship/internal/compose/intake"
	"github.com/tranship-io/tranship/store"
)

// loops are the parts of the control plane that work by themselves. Each sends
// nothing while nothing is due (invariant 14).
type loops struct {
	schedules, deliveries, watches *timer.Timer
	projector                      *projection.Projector
}

func (p *process) makeLoops(service *runs.Service, secrets notify.Resolver) error {
	c := p.config
	named := func(name string, s timer.Source) *timer.Timer {
		return &timer.Timer{Name: name, Source: s, Clock: control.SystemClock{}, Log: c.Log}
	}
	senders, err := p.senders(secrets)
	if err != nil {
		return err
	}
	ledger := p.db.Notifications()
	fired := p.db.Schedules()
	l := &loops{
		schedules:  named("schedules", &schedules.Firing{Ledger: fired, Intake: intake.Schedules{Runs: service}, Log: c.Log}),
		deliveries: named("deliveries", &notify.Deliverer{Ledger: ledger, Senders: senders, Clock: control.SystemClock{}, Log: c.Log}),
		watches:    named("watches", &notify.Watcher{Ledger: ledger}),
	}
	read := p.db.Projection()
	l.projector = &projection.Projector{Relay: read, Store: read, Clock: control.SystemClock{}, Log: c.Log,
		Ended: func(ctx context.Context, organization, pipeline uuid.UUID) error {
			// Occurrences that waited for the run's end are due now.
			released, err := fired.Release(ctx, organization, pipeline, time.Now())
			if released {
				l.schedules.Nudge()
			}
			return err
		}}
	p.loops = l
	return nil
}

func (p *process) senders(secrets notify.Resolver) (map[notify.Channel]notify.Sender, error) {
	env := func(name string) string {
		v, _ := p.config.Lookup(name)
		return v
	}
	email, err := notify.NewEmailSender(notify.EmailConfig{URL: env("TRANSHIP_SMTP_URL"), From: env("TRANSHIP_SMTP_FROM"), Insecure: env("TRANSHIP_SMTP_INSECURE") == "1"})
	if err != nil {
		return nil, fmt.Errorf("read TRANSHIP_SMTP_URL and TRANSHIP_SMTP_FROM: %w", err)
	}
	guard := p.config.Webhooks
	return map[notify.Channel]notify.Sender{
		notify.Webhook: &notify.WebhookSender{Client: guard.Client(), Secrets: secrets},
		notify.Slack:   &notify.SlackSender{Client: guard.Client(), Secrets: secrets, AllowHTTP: guard.AllowHTTP},
		notify.Email:   email,
	}, nil
}

// scheduler wakes this process's timer; the others are told by a hint.
type scheduler struct{ timer *timer.Timer }

// Moved implements [schedules.Scheduler].
func (s scheduler) Moved(context.Context, schedules.Ref) error {
	s.timer.Nudge()
	return nil
}

// start runs the loops until the context ends.
func (l *loops) start(ctx context.Context, run func(func())) {
	for _, t := range []interface{ Run(context.Context) }{l.schedules, l.deliveries, l.watches, l.projector} {
		run(func() { t.Run(ctx) })
	}
}

// hint wakes who a hint is for.
func (l *loops) hint(h store.Hint) {
	switch h.Kind {
	case store.HintFacts:
		l.projector.Nudge()
		l.deliveries.Nudge()
	case store.HintSchedule:
		l.schedules.Nudge()
		l.watches.Nudge()
	case store.HintDelivery:
		l.deliveries.Nudge()
		l.watches.Nudge()
	}
}

// all wakes everybody: hints may have been lost (P25).
func (l *loops) all() {
	l.schedules.Nudge()
	l.deliveries.Nudge()
	l.watches.Nudge()
	l.projector.Nudge()
}

// retention is how often what is too old is deleted, and everything is looked at
// whatever woke nobody (the backstop of P23).
const retention = 24 * time.Hour

func (p *process) daily(ctx context.Context) {
	next := time.Now().Add(10 * time.Minute)
	for (control.SystemClock{}).Sleep(ctx, next) == nil {
		next = time.Now().Add(retention)
		deleted, err := p.db.Retain(ctx, store.Retention{})
		if err != nil {
			p.log.WarnContext(ctx, "retention", "error", err)
		}
		p.log.InfoContext(ctx, "retention", "deleted", deleted)
		p.connected()
	}
}
