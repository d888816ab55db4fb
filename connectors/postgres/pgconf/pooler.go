package pgconf

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/engine"
)

// RequireSession refuses a pooler that lends a server's session for a transaction
// only: the settings that make values read the same everywhere would be those of
// whoever had the session before, and a value could change silently (invariant 6).
//
// Behind a pooler the process that the server names is not the one that the
// connection was greeted with. Only then a second connection holds a transaction
// open: if it got the first one's process, or the first one has another process
// by then, sessions are shared.
func RequireSession(ctx context.Context, cfg *Config, opt engine.OpenOptions, conn *pgx.Conn) error {
	first, err := backend(ctx, conn)
	if err != nil || first == conn.PgConn().PID() {
		return err
	}
	other, err := Connect(ctx, cfg, opt, Role{Name: "pooler"})
	if err != nil {
		return err
	}
	defer func() { _ = other.Close(context.WithoutCancel(ctx)) }()
	if _, err := other.Exec(ctx, "BEGIN"); err != nil {
		return Classify(fmt.Errorf("begin a transaction through the pooler: %w", err))
	}
	second, err := backend(ctx, other)
	if err != nil {
		return err
	}
	again, err := backend(ctx, conn)
	if err != nil {
		return err
	}
	if first == second || first != again {
		c := conn.Config()
		return engine.Permanentf("let the pooler work in session mode (pgbouncer: pool_mode = session), or connect to the server itself",
			"%s:%d is a pooler that shares the server's sessions between transactions, which would lose the settings that values are read with", c.Host, c.Port)
	}
	return nil
}

// backend is the server process that works for the connection now.
func backend(ctx context.Context, conn *pgx.Conn) (uint32, error) {
	var pid uint32
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		return 0, Classify(fmt.Errorf("ask for the server's process: %w", err))
	}
	return pid, nil
}
