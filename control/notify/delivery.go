package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
)

// State is where a delivery stands.
type State string

// The states. Sending: a process has it, until its claim lapses. Dead: it was
// given up and waits for a replay. Canceled: its rule was deleted.
const (
	Pending  State = "pending"
	Sending  State = "sending"
	Sent     State = "sent"
	Dead     State = "dead"
	Canceled State = "canceled"
)

// Delivery is one event on its way to one rule's receivers.
type Delivery struct {
	// ID stays the same over attempts and replays.
	ID       uuid.UUID
	Rule     uuid.UUID
	Event    string
	EventKey string
	// Pipeline and Run are what the event is about; PipelineName is filled in by the store.
	Pipeline     uuid.UUID
	PipelineName string
	Run          uuid.UUID
	Channel      Channel
	State        State
	Payload      json.RawMessage
	// Attempts counts those since the last replay that failed or succeeded;
	// Interruptions those of which nobody knows the end.
	Attempts, Interruptions int
	// NextAt is the next attempt's time, or when a claim lapses.
	NextAt            time.Time
	Error             string
	CreatedAt, SentAt time.Time
	History           []Attempt
}

// Attempt is one try of a delivery.
type Attempt struct {
	Number int
	At     time.Time
	// Status is the receiver's HTTP or SMTP code; 0: there was no answer.
	Status int
	Error  string
	Took   time.Duration
}

// Make returns the deliveries of an event by the rules that want it. They are due
// when it happened, that is at once.
func Make(organization uuid.UUID, rules []Rule, e Event) ([]Delivery, error) {
	var out []Delivery
	var payload json.RawMessage
	for _, r := range rules {
		if !r.Matches(e) {
			continue
		}
		if payload == nil {
			var err error
			if payload, err = e.Payload(organization); err != nil {
				return nil, fmt.Errorf("encode event %s: %w", e.Key, err)
			}
		}
		out = append(out, Delivery{
			ID: ID(r.ID, e.Key), Rule: r.ID, Event: e.Type, EventKey: e.Key, Pipeline: e.Pipeline, Run: e.Run,
			Channel: r.Channel, State: Pending, Payload: payload, NextAt: e.At,
		})
	}
	return out, nil
}

// waits are the times between attempts; with the first attempt they make nine
// over about 18 hours.
var waits = []time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	2 * time.Hour, 5 * time.Hour, 10 * time.Hour,
}

// MaxAttempts is after how many attempts a delivery is dead.
const MaxAttempts = 9

// maxInterruptions bounds attempts that end with their process: a payload that
// kills it must not do so for ever.
const maxInterruptions = 20

// Settle returns a delivery after an attempt that began at now.
func (d Delivery) Settle(r Result, now time.Time) Delivery {
	d.Attempts++
	d.Error = r.Error
	switch {
	case r.Error == "":
		d.State, d.NextAt, d.SentAt = Sent, time.Time{}, now
	case r.Final || d.Attempts >= MaxAttempts:
		d.State, d.NextAt = Dead, time.Time{}
	default:
		d.State = Pending
		wait := spread(waits[min(d.Attempts, len(waits))-1], d.ID, d.Attempts)
		d.NextAt = now.Add(max(wait, min(r.RetryAfter, waits[len(waits)-1])))
	}
	return d
}

// spread makes a wait up to a fifth longer, differently for each delivery and
// attempt, so that a receiver that comes back is not met by all at once.
func spread(wait time.Duration, id uuid.UUID, attempt int) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write(append(id[:], byte(attempt)))
	return wait + wait*time.Duration(h.Sum32()%1000)/5000
}

// Result is how an attempt ended; an empty Error is success.
type Result struct {
	Status int
	Error  string
	// Final: the receiver does not want it, so another attempt makes no sense.
	Final      bool
	RetryAfter time.Duration
}

// Message is what a channel sends.
type Message struct {
	ID           uuid.UUID
	Organization uuid.UUID
	Rule         Rule
	Event        string
	Payload      json.RawMessage
	// At is the attempt's time, which is signed.
	At time.Time
}

// Sender sends messages of one channel. The context bounds the attempt.
type Sender interface {
	Send(ctx context.Context, m Message) Result
}

// DeliveryRef names a delivery across organizations.
type DeliveryRef struct {
	Organization, Rule, Delivery uuid.UUID
}

// Store keeps rules and deliveries for people.
type Store interface {
	// CreateRule stores a rule; with an idempotency key in the context that was used
	// before, it returns what that call made.
	CreateRule(ctx context.Context, a control.Actor, r Rule) (Rule, error)
	// UpdateRule stores r over the row of r.Version, else *control.StaleVersionError.
	UpdateRule(ctx context.Context, a control.Actor, action string, r Rule) (Rule, error)
	// DeleteRule removes a rule and cancels what is not sent yet; version 0:
	// whatever stands.
	DeleteRule(ctx context.Context, a control.Actor, id uuid.UUID, version int64) (Rule, error)
	GetRule(ctx context.Context, a control.Actor, id uuid.UUID) (Rule, error)
	ListRules(ctx context.Context, a control.Actor, pipeline uuid.UUID, p control.Page) (control.List[Rule], error)
	// PipelineID finds a live pipeline by its name or id.
	PipelineID(ctx context.Context, a control.Actor, ref string) (uuid.UUID, error)
	// ListDeliveries lists the newest first; GetDelivery has the history too.
	ListDeliveries(ctx context.Context, a control.Actor, f Filter, p control.Page) (control.List[Delivery], error)
	GetDelivery(ctx context.Context, a control.Actor, id uuid.UUID) (Delivery, error)
	// ReplayDelivery makes a delivery pending that is sent or dead; otherwise
	// *control.ConflictError "illegal_transition".
	ReplayDelivery(ctx context.Context, a control.Actor, id uuid.UUID, now time.Time) (Delivery, error)
}

// Filter narrows a list of deliveries; zero values narrow nothing.
type Filter struct {
	Rule, Run uuid.UUID
	State     State
}

// Ledger is the store's side of sending and watching, across organizations. Each
// call is a transaction of its own.
type Ledger interface {
	// NextDelivery is the earliest time after the given one at which a delivery is
	// due or a claim lapses; zero: none.
	NextDelivery(ctx context.Context, after time.Time) (time.Time, error)
	DueDeliveries(ctx context.Context, now time.Time, limit int) ([]DeliveryRef, error)
	// ClaimDelivery takes a due delivery until the given time; false: it is not due
	// any more. Taking one whose claim lapsed counts an interruption.
	ClaimDelivery(ctx context.Context, r DeliveryRef, now, until time.Time) (d Delivery, rule Rule, claim int64, ok bool, err error)
	// SettleDelivery stores a delivery after an attempt, if the claim stands.
	SettleDelivery(ctx context.Context, r DeliveryRef, claim int64, d Delivery, a Attempt) error
	// NextWatch is the earliest time after the given one at which a rule that
	// watches has to look; zero: none.
	NextWatch(ctx context.Context, after time.Time) (time.Time, error)
	DueWatches(ctx context.Context, now time.Time, limit int) ([]RuleRef, error)
	// Watch lets a due rule look: it calls look with what the rule watches, raises
	// the events that it returns, and stores when to look next (zero: not before
	// something happens).
	Watch(ctx context.Context, r RuleRef, now time.Time, look func(Rule, []Watched) ([]Event, time.Time)) error
}

// RuleRef names a rule across organizations.
type RuleRef struct{ Organization, Rule uuid.UUID }
