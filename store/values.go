package store

import (
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

const uniqueViolation = "23505"

// endOfTime is later than any time that is stored.
var endOfTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// orNull is nil, which is stored as NULL, for the zero time.
func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// ignoreMissing is nil for the error that there is no such row.
func ignoreMissing(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}
