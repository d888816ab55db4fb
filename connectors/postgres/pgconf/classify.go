package pgconf

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tranship-io/tranship/engine"
)

// Classify gives an error of a PostgreSQL session its class and, where there is
// one, a hint, by SQLSTATE and by Go type, never by text. What is classified
// already, engine sentinels, and nil come back as they are. An error that it
// does not know is permanent, so that nothing unknown is retried for ever.
func Classify(err error) error {
	if err == nil {
		return nil
	}
	var done *engine.Error
	var stale *engine.StaleError
	if errors.As(err, &done) || errors.As(err, &stale) || errors.Is(err, engine.ErrSnapshotLost) ||
		errors.Is(err, engine.ErrStagingLost) || errors.Is(err, engine.ErrCommitUnknown) || errors.Is(err, engine.ErrBoundary) {
		return err
	}
	// The caller's own cancellation is no fault of the server's.
	if errors.Is(err, context.Canceled) {
		return err
	}
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		class, hint := classOfState(pe.Code)
		return &engine.Error{Class: class, Hint: hint, Err: withDetail(err, pe)}
	}
	if lost(err) {
		return &engine.Error{Class: engine.Retryable, Err: err}
	}
	return &engine.Error{Class: engine.Permanent, Err: err}
}

// withDetail adds the server's own detail and hint, which pgconn leaves out.
func withDetail(err error, pe *pgconn.PgError) error {
	var more []string
	if pe.Detail != "" {
		more = append(more, pe.Detail)
	}
	if pe.Hint != "" {
		more = append(more, "server's hint: "+pe.Hint)
	}
	if len(more) == 0 {
		return err
	}
	return &detailed{err: err, more: strings.Join(more, "; ")}
}

type detailed struct {
	err  error
	more string
}

func (d *detailed) Error() string { return d.err.Error() + ": " + d.more }
func (d *detailed) Unwrap() error { return d.err }

// lost tells whether the connection broke or did not come about in time.
func lost(err error) bool {
	var netErr net.Error
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return !dns.IsNotFound
	case isTLS(err):
		return false
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, pgconn.ErrConnClosed), errors.Is(err, os.ErrDeadlineExceeded),
		errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EPIPE):
		return true
	case errors.As(err, &netErr):
		return true
	}
	return pgconn.SafeToRetry(err)
}

func isTLS(err error) bool {
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	return errors.As(err, &cert) || errors.As(err, &record) || errors.As(err, &alert)
}

// classOfState sorts SQLSTATEs. The order is: single codes, then classes.
func classOfState(code string) (engine.Class, string) {
	switch code {
	case "53100":
		// Space comes back (recycled WAL, temporary files of others, an operator),
		// the engine's tries are bounded, and the run stays resumable.
		return engine.Retryable, "the server's disk is full: free space or enlarge it, then run again; what is applied stays applied"
	case "53300":
		return engine.Retryable, "the server has no connection left: use fewer slots or raise max_connections"
	case "53400":
		return engine.Permanent, "a limit of the server's configuration was reached, such as temp_file_limit"
	case "57P04":
		return engine.Permanent, "the database was dropped"
	case "57014":
		return engine.Retryable, "the statement was canceled: by statement_timeout, or by somebody; raise the timeout if it was that"
	case "55P03":
		return engine.Retryable, "another session holds a lock on it for longer than lock_timeout"
	case "25006":
		// During a failover the name may still lead to the old primary.
		return engine.Retryable, "the session is read-only: does the connection lead to a standby, or is default_transaction_read_only on?"
	case "25P02":
		return engine.Bug, ""
	case "25P03":
		return engine.Retryable, "the server ended a session that was idle in a transaction"
	case "25P04":
		return engine.Retryable, "the server ended a transaction at transaction_timeout: raise it for this role"
	case "42501":
		return engine.Permanent, "the role lacks a right: GRANT USAGE ON SCHEMA … and GRANT SELECT (or INSERT, UPDATE, DELETE) ON TABLE … TO it"
	case "42P01":
		return engine.Permanent, "the table or view does not exist, or its schema is not visible to the role"
	case "42703":
		return engine.Permanent, "the column does not exist (any more): look at the resource's columns with discover"
	case "28P01", "28000":
		return engine.Permanent, "check user, password and the server's pg_hba.conf"
	case "3D000":
		return engine.Permanent, "check the database's name"
	case "55006", "55000":
		return engine.Retryable, ""
	case "58P01", "58P02":
		return engine.Permanent, ""
	}
	if len(code) != 5 {
		return engine.Permanent, ""
	}
	switch code[:2] {
	case "08", // connection exception
		"40", // transaction rollback: serialization failure, deadlock, conflict with recovery
		"53", // insufficient resources
		"57", // operator intervention: shutdown, crash, starting up, idle timeout
		"58": // system error outside PostgreSQL itself
		return engine.Retryable, ""
	}
	return engine.Permanent, ""
}

// IsState tells whether err is the server's error with this SQLSTATE.
func IsState(err error, code string) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && pe.Code == code
}

// IsFatal tells whether err is the server's error that ends the session.
func IsFatal(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && (pe.SeverityUnlocalized == "FATAL" || pe.SeverityUnlocalized == "PANIC")
}
