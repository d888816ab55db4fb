package store

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/internal/pgtest"
)

// TestLostDatabase: a restarted server is not noticed by callers whose
// transactions had not reached their commit; one that is away is told as such,
// with nothing done.
func TestLostDatabase(t *testing.T) {
	t.Parallel()
	server := pgtest.StartT(t, pgtest.Config{})
	d, err := Open(t.Context(), Config{URL: server.URL(""), Wait: 2 * time.Second})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	require.NoError(t, d.Migrate(t.Context()))
	org := newOrganization(t, d, "a")
	rename := func(name string) error {
		return d.Tx(t.Context(), org, func(ctx context.Context, tx Tx) error {
			_, err := tx.Exec(ctx, `UPDATE organizations SET name = $1, version = version + 1`, name)
			return err
		})
	}
	s := d.State(org)
	run, _, err := s.StartRun(t.Context(), engine.StartRequest{Route: testRoute, Version: "v"})
	require.NoError(t, err)
	l, err := s.Acquire(t.Context(), run.ID, 0, "w", time.Hour)
	require.NoError(t, err)

	require.NoError(t, server.Restart(t.Context()))
	_, err = s.Renew(t.Context(), l, time.Hour)
	require.NoError(t, err, "a broken connection is replaced")
	require.NoError(t, rename("after the restart"))

	// The connection breaks in the middle: the transaction is begun again.
	tries := 0
	require.NoError(t, d.Tx(t.Context(), org, func(ctx context.Context, tx Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE organizations SET version = version + 1`); err != nil {
			return err
		}
		if tries++; tries == 1 {
			require.NoError(t, server.Restart(t.Context()))
		}
		_, err := tx.Exec(ctx, `UPDATE organizations SET name = 'once'`)
		return err
	}))
	require.Equal(t, 2, tries)

	require.NoError(t, server.Shutdown())
	var away *control.UnavailableError
	require.ErrorAs(t, rename("never"), &away)
	require.Positive(t, away.RetryAfter)
	_, err = s.Renew(t.Context(), l, time.Hour)
	require.Equal(t, engine.Retryable, engine.ClassOf(err))
	_, err = Open(t.Context(), Config{URL: server.URL(""), Wait: time.Second})
	require.ErrorAs(t, err, &away)
	require.NotContains(t, err.Error(), server.Password())

	require.NoError(t, server.Restart(t.Context()))
	require.NoError(t, d.Tx(t.Context(), org, func(ctx context.Context, tx Tx) error {
		o, err := tx.Q().GetOrganization(ctx, org)
		require.NoError(t, err)
		require.Equal(t, "once", o.Name)
		require.EqualValues(t, 3, o.Version)
		return nil
	}))
	_, err = Open(t.Context(), Config{URL: "postgres://user:hunter2@127.0.0.1:1/x?connect_timeout=nonsense"})
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
}
