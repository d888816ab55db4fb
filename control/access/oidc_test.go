package access_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/access"
)

// issuer is an OIDC issuer.
type issuer struct {
	t    *testing.T
	url  string
	mu   sync.Mutex
	id   string
	key  *ecdsa.PrivateKey
	asks int
	down bool
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{t: t}
	i.rotate("k1")
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": i.url, "jwks_uri": i.url + "/keys", "authorization_endpoint": i.url + "/a", "token_endpoint": i.url + "/t",
			"id_token_signing_alg_values_supported": []string{"ES256"},
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.asks++
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &i.key.PublicKey, KeyID: i.id, Algorithm: "ES256", Use: "sig"}}})
	})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		down := i.down
		i.mu.Unlock()
		if down {
			panic(http.ErrAbortHandler)
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	i.url = s.URL
	return i
}

func (i *issuer) rotate(id string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(i.t, err)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.id, i.key = id, key
}

func (i *issuer) setDown(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

// token signs claims over the usual ones; nil removes one.
func (i *issuer) token(change map[string]any) string {
	i.t.Helper()
	claims := map[string]any{
		"iss": i.url, "aud": "tranship", "sub": "u1", "name": "Ada", "email": "ada@example.com", "email_verified": true, "org": "acme",
		"iat": noon.Unix(), "exp": noon.Add(time.Hour).Unix(),
	}
	for k, v := range change {
		if claims[k] = v; v == nil {
			delete(claims, k)
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.key, KeyID: i.id}}, nil)
	require.NoError(i.t, err)
	body, err := json.Marshal(claims)
	require.NoError(i.t, err)
	signed, err := s.Sign(body)
	require.NoError(i.t, err)
	text, err := signed.CompactSerialize()
	require.NoError(i.t, err)
	return text
}

// people is a store that only knows how to sign in.
type people struct {
	access.Store
	organization uuid.UUID
	seen         []access.Identity
}

func (p *people) FindOrganization(_ context.Context, key string) (access.Organization, error) {
	if key != "acme" {
		return access.Organization{}, &control.NotFoundError{Kind: "organization", Ref: key}
	}
	return access.Organization{ID: p.organization, Key: key}, nil
}

func (p *people) SignIn(_ context.Context, _ uuid.UUID, who access.Identity) (access.Member, error) {
	p.seen = append(p.seen, who)
	if who.Subject == "stranger" {
		return access.Member{}, &control.NotFoundError{Kind: "member"}
	}
	role := who.Role
	if role == "" {
		role = control.RoleViewer
	}
	return access.Member{ID: uuid.NameSpaceOID, Name: who.Name, Role: role}, nil
}

func withIssuer(t *testing.T, i *issuer, change func(*access.OIDC)) (*access.Service, *people) {
	t.Helper()
	c := access.OIDC{Issuer: i.url, Audience: "tranship", OrganizationClaim: "org"}
	if change != nil {
		change(&c)
	}
	p := &people{organization: uuid.Max}
	s, err := access.New(access.Config{Store: p, Signer: signer(t, 1), OIDC: []access.OIDC{c}, Now: func() time.Time { return noon }})
	require.NoError(t, err)
	return s, p
}

func TestOIDC(t *testing.T) {
	i := newIssuer(t)
	s, p := withIssuer(t, i, nil)
	a, err := s.Authenticate(t.Context(), i.token(nil))
	require.NoError(t, err)
	require.Equal(t, control.Actor{Organization: uuid.Max, Kind: control.ActorUser, ID: uuid.NameSpaceOID, Name: "Ada", Role: control.RoleViewer}, a)
	require.Equal(t, access.Identity{Issuer: i.url, Subject: "u1", Name: "Ada", Email: "ada@example.com"}, p.seen[0])

	_, err = s.Authenticate(t.Context(), i.token(nil))
	require.NoError(t, err)
	require.Len(t, p.seen, 1, "remembered")
	require.Equal(t, 1, i.asks, "the issuer's keys are cached")
	i.rotate("k2")
	// The library shares an answer among those who ask at once, for a moment longer.
	require.Eventually(t, func() bool {
		_, err = s.Authenticate(t.Context(), i.token(map[string]any{"sub": "u2"}))
		return err == nil
	}, 10*time.Second, time.Millisecond, "an unknown key is asked for")
	require.Equal(t, 2, i.asks)

	_, err = s.Authenticate(t.Context(), i.token(map[string]any{"sub": "u3", "email_verified": false}))
	require.NoError(t, err)
	require.Empty(t, p.seen[len(p.seen)-1].Email, "an address that nobody verified binds nothing")

	stranger := newIssuer(t)
	for name, token := range map[string]string{
		"other issuer":         stranger.token(nil),
		"other issuer's key":   stranger.token(map[string]any{"iss": i.url}),
		"other audience":       i.token(map[string]any{"aud": "other"}),
		"expired":              i.token(map[string]any{"exp": noon.Add(-2 * time.Minute).Unix()}),
		"from the future":      i.token(map[string]any{"iat": noon.Add(2 * time.Minute).Unix()}),
		"not yet":              i.token(map[string]any{"nbf": noon.Add(2 * time.Minute).Unix()}),
		"no subject":           i.token(map[string]any{"sub": ""}),
		"no organization":      i.token(map[string]any{"org": nil}),
		"unknown organization": i.token(map[string]any{"org": "other"}),
		"unknown person":       i.token(map[string]any{"sub": "stranger"}),
		"nothing":              "a.b.c",
		"none":                 "eyJhbGciOiJub25lIn0." + "eyJpc3MiOiJ4In0" + ".",
	} {
		_, err := s.Authenticate(t.Context(), token)
		var out *control.UnauthenticatedError
		require.ErrorAs(t, err, &out, name)
		require.NotContains(t, err.Error(), token, name)
	}
	_, err = s.Authenticate(t.Context(), i.token(map[string]any{"sub": "late", "exp": noon.Add(-30 * time.Second).Unix()}))
	require.NoError(t, err, "within the skew")
}

func TestOIDCRoles(t *testing.T) {
	i := newIssuer(t)
	s, p := withIssuer(t, i, func(o *access.OIDC) {
		o.RoleClaim = "resource.groups"
		o.Roles = map[string]control.Role{"data": control.RoleOperator, "boss": control.RoleAdmin, "all": control.RoleViewer}
	})
	groups := func(g ...string) map[string]any {
		return map[string]any{"resource": map[string]any{"groups": g}, "sub": uuid.NewString()}
	}
	for want, g := range map[control.Role][]string{
		control.RoleViewer: {"all", "else"}, control.RoleOperator: {"data", "all"}, control.RoleAdmin: {"all", "boss", "data"},
	} {
		a, err := s.Authenticate(t.Context(), i.token(groups(g...)))
		require.NoError(t, err)
		require.Equal(t, want, a.Role)
		require.Equal(t, want, p.seen[len(p.seen)-1].Role)
	}
	var out *control.UnauthenticatedError
	for _, change := range []map[string]any{groups("else"), groups(), {"resource": "data"}, nil} {
		_, err := s.Authenticate(t.Context(), i.token(change))
		require.ErrorAs(t, err, &out)
	}
}

func TestOIDCIssuerAway(t *testing.T) {
	i := newIssuer(t)
	i.setDown(true)
	now := noon
	p := &people{organization: uuid.Max}
	s, err := access.New(access.Config{Store: p, Signer: signer(t, 1), Now: func() time.Time { return now }, OIDC: []access.OIDC{
		{Issuer: i.url, Audience: "tranship", Organization: "acme"},
	}})
	require.NoError(t, err)
	_, err = s.Authenticate(t.Context(), i.token(nil))
	var away *control.UnavailableError
	require.ErrorAs(t, err, &away)
	i.setDown(false)
	_, err = s.Authenticate(t.Context(), i.token(nil))
	require.ErrorAs(t, err, &away, "it is not asked at once again")
	now = now.Add(6 * time.Second)
	_, err = s.Authenticate(t.Context(), i.token(nil))
	require.NoError(t, err)
	i.setDown(true)
	i.rotate("k2")
	_, err = s.Authenticate(t.Context(), i.token(map[string]any{"sub": "u2"}))
	require.ErrorAs(t, err, &away, "its new keys cannot be asked for")
	// Keys of service accounts go on.
	text, err := signer(t, 1).Mint(someClaims())
	require.NoError(t, err)
	_, err = s.Authenticate(t.Context(), text)
	require.NoError(t, err)
}

func TestOIDCConfiguration(t *testing.T) {
	for name, o := range map[string]access.OIDC{
		"issuer":       {Issuer: "id", Audience: "a", Organization: "o"},
		"audience":     {Issuer: "https://id.example.com", Organization: "o"},
		"organization": {Issuer: "https://id.example.com", Audience: "a"},
		"both":         {Issuer: "https://id.example.com", Audience: "a", Organization: "o", OrganizationClaim: "c"},
		"role":         {Issuer: "https://id.example.com", Audience: "a", Organization: "o", Roles: map[string]control.Role{"x": "root"}},
	} {
		_, err := access.New(access.Config{Store: &people{}, Signer: signer(t, 1), OIDC: []access.OIDC{o}})
		require.Error(t, err, name)
	}
}
