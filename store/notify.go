package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/control/secrets"
	"github.com/tranship-io/tranship/store/internal/db"
)

// Notifications implements the ports of package notify.
type Notifications struct{ db *DB }

var (
	_ notify.Store  = (*Notifications)(nil)
	_ notify.Ledger = (*Notifications)(nil)
)

// Notifications returns the store of rules and deliveries.
func (d *DB) Notifications() *Notifications { return &Notifications{d} }

// raise writes the deliveries of events into the ledger, in the transaction that
// found them. An event that was raised before changes nothing (invariant 4).
func raise(ctx context.Context, tx Tx, events ...notify.Event) error {
	if len(events) == 0 {
		return nil
	}
	rules, err := liveRules(ctx, tx)
	if err != nil {
		return err
	}
	return deliver(ctx, tx, rules, events...)
}

// liveRules returns the rules of the transaction's organization that are not paused.
func liveRules(ctx context.Context, tx Tx) ([]notify.Rule, error) {
	rows, err := tx.Q().LiveRules(ctx, tx.Organization())
	if err != nil {
		return nil, err
	}
	return each(rows, ruleOf)
}

// deliver writes the deliveries of events by rules; they are due at once.
func deliver(ctx context.Context, tx Tx, rules []notify.Rule, events ...notify.Event) error {
	for _, e := range events {
		made, err := notify.Make(tx.Organization(), rules, e)
		if err != nil {
			return err
		}
		for _, d := range made {
			n, err := tx.Q().InsertDelivery(ctx, db.InsertDeliveryParams{
				Organization: tx.Organization(), ID: d.ID, Rule: d.Rule, Event: d.Event, EventKey: d.EventKey,
				Pipeline: optional(d.Pipeline), Run: optional(d.Run), Channel: string(d.Channel), Payload: d.Payload, NextAt: orNull(d.NextAt),
			})
			if err != nil {
				return fmt.Errorf("write a delivery of %s: %w", e.Key, err)
			}
			if n > 0 {
				tx.Hint(Hint{Kind: HintDelivery, Organization: tx.Organization(), Object: d.ID})
				tx.owe()
			}
		}
	}
	return nil
}

// CreateRule implements [notify.Store].
func (n *Notifications) CreateRule(ctx context.Context, a control.Actor, r notify.Rule) (out notify.Rule, err error) {
	err = n.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		id, first, err := once(ctx, tx, "notification_rule", r.ID)
		if err != nil {
			return err
		}
		if !first {
			out, err = getRule(ctx, tx, id)
			return err
		}
		row, err := tx.Q().InsertRule(ctx, db.InsertRuleParams{
			Organization: a.Organization, ID: r.ID, Name: r.Name, Pipeline: optional(r.Pipeline), Resource: r.Resource, Events: r.Events,
			StaleSeconds: seconds(r.StaleAfter), NoProgressSeconds: seconds(r.NoProgressAfter), Channel: string(r.Channel), Url: r.URL,
			UrlSecret: string(r.URLSecret), Recipients: list(r.To), Paused: r.Paused, Secret: string(r.Secret), SecretPrefix: r.SecretPrefix,
			WatchAt: watchNow(r),
		})
		if err != nil {
			return ruleWriteError(err, r)
		}
		if out, err = namedRule(ctx, tx, row); err != nil {
			return err
		}
		tx.Hint(Hint{Kind: HintDelivery, Organization: a.Organization})
		tx.owe()
		return auditRule(ctx, tx, a, "rule.create", nil, &out)
	})
	return out, err
}

// UpdateRule implements [notify.Store].
func (n *Notifications) UpdateRule(ctx context.Context, a control.Actor, action string, r notify.Rule) (out notify.Rule, err error) {
	err = n.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		before, err := lockRule(ctx, tx, r.ID, r.Version)
		if err != nil {
			return err
		}
		row, err := tx.Q().UpdateRule(ctx, db.UpdateRuleParams{
			Organization: a.Organization, ID: r.ID, Name: r.Name, Pipeline: optional(r.Pipeline), Resource: r.Resource, Events: r.Events,
			StaleSeconds: seconds(r.StaleAfter), NoProgressSeconds: seconds(r.NoProgressAfter), Channel: string(r.Channel), Url: r.URL,
			UrlSecret: string(r.URLSecret), Recipients: list(r.To), Paused: r.Paused, Secret: string(r.Secret), SecretPrefix: r.SecretPrefix,
			OldSecret: string(r.OldSecret), OldUntil: orNull(r.OldUntil), WatchAt: watchNow(r),
		})
		if err != nil {
			return ruleWriteError(err, r)
		}
		if out, err = namedRule(ctx, tx, row); err != nil {
			return err
		}
		tx.Hint(Hint{Kind: HintDelivery, Organization: a.Organization})
		tx.owe()
		return auditRule(ctx, tx, a, action, &before, &out)
	})
	return out, err
}

// watchNow lets a rule that watches look once soon: that sets when it looks next.
func watchNow(r notify.Rule) *time.Time {
	if r.Paused || r.StaleAfter == 0 && r.NoProgressAfter == 0 {
		return nil
	}
	long := time.Unix(0, 0)
	return &long
}

// DeleteRule implements [notify.Store].
func (n *Notifications) DeleteRule(ctx context.Context, a control.Actor, id uuid.UUID, version int64) (before notify.Rule, err error) {
	err = n.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		if before, err = lockRule(ctx, tx, id, version); err != nil {
			return err
		}
		if err := tx.Q().DeleteRule(ctx, db.DeleteRuleParams{Organization: a.Organization, ID: id}); err != nil {
			return err
		}
		if err := tx.Q().CancelDeliveries(ctx, db.CancelDeliveriesParams{Organization: a.Organization, Rule: id}); err != nil {
			return err
		}
		return auditRule(ctx, tx, a, "rule.delete", &before, nil)
	})
	return before, err
}

func lockRule(ctx context.Context, tx Tx, id uuid.UUID, version int64) (notify.Rule, error) {
	row, err := tx.Q().LockRule(ctx, db.LockRuleParams{Organization: tx.Organization(), ID: id})
	if err != nil {
		return notify.Rule{}, ruleError(err, id)
	}
	if version != 0 && row.Version != version {
		return notify.Rule{}, &control.StaleVersionError{Kind: "notification rule", Ref: id.String(), Given: version, Current: row.Version}
	}
	return ruleOf(row)
}

func getRule(ctx context.Context, tx Tx, id uuid.UUID) (notify.Rule, error) {
	row, err := tx.Q().GetRule(ctx, db.GetRuleParams{Organization: tx.Organization(), ID: id})
	if err != nil {
		return notify.Rule{}, ruleError(err, id)
	}
	return namedRule(ctx, tx, row)
}

// namedRule reads a rule's row with its pipeline's name.
func namedRule(ctx context.Context, tx Tx, row db.NotificationRule) (notify.Rule, error) {
	r, err := ruleOf(row)
	if err != nil {
		return r, err
	}
	names, err := pipelineNames(ctx, tx, r.Pipeline)
	r.PipelineName = names[r.Pipeline]
	return r, err
}

// GetRule implements [notify.Store].
func (n *Notifications) GetRule(ctx context.Context, a control.Actor, id uuid.UUID) (out notify.Rule, err error) {
	err = n.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		out, err = getRule(ctx, tx, id)
		return err
	})
	return out, err
}

// ListRules implements [notify.Store].
func (n *Notifications) ListRules(ctx context.Context, a control.Actor, pipeline uuid.UUID, p control.Page) (out control.List[notify.Rule], err error) {
	const kind = "rules"
	params := db.ListRulesParams{Organization: a.Organization, Pipeline: optional(pipeline), Count: int32(p.Size() + 1)}
	if _, err := control.DecodeCursor(kind, p.After, &params.After); err != nil {
		return out, err
	}
	err = n.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().ListRules(ctx, params)
		if err != nil {
			return err
		}
		found, err := each(rows, ruleOf)
		if err != nil {
			return err
		}
		ids := make([]uuid.UUID, len(found))
		for i, r := range found {
			ids[i] = r.Pipeline
		}
		names, err := pipelineNames(ctx, tx, ids...)
		for i, r := range found {
			found[i].PipelineName = names[r.Pipeline]
		}
		out = control.PageOf(kind, p, found, func(r notify.Rule) any { return r.ID })
		return err
	})
	return out, err
}

func ruleError(err error, id uuid.UUID) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return &control.NotFoundError{Kind: "notification rule", Ref: id.String()}
	}
	return err
}

func ruleWriteError(err error, r notify.Rule) error {
	switch code(err) {
	case uniqueViolation:
		return &control.ConflictError{
			Code: "name_taken", Message: fmt.Sprintf("there is a notification rule %q already", r.Name), Hint: "choose another name, or change that one",
		}
	case foreignKeyViolation:
		return &control.NotFoundError{Kind: "pipeline", Ref: r.Pipeline.String()}
	}
	return err
}

func auditRule(ctx context.Context, tx Tx, a control.Actor, action string, before, after *notify.Rule) error {
	e := control.AuditEntry{Actor: a, Action: action, Kind: "notification_rule"}
	for _, side := range []struct {
		r    *notify.Rule
		into *json.RawMessage
	}{{before, &e.Before}, {after, &e.After}} {
		if side.r == nil {
			continue
		}
		e.Object = side.r.ID
		text, err := json.Marshal(ruleDocument(*side.r))
		if err != nil {
			return err
		}
		*side.into = text
	}
	return audit(ctx, tx, e)
}

// ruleDocument is a rule as the audit log shows it, with references to secrets.
func ruleDocument(r notify.Rule) map[string]any {
	doc := map[string]any{
		"name": r.Name, "events": r.Events, "channel": r.Channel, "paused": r.Paused, "version": r.Version,
	}
	if r.Pipeline != uuid.Nil {
		doc["pipeline"] = r.Pipeline
	}
	for name, v := range map[string]string{
		"resource": r.Resource, "url": r.URL, "url_secret": string(r.URLSecret), "secret": string(r.Secret), "old_secret": string(r.OldSecret),
	} {
		if v != "" {
			doc[name] = v
		}
	}
	if len(r.To) > 0 {
		doc["to"] = r.To
	}
	if r.StaleAfter != 0 {
		doc["stale_after"] = r.StaleAfter.String()
	}
	if r.NoProgressAfter != 0 {
		doc["no_progress_after"] = r.NoProgressAfter.String()
	}
	return doc
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }

// list is never nil, which would be stored as NULL.
func list(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func ruleOf(r db.NotificationRule) (notify.Rule, error) {
	out := notify.Rule{
		ID: r.ID, Name: r.Name, Resource: r.Resource, Events: r.Events,
		StaleAfter: time.Duration(r.StaleSeconds) * time.Second, NoProgressAfter: time.Duration(r.NoProgressSeconds) * time.Second,
		Channel: notify.Channel(r.Channel), URL: r.Url, URLSecret: secrets.Ref(r.UrlSecret), To: r.Recipients, Paused: r.Paused,
		Secret: secrets.Ref(r.Secret), OldSecret: secrets.Ref(r.OldSecret), OldUntil: moment(r.OldUntil), SecretPrefix: r.SecretPrefix,
		Version: r.Version, CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(),
	}
	if r.Pipeline != nil {
		out.Pipeline = *r.Pipeline
	}
	return out, nil
}

func deliveryOf(r db.NotificationDelivery) (notify.Delivery, error) {
	d := notify.Delivery{
		ID: r.ID, Rule: r.Rule, Event: r.Event, EventKey: r.EventKey, Channel: notify.Channel(r.Channel), State: notify.State(r.State),
		Payload: bytes.Clone(r.Payload), Attempts: int(r.Attempts), Interruptions: int(r.Interruptions), NextAt: moment(r.NextAt),
		Error: r.Error, CreatedAt: r.CreatedAt.UTC(), SentAt: moment(r.SentAt),
	}
	if r.Pipeline != nil {
		d.Pipeline = *r.Pipeline
	}
	if r.Run != nil {
		d.Run = *r.Run
	}
	return d, nil
}
