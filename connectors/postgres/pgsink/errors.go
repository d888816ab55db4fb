package pgsink

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/engine"
)

// SQLSTATE codes that the sink itself acts on.
const (
	codeNotNull       = "23502"
	codeForeignKey    = "23503"
	codeUnique        = "23505"
	codeCheck         = "23514"
	codeNoTable       = "42P01"
	codeNoSchema      = "3F000"
	codeLockTimeout   = "55P03"
	codeDependents    = "2BP01"
	codeNoRights      = "42501"
	codeNoUniqueIndex = "42P10"
)

// code returns the server's SQLSTATE, "" if the error isn't the server's.
func code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// definite tells whether the server has said that the statement failed and the
// session goes on: anything else leaves the outcome open (P4).
func definite(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	severity := pg.SeverityUnlocalized
	if severity == "" {
		severity = pg.Severity
	}
	return severity == "ERROR"
}

// classify names what was tried and lets pgconf sort the server's error.
func classify(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	what := fmt.Sprintf(format, args...)
	var ours *engine.Error
	var stale *engine.StaleError
	var mismatch *engine.MismatchError
	var value *engine.ValueError
	if errors.As(err, &ours) || errors.As(err, &stale) || errors.As(err, &mismatch) || errors.As(err, &value) {
		return fmt.Errorf("%s: %w", what, err)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, pgconf.Classify(err))
}

// rowError makes the server's refusal of a row one for the reader: the server's
// detail holds key or row (invariant 6).
func rowError(err error, resource string, target place) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return classify(err, "write %s to %s", resource, target)
	}
	detail := pg.Message
	if pg.Detail != "" {
		detail += ": " + shorten(pg.Detail)
	}
	column := pg.ColumnName
	switch pg.Code {
	case codeNotNull:
		return engine.Permanentf(fmt.Sprintf("let the target column be NULL (ALTER TABLE %s ALTER COLUMN %s DROP NOT NULL), or state a value policy", target.sql(), ident(column)),
			"write %s to %s: column %q: %s", resource, target, column, detail)
	case codeUnique, codeCheck, codeForeignKey:
		return engine.Permanentf("correct the row at the source, or the constraint "+pg.ConstraintName+" at the target",
			"write %s to %s: %s", resource, target, detail)
	}
	if len(pg.Code) == 5 && pg.Code[:2] == "22" {
		if column == "" {
			return engine.Permanentf("state a value policy for the column, or correct the row", "write %s to %s: %s (%s)", resource, target, detail, pg.Where)
		}
		return engine.Permanentf("state a value policy for the column, or correct the row", "write %s to %s: column %q: %s", resource, target, column, detail)
	}
	return classify(err, "write %s to %s", resource, target)
}

// shorten bounds a text for a message.
func shorten(s string) string {
	const limit = 300
	if len(s) <= limit {
		return s
	}
	return fitText(s, limit) + "…"
}

// fitText cuts a text between two characters.
func fitText(s string, n int) string {
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n]
}

// millis writes a duration as the server's settings take it.
func millis(d time.Duration) string {
	return strconv.FormatInt(max(1, d.Milliseconds()), 10) + "ms"
}
