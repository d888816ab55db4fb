package store

import (
	"context"
	"net/url"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/internal/pgtest"
	"github.com/tranship-io/tranship/store/internal/db"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// newDB opens a migrated database of the test's own.
func newDB(tb testing.TB) *DB {
	tb.Helper()
	d := openURL(tb, pgtest.NewDatabase(tb, pgtest.Shared(tb)))
	require.NoError(tb, d.Migrate(tb.Context()))
	return d
}

func openURL(tb testing.TB, url string) *DB {
	tb.Helper()
	d, err := Open(tb.Context(), Config{URL: url})
	require.NoError(tb, err)
	tb.Cleanup(d.Close)
	return d
}

// newOrganization makes an organization.
func newOrganization(tb testing.TB, d *DB, key string) uuid.UUID {
	tb.Helper()
	id := uuid.Must(uuid.NewV7())
	require.NoError(tb, d.Tx(tb.Context(), id, func(ctx context.Context, tx Tx) error {
		return tx.Q().InsertOrganization(ctx, db.InsertOrganizationParams{ID: id, Key: key, Name: key})
	}))
	return id
}

// withUser puts another user into a URL.
func withUser(tb testing.TB, connString, user, password string) string {
	tb.Helper()
	u, err := url.Parse(connString)
	require.NoError(tb, err)
	u.User = url.UserPassword(user, password)
	return u.String()
}
