package server

import (
	"context"

	"github.com/tranship-io/tranship/api/internal/rest"
	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/control/secrets"
)

func ruleOf(r notify.Rule) rest.Rule {
	out := rest.Rule{
		Id: r.ID, Name: r.Name, Pipeline: r.PipelineName, Resource: r.Resource,
		Events:     each(r.Events, func(e string) rest.RuleEvent { return rest.RuleEvent(e) }),
		StaleAfter: durationText(r.StaleAfter), NoProgressAfter: durationText(r.NoProgressAfter),
		Channel: rest.RuleChannel(r.Channel), Url: r.URL, To: r.To, Paused: r.Paused,
		SecretPrefix: r.SecretPrefix, Version: r.Version, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
	if r.URLSecret != "" {
		out.UrlSecret = rest.SecretReference{Provider: rest.SecretProvider(r.URLSecret.Provider()), Reference: r.URLSecret.Name()}
	}
	return out
}

// ruleDraft reads what a user says of a rule.
func (o *operations) ruleDraft(ctx context.Context, in rest.RuleInput) (d notify.Draft, err error) {
	d = notify.Draft{
		Name: in.Name, Resource: in.Resource, Events: each(in.Events, func(e rest.RuleEvent) string { return string(e) }),
		Channel: notify.Channel(in.Channel), URL: in.Url, To: in.To, Paused: in.Paused,
	}
	if in.UrlSecret.Reference != "" {
		d.URLSecret = secrets.Ref(string(in.UrlSecret.Provider) + ":" + in.UrlSecret.Reference)
	}
	if d.StaleAfter, err = durationOf("stale_after", in.StaleAfter); err != nil {
		return d, err
	}
	if d.NoProgressAfter, err = durationOf("no_progress_after", in.NoProgressAfter); err != nil {
		return d, err
	}
	d.Pipeline, err = o.Notifications.PipelineID(ctx, actorOf(ctx), in.Pipeline)
	return d, err
}

// ListRules lists notification rules.
func (o *operations) ListRules(ctx context.Context, r rest.ListRulesRequestObject) (rest.ListRulesResponseObject, error) {
	pipeline, err := o.Notifications.PipelineID(ctx, actorOf(ctx), r.Params.Pipeline)
	if err != nil {
		return nil, err
	}
	l, err := o.Notifications.List(ctx, actorOf(ctx), pipeline, page(r.Params.Limit, r.Params.After))
	if err != nil {
		return nil, err
	}
	return rest.ListRules200JSONResponse{Items: each(l.Items, ruleOf), Next: next(l.Next)}, nil
}

// CreateRule makes a notification rule.
func (o *operations) CreateRule(ctx context.Context, r rest.CreateRuleRequestObject) (rest.CreateRuleResponseObject, error) {
	d, err := o.ruleDraft(ctx, *r.Body)
	if err != nil {
		return nil, err
	}
	made, err := o.Notifications.Create(ctx, actorOf(ctx), d)
	if err != nil {
		return nil, err
	}
	return rest.CreateRule201JSONResponse(ruleOf(made)), nil
}

// GetRule answers with a notification rule.
func (o *operations) GetRule(ctx context.Context, r rest.GetRuleRequestObject) (rest.GetRuleResponseObject, error) {
	found, err := o.Notifications.Get(ctx, actorOf(ctx), r.Id)
	if err != nil {
		return nil, err
	}
	return rest.GetRule200JSONResponse(ruleOf(found)), nil
}

// UpdateRule replaces a notification rule.
func (o *operations) UpdateRule(ctx context.Context, r rest.UpdateRuleRequestObject) (rest.UpdateRuleResponseObject, error) {
	d, err := o.ruleDraft(ctx, *r.Body)
	if err != nil {
		return nil, err
	}
	changed, err := o.Notifications.Update(ctx, actorOf(ctx), r.Id, ifMatch(r.Params.IfMatch), d)
	if err != nil {
		return nil, err
	}
	return rest.UpdateRule200JSONResponse(ruleOf(changed)), nil
}

// DeleteRule removes a notification rule.
func (o *operations) DeleteRule(ctx context.Context, r rest.DeleteRuleRequestObject) (rest.DeleteRuleResponseObject, error) {
	if err := o.Notifications.Delete(ctx, actorOf(ctx), r.Id, ifMatch(r.Params.IfMatch)); err != nil {
		return nil, err
	}
	return rest.DeleteRule204Response{}, nil
}

// RotateRuleSecret makes a new signing secret and shows it, once.
func (o *operations) RotateRuleSecret(ctx context.Context, r rest.RotateRuleSecretRequestObject) (rest.RotateRuleSecretResponseObject, error) {
	secret, until, err := o.Notifications.Rotate(ctx, actorOf(ctx), r.Id)
	if err != nil {
		return nil, err
	}
	return rest.RotateRuleSecret200JSONResponse{Secret: secret, OldUntil: until}, nil
}

func deliveryOf(d notify.Delivery) rest.Delivery {
	return rest.Delivery{
		Id: d.ID, RuleId: d.Rule, RunId: d.Run, Pipeline: d.PipelineName, Event: rest.RuleEvent(d.Event), Channel: rest.RuleChannel(d.Channel),
		State: rest.DeliveryState(d.State), Payload: d.Payload, Attempts: d.Attempts, NextAt: d.NextAt, Error: d.Error,
		CreatedAt: d.CreatedAt, SentAt: d.SentAt,
		History: each(d.History, func(a notify.Attempt) rest.DeliveryAttempt {
			return rest.DeliveryAttempt{Number: a.Number, At: a.At, Status: a.Status, Error: a.Error, TookMs: a.Took.Milliseconds()}
		}),
	}
}

// ListDeliveries lists deliveries.
func (o *operations) ListDeliveries(ctx context.Context, r rest.ListDeliveriesRequestObject) (rest.ListDeliveriesResponseObject, error) {
	l, err := o.Notifications.Deliveries(ctx, actorOf(ctx), notify.Filter{Rule: r.Params.Rule, Run: r.Params.Run, State: notify.State(r.Params.State)},
		page(r.Params.Limit, r.Params.After))
	if err != nil {
		return nil, err
	}
	return rest.ListDeliveries200JSONResponse{Items: each(l.Items, deliveryOf), Next: next(l.Next)}, nil
}

// GetDelivery answers with a delivery and its attempts.
func (o *operations) GetDelivery(ctx context.Context, r rest.GetDeliveryRequestObject) (rest.GetDeliveryResponseObject, error) {
	d, err := o.Notifications.Delivery(ctx, actorOf(ctx), r.Id)
	if err != nil {
		return nil, err
	}
	return rest.GetDelivery200JSONResponse(deliveryOf(d)), nil
}

// ReplayDelivery sends a delivery again.
func (o *operations) ReplayDelivery(ctx context.Context, r rest.ReplayDeliveryRequestObject) (rest.ReplayDeliveryResponseObject, error) {
	d, err := o.Notifications.Replay(ctx, actorOf(ctx), r.Id)
	if err != nil {
		return nil, err
	}
	return rest.ReplayDelivery202JSONResponse(deliveryOf(d)), nil
}
