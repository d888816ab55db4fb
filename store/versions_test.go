package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/statetest"
	"github.com/tranship-io/tranship/internal/pgtest"
)

// TestOldestAndNewestServer runs what every version must do on the oldest and the
// newest one that is supported; the other tests use the default version.
func TestOldestAndNewestServer(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			d := openURL(t, pgtest.StartT(t, pgtest.Config{Version: version}).URL(""))
			require.NoError(t, d.Migrate(t.Context()))
			require.NoError(t, d.Migrate(t.Context()))
			require.NoError(t, d.Check(t.Context()))
			found, err := catalogProblems(t.Context(), superuser(t, d))
			require.NoError(t, err)
			require.Empty(t, found)
			_, err = d.Retain(t.Context(), Retention{})
			require.NoError(t, err)
			statetest.Run(t, func(t *testing.T) engine.State {
				t.Helper()
				return d.State(newOrganization(t, d, key(t)))
			})
		})
	}
}
