// Package secretstest holds the suites that every keyring and every provider of
// secrets passes.
package secretstest

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/secrets"
)

// TestKeyring checks that what a keyring wraps can be opened where it belongs and
// nowhere else.
func TestKeyring(t *testing.T, k secrets.Keyring) {
	t.Helper()
	ctx, org := t.Context(), uuid.New()
	for _, value := range []string{"", "p", "postgres://u:p@h/d", strings.Repeat("ü", 10000)} {
		s, err := secrets.Seal(ctx, k, org, "a", value)
		require.NoError(t, err)
		require.Equal(t, k.Current(), s.Key)
		got, err := secrets.Open(ctx, k, s)
		require.NoError(t, err)
		assert.Equal(t, value, got)
		if len(value) > 3 {
			assert.NotContains(t, string(s.Value)+string(s.DataKey), value)
		}
		for name, change := range map[string]func(*secrets.Sealed){
			"organization": func(s *secrets.Sealed) { s.Organization = uuid.New() },
			"id":           func(s *secrets.Sealed) { s.ID = uuid.New() },
			"name":         func(s *secrets.Sealed) { s.Name = "b" },
			"value":        func(s *secrets.Sealed) { s.Value[len(s.Value)-1] ^= 1 },
			"data key":     func(s *secrets.Sealed) { s.DataKey[len(s.DataKey)-1] ^= 1 },
			"cut":          func(s *secrets.Sealed) { s.Value = s.Value[:5] },
		} {
			other := s
			other.Value, other.DataKey = bytes.Clone(s.Value), bytes.Clone(s.DataKey)
			change(&other)
			_, err := secrets.Open(ctx, k, other)
			assert.Error(t, err, name)
		}
		moved := s
		moved.Name = "b"
		_, err = k.Unwrap(ctx, moved)
		require.ErrorIs(t, err, secrets.ErrWrapping)
	}
	a, err := secrets.Seal(ctx, k, org, "a", "same")
	require.NoError(t, err)
	b, err := secrets.Seal(ctx, k, org, "a", "same")
	require.NoError(t, err)
	assert.NotEqual(t, a.Value, b.Value)
	assert.NotEqual(t, a.DataKey[12:], b.DataKey[12:], "each secret has a data key of its own")
}
