package access

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
)

// Config is what the service needs.
type Config struct {
	Store  Store
	Signer *Signer
	// OIDC are the issuers whose tokens are taken; none: keys alone.
	OIDC []OIDC
	// Now is the time by which tokens and keys expire; nil: time.Now.
	Now func() time.Time
}

// Service is access to organizations.
type Service struct {
	*Verifier
	store Store
	seen  *cache
}

// New makes the service. Issuers are asked for their keys when the first token
// comes, so that an issuer that is away keeps nobody else out.
func New(c Config) (*Service, error) {
	if c.Store == nil || c.Signer == nil {
		return nil, errors.New("the access service needs a store and a signer")
	}
	v, err := NewVerifier(c.Signer, c.OIDC, c.Now)
	if err != nil {
		return nil, err
	}
	return &Service{Verifier: v, store: c.Store, seen: newCache()}, nil
}

// Authenticate returns who a bearer text is of, else *control.UnauthenticatedError.
// For a key it asks no database.
func (s *Service) Authenticate(ctx context.Context, bearer string) (control.Actor, error) {
	p, err := s.Verify(ctx, bearer)
	if err != nil {
		return control.Actor{}, err
	}
	if p.Claims == nil {
		return s.signIn(ctx, p.Identity, p.Organization)
	}
	c := p.Claims
	return control.Actor{
		Organization: c.Organization, Kind: control.ActorServiceAccount, ID: c.Account, Key: c.Key,
		KeyHash: hashOf(bearer), Name: "key " + bearer[:shownPrefix], Role: c.Role, Scopes: c.Scopes,
	}, nil
}

// Confirm checks in a transaction that the context's caller may still come in.
func (s *Service) Confirm(ctx context.Context, a control.Actor) error {
	return s.store.Confirm(ctx, a.Organization)
}

// Organization returns the actor's organization.
func (s *Service) Organization(ctx context.Context, a control.Actor) (Organization, error) {
	return s.store.GetOrganization(ctx, a.Organization)
}

// Whoami is who an actor is.
type Whoami struct {
	Organization Organization
	Name         string
	// KeyExpiresAt is zero without a key, or for one that does not expire.
	KeyExpiresAt time.Time
}

// Whoami returns what is known of the actor itself.
func (s *Service) Whoami(ctx context.Context, a control.Actor) (Whoami, error) {
	o, err := s.store.GetOrganization(ctx, a.Organization)
	if err != nil {
		return Whoami{}, err
	}
	out := Whoami{Organization: o}
	if a.Kind == control.ActorUser {
		m, err := s.store.GetMember(ctx, a.Organization, a.ID)
		out.Name = m.Name
		return out, err
	}
	account, err := s.store.GetAccount(ctx, a.Organization, a.ID)
	if err != nil {
		return out, err
	}
	out.Name = account.Name
	if a.Key != uuid.Nil {
		k, err := s.store.GetKey(ctx, a.Organization, a.Key)
		if err != nil {
			return out, err
		}
		out.KeyExpiresAt = k.ExpiresAt
	}
	return out, nil
}

// Audit lists changes, the newest first.
func (s *Service) Audit(ctx context.Context, a control.Actor, f AuditFilter, p control.Page) (control.List[AuditItem], error) {
	if err := control.Authorize(a, control.ReadAudit); err != nil {
		return control.List[AuditItem]{}, err
	}
	return s.store.ListAudit(ctx, a.Organization, f, p)
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// problems collects what is wrong with a request.
type problems []control.Problem

func (p *problems) add(path, hint, format string, args ...any) {
	*p = append(*p, control.Problem{Path: path, Message: fmt.Sprintf(format, args...), Hint: hint})
}

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return &control.InvalidError{Problems: p}
}

func (p *problems) name(path, name string) {
	if !namePattern.MatchString(name) {
		p.add(path, "use 1 to 63 letters, digits, dots, dashes and underscores, and begin with a letter or digit", "it is not a name")
	}
}

func (p *problems) role(r control.Role) {
	if !slices.Contains(roleCodes[1:], r) {
		p.add("role", "viewer, operator or admin", "it is not a role")
	}
}

// printableName bounds a person's name.
func (p *problems) personName(name string) {
	if strings.TrimSpace(name) == "" || len(name) > 128 || strings.ContainsFunc(name, unicode.IsControl) {
		p.add("name", "", "a name has 1 to 128 characters that can be printed")
	}
}

// within tells whether scopes give no more than others; empty is everything.
func within(scopes, others []string) bool {
	if len(others) == 0 {
		return true
	}
	if len(scopes) == 0 {
		return false
	}
	return !slices.ContainsFunc(scopes, func(s string) bool { return !slices.Contains(others, s) })
}
