package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/tranship-io/tranship/control"
)

const (
	// attemptTime bounds an attempt; a claim outlives it, so that two processes
	// send the same delivery at once only if one of them stood still.
	attemptTime = 20 * time.Second
	claimTime   = 3 * attemptTime
	batch       = 200
	// parallel is how many rules are served side by side: a receiver that hangs
	// holds up its own rule's deliveries.
	parallel = 16
)

// Deliverer sends what is due. It is a source of a timer.
type Deliverer struct {
	Ledger  Ledger
	Senders map[Channel]Sender
	Clock   control.Clock
	Log     *slog.Logger
}

// Next implements the timer's source.
func (d *Deliverer) Next(ctx context.Context, after time.Time) (time.Time, error) {
	return d.Ledger.NextDelivery(ctx, after)
}

// Run sends all that is due at the time now.
func (d *Deliverer) Run(ctx context.Context, now time.Time) error {
	tried := map[DeliveryRef]bool{}
	var failed error
	for {
		refs, err := d.Ledger.DueDeliveries(ctx, now, batch)
		if err != nil {
			return errors.Join(failed, err)
		}
		byRule := map[RuleRef][]DeliveryRef{}
		for _, r := range refs {
			if !tried[r] {
				tried[r] = true
				rule := RuleRef{r.Organization, r.Rule}
				byRule[rule] = append(byRule[rule], r)
			}
		}
		if len(byRule) == 0 {
			return failed
		}
		var g errgroup.Group
		g.SetLimit(parallel)
		results := make(chan error, len(byRule))
		for _, list := range byRule {
			g.Go(func() error {
				results <- d.sendAll(ctx, list)
				return nil
			})
		}
		_ = g.Wait() // errors travel by the channel, so that all are told
		close(results)
		for err := range results {
			failed = errors.Join(failed, err)
		}
		var away *control.UnavailableError
		if ctx.Err() != nil || errors.As(failed, &away) {
			return failed
		}
	}
}

// sendAll sends a rule's deliveries one after the other.
func (d *Deliverer) sendAll(ctx context.Context, list []DeliveryRef) error {
	for _, r := range list {
		if _, err := d.Deliver(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// Deliver claims a delivery just before its own attempt (not a batch of them under
// one claim), sends it and stores how that ended. It returns when the next attempt
// is due: zero if none is, or if it was not due now.
func (d *Deliverer) Deliver(ctx context.Context, r DeliveryRef) (next time.Time, err error) {
	if next, err = d.sendOne(ctx, r); err != nil {
		return next, fmt.Errorf("send delivery %s: %w", r.Delivery, err)
	}
	return next, nil
}

func (d *Deliverer) sendOne(ctx context.Context, r DeliveryRef) (next time.Time, err error) {
	now := d.Clock.Now()
	claimed, rule, claim, ok, err := d.Ledger.ClaimDelivery(ctx, r, now, now.Add(claimTime))
	if err != nil || !ok {
		return next, err
	}
	var result Result
	sender, known := d.Senders[claimed.Channel]
	switch {
	case !known:
		result = Result{Error: fmt.Sprintf("this installation cannot send by %s", claimed.Channel), Final: true}
	case claimed.Interruptions >= maxInterruptions:
		result = Result{Error: fmt.Sprintf("%d attempts ended with their process: given up", claimed.Interruptions), Final: true}
	default:
		attempt, cancel := context.WithTimeout(ctx, attemptTime)
		result = sender.Send(attempt, Message{
			ID: claimed.ID, Organization: r.Organization, Rule: rule, Event: claimed.Event, Payload: claimed.Payload, At: now,
		})
		cancel()
	}
	if ctx.Err() != nil && result.Error != "" {
		// We were stopped, which says nothing of the receiver: the claim lapses and
		// another process sends it.
		return next, ctx.Err()
	}
	if result.Error != "" {
		d.Log.InfoContext(ctx, "notification not delivered", "organization", r.Organization, "delivery", claimed.ID,
			"channel", claimed.Channel, "attempt", claimed.Attempts+1, "error", result.Error)
	}
	settled := claimed.Settle(result, now)
	return settled.NextAt, d.Ledger.SettleDelivery(context.WithoutCancel(ctx), r, claim, settled, Attempt{
		Number: settled.Attempts, At: now, Status: result.Status, Error: result.Error, Took: d.Clock.Now().Sub(now),
	})
}

// Watched is a thing that a rule watches: a pipeline, or a run.
type Watched struct {
	Pipeline     uuid.UUID
	PipelineName string
	// Run is uuid.Nil for a pipeline.
	Run uuid.UUID
	// Since is the pipeline's last success (its creation if it never had one) or the
	// run's last progress.
	Since time.Time
}

// Watcher lets rules look at what does not happen. It is a source of a timer.
type Watcher struct{ Ledger Ledger }

// Next implements the timer's source.
func (w *Watcher) Next(ctx context.Context, after time.Time) (time.Time, error) {
	return w.Ledger.NextWatch(ctx, after)
}

// Run lets all rules look that are due at the time now.
func (w *Watcher) Run(ctx context.Context, now time.Time) error {
	tried := map[RuleRef]bool{}
	var failed error
	for {
		refs, err := w.Ledger.DueWatches(ctx, now, batch)
		if err != nil {
			return errors.Join(failed, err)
		}
		fresh := false
		for _, r := range refs {
			if tried[r] {
				continue
			}
			tried[r], fresh = true, true
			err := w.Ledger.Watch(ctx, r, now, func(rule Rule, watched []Watched) ([]Event, time.Time) { return Look(rule, watched, now) })
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("watch for rule %s: %w", r.Rule, err))
			}
		}
		if !fresh || ctx.Err() != nil {
			return failed
		}
	}
}

// Look decides which of the things that a rule watches it tells of at the time
// now, and when it looks next.
func Look(r Rule, watched []Watched, now time.Time) (events []Event, next time.Time) {
	sooner := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	for _, w := range watched {
		limit, typ := r.StaleAfter, PipelineStale
		if w.Run != uuid.Nil {
			limit, typ = r.NoProgressAfter, RunNoProgress
		}
		if limit == 0 {
			continue
		}
		if at := w.Since.Add(limit); at.After(now) {
			sooner(at)
			continue
		}
		e := Event{Type: typ, At: now.UTC(), Pipeline: w.Pipeline, PipelineName: w.PipelineName, Run: w.Run}
		since := w.Since.UTC().Format(time.RFC3339Nano)
		if w.Run == uuid.Nil {
			e.Key = fmt.Sprintf("%s/%s/%s", typ, w.Pipeline, since)
			e.Message = fmt.Sprintf("pipeline %q has not succeeded since %s, which is more than %s ago", w.PipelineName, since, limit)
		} else {
			e.Key = fmt.Sprintf("%s/%s/%s", typ, w.Run, since)
			e.Message = fmt.Sprintf("run %s of pipeline %q has made no progress since %s, which is more than %s ago", w.Run, w.PipelineName, since, limit)
			// It may go on and stand still again.
			sooner(now.Add(limit))
		}
		events = append(events, e)
	}
	return events, next
}
