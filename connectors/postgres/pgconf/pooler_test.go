package pgconf_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/internal/pgtest"
)

// TestPoolerMode: behind a real pgbouncer, session mode is served and transaction
// mode is refused, since the session's settings would be lost (invariant 6).
func TestPoolerMode(t *testing.T) {
	database := pgtest.NewDatabase(t, pgtest.Shared(t))
	for mode, refused := range map[string]bool{"session": false, "transaction": true} {
		t.Run(mode, func(t *testing.T) {
			cfg := &pgconf.Config{URL: pgtest.Pooler(t, database, mode)}
			conn := must(t, cfg)
			err := pgconf.RequireSession(context.Background(), cfg, engine.OpenOptions{RunID: runID}, conn)
			if !refused {
				require.NoError(t, err)
				require.Equal(t, "C", show(t, conn, "lc_monetary"))
				return
			}
			require.ErrorContains(t, err, "shares the server's sessions between transactions")
			require.Equal(t, engine.Permanent, engine.ClassOf(err))
		})
	}
	direct := &pgconf.Config{URL: database}
	require.NoError(t, pgconf.RequireSession(context.Background(), direct, engine.OpenOptions{RunID: runID}, must(t, direct)))
}
