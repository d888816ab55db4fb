package store

import (
	"context"
	"fmt"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/internal/pgtest"
)

type login struct {
	user     string
	password atomic.Value
	next     string
	renewals atomic.Int32
}

func (l *login) Login(_ context.Context, refused bool) (user, password string, err error) {
	if refused {
		l.renewals.Add(1)
		l.password.Store(l.next)
	}
	return l.user, l.password.Load().(string), nil
}

// TestLogin: a password that was changed is read again once, and only then.
func TestLogin(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	user := fmt.Sprintf("u%d", time.Now().UnixNano())
	admin := func(sql string) {
		require.NoError(t, d.transact(t.Context(), d.app, txState{role: roleApp}, func(ctx context.Context, tx Tx) error {
			if _, err := tx.Exec(ctx, "RESET ROLE"); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, sql)
			return err
		}))
	}
	admin(fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD 'first' IN ROLE tranship_app, tranship_maintenance", user))
	t.Cleanup(func() {
		_, _ = d.app.Exec(context.Background(), "DROP ROLE "+user)
	})
	u, err := url.Parse(d.config.URL)
	require.NoError(t, err)
	u.User = nil
	l := &login{user: user, next: "second"}
	l.password.Store("first")
	other, err := Open(t.Context(), Config{URL: u.String(), Login: l, Lazy: true, MaxConns: 1, IdleSession: 300 * time.Millisecond, StatementTimeout: 7 * time.Second})
	require.NoError(t, err)
	t.Cleanup(other.Close)
	require.NoError(t, other.Check(t.Context()))
	require.Zero(t, l.renewals.Load())
	var timeout string
	require.NoError(t, other.app.QueryRow(t.Context(), "SHOW statement_timeout").Scan(&timeout))
	require.Equal(t, "7s", timeout)

	admin(fmt.Sprintf("ALTER ROLE %s PASSWORD 'second'", user))
	// The server ends a session that nobody uses; the next one needs the password.
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, d.app.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE usename = $1", user).Scan(&n))
		return n == 0
	}, 10*time.Second, 20*time.Millisecond)
	require.NoError(t, other.Check(t.Context()))
	require.EqualValues(t, 1, l.renewals.Load())

	l.next = "wrong"
	admin(fmt.Sprintf("ALTER ROLE %s PASSWORD 'third'", user))
	other.app.Reset()
	var away *control.UnavailableError
	require.ErrorAs(t, other.Check(t.Context()), &away)
	require.EqualValues(t, 2, l.renewals.Load(), "once for each that needs a connection")
}

// TestPatience: a server that refuses is tried again until it answers, or the wait
// is over.
func TestPatience(t *testing.T) {
	t.Parallel()
	server := pgtest.StartT(t, pgtest.Config{})
	d, err := Open(t.Context(), Config{URL: server.URL(""), Patient: true, Lazy: true, Wait: 30 * time.Second})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	require.NoError(t, server.Shutdown())
	answered := make(chan error, 1)
	go func() { answered <- d.Migrate(t.Context()) }()
	var away *control.UnavailableError
	require.ErrorAs(t, <-answered, &away, "a migration has its own patience")
	go func() {
		answered <- d.transact(t.Context(), d.app, txState{role: "postgres"}, func(ctx context.Context, tx Tx) error {
			_, err := tx.conn.Exec(ctx, "SELECT 1")
			return err
		})
	}()
	time.Sleep(300 * time.Millisecond)
	require.NoError(t, server.Restart(t.Context()))
	require.NoError(t, <-answered)

	require.NoError(t, server.Shutdown())
	d.config.Wait = 600 * time.Millisecond
	began := time.Now()
	require.ErrorAs(t, d.Check(t.Context()), &away)
	require.GreaterOrEqual(t, time.Since(began), 600*time.Millisecond)
}

// TestHintsInProcess: hints of committed transactions are passed on in the process,
// and not sent as notifications.
func TestHintsInProcess(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	var seen []Hint
	d.config.Hints = func(h Hint) { seen = append(seen, h) }
	f := newFleet(t, d, "acme")
	f.pipeline("shop")
	r := f.start("shop")
	require.ElementsMatch(t, []Hint{{Kind: HintIntake}, {Kind: HintFacts, Organization: f.a.Organization, Object: r.ID}}, seen)
	seen = nil
	require.Error(t, d.Tx(t.Context(), f.a.Organization, func(ctx context.Context, tx Tx) error {
		tx.Hint(Hint{Kind: HintIntake})
		_, err := tx.Exec(ctx, "SELECT 1/0")
		return err
	}))
	require.Empty(t, seen, "what was not committed is not told")
}
