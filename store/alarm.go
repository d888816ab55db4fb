package store

import (
	"context"
	"fmt"
	"time"

	"github.com/tranship-io/tranship/control/timer"
)

var _ timer.AlarmStore = (*DB)(nil)

// owe notes that the transaction makes something fall due later. Where a platform
// times that for us, the sweep is armed with the commit, and cannot be disarmed
// before the alarm is set to that time or an earlier one (P23).
func (t Tx) owe() { t.owes = t.db.config.Timed }

// Alarm implements [timer.AlarmStore].
func (d *DB) Alarm(ctx context.Context) (out timer.AlarmState, err error) {
	err = d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		row, err := tx.Q().Alarm(ctx)
		if err != nil {
			return fmt.Errorf("read the alarm: %w", err)
		}
		out = timer.AlarmState{Now: row.Now.UTC(), Known: row.Known}
		if row.Owed {
			out.Due = row.Due.UTC()
		}
		if row.Alarm.After(row.Now) {
			out.Set = row.Alarm.UTC()
		}
		return nil
	})
	return out, err
}

// SetAlarm implements [timer.AlarmStore].
func (d *DB) SetAlarm(ctx context.Context, at time.Time) error {
	return d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		return tx.Q().SetAlarm(ctx, orNull(at))
	})
}

// Arm arms the sweep, as whoever is woken from outside does that finds work: it
// may be disarmed (P23).
func (d *DB) Arm(ctx context.Context) error {
	return d.Maintain(ctx, arm)
}
