package blackbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestIdle is not parallel: it runs before those that are, and alone.
func TestIdle(t *testing.T) {
	p := admin(t).pipe(1_000, settings{})
	p.complete(p.start(), 3*time.Minute)
	require.Eventually(t, func() bool {
		s := findSchedule(t, "tranship-sweep")
		require.NotNil(t, s)
		return s.State != enabled
	}, 5*time.Minute, time.Second, "the sweep finds no work and disables its schedule")
	require.Eventually(t, func() bool {
		return one[int](t, rigWorld.database, "SELECT count(*) FROM pg_stat_activity WHERE datname = 'tranship'") == 0
	}, 2*time.Minute, time.Second, "no connection keeps the database awake")
}
