package store

import (
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tranship-io/tranship/control"
)

// retryAfter is what callers are told to wait when the database is away: a
// server that restarts is back after about that long.
const retryAfter = 2 * time.Second

// code returns the SQLSTATE of an error; empty for others.
func code(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// rolledBack tells that the server undid the transaction for another's sake.
func rolledBack(err error) bool {
	switch code(err) {
	case "40001", "40P01":
		return true
	}
	return false
}

func unreachable(err error) error {
	// What the driver says of a failed connect names host, user and database, never the password.
	return &control.UnavailableError{RetryAfter: retryAfter, Err: err}
}

// failure turns the error of a transaction into what the caller can use.
func failure(err error, lost bool) error {
	var known *control.UnavailableError
	if errors.As(err, &known) {
		return err
	}
	if lost || away(code(err)) || rolledBack(err) {
		return unreachable(err)
	}
	return err
}

// away tells of codes with which a server refuses work that it will do later.
func away(code string) bool {
	switch code {
	case "57P01", "57P02", "57P03", // shut down, crashed, starting
		"53300", "53400", "53200", // too many connections, limits
		"25006",          // read only: a standby before its promotion
		"55P03", "57014": // a lock or statement that took too long
		return true
	}
	return len(code) == 5 && code[:2] == "08"
}

// refusal turns what check_caller raises into control's errors.
func refusal(err error) error {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code {
	case "TR401":
		return &control.UnauthenticatedError{Reason: e.Message}
	case "TR403":
		return &control.RoleChangedError{Role: control.Role(e.Message)}
	}
	return err
}
