package access

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/tranship-io/tranship/control"
)

// OIDC is an issuer whose tokens are taken.
type OIDC struct {
	// Issuer is its URL, as tokens have it in iss. Required.
	Issuer string `json:"issuer"`
	// Audience is what tokens must be for. Required.
	Audience string `json:"audience"`
	// Organization is the key of the organization that all tokens of the issuer
	// belong to. Exactly one of it and OrganizationClaim is set.
	Organization string `json:"organization"`
	// OrganizationClaim is the claim that holds an organization's key; dots lead
	// into nested claims.
	OrganizationClaim string `json:"organization_claim"`
	// RoleClaim is the claim that holds a role or a list of groups; empty: members
	// are added and given their role by an admin.
	RoleClaim string `json:"role_claim"`
	// Roles maps values of RoleClaim to roles; the greatest one holds. Empty:
	// viewer, operator and admin stand for themselves.
	Roles map[string]control.Role `json:"roles"`
	// Skew is how far the issuer's clock may be off. 0 means 1 min; negative: none.
	Skew time.Duration `json:"-"`
	// Client asks the issuer; nil: one that gives up after 10 s.
	Client *http.Client `json:"-"`
}

// Identity is whom a token vouches for.
type Identity struct {
	Issuer, Subject, Name string
	// Email is empty unless the issuer verified it.
	Email string
	// Role is what the token says; empty: nothing.
	Role control.Role
}

// algorithms are the signatures that are taken: no shared secrets, no "none".
var algorithms = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA}

// issuer checks the tokens of one issuer. Its keys are cached, and asked for again
// when a token names one that is not known.
type issuer struct {
	OIDC
	now func() time.Time

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier
	// retryAt is when an issuer that could not be asked is asked again.
	retryAt time.Time
}

func newIssuer(o OIDC, now func() time.Time) (*issuer, error) {
	u, err := url.Parse(o.Issuer)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("%q is not the URL of an issuer", o.Issuer)
	}
	if o.Audience == "" {
		return nil, errors.New("the audience is missing: without it tokens for other services would be taken")
	}
	if (o.Organization == "") == (o.OrganizationClaim == "") {
		return nil, errors.New("set either the organization or the claim that holds it")
	}
	for value, role := range o.Roles {
		if !role.Covers(role) {
			return nil, fmt.Errorf("the value %q of the role claim maps to %q, which is no role", value, role)
		}
	}
	if o.Skew == 0 {
		o.Skew = time.Minute
	}
	o.Skew = max(o.Skew, 0)
	if o.Client == nil {
		o.Client = &http.Client{Timeout: 10 * time.Second}
	}
	return &issuer{OIDC: o, now: now}, nil
}

// verify returns whom a token is of, and of which organization.
func (i *issuer) verify(ctx context.Context, token string) (Identity, string, error) {
	v, err := i.ready(ctx)
	if err != nil {
		return Identity{}, "", err
	}
	var away bool
	t, err := v.Verify(context.WithValue(ctx, awayKey{}, &away), token)
	if err != nil {
		return Identity{}, "", refused(err, away)
	}
	now := i.now()
	if t.Subject == "" || t.IssuedAt.After(now.Add(i.Skew)) {
		return Identity{}, "", &control.UnauthenticatedError{Reason: "the token is not valid yet, or has no subject"}
	}
	var claims map[string]any
	if err := t.Claims(&claims); err != nil {
		return Identity{}, "", &control.UnauthenticatedError{Reason: "the token's claims cannot be read"}
	}
	if before, ok := claims["nbf"].(float64); ok && time.Unix(int64(before), 0).After(now.Add(i.Skew)) {
		return Identity{}, "", &control.UnauthenticatedError{Reason: "the token is not valid yet"}
	}
	who := Identity{Issuer: t.Issuer, Subject: t.Subject, Name: first(claims, "name", "preferred_username", "email", "sub")}
	if claims["email_verified"] == true {
		who.Email = first(claims, "email")
	}
	organization := i.Organization
	if organization == "" {
		organization, _ = claimAt(claims, i.OrganizationClaim).(string)
	}
	if organization == "" {
		return Identity{}, "", &control.UnauthenticatedError{Reason: "the token names no organization"}
	}
	if i.RoleClaim != "" {
		if who.Role = i.role(claimAt(claims, i.RoleClaim)); who.Role == "" {
			return Identity{}, "", &control.UnauthenticatedError{Reason: "the token gives no role"}
		}
	}
	return who, organization, nil
}

// ready asks the issuer where its keys are, once.
func (i *issuer) ready(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.now()
	if i.verifier != nil {
		return i.verifier, nil
	}
	if now.Before(i.retryAt) {
		return nil, &control.UnavailableError{RetryAfter: i.retryAt.Sub(now), Err: errors.New("the OIDC issuer cannot be asked")}
	}
	// The keys outlive the request that happened to come first.
	background := oidc.ClientContext(context.WithoutCancel(ctx), i.Client)
	provider, err := oidc.NewProvider(background, i.Issuer)
	if err != nil {
		i.retryAt = now.Add(5 * time.Second)
		return nil, &control.UnavailableError{RetryAfter: 5 * time.Second, Err: fmt.Errorf("ask the OIDC issuer %s: %w", i.Issuer, err)}
	}
	var where struct {
		Keys string `json:"jwks_uri"`
	}
	if err := provider.Claims(&where); err != nil {
		return nil, fmt.Errorf("read what the OIDC issuer %s says of itself: %w", i.Issuer, err)
	}
	i.verifier = oidc.NewVerifier(i.Issuer, &keySet{oidc.NewRemoteKeySet(background, where.Keys)}, &oidc.Config{
		ClientID: i.Audience, SupportedSigningAlgs: algorithms,
		Now: func() time.Time { return i.now().Add(-i.Skew) },
	})
	return i.verifier, nil
}

type awayKey struct{}

// keySet notes in the context that the issuer could not be asked for its keys,
// which the verifier's errors do not tell.
type keySet struct{ *oidc.RemoteKeySet }

// VerifySignature implements oidc.KeySet.
func (k *keySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	body, err := k.RemoteKeySet.VerifySignature(ctx, token)
	var failed *url.Error
	if away, ok := ctx.Value(awayKey{}).(*bool); ok && errors.As(err, &failed) {
		*away = true
	}
	return body, err
}

// refused says why a token is not taken, without repeating it.
func refused(err error, away bool) error {
	if away {
		return &control.UnavailableError{RetryAfter: 5 * time.Second, Err: errors.New("the OIDC issuer cannot be asked for its keys")}
	}
	var expired *oidc.TokenExpiredError
	if errors.As(err, &expired) {
		return &control.UnauthenticatedError{Reason: "the token has expired", Expired: true}
	}
	return &control.UnauthenticatedError{Reason: "the token is not valid: issuer, audience or signature"}
}

func (i *issuer) role(claim any) control.Role {
	roles := i.Roles
	if len(roles) == 0 {
		roles = map[string]control.Role{"viewer": control.RoleViewer, "operator": control.RoleOperator, "admin": control.RoleAdmin}
	}
	var best control.Role
	for value := range maps.Keys(texts(claim)) {
		if r := roles[value]; r.Covers(r) && !best.Covers(r) {
			best = r
		}
	}
	return best
}

// texts are the values of a claim that is a text or a list of texts.
func texts(claim any) map[string]bool {
	out := map[string]bool{}
	switch c := claim.(type) {
	case string:
		for _, s := range strings.Fields(c) {
			out[s] = true
		}
	case []any:
		for _, v := range c {
			if s, ok := v.(string); ok {
				out[s] = true
			}
		}
	}
	return out
}

func first(claims map[string]any, names ...string) string {
	for _, n := range names {
		if s, ok := claims[n].(string); ok && s != "" {
			return s
		}
	}
	return ""
}

// claimAt finds a claim by its name, or by a path of names.
func claimAt(claims map[string]any, path string) any {
	if v, ok := claims[path]; ok {
		return v
	}
	name, rest, nested := strings.Cut(path, ".")
	if inner, ok := claims[name].(map[string]any); ok && nested {
		return claimAt(inner, rest)
	}
	return nil
}

// issuerOf reads whose token it claims to be; nothing of it is believed yet.
func issuerOf(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || len(token) > 16<<10 {
		return ""
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(body, &claims) != nil {
		return ""
	}
	return claims.Issuer
}

// signIn finds the member whom a token vouches for in an organization.
func (s *Service) signIn(ctx context.Context, who Identity, key string) (control.Actor, error) {
	now := s.now()
	if a, ok := s.seen.get(key, who, now); ok {
		return a, nil
	}
	o, err := s.store.FindOrganization(ctx, key)
	var missing *control.NotFoundError
	if errors.As(err, &missing) {
		return control.Actor{}, &control.UnauthenticatedError{Reason: "the token's organization is not one of this installation"}
	}
	if err != nil {
		return control.Actor{}, err
	}
	m, err := s.store.SignIn(ctx, o.ID, who)
	if errors.As(err, &missing) {
		return control.Actor{}, &control.UnauthenticatedError{Reason: "nobody has added this person to the organization"}
	}
	if err != nil {
		return control.Actor{}, err
	}
	a := control.Actor{Organization: o.ID, Kind: control.ActorUser, ID: m.ID, Name: m.Name, Role: m.Role}
	s.seen.put(key, who, a, now)
	return a, nil
}
