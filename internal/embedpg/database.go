//go:build unix

package embedpg

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Attach returns a Server for one that runs already; connString is that of a
// superuser.
func Attach(ctx context.Context, connString string) (*Server, error) {
	u, err := url.Parse(connString)
	if err != nil {
		return nil, fmt.Errorf("parse the connection string: it must be a postgres:// URL")
	}
	conn, err := pgx.Connect(ctx, connString)
	if err != nil {
		return nil, fmt.Errorf("connect to the server: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	var version string
	if err := conn.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return nil, err
	}
	s := &Server{external: u, version: strings.Fields(version)[0]}
	s.password, _ = u.User.Password()
	if s.port, err = strconv.Atoi(u.Port()); err != nil {
		s.port = 5432
	}
	return s, nil
}

// CreateDatabase creates an empty database.
func (s *Server) CreateDatabase(ctx context.Context, name string) error {
	return s.exec(ctx, "CREATE DATABASE "+quote(name)+" TEMPLATE template0")
}

// DropDatabase drops a database and all that would keep PostgreSQL from doing so.
func (s *Server) DropDatabase(ctx context.Context, name string) error {
	if err := s.dropLeftovers(ctx, name); err != nil {
		return err
	}
	return s.exec(ctx, "DROP DATABASE IF EXISTS "+quote(name)+" WITH (FORCE)")
}

func (s *Server) dropLeftovers(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, s.URL(""))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, `SELECT slot_name FROM pg_replication_slots WHERE database = $1`, name)
	if err != nil {
		return err
	}
	slots, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, slot := range slots {
		if err := dropSlot(ctx, conn, slot); err != nil {
			return fmt.Errorf("drop slot %s: %w", slot, err)
		}
	}
	rows, err = conn.Query(ctx, `SELECT gid FROM pg_prepared_xacts WHERE database = $1`, name)
	if err != nil {
		return err
	}
	gids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(gids) == 0 {
		return err
	}
	// A prepared transaction can only be ended from inside its database.
	in, err := pgx.Connect(ctx, s.URL(name))
	if err != nil {
		return err
	}
	defer func() { _ = in.Close(ctx) }()
	for _, gid := range gids {
		if _, err := in.Exec(ctx, "ROLLBACK PREPARED '"+strings.ReplaceAll(gid, "'", "''")+"'"); err != nil {
			return err
		}
	}
	return nil
}

// dropSlot ends the slot's consumer and drops it; the consumer's process needs a
// moment to go.
func dropSlot(ctx context.Context, conn *pgx.Conn, slot string) error {
	for {
		_, err := conn.Exec(ctx, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots
			WHERE slot_name = $1 AND active_pid IS NOT NULL`, slot)
		if err != nil {
			return err
		}
		_, err = conn.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1`, slot)
		if err == nil || !isInUse(err) {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

func isInUse(err error) bool {
	const objectInUse = "55006"
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == objectInUse
}

func (s *Server) exec(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, s.URL(""))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
