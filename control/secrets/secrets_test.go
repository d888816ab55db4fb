package secrets_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/secrets"
	"github.com/tranship-io/tranship/control/secrets/secretstest"
)

func ring(t *testing.T, fill ...byte) *secrets.MasterKeys {
	t.Helper()
	keys := make([][]byte, len(fill))
	for i, b := range fill {
		keys[i] = bytes.Repeat([]byte{b}, 32)
	}
	k, err := secrets.NewMasterKeys(keys...)
	require.NoError(t, err)
	return k
}

func TestMasterKeys(t *testing.T) {
	t.Parallel()
	k := ring(t, 1)
	secretstest.TestKeyring(t, k)
	s, err := secrets.Seal(t.Context(), k, uuid.New(), "a", "x")
	require.NoError(t, err)
	_, err = secrets.Open(t.Context(), ring(t, 2), s)
	assert.ErrorContains(t, err, "not in the master key file")
}

func TestProviders(t *testing.T) {
	t.Parallel()
	org := uuid.New()
	service := &secrets.Service{Store: &memStore{rows: map[string]secrets.Sealed{}}, Keyring: ring(t, 1)}
	_, err := service.Put(t.Context(), control.System(org), "shop", "hunter2", secrets.AnyVersion)
	require.NoError(t, err)
	secretstest.TestProvider(t, secretstest.Provider{
		Provider: &secrets.Local{Store: service.Store, Keyring: service.Keyring}, Organization: org, Ref: "local:shop", Missing: "local:other", Value: "hunter2",
	})
	env := map[string]string{"TRANSHIP_SECRET_A": "hunter2"}
	secretstest.TestProvider(t, secretstest.Provider{
		Provider:     &secrets.Env{Lookup: func(n string) (string, bool) { v, ok := env[n]; return v, ok }},
		Organization: org, Ref: "env:TRANSHIP_SECRET_A", Missing: "env:TRANSHIP_SECRET_B", Value: "hunter2", Shared: true,
	})
}

func TestRotation(t *testing.T) {
	t.Parallel()
	ctx, org := context.Background(), uuid.New()
	store := &memStore{rows: map[string]secrets.Sealed{}}
	before := &secrets.Service{Store: store, Keyring: ring(t, 1)}
	refs := map[secrets.Ref]string{}
	for i := range 250 {
		value := strings.Repeat("x", i)
		name := fmt.Sprint("s", i)
		_, err := before.Put(ctx, control.System(org), name, value+"!", secrets.AnyVersion)
		require.NoError(t, err)
		refs[secrets.Ref("local:"+name)] = value + "!"
	}
	during := &secrets.Local{Store: store, Keyring: ring(t, 2, 1)}
	n, err := during.Rewrap(ctx)
	require.NoError(t, err)
	assert.Equal(t, 250, n)
	n, err = during.Rewrap(ctx)
	require.NoError(t, err)
	assert.Zero(t, n)

	after := secrets.Secrets{secrets.ProviderLocal: &secrets.Local{Store: store, Keyring: ring(t, 2)}}
	for ref, value := range refs {
		got, err := after.Resolve(ctx, org, ref)
		require.NoError(t, err)
		assert.Equal(t, value, got)
		_, err = after.Resolve(ctx, uuid.New(), ref)
		var unresolved *secrets.UnresolvedError
		require.ErrorAs(t, err, &unresolved)
	}
}

func TestKeyFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sub", "master.key")
	var wg sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		wg.Go(func() {
			k, err := secrets.OpenKeyFile(path)
			if assert.NoError(t, err) {
				ids[i] = k.Current()
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		assert.Equal(t, ids[0], id, "processes that begin at once share one key")
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, left, 1)

	old, err := secrets.OpenKeyFile(path)
	require.NoError(t, err)
	s, err := secrets.Seal(t.Context(), old, uuid.New(), "a", "kept")
	require.NoError(t, err)
	rotated, err := secrets.RotateKeyFile(path)
	require.NoError(t, err)
	assert.NotEqual(t, old.Current(), rotated.Current())
	fresh, err := secrets.Seal(t.Context(), rotated, uuid.New(), "a", "new")
	require.NoError(t, err)
	late, err := secrets.Open(t.Context(), old, fresh)
	require.NoError(t, err, "a process that runs finds the new key")
	assert.Equal(t, "new", late)
	got, err := secrets.Open(t.Context(), rotated, s)
	require.NoError(t, err)
	assert.Equal(t, "kept", got)
	info, err = os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	was, err := old.Derive("api keys")
	require.NoError(t, err)
	is, err := rotated.Derive("api keys")
	require.NoError(t, err)
	assert.Equal(t, was[0], is[1])
	other, err := rotated.Derive("something else")
	require.NoError(t, err)
	assert.NotEqual(t, is[0], other[0])

	require.NoError(t, os.Chmod(path, 0o644))
	_, err = secrets.OpenKeyFile(path)
	require.ErrorContains(t, err, "may be read by others")
	require.NoError(t, os.WriteFile(path, []byte("c2hvcnQ=\n"), 0o600))
	require.NoError(t, os.Chmod(path, 0o600))
	_, err = secrets.OpenKeyFile(path)
	require.ErrorContains(t, err, "line 1")
	assert.NotContains(t, err.Error(), "c2hvcnQ=")
}

func TestEnvGivesOutOnlyWhatIsReleased(t *testing.T) {
	t.Parallel()
	env := map[string]string{"TRANSHIP_SECRET_A": "a", "TRANSHIP_DATABASE_URL": "postgres://own", "SHOP_URL": "s"}
	lookup := func(n string) (string, bool) { v, ok := env[n]; return v, ok }
	for _, c := range []struct {
		allow []string
		ref   secrets.Ref
		want  string
	}{
		{nil, "env:TRANSHIP_SECRET_A", "a"},
		{nil, "env:TRANSHIP_SECRET_B", ""},
		{nil, "env:TRANSHIP_DATABASE_URL", ""},
		{[]string{"SHOP_*"}, "env:SHOP_URL", "s"},
		{[]string{"SHOP_*"}, "env:TRANSHIP_SECRET_A", ""},
	} {
		got, err := (&secrets.Env{Lookup: lookup, Allow: c.allow}).Resolve(context.Background(), uuid.New(), c.ref)
		if c.want == "" {
			var unresolved *secrets.UnresolvedError
			require.ErrorAs(t, err, &unresolved, c.ref)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, c.want, got)
	}
	_, err := secrets.Secrets{}.Resolve(context.Background(), uuid.New(), "vault:x")
	assert.ErrorContains(t, err, "no such provider")
}

func TestParseNeverRepeatsTheText(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"env:A", "local:shop-source.url", "aws:arn:aws:secretsmanager:x:1:secret:y"} {
		_, err := secrets.Parse(good)
		require.NoError(t, err, good)
	}
	for _, bad := range []string{"", "hunter2hunter2", "env:", "Env:A", "env:a b"} {
		_, err := secrets.Parse(bad)
		require.Error(t, err, bad)
		if bad != "" {
			assert.NotContains(t, err.Error(), bad+" ")
			assert.NotContains(t, err.Error(), "hunter2")
		}
	}
}

// memStore is a store of secrets in memory.
type memStore struct {
	secrets.Store
	rows map[string]secrets.Sealed
}

func (m *memStore) PutSecret(_ context.Context, _ control.Actor, s secrets.Sealed, _ int64) (secrets.Secret, error) {
	m.rows[s.Name] = s
	return secrets.Secret{Name: s.Name}, nil
}

func (m *memStore) SealedSecret(_ context.Context, org uuid.UUID, name string) (secrets.Sealed, error) {
	if s, ok := m.rows[name]; ok && s.Organization == org {
		return s, nil
	}
	return secrets.Sealed{}, &control.NotFoundError{Kind: "secret", Ref: name}
}

func (m *memStore) SecretsNotUnder(_ context.Context, key string, limit int) ([]secrets.Sealed, error) {
	var out []secrets.Sealed
	for _, s := range m.rows {
		if s.Key != key && len(out) < limit {
			out = append(out, s)
		}
	}
	return out, nil
}

func (m *memStore) RewrapSecret(_ context.Context, s secrets.Sealed, before string) error {
	if m.rows[s.Name].Key == before {
		m.rows[s.Name] = s
	}
	return nil
}
