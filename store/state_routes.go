package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/store/internal/db"
)

// RouteKnown implements [engine.RunStore].
func (s *State) RouteKnown(ctx context.Context, r engine.Route) (installation string, known bool, err error) {
	err = s.alone(ctx, fmt.Sprintf("look up the route of pipeline %q", r.Pipeline), func(q *db.Queries) error {
		row, err := q.FindRoute(ctx, db.FindRouteParams{Pipeline: r.Pipeline, Source: r.Source, Sink: r.Sink})
		installation, known = row.Installation, err == nil
		if none(err) {
			return nil
		}
		return err
	})
	return installation, known, err
}

// ensureRoute finds or makes the route's row and locks it. A new one gets the
// given installation, or the organization's own.
func (t *stateTx) ensureRoute(r engine.Route) (db.Route, error) {
	key := db.LockRouteParams{Pipeline: r.Pipeline, Source: r.Source, Sink: r.Sink}
	row, err := t.q.LockRoute(t.ctx, key)
	if !none(err) {
		return row, err
	}
	if r.Installation == "" {
		own, err := t.q.GetInstallation(t.ctx)
		if err != nil {
			return row, err
		}
		r.Installation = own.String()
	}
	id, err := uuid.NewV7()
	if err != nil {
		return row, err
	}
	if err := t.q.InsertRoute(t.ctx, db.InsertRouteParams{ID: id, Installation: r.Installation, Pipeline: r.Pipeline, Source: r.Source, Sink: r.Sink}); err != nil {
		return row, err
	}
	return t.q.LockRoute(t.ctx, key)
}

// raiseRoute remembers that an ordinal was used: it is never given again (P1).
func (t *stateTx) raiseRoute(r *db.Route, ordinal int64) error {
	if ordinal <= r.LastOrdinal {
		return nil
	}
	r.LastOrdinal = ordinal
	return t.q.RaiseRoute(t.ctx, db.RaiseRouteParams{ID: r.ID, Ordinal: ordinal})
}

// openRuns locks the route's runs that may go on, and one more run unless it is
// nil, and returns the former, latest first.
func (t *stateTx) openRuns(route, also uuid.UUID) ([]db.ListOpenRunsRow, error) {
	if _, err := t.q.LockOpenRuns(t.ctx, db.LockOpenRunsParams{Route: route, Also: also}); err != nil {
		return nil, err
	}
	// A second statement sees what was committed while the first one waited.
	return t.q.ListOpenRuns(t.ctx, route)
}

// idle returns ErrLocked if a worker of one of the runs is alive.
func idle(what string, open []db.ListOpenRunsRow) error {
	for _, u := range open {
		if u.Leased {
			return engine.Permanentf("wait until it ends or stop it", "%s: run %s has live workers: %w", what, u.ID, engine.ErrLocked)
		}
	}
	return nil
}

// Cursor implements [engine.RunStore].
func (s *State) Cursor(ctx context.Context, r engine.Route, resource string) (engine.RouteCursor, error) {
	var c engine.RouteCursor
	err := s.alone(ctx, fmt.Sprintf("read the cursor of %q", resource), func(q *db.Queries) error {
		row, err := q.GetCursor(ctx, db.GetCursorParams{Pipeline: r.Pipeline, Source: r.Source, Sink: r.Sink, Resource: resource})
		if none(err) {
			return nil
		}
		if err != nil {
			return err
		}
		c.Cursor, c.Reset = row.Cursor, row.Reset
		c.Seen, err = unpackIDs(nil, row.Seen)
		return err
	})
	return c, err
}

// ResetResource implements [engine.RunStore]. A run of the route that is
// unfinished now may still be resumed; its publish neither stores a cursor for
// the resource nor ends the reset. A route that is not known has nothing to
// forget: that is no error.
func (s *State) ResetResource(ctx context.Context, r engine.Route, resource string) error {
	what := fmt.Sprintf("reset %q of pipeline %q", resource, r.Pipeline)
	return s.update(ctx, what, func(t *stateTx) error {
		row, err := t.q.LockRoute(t.ctx, db.LockRouteParams{Pipeline: r.Pipeline, Source: r.Source, Sink: r.Sink})
		if none(err) {
			return nil
		}
		if err != nil {
			return err
		}
		open, err := t.openRuns(row.ID, uuid.Nil)
		if err != nil {
			return err
		}
		if err := idle(what, open); err != nil {
			return err
		}
		return t.q.ResetCursor(t.ctx, db.ResetCursorParams{Route: row.ID, Resource: resource, ResetOrdinal: row.LastOrdinal})
	})
}

// packIDs writes row ids one after the other; nil for none.
func packIDs(ids []engine.RowID) []byte {
	if len(ids) == 0 {
		return nil
	}
	b := make([]byte, 0, len(ids)*len(ids[0]))
	for i := range ids {
		b = append(b, ids[i][:]...)
	}
	return b
}

// unpackIDs appends what packIDs wrote.
func unpackIDs(ids []engine.RowID, b []byte) ([]engine.RowID, error) {
	const size = len(engine.RowID{})
	if len(b)%size != 0 {
		return nil, engine.Bugf("read remembered rows: %d bytes are no multiple of %d", len(b), size)
	}
	ids = slices.Grow(ids, len(b)/size)
	for ; len(b) > 0; b = b[size:] {
		ids = append(ids, engine.RowID(b[:size]))
	}
	return ids, nil
}
