package server

import (
	"context"

	"github.com/tranship-io/tranship/api/internal/rest"
)

func (o *operations) ListAudit(context.Context, rest.ListAuditRequestObject) (rest.ListAuditResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) ListKeys(context.Context, rest.ListKeysRequestObject) (rest.ListKeysResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) CreateKey(context.Context, rest.CreateKeyRequestObject) (rest.CreateKeyResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) GetKey(context.Context, rest.GetKeyRequestObject) (rest.GetKeyResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) RevokeKey(context.Context, rest.RevokeKeyRequestObject) (rest.RevokeKeyResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) RotateKey(context.Context, rest.RotateKeyRequestObject) (rest.RotateKeyResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) ListMembers(context.Context, rest.ListMembersRequestObject) (rest.ListMembersResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) CreateMember(context.Context, rest.CreateMemberRequestObject) (rest.CreateMemberResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) DeleteMember(context.Context, rest.DeleteMemberRequestObject) (rest.DeleteMemberResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) GetMember(context.Context, rest.GetMemberRequestObject) (rest.GetMemberResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) UpdateMember(context.Context, rest.UpdateMemberRequestObject) (rest.UpdateMemberResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) GetOrganization(context.Context, rest.GetOrganizationRequestObject) (rest.GetOrganizationResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) ListServiceAccounts(context.Context, rest.ListServiceAccountsRequestObject) (rest.ListServiceAccountsResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) CreateServiceAccount(context.Context, rest.CreateServiceAccountRequestObject) (rest.CreateServiceAccountResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) DeleteServiceAccount(context.Context, rest.DeleteServiceAccountRequestObject) (rest.DeleteServiceAccountResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) GetServiceAccount(context.Context, rest.GetServiceAccountRequestObject) (rest.GetServiceAccountResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) UpdateServiceAccount(context.Context, rest.UpdateServiceAccountRequestObject) (rest.UpdateServiceAccountResponseObject, error) {
	return nil, errNotHere
}

func (o *operations) Whoami(context.Context, rest.WhoamiRequestObject) (rest.WhoamiResponseObject, error) {
	return nil, errNotHere
}
