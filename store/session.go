package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func (d *DB) newPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		// The parser's error may quote the URL, and with it a password (invariant 10).
		return nil, errors.New("open the control plane's database: its URL cannot be parsed; it looks like postgres://user:password@host:5432/database")
	}
	config.MaxConns = d.config.MaxConns
	config.MinConns = 0
	config.MaxConnIdleTime = 5 * time.Minute
	// A broken connection is found by its first statement, which is then repeated
	// on another: a look before each use would double a heartbeat's round trips.
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	config.BeforeConnect = d.logIn
	d.session(config.ConnConfig)
	return pgxpool.NewWithConfig(ctx, config)
}

// session sets what each of our connections begins with.
func (d *DB) session(config *pgx.ConnConfig) {
	c := d.config
	if config.ConnectTimeout == 0 || config.ConnectTimeout > c.Wait {
		config.ConnectTimeout = c.Wait
	}
	if t := config.TLSConfig; t != nil && t.RootCAs == nil && c.RootCAs != nil {
		t.RootCAs = c.RootCAs
	}
	for _, f := range config.Fallbacks {
		if f.TLSConfig != nil && f.TLSConfig.RootCAs == nil && c.RootCAs != nil {
			f.TLSConfig.RootCAs = c.RootCAs
		}
	}
	millis := func(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }
	params := map[string]string{
		"application_name":                    c.ApplicationName,
		"search_path":                         schemaName,
		"timezone":                            "UTC",
		"lock_timeout":                        millis(lockTimeout),
		"statement_timeout":                   millis(c.StatementTimeout),
		"idle_in_transaction_session_timeout": millis(idleTimeout),
	}
	if c.IdleSession > 0 {
		params["idle_session_timeout"] = millis(c.IdleSession)
	}
	for name, value := range params {
		if _, set := config.RuntimeParams[name]; !set || name == "search_path" || name == "timezone" {
			config.RuntimeParams[name] = value
		}
	}
}

// logIn gives a connection that is about to be made its user and password.
func (d *DB) logIn(ctx context.Context, config *pgx.ConnConfig) error {
	if d.config.Login == nil {
		return nil
	}
	user, password, err := d.config.Login.Login(ctx, d.refused.Swap(false))
	if err != nil {
		return fmt.Errorf("log in to the control plane's database: %w", err)
	}
	config.User, config.Password = user, password
	return nil
}

// connectAgain is how long a patient connect rests after a refusal.
const connectAgain = 250 * time.Millisecond

// acquire takes a connection from the pool.
func (d *DB) acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	bounded, cancel := context.WithTimeout(ctx, d.config.Wait)
	defer cancel()
	conn, err := pool.Acquire(bounded)
	for renewed := false; err != nil && bounded.Err() == nil; conn, err = pool.Acquire(bounded) {
		switch {
		case d.config.Login != nil && !renewed && badLogin(code(err)):
			// The password was changed since it was read: once more with a new one.
			renewed = true
			d.refused.Store(true)
			continue
		case !d.config.Patient || code(err) != "" && !away(code(err)):
			return nil, unreachable(err)
		}
		select {
		case <-time.After(connectAgain):
		case <-bounded.Done():
		}
	}
	if err == nil {
		return conn, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, unreachable(fmt.Errorf("no connection within %s: %w", d.config.Wait, err))
}

// badLogin tells of codes with which a server refuses a user or password.
func badLogin(code string) bool { return code == "28P01" || code == "28000" }
