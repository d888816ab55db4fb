package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/tranship-io/tranship/control"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

//go:embed roles.sql
var rolesSQL string

// migrationLock is the advisory lock under which one process at a time migrates
// a database; the letters of "tranship".
const migrationLock = 0x7472616e73686970

const migrationsTable = "migrations"

// Migrate makes the roles, schema and tables, or brings them up to date. It runs
// as the URL's user, who must be a superuser, or one who owns the database and
// either may create roles or is a member of them already, and who has none of the
// roles' names. Any number of processes may call it at the same time.
func (d *DB) Migrate(ctx context.Context) error {
	return d.migrateTo(ctx, 0)
}

// migrateTo migrates up to a version; 0 means the newest.
func (d *DB) migrateTo(ctx context.Context, version int64) (err error) {
	config, err := pgx.ParseConfig(d.config.URL)
	if err != nil {
		return errors.New("migrate the control plane's database: its URL cannot be parsed")
	}
	d.session(config)
	if err := d.logIn(ctx, config); err != nil {
		return err
	}
	// A large table may take its time, and so may another process before us.
	for _, name := range []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"} {
		config.RuntimeParams[name] = "0"
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("migrate the control plane's database: %w", unreachable(err))
	}
	defer func() {
		// Ends the session, and with it the lock.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, int64(migrationLock)); err != nil {
		return fmt.Errorf("wait for another process's migration: %w", err)
	}
	if err := refuseOwnRole(ctx, conn); err != nil {
		return err
	}
	if err := makeRoles(ctx, conn); err != nil {
		return err
	}
	owner := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "SET ROLE "+roleOwner)
		return err
	}))
	defer func() { err = errors.Join(err, owner.Close()) }()
	return up(ctx, owner, version)
}

// refuseOwnRole returns an error if the session logged in as one of the roles that
// the product makes. Such a login would have to be granted the others, and the
// rights that keep organizations apart would be one user's.
func refuseOwnRole(ctx context.Context, conn *pgx.Conn) error {
	var login string
	if err := conn.QueryRow(ctx, `SELECT session_user::text`).Scan(&login); err != nil {
		return fmt.Errorf("read who migrates the control plane's database: %w", err)
	}
	switch login {
	case roleOwner, roleApp, roleMaintenance:
		return fmt.Errorf("migrate the control plane's database: the login %s has the name of a role that the product makes for itself (use a login with another name, of a superuser, or of a user who owns the database and has CREATEROLE)", login)
	}
	return nil
}

// makeRoles makes the roles and the schema. Another database's migration may
// touch the same rows of the server's catalog, which PostgreSQL answers with an
// internal error: once more is enough then.
func makeRoles(ctx context.Context, conn *pgx.Conn) error {
	for try := 1; ; try++ {
		_, err := conn.Exec(ctx, rolesSQL, pgx.QueryExecModeSimpleProtocol)
		var e *pgconn.PgError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &e) && e.Code == "42501":
			return fmt.Errorf("make roles and schema of the control plane: %w (use a superuser's URL once, or one of a user who owns the database and has CREATEROLE)", err)
		case !errors.As(err, &e) || e.Code != "XX000" && e.Code != "23505" || try == maxTries:
			return fmt.Errorf("make roles and schema of the control plane: %w", err)
		}
		select {
		case <-time.After(time.Duration(try) * 50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func up(ctx context.Context, owner *sql.DB, version int64) error {
	provider, err := provide(owner)
	if err != nil {
		return err
	}
	if version == 0 {
		_, err = provider.Up(ctx)
	} else {
		_, err = provider.UpTo(ctx, version)
	}
	if err != nil {
		return fmt.Errorf("migrate the control plane's database: %w", err)
	}
	_, err = owner.ExecContext(ctx, "GRANT SELECT ON "+migrationsTable+" TO "+roleApp+", "+roleMaintenance)
	return err
}

func provide(owner *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, owner, files,
		goose.WithTableName(migrationsTable), goose.WithLogger(goose.NopLogger()), goose.WithDisableGlobalRegistry(true))
}

// migrationVersions lists the versions of the embedded migrations, oldest first.
func migrationVersions() ([]int64, error) {
	entries, err := fs.ReadDir(migrationFiles, "migrations")
	if err != nil {
		return nil, err
	}
	var all []int64
	for _, e := range entries {
		v, err := goose.NumericComponent(e.Name())
		if err != nil {
			return nil, fmt.Errorf("migration %s: %w", e.Name(), err)
		}
		all = append(all, v)
	}
	return all, nil
}

// Version returns the newest migration that the database has; 0 if it has none.
func (d *DB) Version(ctx context.Context) (version int64, err error) {
	err = d.again(ctx, d.app, func(conn *pgxpool.Conn) (bool, error) {
		err := conn.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM `+migrationsTable+` WHERE is_applied`).Scan(&version)
		if c := code(err); c == "42P01" || c == "3F000" || c == "42501" {
			version, err = 0, nil
		}
		return false, err
	})
	if err != nil {
		return 0, fmt.Errorf("read the database's version: %w", err)
	}
	return version, nil
}

// Check returns nil if the database has every migration of this program, and
// needs none that it does not know.
func (d *DB) Check(ctx context.Context) error {
	versions, err := migrationVersions()
	if err != nil {
		return err
	}
	newest := versions[len(versions)-1]
	return d.transact(ctx, d.app, txState{role: roleApp}, func(ctx context.Context, tx Tx) error {
		var have int64
		var needs string
		err := tx.QueryRow(ctx, `SELECT (SELECT max(version_id) FROM `+migrationsTable+` WHERE is_applied), (SELECT value FROM meta WHERE key = 'min_code_version')`).
			Scan(&have, &needs)
		if c := code(err); c == "42P01" || c == "3F000" || c == "22023" || c == "42501" {
			return &control.ConflictError{Code: "not_migrated", Message: "the database has no tables of the control plane", Hint: "migrate it: tranship serve does, with a URL of its owner; on AWS the function migrate"}
		}
		if err != nil {
			return err
		}
		if have < newest {
			return &control.ConflictError{Code: "not_migrated", Message: fmt.Sprintf("the database is at migration %d and this program needs %d", have, newest), Hint: "migrate it: tranship serve does, with a URL of its owner; on AWS the function migrate"}
		}
		least, err := strconv.ParseInt(needs, 10, 64)
		if err != nil {
			return fmt.Errorf("read min_code_version: %w", err)
		}
		if least > newest {
			return &control.ConflictError{Code: "program_too_old", Message: fmt.Sprintf("the database needs a program that knows migration %d; this one knows %d", least, newest), Hint: "update this program"}
		}
		return nil
	})
}
