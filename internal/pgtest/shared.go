package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// shared is the one server of a test binary.
var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Main runs a package's tests and then stops the shared server. A TestMain that
// has more to do calls m.Run and StopShared itself.
func Main(m *testing.M) {
	code := m.Run()
	if err := StopShared(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// Shared returns the test binary's server, which the first caller starts. With
// TRANSHIP_TEST_PG_URL set it is that one, and then its External is true.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	shared.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		if external := os.Getenv(EnvURL); external != "" {
			shared.server, shared.err = Attach(ctx, external)
			return
		}
		shared.server, shared.err = Start(ctx, Config{})
	})
	if shared.err != nil {
		tb.Fatalf("start shared PostgreSQL: %v", shared.err)
	}
	return shared.server
}

// StopShared stops the shared server if this process started one.
func StopShared() error {
	if shared.server == nil || shared.server.External() {
		return nil
	}
	return shared.server.Stop()
}

// Attach returns a Server for one that runs already; connString is that of a
// superuser.
func Attach(ctx context.Context, connString string) (*Server, error) {
	u, err := url.Parse(connString)
	if err != nil {
		return nil, fmt.Errorf("parse %s: it must be a postgres:// URL", EnvURL)
	}
	conn, err := pgx.Connect(ctx, connString)
	if err != nil {
		return nil, fmt.Errorf("connect to the server that %s names: %w", EnvURL, err)
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

// StartT starts a server of the test's own and stops it at the test's end. Its
// log's end is shown if the test failed.
func StartT(tb testing.TB, config Config) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 10*time.Minute)
	defer cancel()
	s, err := Start(ctx, config)
	if err != nil {
		tb.Fatalf("start PostgreSQL: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("end of the PostgreSQL log:\n%s", s.logTail())
		}
		if err := s.Stop(); err != nil {
			tb.Errorf("stop PostgreSQL: %v", err)
		}
	})
	return s
}

// NewDatabase creates a database for one test, named after it, and drops it when
// the test ends, with whatever replication slots, prepared transactions and
// sessions are left in it. It is safe in parallel tests.
func NewDatabase(tb testing.TB, s *Server) string {
	tb.Helper()
	name := databaseName(tb.Name())
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	if err := s.exec(ctx, "CREATE DATABASE "+quote(name)+" TEMPLATE template0"); err != nil {
		tb.Fatalf("create database: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.DropDatabase(ctx, name); err != nil {
			// A test may have killed its server on purpose.
			tb.Logf("drop database: %v", err)
		}
	})
	return s.URL(name)
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

// databaseName makes a unique name of at most 63 bytes out of a test's.
func databaseName(test string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '_'
	}, test)
	return fmt.Sprintf("%.40s_%s", clean, strings.ToLower(rand.Text()[:10]))
}
