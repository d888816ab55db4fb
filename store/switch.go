package store

import (
	"context"
	"fmt"
	"time"

	"github.com/tranship-io/tranship/control"
)

// switchTime bounds a call of the switch, which others wait for: whoever makes
// work meanwhile, and the sweep.
const switchTime = 5 * time.Second

// switchOn turns the sweep's switch on in a transaction that armed what was not
// armed, before it commits. If the transaction fails later the switch is on for
// nothing, and the next sweep turns it off (P23).
func (d *DB) switchOn(ctx context.Context) error {
	if d.config.Switch == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, switchTime)
	defer cancel()
	if err := d.config.Switch.On(ctx); err != nil {
		return &control.UnavailableError{What: "the switch of the sweep", RetryAfter: retryAfter, Err: err}
	}
	return nil
}

// switchOff turns the sweep's switch off while nobody can arm, unless somebody has
// since it was disarmed; then it is false. A crash in between leaves the sweep
// disarmed and the switch in any state, in which no work was committed: the next
// one who arms turns it on, and a sweep that still comes turns it off (P23).
func (d *DB) switchOff(ctx context.Context) (off bool, err error) {
	if d.config.Switch == nil {
		return true, nil
	}
	err = d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		if off, err = tx.Q().HoldDisarmed(ctx); err != nil {
			return fmt.Errorf("hold the sweep disarmed: %w", err)
		}
		if !off {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, switchTime)
		defer cancel()
		if err := d.config.Switch.Off(ctx); err != nil {
			return fmt.Errorf("turn the sweep off: %w", err)
		}
		return nil
	})
	return off && err == nil, err
}
