package access_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/access"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func signer(tb testing.TB, seeds ...byte) *access.Signer {
	tb.Helper()
	var keys [][]byte
	for _, s := range seeds {
		keys = append(keys, bytes.Repeat([]byte{s}, 32))
	}
	out, err := access.NewSigner(keys)
	require.NoError(tb, err)
	return out
}

func someClaims() access.Claims {
	return access.Claims{
		Organization: uuid.MustParse("0198d3a0-0000-7000-8000-000000000001"), Account: uuid.MustParse("0198d3a0-0000-7000-8000-000000000002"),
		Key: uuid.MustParse("0198d3a0-0000-7000-8000-000000000003"), Role: control.RoleOperator,
		Scopes: []string{"runs:read", "runs:operate"}, ExpiresAt: noon.Add(time.Hour),
	}
}

func TestTokens(t *testing.T) {
	s := signer(t, 1)
	for _, change := range []func(*access.Claims){
		func(*access.Claims) {},
		func(c *access.Claims) { c.Scopes = nil },
		func(c *access.Claims) { c.ExpiresAt = time.Time{} },
		func(c *access.Claims) { c.Role = control.RoleAdmin },
		func(c *access.Claims) { c.Role = control.RoleViewer },
	} {
		c := someClaims()
		change(&c)
		text, err := s.Mint(c)
		require.NoError(t, err)
		require.Regexp(t, `^trk_[A-Za-z0-9_-]+$`, text)
		got, err := s.Verify(text, noon)
		require.NoError(t, err)
		require.Equal(t, c, got)
		again, err := s.Mint(c)
		require.NoError(t, err)
		require.NotEqual(t, text, again)
	}
	_, err := s.Mint(access.Claims{Role: "root"})
	require.Error(t, err)
}

func TestTokensThatAreNot(t *testing.T) {
	s := signer(t, 1)
	text, err := s.Mint(someClaims())
	require.NoError(t, err)
	refused := func(text string, now time.Time) {
		t.Helper()
		_, err := s.Verify(text, now)
		var out *control.UnauthenticatedError
		require.ErrorAs(t, err, &out)
		require.NotContains(t, err.Error(), strings.TrimPrefix(text, "trk_")+"x")
	}
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(text, "trk_"))
	require.NoError(t, err)
	for i := range raw {
		changed := bytes.Clone(raw)
		changed[i] ^= 1
		refused("trk_"+base64.RawURLEncoding.EncodeToString(changed), noon)
	}
	refused(text, noon.Add(time.Hour))
	refused(text[:len(text)-1], noon)
	refused(text+"A", noon)
	refused(text+"=", noon)
	refused("trk_", noon)
	refused("trk_"+strings.Repeat("A", 20000), noon)
	other, err := signer(t, 2).Mint(someClaims())
	require.NoError(t, err)
	refused(other, noon)
	// After a rotation of the master key the old one still checks, the new one signs.
	rotated := signer(t, 2, 1)
	_, err = rotated.Verify(text, noon)
	require.NoError(t, err)
	fresh, err := rotated.Mint(someClaims())
	require.NoError(t, err)
	_, err = signer(t, 2).Verify(fresh, noon)
	require.NoError(t, err)
	_, err = access.NewSigner(nil)
	require.Error(t, err)
	_, err = access.NewSigner([][]byte{make([]byte, 16)})
	require.Error(t, err)
}

func FuzzToken(f *testing.F) {
	s := signer(f, 1)
	text, err := s.Mint(someClaims())
	require.NoError(f, err)
	f.Add(text)
	f.Add("trk_AQ")
	f.Fuzz(func(t *testing.T, other string) {
		c, err := s.Verify(other, noon)
		if err == nil {
			require.Equal(t, someClaims(), c, "a text that we did not make is taken")
		}
	})
}
