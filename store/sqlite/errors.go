package sqlite

import (
	"context"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tranship-io/tranship/engine"
)

// code returns the primary SQLite result code of an error, 0 for other errors.
func code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

func busy(err error) bool {
	c := code(err)
	return c == sqlite3.SQLITE_BUSY || c == sqlite3.SQLITE_LOCKED
}

// fail says what could not be done with the state file, and classifies it.
// Errors that carry their own meaning pass through.
func (s *Store) fail(what string, err error) error {
	if err == nil {
		return nil
	}
	var classified *engine.Error
	var stale *engine.StaleError
	if errors.As(err, &classified) || errors.As(err, &stale) ||
		errors.Is(err, engine.ErrLocked) || errors.Is(err, engine.ErrSplitDone) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s in state %s: %w", what, s.path, err)
	}
	const text = "%s in state %s: %w"
	switch code(err) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return &engine.Error{Class: engine.Retryable,
			Hint: "another process holds the state file; see whether one is stopped in the middle of a write",
			Err:  fmt.Errorf(text, what, s.path, err)}
	case sqlite3.SQLITE_INTERRUPT:
		return engine.Retryablef(text, what, s.path, err)
	case sqlite3.SQLITE_FULL:
		return engine.Permanentf("free space on the disk of the state file; the run resumes", text, what, s.path, err)
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		return engine.Permanentf("make the state file and its folder readable and writable", text, what, s.path, err)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return engine.Permanentf("if this is the state file, move it away: the next run takes its route over from the destination's ledger",
			text, what, s.path, err)
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_MISUSE, sqlite3.SQLITE_RANGE:
		return engine.Bugf(text, what, s.path, err)
	}
	return engine.Permanentf("", text, what, s.path, err)
}
