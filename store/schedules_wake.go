package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/control/schedules"
	"github.com/tranship-io/tranship/store/internal/db"
)

// moved records that a schedule's next firing changed, where a platform times it
// for us: the intent is committed with the change, so that a crash in between
// loses neither (invariant 12).
func moved(ctx context.Context, tx Tx, id uuid.UUID, from, to int64) error {
	if !tx.db.config.Timed || from == to {
		return nil
	}
	if _, err := recordOperation(ctx, tx, schedules.Moved(schedules.Ref{Organization: tx.Organization(), Schedule: id}, to)); err != nil {
		return err
	}
	tx.owe()
	return nil
}

// Wake implements [schedules.Wakes].
func (s *Schedules) Wake(ctx context.Context, r schedules.Ref) (w schedules.Wake, err error) {
	err = s.db.Tx(ctx, r.Organization, func(ctx context.Context, tx Tx) error {
		w = schedules.Wake{Ref: r}
		row, err := tx.Q().WakeOf(ctx, db.WakeOfParams{Organization: r.Organization, ID: r.Schedule})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the next firing of schedule %s: %w", r.Schedule, err)
		}
		w.Revision, w.At = row.Revision, moment(row.NextAt)
		return nil
	})
	return w, err
}

// Wakes implements [schedules.Wakes].
func (s *Schedules) Wakes(ctx context.Context, after schedules.Ref, limit int) (out []schedules.Wake, err error) {
	err = s.db.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().Wakes(ctx, db.WakesParams{AfterOrganization: after.Organization, After: after.Schedule, Count: int32(limit)})
		out = nil
		for _, r := range rows {
			out = append(out, schedules.Wake{Ref: schedules.Ref{Organization: r.Organization, Schedule: r.ID}, Revision: r.Revision, At: r.NextAt.UTC()})
		}
		return err
	})
	return out, err
}
