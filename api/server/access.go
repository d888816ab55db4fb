package server

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tranship-io/tranship/api/internal/rest"
	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/access"
)

// Whoami answers who the caller is.
func (o *operations) Whoami(ctx context.Context, _ rest.WhoamiRequestObject) (rest.WhoamiResponseObject, error) {
	a := actorOf(ctx)
	w, err := o.Access.Whoami(ctx, a)
	if err != nil {
		return nil, err
	}
	return rest.Whoami200JSONResponse{
		Organization: w.Organization.ID, OrganizationName: w.Organization.Name, Kind: string(a.Kind), Id: a.ID, Name: w.Name,
		Role: rest.Role(a.Role), Scopes: notNil(a.Scopes), KeyId: a.Key, KeyExpiresAt: w.KeyExpiresAt,
	}, nil
}

// GetOrganization answers with the caller's organization.
func (o *operations) GetOrganization(ctx context.Context, _ rest.GetOrganizationRequestObject) (rest.GetOrganizationResponseObject, error) {
	x, err := o.Access.Organization(ctx, actorOf(ctx))
	if err != nil {
		return nil, err
	}
	return rest.GetOrganization200JSONResponse{Id: x.ID, Key: x.Key, Name: x.Name, CreatedAt: x.CreatedAt}, nil
}

// notNil is a list that JSON writes as [].
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// each translates the items of a list.
func each[A, B any](list []A, f func(A) B) []B {
	out := make([]B, len(list))
	for i, x := range list {
		out[i] = f(x)
	}
	return out
}

func memberOf(m access.Member) rest.Member {
	return rest.Member{
		Id: m.ID, Name: m.Name, Email: m.Email, Issuer: m.Issuer, Subject: m.Subject, Role: rest.Role(m.Role), Version: m.Version,
		CreatedAt: m.CreatedAt, UpdatedAt: m.UpdatedAt, LastSeenAt: m.LastSeenAt,
	}
}

// ListMembers lists members.
func (o *operations) ListMembers(ctx context.Context, r rest.ListMembersRequestObject) (rest.ListMembersResponseObject, error) {
	l, err := o.Access.Members(ctx, actorOf(ctx), page(r.Params.Limit, r.Params.After))
	if err != nil {
		return nil, err
	}
	return rest.ListMembers200JSONResponse{Items: each(l.Items, memberOf), Next: next(l.Next)}, nil
}

// CreateMember adds a member.
func (o *operations) CreateMember(ctx context.Context, r rest.CreateMemberRequestObject) (rest.CreateMemberResponseObject, error) {
	m, err := o.Access.CreateMember(ctx, actorOf(ctx), access.Member{
		Name: r.Body.Name, Email: r.Body.Email, Issuer: r.Body.Issuer, Subject: r.Body.Subject, Role: control.Role(r.Body.Role),
	})
	if err != nil {
		return nil, err
	}
	return rest.CreateMember201JSONResponse(memberOf(m)), nil
}

// GetMember answers with a member.
func (o *operations) GetMember(ctx context.Context, r rest.GetMemberRequestObject) (rest.GetMemberResponseObject, error) {
	m, err := o.Access.Member(ctx, actorOf(ctx), r.Id)
	if err != nil {
		return nil, err
	}
	return rest.GetMember200JSONResponse(memberOf(m)), nil
}

// UpdateMember sets a member's name and role.
func (o *operations) UpdateMember(ctx context.Context, r rest.UpdateMemberRequestObject) (rest.UpdateMemberResponseObject, error) {
	m, err := o.Access.UpdateMember(ctx, actorOf(ctx), access.Member{ID: r.Id, Name: r.Body.Name, Role: control.Role(r.Body.Role)}, ifMatch(r.Params.IfMatch))
	if err != nil {
		return nil, err
	}
	return rest.UpdateMember200JSONResponse(memberOf(m)), nil
}

// DeleteMember removes a member.
func (o *operations) DeleteMember(ctx context.Context, r rest.DeleteMemberRequestObject) (rest.DeleteMemberResponseObject, error) {
	if err := o.Access.DeleteMember(ctx, actorOf(ctx), r.Id, ifMatch(r.Params.IfMatch)); err != nil {
		return nil, err
	}
	return rest.DeleteMember204Response{}, nil
}

func accountOf(a access.Account) rest.ServiceAccount {
	return rest.ServiceAccount{
		Id: a.ID, Name: a.Name, Description: a.Description, Role: rest.Role(a.Role), Version: a.Version, CreatedAt: a.CreatedAt, UpdatedAt: a.UpdatedAt,
	}
}

// ListServiceAccounts lists service accounts.
func (o *operations) ListServiceAccounts(ctx context.Context, r rest.ListServiceAccountsRequestObject) (rest.ListServiceAccountsResponseObject, error) {
	l, err := o.Access.Accounts(ctx, actorOf(ctx), page(r.Params.Limit, r.Params.After))
	if err != nil {
		return nil, err
	}
	return rest.ListServiceAccounts200JSONResponse{Items: each(l.Items, accountOf), Next: next(l.Next)}, nil
}

// CreateServiceAccount makes a service account.
func (o *operations) CreateServiceAccount(ctx context.Context, r rest.CreateServiceAccountRequestObject) (rest.CreateServiceAccountResponseObject, error) {
	a, err := o.Access.CreateAccount(ctx, actorOf(ctx), access.Account{Name: r.Body.Name, Description: r.Body.Description, Role: control.Role(r.Body.Role)})
	if err != nil {
		return nil, err
	}
	return rest.CreateServiceAccount201JSONResponse(accountOf(a)), nil
}

// GetServiceAccount answers with a service account.
func (o *operations) GetServiceAccount(ctx context.Context, r rest.GetServiceAccountRequestObject) (rest.GetServiceAccountResponseObject, error) {
	a, err := o.Access.Account(ctx, actorOf(ctx), r.Id)
	if err != nil {
		return nil, err
	}
	return rest.GetServiceAccount200JSONResponse(accountOf(a)), nil
}

// UpdateServiceAccount replaces a service account.
func (o *operations) UpdateServiceAccount(ctx context.Context, r rest.UpdateServiceAccountRequestObject) (rest.UpdateServiceAccountResponseObject, error) {
	x := access.Account{ID: r.Id, Name: r.Body.Name, Description: r.Body.Description, Role: control.Role(r.Body.Role)}
	a, err := o.Access.UpdateAccount(ctx, actorOf(ctx), x, ifMatch(r.Params.IfMatch))
	if err != nil {
		return nil, err
	}
	return rest.UpdateServiceAccount200JSONResponse(accountOf(a)), nil
}

// DeleteServiceAccount deletes a service account.
func (o *operations) DeleteServiceAccount(ctx context.Context, r rest.DeleteServiceAccountRequestObject) (rest.DeleteServiceAccountResponseObject, error) {
	if err := o.Access.DeleteAccount(ctx, actorOf(ctx), r.Id, ifMatch(r.Params.IfMatch)); err != nil {
		return nil, err
	}
	return rest.DeleteServiceAccount204Response{}, nil
}

func auditItemOf(i access.AuditItem) rest.AuditItem {
	return rest.AuditItem{
		Id: i.ID, At: i.At, ActorKind: string(i.ActorKind), ActorId: i.ActorID, Actor: i.ActorName, KeyId: i.ActorKey,
		Action: i.Action, Kind: i.Kind, Object: i.Object, Before: rawOrNil(i.Before), After: rawOrNil(i.After), RequestId: i.RequestID,
	}
}

func rawOrNil(text []byte) *json.RawMessage {
	if text == nil {
		return nil
	}
	return (*json.RawMessage)(&text)
}

// ListAudit lists changes.
func (o *operations) ListAudit(ctx context.Context, r rest.ListAuditRequestObject) (rest.ListAuditResponseObject, error) {
	f := access.AuditFilter{Actor: r.Params.Actor, Object: r.Params.Object, Action: r.Params.Action, Kind: r.Params.Kind, From: r.Params.From, To: r.Params.To}
	l, err := o.Access.Audit(ctx, actorOf(ctx), f, page(r.Params.Limit, r.Params.After))
	if err != nil {
		return nil, err
	}
	return rest.ListAudit200JSONResponse{Items: each(l.Items, auditItemOf), Next: next(l.Next)}, nil
}

func keyOf(k access.Key) rest.Key {
	return rest.Key{
		Id: k.ID, Name: k.Name, ServiceAccount: k.Account, Prefix: k.Prefix, Role: rest.Role(k.Role), Scopes: notNil(k.Scopes),
		CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt, RevokedAt: k.RevokedAt, RotatedTo: k.RotatedTo,
	}
}

// ListKeys lists API keys.
func (o *operations) ListKeys(ctx context.Context, r rest.ListKeysRequestObject) (rest.ListKeysResponseObject, error) {
	l, err := o.Access.Keys(ctx, actorOf(ctx), r.Params.ServiceAccount, page(r.Params.Limit, r.Params.After))
	if err != nil {
		return nil, err
	}
	return rest.ListKeys200JSONResponse{Items: each(l.Items, keyOf), Next: next(l.Next)}, nil
}

// CreateKey makes an API key.
func (o *operations) CreateKey(ctx context.Context, r rest.CreateKeyRequestObject) (rest.CreateKeyResponseObject, error) {
	k, text, err := o.Access.CreateKey(ctx, actorOf(ctx), access.Key{
		Account: r.Body.ServiceAccount, Name: r.Body.Name, Role: control.Role(r.Body.Role), Scopes: r.Body.Scopes, ExpiresAt: r.Body.ExpiresAt,
	})
	if err != nil {
		return nil, err
	}
	return rest.CreateKey201JSONResponse{Item: keyOf(k), Key: text}, nil
}

// GetKey answers with an API key, without its text.
func (o *operations) GetKey(ctx context.Context, r rest.GetKeyRequestObject) (rest.GetKeyResponseObject, error) {
	k, err := o.Access.Key(ctx, actorOf(ctx), r.Id)
	if err != nil {
		return nil, err
	}
	return rest.GetKey200JSONResponse(keyOf(k)), nil
}

// defaultOverlap is how long a rotated key goes on.
const defaultOverlap = 24 * time.Hour

// RotateKey makes a key in the place of another.
func (o *operations) RotateKey(ctx context.Context, r rest.RotateKeyRequestObject) (rest.RotateKeyResponseObject, error) {
	overlap := defaultOverlap
	if r.Body.OverlapSeconds != nil {
		overlap = time.Duration(*r.Body.OverlapSeconds) * time.Second
	}
	k, text, err := o.Access.RotateKey(ctx, actorOf(ctx), r.Id, r.Body.ExpiresAt, overlap)
	if err != nil {
		return nil, err
	}
	return rest.RotateKey201JSONResponse{Item: keyOf(k), Key: text}, nil
}

// RevokeKey ends a key.
func (o *operations) RevokeKey(ctx context.Context, r rest.RevokeKeyRequestObject) (rest.RevokeKeyResponseObject, error) {
	k, err := o.Access.RevokeKey(ctx, actorOf(ctx), r.Id)
	if err != nil {
		return nil, err
	}
	return rest.RevokeKey200JSONResponse(keyOf(k)), nil
}
