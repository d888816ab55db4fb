package store

import (
	"context"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/access"
)

// bootstrapped is a database with one organization and its admin key.
type bootstrapped struct {
	db      *DB
	service *access.Service
	actor   control.Actor
	text    string
}

func newAccess(tb testing.TB) bootstrapped {
	tb.Helper()
	d := newDB(tb)
	secret := sha256.Sum256([]byte("test"))
	signer, err := access.NewSigner([][]byte{secret[:]})
	require.NoError(tb, err)
	s, err := access.New(access.Config{Store: d.Access(), Signer: signer})
	require.NoError(tb, err)
	b := bootstrapped{db: d, service: s}
	b.actor, b.text = b.organization(tb, "first")
	return b
}

// organization makes an organization and returns its admin.
func (b bootstrapped) organization(tb testing.TB, key string) (control.Actor, string) {
	tb.Helper()
	newOrganization(tb, b.db, key)
	_, text, err := b.service.Emergency(tb.Context(), key, 0)
	require.NoError(tb, err)
	actor, err := b.service.Authenticate(tb.Context(), text)
	require.NoError(tb, err)
	return actor, text
}

// request is the context of a request by an actor.
func request(t *testing.T, a control.Actor) context.Context {
	t.Helper()
	return control.WithCaller(t.Context(), a)
}

func TestKeyIsCheckedInEachTransaction(t *testing.T) {
	t.Parallel()
	b := newAccess(t)
	ctx := request(t, b.actor)
	account, err := b.service.CreateAccount(ctx, b.actor, access.Account{Name: "loader", Role: control.RoleOperator})
	require.NoError(t, err)
	k, text, err := b.service.CreateKey(ctx, b.actor, access.Key{Account: account.ID, Name: "k"})
	require.NoError(t, err)
	require.Equal(t, text[:12], k.Prefix)
	loader, err := b.service.Authenticate(ctx, text)
	require.NoError(t, err)
	require.NoError(t, b.service.Confirm(request(t, loader), loader))

	// A lesser role of the account holds at once; a greater one does not lift the key.
	account.Role = control.RoleViewer
	_, err = b.service.UpdateAccount(ctx, b.actor, account, account.Version)
	require.NoError(t, err)
	var changed *control.RoleChangedError
	require.ErrorAs(t, b.service.Confirm(request(t, loader), loader), &changed)
	require.Equal(t, control.RoleViewer, changed.Role)
	account.Role = control.RoleAdmin
	_, err = b.service.UpdateAccount(ctx, b.actor, account, 0)
	require.NoError(t, err)
	require.NoError(t, b.service.Confirm(request(t, loader), loader))
	require.Equal(t, control.RoleOperator, loader.Role)

	// A text that our key signed, but that is not the stored one, is not the key.
	forged := loader
	forged.KeyHash = make([]byte, 32)
	require401(t, b.service.Confirm(request(t, forged), forged), "not known")

	_, err = b.service.RevokeKey(ctx, b.actor, k.ID)
	require.NoError(t, err)
	require401(t, b.service.Confirm(request(t, loader), loader), "revoked")
	_, err = b.service.RevokeKey(ctx, b.actor, k.ID)
	require.NoError(t, err, "again")
}

func require401(t *testing.T, err error, reason string) {
	t.Helper()
	var out *control.UnauthenticatedError
	require.ErrorAs(t, err, &out)
	require.Contains(t, out.Reason, reason)
}

func TestKeysEnd(t *testing.T) {
	t.Parallel()
	b := newAccess(t)
	ctx := request(t, b.actor)
	account, err := b.service.CreateAccount(ctx, b.actor, access.Account{Name: "loader", Role: control.RoleOperator})
	require.NoError(t, err)
	old, oldText, err := b.service.CreateKey(ctx, b.actor, access.Key{Account: account.ID, Name: "k", Scopes: []string{"runs:read"}})
	require.NoError(t, err)
	actor, err := b.service.Authenticate(ctx, oldText)
	require.NoError(t, err)
	require.Equal(t, []string{"runs:read"}, actor.Scopes)

	fresh, text, err := b.service.RotateKey(ctx, b.actor, old.ID, time.Time{}, time.Hour)
	require.NoError(t, err)
	require.NotEqual(t, oldText, text)
	require.Equal(t, old.Scopes, fresh.Scopes)
	require.NoError(t, b.service.Confirm(request(t, actor), actor), "within the overlap")
	var conflict *control.ConflictError
	_, _, err = b.service.RotateKey(ctx, b.actor, old.ID, time.Time{}, time.Hour)
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, "rotated", conflict.State)

	_, _, err = b.service.RotateKey(ctx, b.actor, fresh.ID, time.Time{}, 0)
	require.NoError(t, err)
	next, err := b.service.Authenticate(ctx, text)
	require.NoError(t, err)
	require401(t, b.service.Confirm(request(t, next), next), "expired")

	require.NoError(t, b.service.DeleteAccount(ctx, b.actor, account.ID, 0))
	require401(t, b.service.Confirm(request(t, actor), actor), "revoked")
}

func TestKeysGiveNoMoreThanTheirMakerHas(t *testing.T) {
	t.Parallel()
	b := newAccess(t)
	ctx := request(t, b.actor)
	mine, err := b.service.Key(ctx, b.actor, b.actor.Key)
	require.NoError(t, err)
	_, text, err := b.service.CreateKey(ctx, b.actor, access.Key{Account: b.actor.ID, Name: "narrow", Scopes: []string{"keys:write", "keys:read"}})
	require.NoError(t, err)
	narrow, err := b.service.Authenticate(ctx, text)
	require.NoError(t, err)
	var forbidden *control.ForbiddenError
	for _, scopes := range [][]string{nil, {"keys:write", "members:write"}} {
		_, _, err = b.service.CreateKey(request(t, narrow), narrow, access.Key{Account: b.actor.ID, Name: "wide", Scopes: scopes})
		require.ErrorAs(t, err, &forbidden)
	}
	_, _, err = b.service.RotateKey(request(t, narrow), narrow, mine.ID, time.Time{}, 0)
	require.ErrorAs(t, err, &forbidden, "rotating would show the text of a wider key")
	_, _, err = b.service.CreateKey(request(t, narrow), narrow, access.Key{Account: b.actor.ID, Name: "same", Scopes: []string{"keys:read"}})
	require.NoError(t, err)
}

func TestTheLastAdminStays(t *testing.T) {
	t.Parallel()
	b := newAccess(t)
	ctx := request(t, b.actor)
	var conflict *control.ConflictError
	require.ErrorAs(t, b.service.DeleteAccount(ctx, b.actor, b.actor.ID, 0), &conflict)
	require.Equal(t, "last_admin", conflict.Code)
	m, err := b.service.CreateMember(ctx, b.actor, access.Member{Name: "Ada", Email: "ada@example.com", Role: control.RoleAdmin})
	require.NoError(t, err)
	// Both at the same time: one of them is refused.
	var g errgroup.Group
	failed := make([]error, 2)
	g.Go(func() error { failed[0] = b.service.DeleteAccount(ctx, b.actor, b.actor.ID, 0); return nil })
	g.Go(func() error {
		system := control.System(b.actor.Organization)
		_, failed[1] = b.service.UpdateMember(t.Context(), system, access.Member{ID: m.ID, Name: "Ada", Role: control.RoleViewer}, 0)
		return nil
	})
	require.NoError(t, g.Wait())
	require.NotEqual(t, failed[0] == nil, failed[1] == nil, "%v", failed)
}

func TestVersionsOfMembers(t *testing.T) {
	t.Parallel()
	b := newAccess(t)
	ctx := request(t, b.actor)
	m, err := b.service.CreateMember(ctx, b.actor, access.Member{Name: "Ada", Email: "ada@example.com", Role: control.RoleViewer})
	require.NoError(t, err)
	_, err = b.service.CreateMember(ctx, b.actor, access.Member{Name: "Ada", Email: "ADA@example.com", Role: control.RoleViewer})
	var conflict *control.ConflictError
	require.ErrorAs(t, err, &conflict)
	m.Role = control.RoleOperator
	updated, err := b.service.UpdateMember(ctx, b.actor, m, m.Version)
	require.NoError(t, err)
	var stale *control.StaleVersionError
	_, err = b.service.UpdateMember(ctx, b.actor, m, m.Version)
	require.ErrorAs(t, err, &stale)
	require.Equal(t, updated.Version, stale.Current)
	require.NoError(t, b.service.DeleteMember(ctx, b.actor, m.ID, updated.Version))
	var missing *control.NotFoundError
	_, err = b.service.Member(ctx, b.actor, m.ID)
	require.ErrorAs(t, err, &missing)
	_, err = b.service.CreateMember(ctx, b.actor, access.Member{Name: "Ada", Email: "ada@example.com", Role: control.RoleViewer})
	require.NoError(t, err, "the address is free again")
}

func TestCreatesAreRepeatable(t *testing.T) {
	t.Parallel()
	b := newAccess(t)
	key := func(hash string) context.Context {
		return control.WithIdempotency(request(t, b.actor), control.Idempotency{Key: "k1", Hash: []byte(hash)})
	}
	x := access.Account{Name: "loader", Role: control.RoleViewer}
	first, err := b.service.CreateAccount(key("a"), b.actor, x)
	require.NoError(t, err)
	again, err := b.service.CreateAccount(key("a"), b.actor, x)
	require.NoError(t, err)
	require.Equal(t, first, again)
	var conflict *control.ConflictError
	_, err = b.service.CreateAccount(key("b"), b.actor, access.Account{Name: "other", Role: control.RoleViewer})
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, "idempotency_key_reused", conflict.Code)

	keys := control.WithIdempotency(request(t, b.actor), control.Idempotency{Key: "k2", Hash: []byte("a")})
	_, _, err = b.service.CreateKey(keys, b.actor, access.Key{Account: first.ID, Name: "k"})
	require.NoError(t, err)
	_, _, err = b.service.CreateKey(keys, b.actor, access.Key{Account: first.ID, Name: "k"})
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, "key_shown_once", conflict.Code)
	all, err := b.service.Keys(t.Context(), b.actor, first.ID, control.Page{})
	require.NoError(t, err)
	require.Len(t, all.Items, 1)
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	b := newAccess(t)
	ctx := request(t, b.actor)
	s := b.db.Access()
	who := access.Identity{Issuer: "https://id.example.com", Subject: "1", Name: "Ada", Email: "ada@example.com"}
	var missing *control.NotFoundError
	_, err := s.SignIn(t.Context(), b.actor.Organization, who)
	require.ErrorAs(t, err, &missing)
	invited, err := b.service.CreateMember(ctx, b.actor, access.Member{Name: "Ada", Email: "Ada@example.com", Role: control.RoleOperator})
	require.NoError(t, err)
	m, err := s.SignIn(t.Context(), b.actor.Organization, who)
	require.NoError(t, err)
	require.Equal(t, invited.ID, m.ID)
	require.Equal(t, "1", m.Subject)
	require.False(t, m.LastSeenAt.IsZero())
	// The address is bound: another subject with it is somebody else.
	other := who
	other.Subject = "2"
	_, err = s.SignIn(t.Context(), b.actor.Organization, other)
	require.ErrorAs(t, err, &missing)
	// A role in the token makes members and changes them.
	who.Role = control.RoleViewer
	m, err = s.SignIn(t.Context(), b.actor.Organization, who)
	require.NoError(t, err)
	require.Equal(t, control.RoleViewer, m.Role)
	fresh, err := s.SignIn(t.Context(), b.actor.Organization, access.Identity{Issuer: who.Issuer, Subject: "3", Name: "Bob", Role: control.RoleAdmin})
	require.NoError(t, err)
	user := control.Actor{Organization: b.actor.Organization, Kind: control.ActorUser, ID: fresh.ID, Role: fresh.Role}
	require.NoError(t, b.service.Confirm(request(t, user), user))
	require.NoError(t, b.service.DeleteMember(ctx, b.actor, fresh.ID, 0))
	require401(t, b.service.Confirm(request(t, user), user), "no longer part")
}

func TestChangesAreAudited(t *testing.T) {
	t.Parallel()
	b := newAccess(t)
	ctx := request(t, b.actor)
	account, err := b.service.CreateAccount(ctx, b.actor, access.Account{Name: "loader", Role: control.RoleOperator})
	require.NoError(t, err)
	k, text, err := b.service.CreateKey(ctx, b.actor, access.Key{Account: account.ID, Name: "k"})
	require.NoError(t, err)
	_, err = b.service.RevokeKey(ctx, b.actor, k.ID)
	require.NoError(t, err)
	all, err := b.service.Audit(ctx, b.actor, access.AuditFilter{Actor: b.actor.ID}, control.Page{Limit: 2})
	require.NoError(t, err)
	require.Equal(t, []string{"key.revoke", "key.create"}, []string{all.Items[0].Action, all.Items[1].Action})
	rest, err := b.service.Audit(ctx, b.actor, access.AuditFilter{Actor: b.actor.ID}, control.Page{Limit: 2, After: all.Next})
	require.NoError(t, err)
	require.Len(t, rest.Items, 1)
	require.Empty(t, rest.Next)
	require.Equal(t, "service_account.create", rest.Items[0].Action)
	require.NotContains(t, string(all.Items[0].Before), "0001-01-01", "a time that is not there is left out")
	for _, i := range all.Items {
		require.Equal(t, b.actor.Key, i.ActorKey)
		require.NotContains(t, string(i.Before)+string(i.After), text)
	}
	of, err := b.service.Audit(ctx, b.actor, access.AuditFilter{Object: k.ID, Action: "key.revoke"}, control.Page{})
	require.NoError(t, err)
	require.Len(t, of.Items, 1)
}

func TestOtherOrganizationsAreNotSeen(t *testing.T) {
	t.Parallel()
	b := newAccess(t)
	stranger, _ := b.organization(t, "second")
	ctx := request(t, stranger)
	var missing *control.NotFoundError
	_, err := b.service.Account(ctx, stranger, b.actor.ID)
	require.ErrorAs(t, err, &missing)
	_, err = b.service.Key(ctx, stranger, b.actor.Key)
	require.ErrorAs(t, err, &missing)
	_, err = b.service.RevokeKey(ctx, stranger, b.actor.Key)
	require.ErrorAs(t, err, &missing)
	_, _, err = b.service.CreateKey(ctx, stranger, access.Key{Account: b.actor.ID, Name: "k"})
	require.ErrorAs(t, err, &missing)
	// A key of one organization in another's transaction is no key.
	moved := b.actor
	moved.Organization = stranger.Organization
	require401(t, b.service.Confirm(request(t, moved), moved), "not known")
	require.NoError(t, b.service.Confirm(request(t, b.actor), b.actor))
}

func TestBootstrapOnce(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	var made [4]bool
	var ready [4]int
	var g errgroup.Group
	for i := range made {
		g.Go(func() (err error) {
			o := access.Organization{ID: uuid.Must(uuid.NewV7()), Key: "demo", Name: "Demo"}
			a := access.Account{ID: uuid.Must(uuid.NewV7()), Name: "bootstrap", Role: control.RoleAdmin}
			k := access.Key{ID: uuid.Must(uuid.NewV7()), Account: a.ID, Name: "bootstrap", Prefix: "trk_12345678", Hash: make([]byte, 32), Role: control.RoleAdmin}
			made[i], err = d.Access().Bootstrap(t.Context(), o, a, k, func() error { ready[i]++; return nil })
			return err
		})
	}
	require.NoError(t, g.Wait())
	n := 0
	for i := range made {
		require.Equal(t, made[i], ready[i] == 1)
		if made[i] {
			n++
		}
	}
	require.Equal(t, 1, n)
	all, err := d.Access().ListOrganizations(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, all, 1)
}
