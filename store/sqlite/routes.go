package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/tranship-io/tranship/engine"
)

// Installation implements [engine.RunStore].
func (s *Store) Installation(context.Context) (string, error) { return s.ownUUID, nil }

// RouteKnown implements [engine.RunStore].
func (s *Store) RouteKnown(ctx context.Context, r engine.Route) (installation string, known bool, err error) {
	err = s.read.QueryRowContext(ctx, `SELECT installation FROM routes WHERE pipeline = ? AND source = ? AND sink = ?`,
		r.Pipeline, r.Source, r.Sink).Scan(&installation)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	return installation, err == nil, s.fail(fmt.Sprintf("look up pipeline %q", r.Pipeline), err)
}

// findRoute returns the route's row, 0 if there is none; r gets the stored installation.
func (t *tx) findRoute(r *engine.Route) (id int64, lastOrdinal int64, err error) {
	var installation string
	err = t.row(`SELECT id, installation, last_ordinal FROM routes WHERE pipeline = ? AND source = ? AND sink = ?`,
		r.Pipeline, r.Source, r.Sink).Scan(&id, &installation, &lastOrdinal)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, 0, nil
	}
	if err == nil {
		r.Installation = installation
	}
	return id, lastOrdinal, err
}

// ensureRoute finds or makes the route's row.
func (t *tx) ensureRoute(r *engine.Route, own string) (id int64, lastOrdinal int64, err error) {
	if id, lastOrdinal, err = t.findRoute(r); err != nil || id != 0 {
		return id, lastOrdinal, err
	}
	if r.Installation == "" {
		r.Installation = own
	}
	err = t.row(`INSERT INTO routes (installation, pipeline, source, sink) VALUES (?, ?, ?, ?) RETURNING id`,
		r.Installation, r.Pipeline, r.Source, r.Sink).Scan(&id)
	return id, 0, err
}

// raiseRoute remembers that an ordinal was used: it is never given again (P1).
func (t *tx) raiseRoute(route, ordinal int64) error {
	_, err := t.exec(`UPDATE routes SET last_ordinal = ?2 WHERE id = ?1 AND last_ordinal < ?2`, route, ordinal)
	return err
}

// routeOf returns a run's route.
func (t *tx) routeOf(route int64) (engine.Route, error) {
	var r engine.Route
	err := t.row(`SELECT installation, pipeline, source, sink FROM routes WHERE id = ?`, route).
		Scan(&r.Installation, &r.Pipeline, &r.Source, &r.Sink)
	return r, err
}

// Cursor implements [engine.RunStore].
func (s *Store) Cursor(ctx context.Context, r engine.Route, resource string) (engine.RouteCursor, error) {
	var c engine.RouteCursor
	var cursor, seen []byte
	err := s.read.QueryRowContext(ctx, `SELECT c.cursor, c.seen, c.reset_ordinal > 0 FROM cursors c JOIN routes r ON r.id = c.route
		WHERE r.pipeline = ? AND r.source = ? AND r.sink = ? AND c.resource = ?`,
		r.Pipeline, r.Source, r.Sink, resource).Scan(&cursor, &seen, &c.Reset)
	if errors.Is(err, sql.ErrNoRows) {
		return c, nil
	}
	if err != nil {
		return c, s.fail(fmt.Sprintf("read cursor of %q", resource), err)
	}
	c.Cursor = cursor
	c.Seen, err = unpackIDs(nil, seen)
	return c, err
}

// setCursor stores what the next run starts from, and ends a reset.
func (t *tx) setCursor(route int64, resource string, cursor json.RawMessage, seen []engine.RowID) error {
	_, err := t.exec(`INSERT INTO cursors (route, resource, cursor, seen) VALUES (?, ?, ?, ?)
		ON CONFLICT (route, resource) DO UPDATE SET cursor = excluded.cursor, seen = excluded.seen, reset_ordinal = 0`,
		route, resource, nullable(cursor), packIDs(seen))
	return err
}

// ResetResource implements [engine.RunStore]. A run of the route that is
// unfinished now may still be resumed; its publish neither stores a cursor for
// the resource nor ends the reset. A route that the state does not know has
// nothing to forget: that is no error.
func (s *Store) ResetResource(ctx context.Context, r engine.Route, resource string) error {
	return s.updateRoute(ctx, fmt.Sprintf("reset %q", resource), r, func(t *tx, taken bool) error {
		if !taken {
			// This very process works on the route.
			return engine.Permanentf("wait until its run ends", "reset %q: pipeline %q: %w", resource, r.Pipeline, engine.ErrLocked)
		}
		t.committed = append(t.committed, func() error { return s.unlockRoute(r) })
		id, last, err := t.findRoute(&r)
		if err != nil || id == 0 {
			return err
		}
		_, err = t.exec(`INSERT INTO cursors (route, resource, reset_ordinal) VALUES (?, ?, ?)
			ON CONFLICT (route, resource) DO UPDATE SET cursor = NULL, seen = NULL, reset_ordinal = excluded.reset_ordinal`,
			id, resource, last)
		return err
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

// nullable stores an empty document as NULL.
func nullable(b []byte) any {
	if len(b) == 0 {
		return nil
	}
	return b
}
