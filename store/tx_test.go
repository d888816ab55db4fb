package store

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/internal/pgtest"
)

func TestTransactionsSeeTheirOrganization(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	require.NoError(t, d.Check(t.Context()))
	a, b := newOrganization(t, d, "a"), newOrganization(t, d, "b")
	list := func(ctx context.Context, tx Tx) (keys []string, err error) {
		rows, err := tx.Query(ctx, `SELECT key FROM organizations ORDER BY key`)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowTo[string])
	}
	require.NoError(t, d.Tx(t.Context(), a, func(ctx context.Context, tx Tx) error {
		keys, err := list(ctx, tx)
		require.NoError(t, err)
		require.Equal(t, []string{"a"}, keys)
		var role string
		require.NoError(t, tx.QueryRow(ctx, `SELECT current_user`).Scan(&role))
		require.Equal(t, roleApp, role)
		tag, err := tx.Exec(ctx, `UPDATE organizations SET name = 'x' WHERE id = $1`, b)
		require.NoError(t, err)
		require.Zero(t, tag.RowsAffected())
		require.ErrorIs(t, tx.QueryRow(ctx, `SELECT id FROM organizations WHERE id = $1`, b).Scan(new(uuid.UUID)), pgx.ErrNoRows)
		return nil
	}))
	require.NoError(t, d.Maintain(t.Context(), func(ctx context.Context, tx Tx) error {
		keys, err := list(ctx, tx)
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b"}, keys)
		return nil
	}))
	// Without an organization nothing is seen: it is an error.
	require.Error(t, d.transact(t.Context(), d.app, txState{role: roleApp}, func(ctx context.Context, tx Tx) error {
		_, err := list(ctx, tx)
		return err
	}))
	require.Error(t, d.Tx(t.Context(), uuid.Nil, func(context.Context, Tx) error { return nil }))
}

// TestFirstStatement begins a transaction in each of the ways there are.
func TestFirstStatement(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	id := newOrganization(t, d, "a")
	for name, do := range map[string]func(context.Context, Tx) error{
		"exec": func(ctx context.Context, tx Tx) error { _, err := tx.Exec(ctx, `SELECT organization()`); return err },
		"row": func(ctx context.Context, tx Tx) error {
			return tx.QueryRow(ctx, `SELECT organization()`).Scan(new(uuid.UUID))
		},
		"query": func(ctx context.Context, tx Tx) error {
			rows, err := tx.Query(ctx, `SELECT organization()`)
			rows.Close()
			return err
		},
		"batch": func(ctx context.Context, tx Tx) error {
			var b pgx.Batch
			b.Queue(`SELECT organization()`)
			return tx.SendBatch(ctx, &b).Close()
		},
		"savepoint": func(ctx context.Context, tx Tx) error {
			failed := errors.New("undone")
			require.ErrorIs(t, tx.Savepoint(ctx, func(ctx context.Context, tx Tx) error {
				_, err := tx.Exec(ctx, `UPDATE organizations SET name = 'undone'`)
				require.NoError(t, err)
				_, err = tx.Exec(ctx, `SELECT 1/0`)
				require.Error(t, err)
				return failed
			}), failed)
			return nil
		},
	} {
		require.NoError(t, d.Tx(t.Context(), id, func(ctx context.Context, tx Tx) error {
			if err := do(ctx, tx); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `UPDATE organizations SET version = version + 1`)
			return err
		}), name)
	}
	require.NoError(t, d.Tx(t.Context(), id, func(ctx context.Context, tx Tx) error {
		o, err := tx.Q().GetOrganization(ctx, id)
		require.NoError(t, err)
		require.EqualValues(t, 6, o.Version)
		require.Equal(t, "a", o.Name)
		return nil
	}))
	for name, do := range map[string]func(context.Context, Tx) error{
		"exec":  func(ctx context.Context, tx Tx) error { _, err := tx.Exec(ctx, `SELECT 1/0`); return err },
		"parse": func(ctx context.Context, tx Tx) error { _, err := tx.Exec(ctx, `SELEC`); return err },
		"row":   func(ctx context.Context, tx Tx) error { return tx.QueryRow(ctx, `SELECT 1/0`).Scan(new(int)) },
		"own": func(ctx context.Context, tx Tx) error {
			_, err := tx.Exec(ctx, `UPDATE organizations SET name = 'x'`)
			require.NoError(t, err)
			return errors.New("mine")
		},
	} {
		require.Error(t, d.Tx(t.Context(), id, do), name)
	}
	require.NoError(t, d.Tx(t.Context(), id, func(ctx context.Context, tx Tx) error {
		o, err := tx.Q().GetOrganization(ctx, id)
		require.NoError(t, err)
		require.Equal(t, "a", o.Name, "a failed transaction leaves nothing")
		return nil
	}))
}

func TestOnce(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	org := newOrganization(t, d, "a")
	id := func() uuid.UUID { return uuid.Must(uuid.NewV7()) }
	try := func(i *control.Idempotency, kind string, id uuid.UUID) (existing uuid.UUID, first bool, err error) {
		ctx := t.Context()
		if i != nil {
			ctx = control.WithIdempotency(ctx, *i)
		}
		err = d.Tx(ctx, org, func(ctx context.Context, tx Tx) error {
			existing, first, err = once(ctx, tx, kind, id)
			return err
		})
		return existing, first, err
	}
	one, two := id(), id()
	key := &control.Idempotency{Key: "k", Hash: []byte("1")}
	_, first, err := try(key, "run", one)
	require.NoError(t, err)
	require.True(t, first)
	existing, first, err := try(key, "run", two)
	require.NoError(t, err)
	require.False(t, first)
	require.Equal(t, one, existing)
	_, first, err = try(key, "pipeline", two)
	require.NoError(t, err)
	require.True(t, first, "a request may make things of several kinds")
	_, _, err = try(&control.Idempotency{Key: "k", Hash: []byte("2")}, "run", two)
	var conflict *control.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, "idempotency_key_reused", conflict.Code)
	_, first, err = try(nil, "run", two)
	require.NoError(t, err)
	require.True(t, first)
}

func TestAudit(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	org := newOrganization(t, d, "a")
	require.NoError(t, d.Tx(t.Context(), org, func(ctx context.Context, tx Tx) error {
		return audit(ctx, tx, control.AuditEntry{Actor: control.System(org), Action: "run.cancel", Kind: "run", Object: org, After: []byte(`{"a":1}`)})
	}))
	require.NoError(t, d.Tx(t.Context(), org, func(ctx context.Context, tx Tx) error {
		var n int
		require.NoError(t, tx.QueryRow(ctx, `SELECT count(*) FROM audit_log WHERE before IS NULL AND after = '{"a":1}' AND actor_id IS NULL`).Scan(&n))
		require.Equal(t, 1, n)
		return nil
	}))
	for _, change := range []string{`UPDATE audit_log SET action = 'x'`, `DELETE FROM audit_log`} {
		require.Equal(t, "42501", code(d.Tx(t.Context(), org, func(ctx context.Context, tx Tx) error {
			_, err := tx.Exec(ctx, change)
			return err
		})), change)
	}
}

// TestAppLogin uses a URL that logs in as tranship_app.
func TestAppLogin(t *testing.T) {
	t.Parallel()
	server := pgtest.StartT(t, pgtest.Config{})
	d := openURL(t, server.URL("postgres"))
	require.NoError(t, d.Migrate(t.Context()))
	org := newOrganization(t, d, "a")
	require.NoError(t, d.Maintain(t.Context(), func(ctx context.Context, tx Tx) error { return nil }))
	_, err := d.app.Exec(t.Context(), `ALTER ROLE tranship_app LOGIN PASSWORD 'app'`)
	require.NoError(t, err)
	app := openURL(t, withUser(t, server.URL("postgres"), "tranship_app", "app"))
	require.NoError(t, app.Check(t.Context()))
	require.NoError(t, app.Tx(t.Context(), org, func(ctx context.Context, tx Tx) error {
		_, err := tx.Q().GetOrganization(ctx, org)
		return err
	}))
	require.Equal(t, "42501", code(app.Maintain(t.Context(), func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, `SELECT 1`)
		return err
	})))
}
