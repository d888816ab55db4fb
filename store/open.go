package store

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tranship-io/tranship/control/sweep"
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
	// Patient tries to connect again until Wait is over while the server refuses, as
	// one that resumes does; otherwise the first refusal counts.
	Patient bool
	// Lazy lets [Open] return without a connection; the first transaction makes it.
	Lazy bool
	// Login gives each new connection its user and password; nil: the URL's.
	Login Login
	// RootCAs are what the server's certificate is checked against, where the URL
	// asks for a check and names no file; nil: the system's.
	RootCAs *x509.CertPool
	// IdleSession is after what time without a statement the server ends a session,
	// so that a process that was frozen keeps none open. 0 means never.
	IdleSession time.Duration
	// StatementTimeout is when the server ends a statement. 0 means 60 s.
	StatementTimeout time.Duration
	// Switch wakes the sweep from outside: it is turned on before work is committed
	// where none was, and off when there is none (P23). Nil: nobody needs that.
	Switch sweep.Switch
	// Hints gets the hints of committed transactions, instead of the processes that
	// listen; it must not block. Nil: they are sent as notifications.
	Hints func(Hint)
	// Timed: a platform wakes us when something falls due, and not this process. The
	// next firings of schedules are then recorded as operations, and whatever falls
	// due later arms the sweep, which sets the platform's alarm (P23).
	Timed bool
	// ApplicationName is shown in pg_stat_activity. Empty means "tranship".
	ApplicationName string
	// Logger gets what no caller is told, such as a retried transaction. Nil
	// means none.
	Logger *slog.Logger
}

// Login gives connections their user and password.
type Login interface {
	// Login returns them; refused tells that the server did not take what was
	// returned before.
	Login(ctx context.Context, refused bool) (user, password string, err error)
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
	// refused tells that the server did not take the login of the last connection.
	refused atomic.Bool
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
	if c.StatementTimeout == 0 {
		db.config.StatementTimeout = statementTimeout
	}
	var err error
	if db.app, err = db.newPool(ctx, c.URL); err != nil {
		return nil, err
	}
	db.system = db.app
	if c.MaintenanceURL != "" {
		if db.system, err = db.newPool(ctx, c.MaintenanceURL); err != nil {
			db.app.Close()
			return nil, err
		}
	}
	if c.Lazy {
		return db, nil
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
