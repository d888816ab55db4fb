package files

import (
	"context"
	"errors"

	"github.com/tranship-io/tranship/engine"
)

// asEngine finds an error that already has a class of its own, or that says
// that the work was interrupted.
func asEngine(err error) (error, bool) {
	var e *engine.Error
	var stale *engine.StaleError
	var mismatch *engine.MismatchError
	if errors.As(err, &e) || errors.As(err, &stale) || errors.As(err, &mismatch) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err, true
	}
	return nil, false
}
