package access

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
)

// Keys lists API keys by their age; account uuid.Nil means those of all accounts.
func (s *Service) Keys(ctx context.Context, a control.Actor, account uuid.UUID, p control.Page) (control.List[Key], error) {
	if err := control.Authorize(a, control.ReadKeys); err != nil {
		return control.List[Key]{}, err
	}
	return s.store.ListKeys(ctx, a.Organization, account, p)
}

// Key returns an API key without its text.
func (s *Service) Key(ctx context.Context, a control.Actor, id uuid.UUID) (Key, error) {
	if err := control.Authorize(a, control.ReadKeys); err != nil {
		return Key{}, err
	}
	return s.store.GetKey(ctx, a.Organization, id)
}

// CreateKey makes an API key and returns its text, which nobody can ask for again.
// It gives no more than the actor has itself.
func (s *Service) CreateKey(ctx context.Context, a control.Actor, k Key) (Key, string, error) {
	if err := control.Authorize(a, control.WriteKeys); err != nil {
		return Key{}, "", err
	}
	account, err := s.store.GetAccount(ctx, a.Organization, k.Account)
	if err != nil {
		return Key{}, "", err
	}
	if k.Role == "" {
		k.Role = account.Role
	}
	var p problems
	p.name("name", k.Name)
	p.role(k.Role)
	if !account.Role.Covers(k.Role) {
		p.add("role", "give the account the role first", "the service account is only %s", account.Role)
	}
	for i, scope := range k.Scopes {
		if !slices.Contains(control.Permissions(), control.Permission(scope)) {
			p.add(fmt.Sprintf("scopes[%d]", i), "possible: "+permissionNames(), "there is no such permission")
		}
	}
	if !k.ExpiresAt.IsZero() && !k.ExpiresAt.After(s.now()) {
		p.add("expires_at", "", "it is in the past")
	}
	if err := p.err(); err != nil {
		return Key{}, "", err
	}
	if err := gives(a, k); err != nil {
		return Key{}, "", err
	}
	k.Scopes = slices.Compact(slices.Sorted(slices.Values(k.Scopes)))
	text, k, err := s.mint(a.Organization, k)
	if err != nil {
		return Key{}, "", err
	}
	k, err = s.store.CreateKey(ctx, a, k)
	return k, text, err
}

// gives refuses a key that may do more than whoever makes it.
func gives(a control.Actor, k Key) error {
	if !a.Role.Covers(k.Role) || !within(k.Scopes, a.Scopes) {
		return &control.ForbiddenError{Permission: string(control.WriteKeys) + " without narrower scopes", Needs: control.RoleAdmin}
	}
	return nil
}

func permissionNames() string {
	names := make([]string, 0, len(control.Permissions()))
	for _, p := range control.Permissions() {
		names = append(names, string(p))
	}
	return strings.Join(names, ", ")
}

// mint gives a key its id and text.
func (s *Service) mint(organization uuid.UUID, k Key) (string, Key, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", Key{}, fmt.Errorf("make a key's id: %w", err)
	}
	k.ID = id
	k.ExpiresAt = k.ExpiresAt.UTC().Truncate(time.Second)
	text, err := s.signer.Mint(Claims{Organization: organization, Account: k.Account, Key: k.ID, Role: k.Role, Scopes: k.Scopes, ExpiresAt: k.ExpiresAt})
	if err != nil {
		return "", Key{}, err
	}
	k.Prefix, k.Hash = text[:shownPrefix], hashOf(text)
	return text, k, nil
}

// RotateKey makes a key in the place of another, of the same account, role and
// scopes, and returns its text. The old one goes on for the overlap. expires is
// the new one's end; zero: as long a life as the old one had, or none.
func (s *Service) RotateKey(ctx context.Context, a control.Actor, id uuid.UUID, expires time.Time, overlap time.Duration) (Key, string, error) {
	if err := control.Authorize(a, control.WriteKeys); err != nil {
		return Key{}, "", err
	}
	old, err := s.store.GetKey(ctx, a.Organization, id)
	if err != nil {
		return Key{}, "", err
	}
	if err := gives(a, old); err != nil {
		return Key{}, "", err
	}
	now := s.now()
	if !expires.IsZero() && !expires.After(now) {
		return Key{}, "", control.Invalid("expires_at", "", "it is in the past")
	}
	if expires.IsZero() && !old.ExpiresAt.IsZero() {
		expires = now.Add(old.ExpiresAt.Sub(old.CreatedAt))
	}
	text, k, err := s.mint(a.Organization, Key{Account: old.Account, Name: old.Name, Role: old.Role, Scopes: old.Scopes, ExpiresAt: expires})
	if err != nil {
		return Key{}, "", err
	}
	k, err = s.store.RotateKey(ctx, a, id, k, overlap)
	return k, text, err
}

// RevokeKey ends a key: no transaction of it begins from then on.
func (s *Service) RevokeKey(ctx context.Context, a control.Actor, id uuid.UUID) (Key, error) {
	if err := control.Authorize(a, control.WriteKeys); err != nil {
		return Key{}, err
	}
	return s.store.RevokeKey(ctx, a, id)
}
