package pgconf

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tranship-io/tranship/engine"
)

// diagnose says what is wrong with a connection that did not come about: the
// first of rights, password, database, TLS, host, port that the cause shows.
// What pgx joins of several addresses and TLS modes is looked through by type.
func diagnose(pc *pgx.ConnConfig, reached bool, err error) error {
	var done *engine.Error
	if errors.As(err, &done) {
		return done
	}
	where := target(pc)
	if e := refusal(pc, where, err); e != nil {
		return e
	}
	if e := tlsFailure(where, err); e != nil {
		return e
	}
	var dns *net.DNSError
	var through *sshError
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &dns) && dns.IsNotFound:
		return engine.Permanentf("check the host name and that this machine's DNS knows it", "connect to postgres: host %q is not known", dns.Name)
	case errors.As(err, &dns):
		return engine.Retryablef("connect to postgres: the name of host %q can't be looked up now: %w", dns.Name, dns)
	case errors.As(err, &through):
		return engine.Retryablef("connect to postgres: %w", through)
	case errors.Is(err, syscall.ECONNREFUSED):
		return &engine.Error{Class: engine.Retryable, Hint: "check host and port, and that the server runs and listens on this address",
			Err: fmt.Errorf("connect to postgres: nothing listens at %s", where)}
	case errors.Is(err, os.ErrNotExist):
		return engine.Permanentf("check the folder of the Unix socket, or name a host", "connect to postgres: there is no socket at %s", where)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return &engine.Error{Class: engine.Retryable, Hint: "check routes, VPN and security groups", Err: fmt.Errorf("connect to postgres: there is no way to %s", where)}
	case timedOut(err):
		hint := "check host, port, firewall and security groups"
		if reached {
			hint = "something listens there but does not answer like PostgreSQL: is the port right, is the server overloaded?"
		}
		return &engine.Error{Class: engine.Retryable, Hint: hint, Err: fmt.Errorf("connect to postgres at %s: %w", where, errNoAnswer)}
	case lost(err):
		return engine.Retryablef("connect to postgres at %s: the connection broke: %w", where, cause(err))
	case pc.TLSConfig != nil && reached:
		return engine.Permanentf("set sslmode to what the server offers (disable, require, verify-full)",
			"connect to postgres at %s: the server does not speak TLS: %w", where, cause(err))
	}
	return engine.Permanentf("", "connect to postgres at %s: %w", where, cause(err))
}

// refusal is what the server itself said.
func refusal(pc *pgx.ConnConfig, where string, err error) error {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) {
		return nil
	}
	said := errors.New(pe.Message + " (SQLSTATE " + pe.Code + ")")
	switch pe.Code {
	case "28P01":
		return engine.Permanentf("check user and password, or the line of the password file", "connect to postgres at %s: the password of role %q is refused: %w", where, pc.User, said)
	case "28000":
		return engine.Permanentf("does the role exist, and does the server's pg_hba.conf let it in from here, with or without TLS as configured?",
			"connect to postgres at %s: role %q is not let in: %w", where, pc.User, said)
	case "3D000":
		return engine.Permanentf("check the database's name", "connect to postgres at %s: database %q does not exist: %w", where, pc.Database, said)
	case "42501":
		return engine.Permanentf(fmt.Sprintf("GRANT CONNECT ON DATABASE %s TO %s", QuoteIdent(pc.Database), QuoteIdent(pc.User)),
			"connect to postgres at %s: role %q may not connect to database %q: %w", where, pc.User, pc.Database, said)
	case "57P03":
		return engine.Retryablef("connect to postgres at %s: the server is starting up, shutting down or recovering: %w", where, said)
	}
	class, hint := classOfState(pe.Code)
	return &engine.Error{Class: class, Hint: hint, Err: fmt.Errorf("connect to postgres at %s: %w", where, said)}
}

func tlsFailure(where string, err error) error {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &unknown):
		return engine.Permanentf("set sslrootcert to the authority's certificate", "connect to postgres at %s: TLS: the server's certificate is signed by an authority that is not trusted here", where)
	case errors.As(err, &name):
		return engine.Permanentf("connect by the name in the certificate, or use sslmode verify-ca", "connect to postgres at %s: TLS: the server's certificate is for another name: %w", where, name)
	case errors.As(err, &invalid):
		return engine.Permanentf("renew the server's certificate", "connect to postgres at %s: TLS: the server's certificate is not valid: %w", where, invalid)
	case isTLS(err):
		return engine.Permanentf("check sslmode, sslcert and sslkey", "connect to postgres at %s: TLS: %w", where, cause(err))
	}
	return nil
}

func timedOut(err error) bool {
	var netErr net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(err, syscall.ETIMEDOUT) || (errors.As(err, &netErr) && netErr.Timeout())
}

// cause leaves out pgx's own frame, which repeats user and database.
func cause(err error) error {
	var ce *pgconn.ConnectError
	if errors.As(err, &ce) && ce.Unwrap() != nil {
		return ce.Unwrap()
	}
	return err
}

func target(pc *pgx.ConnConfig) string {
	if strings.HasPrefix(pc.Host, "/") {
		return fmt.Sprintf("%s/.s.PGSQL.%d", pc.Host, pc.Port)
	}
	return net.JoinHostPort(pc.Host, fmt.Sprint(pc.Port))
}
