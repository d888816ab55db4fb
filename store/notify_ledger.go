package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/store/internal/db"
)

// deliveryPlace is a delivery's place in lists: the newest come first.
type deliveryPlace struct {
	At time.Time `json:"at"`
	ID uuid.UUID `json:"id"`
}

// ListDeliveries implements [notify.Store]. Each narrowing has a query of its
// own, so that each has an index of its own.
func (n *Notifications) ListDeliveries(ctx context.Context, a control.Actor, f notify.Filter, p control.Page) (out control.List[notify.Delivery], err error) {
	const kind = "deliveries"
	from := deliveryPlace{At: endOfTime}
	if _, err := control.DecodeCursor(kind, p.After, &from); err != nil {
		return out, err
	}
	var state *string
	if f.State != "" {
		s := string(f.State)
		state = &s
	}
	count := int32(p.Size() + 1)
	err = n.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		q := tx.Q()
		var rows []db.NotificationDelivery
		var err error
		switch {
		case f.Run != uuid.Nil && f.Rule == uuid.Nil:
			rows, err = q.ListDeliveriesOfRun(ctx, db.ListDeliveriesOfRunParams{
				Organization: a.Organization, Run: f.Run, State: state, Before: from.At, BeforeID: from.ID, Count: count,
			})
		case f.Rule != uuid.Nil:
			rows, err = q.ListDeliveriesOfRule(ctx, db.ListDeliveriesOfRuleParams{
				Organization: a.Organization, Rule: f.Rule, Run: optional(f.Run), State: state, Before: from.At, BeforeID: from.ID, Count: count,
			})
		case state != nil:
			rows, err = q.ListDeliveriesInState(ctx, db.ListDeliveriesInStateParams{
				Organization: a.Organization, State: *state, Before: from.At, BeforeID: from.ID, Count: count,
			})
		default:
			rows, err = q.ListDeliveries(ctx, db.ListDeliveriesParams{Organization: a.Organization, Before: from.At, BeforeID: from.ID, Count: count})
		}
		if err != nil {
			return err
		}
		found, err := each(rows, deliveryOf)
		if err != nil {
			return err
		}
		ids := make([]uuid.UUID, len(found))
		for i, d := range found {
			ids[i] = d.Pipeline
		}
		names, err := pipelineNames(ctx, tx, ids...)
		for i, d := range found {
			found[i].PipelineName = names[d.Pipeline]
		}
		out = control.PageOf(kind, p, found, func(d notify.Delivery) any { return deliveryPlace{d.CreatedAt, d.ID} })
		return err
	})
	return out, err
}

// GetDelivery implements [notify.Store].
func (n *Notifications) GetDelivery(ctx context.Context, a control.Actor, id uuid.UUID) (out notify.Delivery, err error) {
	err = n.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		row, err := tx.Q().GetDelivery(ctx, db.GetDeliveryParams{Organization: a.Organization, ID: id})
		if err != nil {
			return deliveryError(err, id)
		}
		if out, err = deliveryOf(row); err != nil {
			return err
		}
		names, err := pipelineNames(ctx, tx, out.Pipeline)
		if err != nil {
			return err
		}
		out.PipelineName = names[out.Pipeline]
		attempts, err := tx.Q().ListDeliveryAttempts(ctx, db.ListDeliveryAttemptsParams{Organization: a.Organization, Delivery: id})
		for _, at := range attempts {
			out.History = append(out.History, notify.Attempt{
				Number: int(at.Number), At: at.At.UTC(), Status: int(at.Status), Error: at.Error, Took: time.Duration(at.TookMs) * time.Millisecond,
			})
		}
		return err
	})
	return out, err
}

func deliveryError(err error, id uuid.UUID) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return &control.NotFoundError{Kind: "delivery", Ref: id.String()}
	}
	return err
}

// ReplayDelivery implements [notify.Store].
func (n *Notifications) ReplayDelivery(ctx context.Context, a control.Actor, id uuid.UUID, now time.Time) (out notify.Delivery, err error) {
	err = n.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		q := tx.Q()
		// A repeated request finds it pending already.
		_, first, err := once(ctx, tx, "delivery_replay", id)
		if err != nil {
			return err
		}
		row, err := q.LockDelivery(ctx, db.LockDeliveryParams{Organization: a.Organization, ID: id})
		if err != nil {
			return deliveryError(err, id)
		}
		if !first {
			out, err = deliveryOf(row)
			return err
		}
		if row.State != string(notify.Sent) && row.State != string(notify.Dead) {
			return &control.ConflictError{
				Code: "illegal_transition", State: row.State, Message: fmt.Sprintf("delivery %s is %s: only one that is sent or dead can be replayed", id, row.State),
			}
		}
		if row, err = q.ReplayDelivery(ctx, db.ReplayDeliveryParams{Organization: a.Organization, ID: id, Now: now}); err != nil {
			return err
		}
		if out, err = deliveryOf(row); err != nil {
			return err
		}
		tx.Hint(Hint{Kind: HintDelivery, Organization: a.Organization, Object: id})
		tx.owe()
		return audit(ctx, tx, control.AuditEntry{Actor: a, Action: "delivery.replay", Kind: "delivery", Object: id})
	})
	return out, err
}

// NextDelivery implements [notify.Ledger].
func (n *Notifications) NextDelivery(ctx context.Context, after time.Time) (next time.Time, err error) {
	return n.db.earliest(ctx, after, func(tx Tx) func(context.Context, time.Time) ([]time.Time, error) { return tx.Q().NextDelivery })
}

// NextWatch implements [notify.Ledger].
func (n *Notifications) NextWatch(ctx context.Context, after time.Time) (next time.Time, err error) {
	return n.db.earliest(ctx, after, func(tx Tx) func(context.Context, time.Time) ([]time.Time, error) { return tx.Q().NextWatch })
}

// earliest returns the earliest time that one of several queries finds.
func (d *DB) earliest(ctx context.Context, after time.Time, queries ...func(Tx) func(context.Context, time.Time) ([]time.Time, error)) (next time.Time, err error) {
	err = d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		next = time.Time{}
		for _, query := range queries {
			found, err := query(tx)(ctx, after)
			if err != nil {
				return err
			}
			for _, at := range found {
				if next.IsZero() || at.Before(next) {
					next = at.UTC()
				}
			}
		}
		return nil
	})
	return next, err
}

// DueDeliveries implements [notify.Ledger].
func (n *Notifications) DueDeliveries(ctx context.Context, now time.Time, limit int) (out []notify.DeliveryRef, err error) {
	err = n.db.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().DueDeliveries(ctx, db.DueDeliveriesParams{Now: now, Count: int32(limit)})
		out = nil
		for _, r := range rows {
			out = append(out, notify.DeliveryRef{Organization: r.Organization, Rule: r.Rule, Delivery: r.ID})
		}
		return err
	})
	return out, err
}

// ClaimDelivery implements [notify.Ledger].
func (n *Notifications) ClaimDelivery(ctx context.Context, r notify.DeliveryRef, now, until time.Time) (d notify.Delivery, rule notify.Rule, claim int64, ok bool, err error) {
	err = n.db.Tx(ctx, r.Organization, func(ctx context.Context, tx Tx) error {
		ok = false
		row, err := tx.Q().ClaimDelivery(ctx, db.ClaimDeliveryParams{Organization: r.Organization, ID: r.Delivery, Now: now, Until: until})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		// The rule as it is now: a corrected address serves what waits, too.
		of, err := tx.Q().GetRule(ctx, db.GetRuleParams{Organization: r.Organization, ID: r.Rule})
		if err != nil {
			return ruleError(err, r.Rule)
		}
		if rule, err = ruleOf(of); err != nil {
			return err
		}
		d, err = deliveryOf(row)
		// The channel of the rule counts too, since the address is of that channel.
		d.Channel, claim, ok = rule.Channel, row.Claim, err == nil
		return err
	})
	return d, rule, claim, ok, err
}

// SettleDelivery implements [notify.Ledger].
func (n *Notifications) SettleDelivery(ctx context.Context, r notify.DeliveryRef, claim int64, d notify.Delivery, at notify.Attempt) error {
	return n.db.Tx(ctx, r.Organization, func(ctx context.Context, tx Tx) error {
		changed, err := tx.Q().SettleDelivery(ctx, db.SettleDeliveryParams{
			Organization: r.Organization, ID: r.Delivery, Claim: claim, State: string(d.State), Attempts: int32(d.Attempts),
			NextAt: orNull(d.NextAt), Error: d.Error, SentAt: orNull(d.SentAt),
		})
		if err != nil || changed == 0 {
			return err
		}
		if d.State == notify.Pending {
			tx.owe()
		}
		return tx.Q().InsertDeliveryAttempt(ctx, db.InsertDeliveryAttemptParams{
			Organization: r.Organization, Delivery: r.Delivery, Claim: claim, Number: int32(at.Number), At: at.At,
			Status: int32(at.Status), Error: at.Error, TookMs: at.Took.Milliseconds(),
		})
	})
}

// DueWatches implements [notify.Ledger].
func (n *Notifications) DueWatches(ctx context.Context, now time.Time, limit int) (out []notify.RuleRef, err error) {
	err = n.db.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().DueWatches(ctx, db.DueWatchesParams{Now: now, Count: int32(limit)})
		out = nil
		for _, r := range rows {
			out = append(out, notify.RuleRef{Organization: r.Organization, Rule: r.ID})
		}
		return err
	})
	return out, err
}
