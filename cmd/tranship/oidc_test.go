package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/access"
)

func TestReadIssuers(t *testing.T) {
	t.Parallel()
	read := func(text string) ([]access.OIDC, error) {
		path := filepath.Join(t.TempDir(), "oidc.json")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return readIssuers(path)
	}
	got, err := read(`[{"issuer":"https://a","audience":"x","organization":"main"},
		{"issuer":"https://b","audience":"y","organization_claim":"org.key","role_claim":"groups","roles":{"ops":"operator"},"skew_seconds":30}]`)
	require.NoError(t, err)
	require.Equal(t, []access.OIDC{
		{Issuer: "https://a", Audience: "x", Organization: "main"},
		{Issuer: "https://b", Audience: "y", OrganizationClaim: "org.key", RoleClaim: "groups", Roles: map[string]control.Role{"ops": control.RoleOperator}, Skew: 30 * time.Second},
	}, got)
	for name, text := range map[string]string{
		"no list": `{"issuer":"https://a"}`, "unknown field": `[{"isuer":"https://a"}]`, "twice": `[{"issuer":"https://a"},{"issuer":"https://a"}]`,
		"more": `[] []`, "no JSON": `[`,
	} {
		_, err := read(text)
		require.Error(t, err, name)
	}
	_, err = readIssuers(filepath.Join(t.TempDir(), "none"))
	require.ErrorContains(t, err, "--oidc-file")
}
