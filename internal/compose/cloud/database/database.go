// Package database opens the control plane's database for a function.
package database

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/tranship-io/tranship/control/sweep"
	"github.com/tranship-io/tranship/internal/awsadapter/dblogin"
	"github.com/tranship-io/tranship/internal/compose/cloud"
	"github.com/tranship-io/tranship/store"
)

// Limits of sessions. A frozen process keeps its connection, and the server ends
// it: an open one would keep Aurora from pausing (invariant 14).
const (
	idleSession      = time.Minute
	statementTimeout = 30 * time.Second
	// resume is how long a request waits for a database that resumes: about 15 s,
	// and API Gateway gives 29 s.
	resume = 20 * time.Second
)

// Options say what a function does with the database.
type Options struct {
	// Connections is how many an environment has; 0 means 1.
	Connections int32
	// Switch and Hints as [store.Config] has them; nil in functions that make no work.
	Switch sweep.Switch
	Hints  func(store.Hint)
}

// Database is the control plane's.
type Database struct {
	*store.DB

	mu    sync.Mutex
	ready bool
}

// Open reads the environment. It does not connect: a database that is paused
// resumes when it is asked, and a function that waited for that before its first
// invocation would be ended.
func Open(ctx context.Context, f *cloud.Function, o Options) (*Database, error) {
	text, secret := f.Env.Need("TRANSHIP_DATABASE"), f.Env.Get("TRANSHIP_DATABASE_SECRET", "")
	if err := f.Env.Err(); err != nil {
		return nil, err
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || u.Hostname() == "" {
		// The parser's error may quote a password (invariant 10).
		f.Env.Fail("TRANSHIP_DATABASE", "it is no URL such as postgres://user@host:5432/database")
		return nil, f.Env.Err()
	}
	login, err := loginOf(ctx, f, u, secret)
	if err != nil {
		return nil, err
	}
	query := u.Query()
	if query.Get("sslmode") == "" {
		query.Set("sslmode", "verify-full")
		u.RawQuery = query.Encode()
	}
	roots, err := dblogin.RootCAs()
	if err != nil {
		return nil, err
	}
	db, err := store.Open(ctx, store.Config{
		URL: u.String(), Login: login, RootCAs: roots, Lazy: true, Patient: true, Timed: true,
		MaxConns: max(o.Connections, 1), Wait: resume, IdleSession: idleSession, StatementTimeout: statementTimeout,
		ApplicationName: "tranship " + f.Name, Switch: o.Switch, Hints: o.Hints, Logger: f.Log,
	})
	if err != nil {
		return nil, err
	}
	return &Database{DB: db}, nil
}

func loginOf(ctx context.Context, f *cloud.Function, u *url.URL, secret string) (store.Login, error) {
	if _, set := u.User.Password(); set {
		f.Env.Fail("TRANSHIP_DATABASE", "it holds a password: put that into a secret of Secrets Manager and name it in TRANSHIP_DATABASE_SECRET")
		return nil, f.Env.Err()
	}
	if secret == "" {
		l, err := dblogin.NewIAM(f.AWS, u)
		if err != nil {
			f.Env.Fail("TRANSHIP_DATABASE", err.Error())
			return nil, f.Env.Err()
		}
		return l, nil
	}
	l := dblogin.NewSecret(f.AWS, secret)
	if err := l.Place(ctx, u); err != nil {
		return nil, err
	}
	return l, nil
}

// Ready checks once that the database is migrated as this program needs it.
func (d *Database) Ready(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ready {
		return nil
	}
	if err := d.Check(ctx); err != nil {
		return fmt.Errorf("check the database: %w", err)
	}
	d.ready = true
	return nil
}
