package access

import (
	"context"
	"net/mail"
	"net/url"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
)

// Members lists members by their age.
func (s *Service) Members(ctx context.Context, a control.Actor, p control.Page) (control.List[Member], error) {
	if err := control.Authorize(a, control.ReadMembers); err != nil {
		return control.List[Member]{}, err
	}
	return s.store.ListMembers(ctx, a.Organization, p)
}

// Member returns a member.
func (s *Service) Member(ctx context.Context, a control.Actor, id uuid.UUID) (Member, error) {
	if err := control.Authorize(a, control.ReadMembers); err != nil {
		return Member{}, err
	}
	return s.store.GetMember(ctx, a.Organization, id)
}

// CreateMember adds a person, by issuer and subject, by an address that the first
// sign-in binds, or by both.
func (s *Service) CreateMember(ctx context.Context, a control.Actor, m Member) (Member, error) {
	if err := control.Authorize(a, control.WriteMembers); err != nil {
		return Member{}, err
	}
	var p problems
	p.personName(m.Name)
	p.role(m.Role)
	if (m.Issuer == "") != (m.Subject == "") {
		p.add("subject", "give both or none", "issuer and subject belong together")
	}
	if m.Email == "" && m.Subject == "" {
		p.add("email", "give issuer and subject, or email", "there is nothing to know the person by")
	}
	if m.Email != "" {
		if address, err := mail.ParseAddress(m.Email); err != nil || address.Address != m.Email {
			p.add("email", "", "it is not an e-mail address")
		}
	}
	if m.Issuer != "" {
		if u, err := url.Parse(m.Issuer); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
			p.add("issuer", "", "it is not the URL of an issuer")
		}
	}
	if err := p.err(); err != nil {
		return Member{}, err
	}
	return s.store.CreateMember(ctx, a, m)
}

// UpdateMember sets a member's name and role.
func (s *Service) UpdateMember(ctx context.Context, a control.Actor, m Member, version int64) (Member, error) {
	if err := control.Authorize(a, control.WriteMembers); err != nil {
		return Member{}, err
	}
	var p problems
	p.personName(m.Name)
	p.role(m.Role)
	if err := p.err(); err != nil {
		return Member{}, err
	}
	return s.store.UpdateMember(ctx, a, m, version)
}

// DeleteMember removes a member; a token of theirs lets nobody in from then on.
func (s *Service) DeleteMember(ctx context.Context, a control.Actor, id uuid.UUID, version int64) error {
	if err := control.Authorize(a, control.WriteMembers); err != nil {
		return err
	}
	return s.store.DeleteMember(ctx, a, id, version)
}

// Accounts lists service accounts by their age.
func (s *Service) Accounts(ctx context.Context, a control.Actor, p control.Page) (control.List[Account], error) {
	if err := control.Authorize(a, control.ReadMembers); err != nil {
		return control.List[Account]{}, err
	}
	return s.store.ListAccounts(ctx, a.Organization, p)
}

// Account returns a service account.
func (s *Service) Account(ctx context.Context, a control.Actor, id uuid.UUID) (Account, error) {
	if err := control.Authorize(a, control.ReadMembers); err != nil {
		return Account{}, err
	}
	return s.store.GetAccount(ctx, a.Organization, id)
}

// CreateAccount makes a service account.
func (s *Service) CreateAccount(ctx context.Context, a control.Actor, x Account) (Account, error) {
	if err := s.checkAccount(a, x); err != nil {
		return Account{}, err
	}
	return s.store.CreateAccount(ctx, a, x)
}

// UpdateAccount replaces name, description and role. A lesser role holds for the
// account's keys from their next request on.
func (s *Service) UpdateAccount(ctx context.Context, a control.Actor, x Account, version int64) (Account, error) {
	if err := s.checkAccount(a, x); err != nil {
		return Account{}, err
	}
	return s.store.UpdateAccount(ctx, a, x, version)
}

func (s *Service) checkAccount(a control.Actor, x Account) error {
	if err := control.Authorize(a, control.WriteMembers); err != nil {
		return err
	}
	var p problems
	p.name("name", x.Name)
	p.role(x.Role)
	return p.err()
}

// DeleteAccount deletes a service account and revokes its keys.
func (s *Service) DeleteAccount(ctx context.Context, a control.Actor, id uuid.UUID, version int64) error {
	if err := control.Authorize(a, control.WriteMembers); err != nil {
		return err
	}
	return s.store.DeleteAccount(ctx, a, id, version)
}
