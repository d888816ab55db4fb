package secretstest

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/secrets"
)

// Provider is a provider under test, for an organization that has a secret.
type Provider struct {
	secrets.Provider
	Organization uuid.UUID
	// Ref is that of the secret, Value what it holds; Missing is the reference of none.
	Ref, Missing secrets.Ref
	Value        string
	// Shared tells that other organizations may have it as well.
	Shared bool
}

// TestProvider checks that a provider gives a secret to the organization that has
// it, tells others that there is none, and never repeats a value in an error.
func TestProvider(t *testing.T, p Provider) {
	t.Helper()
	got, err := p.Resolve(t.Context(), p.Organization, p.Ref)
	require.NoError(t, err)
	require.Equal(t, p.Value, got)
	unresolved := func(organization uuid.UUID, ref secrets.Ref) {
		_, err := p.Resolve(t.Context(), organization, ref)
		var missing *secrets.UnresolvedError
		require.ErrorAs(t, err, &missing)
		require.Equal(t, ref, missing.Ref)
		require.NotEmpty(t, missing.Hint)
		require.NotContains(t, err.Error(), p.Value)
	}
	unresolved(p.Organization, p.Missing)
	if !p.Shared {
		unresolved(uuid.New(), p.Ref)
	}
}
