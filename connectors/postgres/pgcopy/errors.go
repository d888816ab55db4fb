package pgcopy

import (
	"fmt"

	"github.com/tranship-io/tranship/engine"
)

// RowError tells that a value of a row does not fit (invariant 6). It is not
// classified: the caller knows resource and key, and makes an
// [engine.ValueError] of it or applies the column's policy.
type RowError struct {
	// Row is the row's index in the record, or among the tuples since the
	// decoder's last Take.
	Row int
	// Column is the column's index and Name its name.
	Column int
	Name   string
	// Value is the value, shortened for printing.
	Value string
	// Reason says why it does not fit and into what.
	Reason string
	// Clampable is true when a nearest value that fits exists, so that
	// [ActionClamp] can write it.
	Clampable bool
}

func (e *RowError) Error() string {
	return fmt.Sprintf("row %d column %q: value %s does not fit: %s", e.Row, e.Name, e.Value, e.Reason)
}

// ValueError adds what only the caller knows: resource and key ("id=3").
func (e *RowError) ValueError(resource, key string) *engine.ValueError {
	return &engine.ValueError{Resource: resource, Column: e.Name, Key: key, Value: e.Value, Reason: e.Reason}
}

// Action is what an encoder does about a value that does not fit.
type Action uint8

const (
	// ActionFail ends the call with the *RowError.
	ActionFail Action = iota
	// ActionNull writes NULL instead.
	ActionNull
	// ActionClamp writes the nearest value that fits; it fails where there is none.
	ActionClamp
	// ActionSkip leaves the whole row out.
	ActionSkip
)

// shorten makes a value printable and short.
func shorten(v string) string {
	const limit = 60
	if len(v) > limit {
		return fmt.Sprintf("%.*q… (%d bytes)", limit, v, len(v))
	}
	return fmt.Sprintf("%q", v)
}
