package files

import (
	"context"
	"errors"

	"github.com/tranship-io/tranship/engine"
)

// classified tells whether an error already has a class of its own, or says that
// the work was interrupted.
func classified(err error) bool {
	var e *engine.Error
	var stale *engine.StaleError
	var mismatch *engine.MismatchError
	return errors.As(err, &e) || errors.As(err, &stale) || errors.As(err, &mismatch) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
