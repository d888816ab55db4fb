package pgconf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/engine"
)

// Connect opens a session named after the run and its role (P5), with every
// setting pinned that the form of values depends on. It tries again with growing
// pauses while the failure is one that passes (nothing listens yet, starting up,
// too many connections, no answer), until opt.GiveUp is over; a failure that
// does not pass (name, TLS, password, database, rights) comes back at once. Errors
// are classified, say which of these it was, and hold no secret.
func Connect(ctx context.Context, cfg *Config, opt engine.OpenOptions, role Role) (*pgx.Conn, error) {
	giveUp := opt.GiveUp
	if giveUp <= 0 {
		giveUp = DefaultGiveUp
	}
	policy := backoff.NewExponentialBackOff()
	policy.InitialInterval = 250 * time.Millisecond
	policy.MaxInterval = 5 * time.Second
	var last error
	conn, err := backoff.Retry(ctx, func() (*pgx.Conn, error) {
		conn, err := connectOnce(ctx, cfg, AppName(opt.RunID, role), role.Replication)
		if err == nil {
			return conn, nil
		}
		last = err
		if engine.ClassOf(err) != engine.Retryable || ctx.Err() != nil {
			return nil, backoff.Permanent(err)
		}
		return nil, err
	}, backoff.WithBackOff(policy), backoff.WithMaxElapsedTime(giveUp))
	if err == nil {
		return conn, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, last
}

func connectOnce(ctx context.Context, cfg *Config, appName string, replication bool) (*pgx.Conn, error) {
	pc, err := cfg.parse()
	if err != nil {
		return nil, err
	}
	if cfg.ConnectTimeout != 0 || pc.ConnectTimeout == 0 {
		pc.ConnectTimeout = cfg.ConnectTimeout.or(DefaultConnectTimeout)
	}
	d := &dialer{cfg: cfg}
	d.install(pc)
	// A pooler may give the session to another server process between
	// transactions of different clients, and refuses startup parameters that it
	// does not know: only the application's name goes with the startup packet,
	// the rest is set afterwards.
	params := pc.RuntimeParams
	pc.RuntimeParams = map[string]string{"application_name": appName}
	if v, ok := params["options"]; ok {
		pc.RuntimeParams["options"] = v
	}
	if replication {
		// A walsender that is bound to the database, for logical replication.
		pc.RuntimeParams["replication"] = "database"
	}
	delete(params, "replication")
	delete(params, "application_name")
	delete(params, "options")
	pc.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(ctx, pc)
	if err != nil {
		return nil, diagnose(pc, d.reached.Load(), err)
	}
	if err := prepareSession(ctx, cfg, conn, appName, params); err != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return conn, nil
}

// prepareSession refuses what can't be served and pins the settings.
func prepareSession(ctx context.Context, cfg *Config, conn *pgx.Conn, appName string, params map[string]string) error {
	if conn.PgConn().ParameterStatus("server_encoding") == "SQL_ASCII" {
		// P14: the server does not know what its bytes mean, so nobody can
		// convert or compare them.
		return engine.Permanentf("recreate the database with encoding UTF8", "database %q has the encoding SQL_ASCII, which says nothing about its text", conn.Config().Database)
	}
	var sql strings.Builder
	for k, v := range params {
		fmt.Fprintf(&sql, "SET %s = %s;", QuoteIdent(k), QuoteLiteral(v))
	}
	sql.WriteString(cfg.settings(appName, ServerVersion(conn)))
	if _, err := conn.PgConn().Exec(ctx, sql.String()).ReadAll(); err != nil {
		return Classify(fmt.Errorf("prepare postgres session: %w", err))
	}
	return nil
}

// settings are pinned after the user's own, so that they win.
func (c *Config) settings(appName string, version int) string {
	set := []string{
		"DateStyle = 'ISO, YMD'", "IntervalStyle = postgres", "extra_float_digits = 3", "bytea_output = hex",
		"TimeZone = 'UTC'", "client_encoding = 'UTF8'", "standard_conforming_strings = on",
		// Both ends print and read money by one locale; anybody may set it.
		"lc_monetary = 'C'", "xmlbinary = base64", "xmloption = content", "array_nulls = on", "quote_all_identifiers = off",
		"application_name = " + QuoteLiteral(appName),
		fmt.Sprintf("statement_timeout = %d", millis(time.Duration(c.StatementTimeout))),
		fmt.Sprintf("lock_timeout = %d", millis(c.LockTimeout.or(DefaultLockTimeout))),
		fmt.Sprintf("idle_in_transaction_session_timeout = %d", millis(c.IdleInTransactionTimeout.or(DefaultIdleInTransactionTimeout))),
		// The server's side of a connection whose client's machine is gone (P5). Its
		// tcp_user_timeout is left alone: it would also end a session whose client
		// reads nothing for a while because the destination is busy.
		"tcp_keepalives_idle = 30", "tcp_keepalives_interval = 10", "tcp_keepalives_count = 3",
	}
	if version >= 140000 {
		set = append(set, "idle_session_timeout = 0")
	}
	if version >= 170000 {
		set = append(set, "transaction_timeout = 0")
	}
	return "SET " + strings.Join(set, "; SET ")
}

// ServerVersion returns the server's version as a number: 150018 is 15.18.
func ServerVersion(conn *pgx.Conn) int {
	var major, minor int
	text := conn.PgConn().ParameterStatus("server_version")
	if n, _ := fmt.Sscanf(text, "%d.%d", &major, &minor); n == 0 { // "17beta1" still gives the major
		return 0
	}
	return major*10000 + minor
}

// QuoteIdent writes a name so that SQL reads exactly it.
func QuoteIdent(name string) string { return pgx.Identifier{name}.Sanitize() }

// QuoteLiteral writes a text as an SQL literal; sessions of this package have
// standard_conforming_strings on, so that a backslash is a backslash. The text
// holds no NUL: no value that came from a server does.
func QuoteLiteral(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// Identity names the database behind a session for route identities: the
// cluster's own number where the role may see it, so that a name, a failover or a
// pooler changes nothing; else host and port. The database's name follows.
func Identity(ctx context.Context, conn *pgx.Conn) (string, error) {
	var db string
	if err := conn.QueryRow(ctx, "SELECT pg_catalog.current_database()").Scan(&db); err != nil {
		return "", Classify(fmt.Errorf("read database name: %w", err))
	}
	var system string
	err := conn.QueryRow(ctx, "SELECT system_identifier::text FROM pg_catalog.pg_control_system()").Scan(&system)
	switch {
	case err == nil:
		return "postgres:" + system + "/" + db, nil
	case IsState(err, "42501"), IsState(err, "42883"):
		c := conn.Config()
		return "postgres://" + net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))) + "/" + db, nil
	}
	return "", Classify(fmt.Errorf("read system identifier: %w", err))
}

var errNoAnswer = errors.New("no answer in time")
