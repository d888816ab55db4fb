package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config says which database to use, and how.
type Config struct {
	// URL is the database's connection string, of a user who may become
	// tranship_app: the owner, a superuser, or tranship_app itself.
	URL string
	// MaintenanceURL is used for [DB.Maintain]; empty: URL.
	MaintenanceURL string
	// MaxConns bounds the connections of each of the two URLs. 0 means 10.
	MaxConns int32
	// Wait bounds the wait for a free or new connection, after which the
	// database counts as unavailable. 0 means 10 s.
	Wait time.Duration
	// ApplicationName is shown in pg_stat_activity. Empty means "tranship".
	ApplicationName string
	// Logger gets what no caller is told, such as a retried transaction. Nil
	// means none.
	Logger *slog.Logger
}

// Limits that the server keeps for our sessions: a process that is frozen in the
// middle of a transaction must not hold its locks for longer.
const (
	lockTimeout      = 30 * time.Second
	statementTimeout = 60 * time.Second
	idleTimeout      = 60 * time.Second
)

const schemaName = "tranship"

// DB is the control plane's database. Its methods may be called by several
// goroutines.
type DB struct {
	config      Config
	log         *slog.Logger
	app, system *pgxpool.Pool
}

// Open connects to a database. The schema may still be missing: see [DB.Migrate]
// and [DB.Check]. The error is *control.UnavailableError if the server cannot be
// reached.
func Open(ctx context.Context, c Config) (*DB, error) {
	if c.URL == "" {
		return nil, errors.New("open the control plane's database: the URL is empty")
	}
	if c.MaxConns == 0 {
		c.MaxConns = 10
	}
	if c.Wait == 0 {
		c.Wait = 10 * time.Second
	}
	if c.ApplicationName == "" {
		c.ApplicationName = "tranship"
	}
	db := &DB{config: c, log: c.Logger}
	if db.log == nil {
		db.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if db.app, err = newPool(ctx, c.URL, c); err != nil {
		return nil, err
	}
	db.system = db.app
	if c.MaintenanceURL != "" {
		if db.system, err = newPool(ctx, c.MaintenanceURL, c); err != nil {
			db.app.Close()
			return nil, err
		}
	}
	for _, pool := range []*pgxpool.Pool{db.app, db.system} {
		if err := db.reach(ctx, pool); err != nil {
			db.Close()
			return nil, fmt.Errorf("open the control plane's database: %w", err)
		}
	}
	return db, nil
}

func (d *DB) reach(ctx context.Context, pool *pgxpool.Pool) error {
	conn, err := d.acquire(ctx, pool)
	if err != nil {
		return err
	}
	conn.Release()
	return nil
}

// Close ends all connections once they are free.
func (d *DB) Close() {
	d.app.Close()
	if d.system != d.app {
		d.system.Close()
	}
}

func newPool(ctx context.Context, url string, c Config) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		// The parser's error may quote the URL, and with it a password (invariant 10).
		return nil, errors.New("open the control plane's database: its URL cannot be parsed; it looks like postgres://user:password@host:5432/database")
	}
	config.MaxConns = c.MaxConns
	config.MinConns = 0
	config.MaxConnIdleTime = 5 * time.Minute
	// A broken connection is found by its first statement, which is then repeated
	// on another: a look before each use would double a heartbeat's round trips.
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	session(config.ConnConfig, c)
	return pgxpool.NewWithConfig(ctx, config)
}

// session sets what each of our connections begins with.
func session(config *pgx.ConnConfig, c Config) {
	if config.ConnectTimeout == 0 || config.ConnectTimeout > c.Wait {
		config.ConnectTimeout = c.Wait
	}
	millis := func(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }
	for name, value := range map[string]string{
		"application_name":                    c.ApplicationName,
		"search_path":                         schemaName,
		"timezone":                            "UTC",
		"lock_timeout":                        millis(lockTimeout),
		"statement_timeout":                   millis(statementTimeout),
		"idle_in_transaction_session_timeout": millis(idleTimeout),
	} {
		if _, set := config.RuntimeParams[name]; !set || name == "search_path" || name == "timezone" {
			config.RuntimeParams[name] = value
		}
	}
}
