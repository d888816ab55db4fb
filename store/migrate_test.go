package store

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/internal/pgtest"
)

// TestMigrateConcurrently starts from a server without roles: eight programs on
// one database and eight on databases of their own.
func TestMigrateConcurrently(t *testing.T) {
	t.Parallel()
	server := pgtest.StartT(t, pgtest.Config{})
	shared := pgtest.NewDatabase(t, server)
	var g errgroup.Group
	for range 8 {
		for _, url := range []string{shared, pgtest.NewDatabase(t, server)} {
			d := openURL(t, url)
			g.Go(func() error { return d.Migrate(t.Context()) })
		}
	}
	require.NoError(t, g.Wait())
	require.NoError(t, openURL(t, shared).Check(t.Context()))
}

// TestMigrateFromEveryState goes on from each earlier migration, as an older
// program left it.
func TestMigrateFromEveryState(t *testing.T) {
	t.Parallel()
	versions, err := migrationVersions()
	require.NoError(t, err)
	for _, v := range versions {
		d := openURL(t, pgtest.NewDatabase(t, pgtest.Shared(t)))
		require.NoError(t, d.migrateTo(t.Context(), v))
		newOrganization(t, d, "kept")
		if v != versions[len(versions)-1] {
			var conflict *control.ConflictError
			require.ErrorAs(t, d.Check(t.Context()), &conflict)
			require.Equal(t, "not_migrated", conflict.Code)
		}
		require.NoError(t, d.Migrate(t.Context()), "from %d", v)
		require.NoError(t, d.Migrate(t.Context()), "again")
		require.NoError(t, d.Check(t.Context()))
		require.NoError(t, d.Maintain(t.Context(), func(ctx context.Context, tx Tx) error {
			var n int
			require.NoError(t, tx.QueryRow(ctx, `SELECT count(*) FROM organizations WHERE key = 'kept'`).Scan(&n))
			require.Equal(t, 1, n)
			return nil
		}))
	}
}

// TestMigrateAsOwner uses a user without superuser: one who may create roles,
// and one for whom the roles were made.
func TestMigrateAsOwner(t *testing.T) {
	t.Parallel()
	server := pgtest.StartT(t, pgtest.Config{})
	admin, err := pgx.Connect(t.Context(), server.URL(""))
	require.NoError(t, err)
	defer admin.Close(t.Context())
	for _, sql := range []string{
		`CREATE ROLE first LOGIN CREATEROLE PASSWORD 'p'`, `CREATE DATABASE first OWNER first`,
		`CREATE ROLE second LOGIN PASSWORD 'p'`, `CREATE DATABASE second OWNER second`,
	} {
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	works := func(user string) {
		d := openURL(t, withUser(t, server.URL(user), user, "p"))
		require.NoError(t, d.Migrate(t.Context()))
		require.NoError(t, d.Check(t.Context()))
		newOrganization(t, d, "a")
		require.NoError(t, d.Maintain(t.Context(), func(ctx context.Context, tx Tx) error {
			var owner string
			require.NoError(t, tx.QueryRow(ctx, `SELECT pg_get_userbyid(relowner) FROM pg_class WHERE relname = 'organizations'`).Scan(&owner))
			require.Equal(t, roleOwner, owner)
			return nil
		}))
	}
	works("first")
	refused := openURL(t, withUser(t, server.URL("second"), "second", "p")).Migrate(t.Context())
	require.ErrorContains(t, refused, "CREATEROLE")
	_, err = admin.Exec(t.Context(), `GRANT tranship_owner, tranship_app, tranship_maintenance TO second`)
	require.NoError(t, err)
	works("second")
}

// TestMigrateAsOwnRole logs in under the names of the roles that a migration makes:
// the error says which, and nothing is made.
func TestMigrateAsOwnRole(t *testing.T) {
	t.Parallel()
	for _, role := range []string{roleOwner, roleApp, roleMaintenance} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			server := pgtest.StartT(t, pgtest.Config{})
			admin, err := pgx.Connect(t.Context(), server.URL(""))
			require.NoError(t, err)
			defer admin.Close(t.Context())
			for _, sql := range []string{
				`CREATE ROLE ` + role + ` LOGIN CREATEROLE PASSWORD 'p'`, `CREATE DATABASE mine OWNER ` + role,
			} {
				_, err := admin.Exec(t.Context(), sql)
				require.NoError(t, err)
			}
			err = openURL(t, withUser(t, server.URL("mine"), role, "p")).Migrate(t.Context())
			require.ErrorContains(t, err, "the login "+role+" has the name of a role")
			var roles int
			require.NoError(t, admin.QueryRow(t.Context(), `SELECT count(*) FROM pg_roles WHERE rolname LIKE 'tranship\_%'`).Scan(&roles))
			require.Equal(t, 1, roles)
		})
	}
}
