package engine

import (
	"context"
	"errors"
	"fmt"
)

// Class says what may be done about an error.
type Class string

const (
	// Retryable: the same may succeed later (connection lost, deadlock, throttling).
	Retryable Class = "retryable"
	// Permanent: it fails until the user changes configuration, rights or data.
	Permanent Class = "permanent"
	// Bug: an invariant does not hold; the run fails and the text is for us.
	Bug Class = "bug"
)

// Error is an error with a class, made where the cause is known, never by
// matching text further up.
type Error struct {
	Class Class
	// Hint is what the user can do, as a sentence; may be empty.
	Hint string
	Err  error
}

func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Err.Error()
	}
	return e.Err.Error() + " (" + e.Hint + ")"
}

func (e *Error) Unwrap() error { return e.Err }

// Retryablef makes a retryable error.
func Retryablef(format string, args ...any) error {
	return &Error{Class: Retryable, Err: fmt.Errorf(format, args...)}
}

// Permanentf makes a permanent error with a hint.
func Permanentf(hint, format string, args ...any) error {
	return &Error{Class: Permanent, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// Bugf makes an error about a broken invariant.
func Bugf(format string, args ...any) error {
	return &Error{Class: Bug, Err: fmt.Errorf(format, args...)}
}

// ClassOf returns the class of the outermost classified error; an error that
// nobody classified is permanent, so that nothing unknown is retried for ever.
// A canceled or expired context is retryable: the work was interrupted.
func ClassOf(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return Retryable
	}
	var stale *StaleError
	if errors.As(err, &stale) {
		return Retryable
	}
	return Permanent
}

// HintOf returns the hint of the outermost error that has one.
func HintOf(err error) string {
	for err != nil {
		var e *Error
		if !errors.As(err, &e) {
			return ""
		}
		if e.Hint != "" {
			return e.Hint
		}
		err = e.Err
	}
	return ""
}

// ErrBoundary is returned by [Writer.Mark] when the source must stop at this
// mark: the source returns [ReadResult] with Done false and no error.
var ErrBoundary = errors.New("read boundary reached")

// ErrSnapshotLost is returned (wrapped) by a read whose exported snapshot has
// no holder any more. The engine resets the resource and plans it anew (P12).
var ErrSnapshotLost = errors.New("the source's exported snapshot is gone")

// ErrPositionLost is returned (wrapped) by a stream's read when the source has no
// changes from the position any more: the slot is gone, was invalidated, or stands
// beyond it (P3). The members have to be read again from their beginning.
var ErrPositionLost = errors.New("the source has no changes from this position any more")

// ErrStagingLost is returned (wrapped) by Prepare, Claim or Publish when rows
// that the ledger calls applied are not in staging (P7). The engine resets the resource.
var ErrStagingLost = errors.New("staged rows are gone")

// ErrLedgerBehind is returned (wrapped) for a target that is not staged: by Claim
// when the split has no ledger row, by Publish when the ledger does not have every
// split as done. The destination was set back (P3); the engine takes the run's
// progress from it.
var ErrLedgerBehind = errors.New("the destination has less than the checkpoint says")

// ErrPlanVoid is returned (wrapped) by Freeze or Publish when the target's stored cursor is
// not the one that the plan starts from: the destination was set back or went on
// meanwhile, and rows would be missing or doubled. The engine begins a new run.
var ErrPlanVoid = errors.New("the frozen plan does not follow from what the destination has")

// ErrUnfinished is returned (wrapped) by BeginRun when the run that it would
// supersede has appended rows to the target that stand, and is neither published
// nor aborted: it has to be finished first (P21).
var ErrUnfinished = errors.New("an unfinished run has appended rows that stand")

// ErrCommitUnknown is returned (wrapped) by Apply and Publish when the answer to
// the commit was lost: only the ledger tells what happened (P4).
var ErrCommitUnknown = errors.New("the outcome of the commit is unknown")

// ErrSplitDone is returned by State.ClaimSplit when no split is left at all.
var ErrSplitDone = errors.New("every split is done")

// ErrLocked is returned by a State when another live process works on the run.
var ErrLocked = errors.New("another process works on this run")

// StaleError tells that a number of ours was overtaken: somebody else owns the
// run, the slot or the split now, and nothing of ours was written (invariant 2).
type StaleError struct {
	// What is "ordinal", "claim" or "generation".
	What string
	// Subject is the resource, split or slot.
	Subject string
	// Ours is the number we hold, Have the one found.
	Ours, Have int64
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("%s %d of %s is superseded by %d", e.What, e.Ours, e.Subject, e.Have)
}

// MismatchError tells that content differs where it must be equal (invariant 7).
type MismatchError struct {
	Resource, Split string
	// What was compared: "crc", "rows" or "digest".
	What string
	// Source and Destination are the two values, printed.
	Source, Destination string
}

func (e *MismatchError) Error() string {
	where := e.Resource
	if e.Split != "" {
		where += " split " + e.Split
	}
	return fmt.Sprintf("verify %s: %s differs: source %s, destination %s", where, e.What, e.Source, e.Destination)
}

// ValueError tells that a value does not fit (invariant 6).
type ValueError struct {
	Resource, Column string
	// Key is the row's key as "id=3"; empty for a keyless resource.
	Key string
	// Value is the value, shortened for printing.
	Value string
	// Reason says why it does not fit and into what.
	Reason string
}

func (e *ValueError) Error() string {
	s := fmt.Sprintf("%s column %q", e.Resource, e.Column)
	if e.Key != "" {
		s += " row " + e.Key
	}
	return s + fmt.Sprintf(": value %s does not fit: %s", e.Value, e.Reason)
}
