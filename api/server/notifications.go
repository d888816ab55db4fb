package server

import (
	"context"

	"github.com/tranship-io/tranship/api/internal/rest"
)

func (o *operations) ListDeliveries(context.Context, rest.ListDeliveriesRequestObject) (rest.ListDeliveriesResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) GetDelivery(context.Context, rest.GetDeliveryRequestObject) (rest.GetDeliveryResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) ReplayDelivery(context.Context, rest.ReplayDeliveryRequestObject) (rest.ReplayDeliveryResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) ListRules(context.Context, rest.ListRulesRequestObject) (rest.ListRulesResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) CreateRule(context.Context, rest.CreateRuleRequestObject) (rest.CreateRuleResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) DeleteRule(context.Context, rest.DeleteRuleRequestObject) (rest.DeleteRuleResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) GetRule(context.Context, rest.GetRuleRequestObject) (rest.GetRuleResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) UpdateRule(context.Context, rest.UpdateRuleRequestObject) (rest.UpdateRuleResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) RotateRuleSecret(context.Context, rest.RotateRuleSecretRequestObject) (rest.RotateRuleSecretResponseObject, error) {
	return nil, errNotHere
}
