package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tranship-io/tranship/engine"
)

// writer is the process's one writing connection with its prepared statements.
type writer struct {
	// turn holds one token: whoever has it may use the rest.
	turn  chan struct{}
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
	// closed is closed when nobody gets a turn any more.
	closed chan struct{}
}

func newWriter(conn *sql.Conn) *writer {
	return &writer{turn: make(chan struct{}, 1), conn: conn, stmts: map[string]*sql.Stmt{}, closed: make(chan struct{})}
}

// close is called in our turn.
func (w *writer) close() error {
	close(w.closed)
	var errs []error
	for _, st := range w.stmts {
		errs = append(errs, st.Close())
	}
	return errors.Join(append(errs, w.conn.Close())...)
}

// tx is a running write transaction.
type tx struct {
	ctx context.Context
	w   *writer
	// committed and failed run after the transaction's end, in our turn still.
	committed, failed []func() error
}

// update runs fn in a write transaction that other writers wait for from its
// beginning, so what it reads stays true until it commits. The context bounds
// the waiting for our turn; a transaction that has begun is not interrupted, so
// that its outcome is known. Transactions here take milliseconds.
func (s *Store) update(ctx context.Context, what string, fn func(*tx) error) error {
	return s.transact(ctx, what, nil, fn)
}

// updateRoute is update for a process that works on the route: it takes the
// route's lock first, or returns ErrLocked at once, however busy the file is.
// taken tells fn that the process did not hold the lock before.
func (s *Store) updateRoute(ctx context.Context, what string, r engine.Route, fn func(t *tx, taken bool) error) error {
	var taken bool
	return s.transact(ctx, what,
		func(t *tx) (err error) { taken, err = s.lockRoute(t, r); return err },
		func(t *tx) error { return fn(t, taken) })
}

func (s *Store) transact(ctx context.Context, what string, before, fn func(*tx) error) error {
	select {
	case s.write.turn <- struct{}{}:
		defer func() { <-s.write.turn }()
	case <-s.write.closed:
		return engine.Retryablef("%s in state %s: the file is closed", what, s.path)
	case <-ctx.Done():
		return s.fail(what, ctx.Err())
	}
	if err := ctx.Err(); err != nil {
		return s.fail(what, err)
	}
	t := &tx{ctx: context.WithoutCancel(ctx), w: s.write}
	if before != nil {
		if err := before(t); err != nil {
			return s.fail(what, err)
		}
	}
	if _, err := t.exec("BEGIN IMMEDIATE"); err != nil {
		return errors.Join(s.fail(what, err), finally(t.failed))
	}
	err := fn(t)
	if err == nil {
		_, err = t.exec("COMMIT")
	}
	if err != nil {
		// A failed statement may have rolled back already; then this fails, and
		// the first error is the one to tell.
		_, _ = t.exec("ROLLBACK")
		return errors.Join(s.fail(what, err), finally(t.failed))
	}
	return s.fail(what, finally(t.committed))
}

func finally(do []func() error) error {
	var errs []error
	for _, f := range do {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

func (t *tx) prepare(query string) (*sql.Stmt, error) {
	if st, ok := t.w.stmts[query]; ok {
		return st, nil
	}
	st, err := t.w.conn.PrepareContext(t.ctx, query)
	if err != nil {
		return nil, fmt.Errorf("prepare %q: %w", query, err)
	}
	t.w.stmts[query] = st
	return st, nil
}

// exec runs a statement and returns the number of rows it changed.
func (t *tx) exec(query string, args ...any) (int64, error) {
	st, err := t.prepare(query) //nolint:sqlclosecheck // The writer keeps it and closes it.
	if err != nil {
		return 0, err
	}
	res, err := st.ExecContext(t.ctx, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// script runs several statements that are used once.
func (t *tx) script(text string) error {
	_, err := t.w.conn.ExecContext(t.ctx, text)
	return err
}

// scanner is one row, or the error of getting it.
type scanner interface{ Scan(into ...any) error }

type failedRow struct{ err error }

func (f failedRow) Scan(...any) error { return f.err }

func (t *tx) row(query string, args ...any) scanner {
	st, err := t.prepare(query) //nolint:sqlclosecheck // The writer keeps it and closes it.
	if err != nil {
		return failedRow{err}
	}
	return st.QueryRowContext(t.ctx, args...)
}

// rows calls each with every row of a query.
func (t *tx) rows(each func(scanner) error, query string, args ...any) error {
	st, err := t.prepare(query) //nolint:sqlclosecheck // The writer keeps it and closes it.
	if err != nil {
		return err
	}
	rs, err := st.QueryContext(t.ctx, args...)
	if err != nil {
		return err
	}
	return eachRow(rs, each)
}

func eachRow(rs *sql.Rows, each func(scanner) error) error {
	defer rs.Close()
	for rs.Next() {
		if err := each(rs); err != nil {
			return err
		}
	}
	return rs.Err()
}

// query calls each with every row of a query outside any transaction.
func (s *Store) query(ctx context.Context, what string, each func(scanner) error, query string, args ...any) error {
	rs, err := s.read.QueryContext(ctx, query, args...)
	if err != nil {
		return s.fail(what, err)
	}
	return s.fail(what, eachRow(rs, each))
}

// nowMillis is SQLite's clock, which alone decides about leases (P22).
const nowMillis = `CAST(unixepoch('subsec') * 1000 AS INTEGER)`

// fenced is a run as its worker's fence found it.
type fenced struct {
	seq     int64
	state   engine.RunState
	route   int64
	ordinal int64
	planned bool
}

// fence checks that the caller still holds its slot (invariant 2).
func (t *tx) fence(f engine.Fence) (fenced, error) {
	var r fenced
	var have int64
	err := t.row(`SELECT r.seq, r.state, r.route, r.ordinal, r.planned, coalesce(s.generation, 0)
		FROM runs r LEFT JOIN slots s ON s.run = r.seq AND s.slot = ?2 WHERE r.id = ?1`, f.RunID.String(), f.Slot).
		Scan(&r.seq, &r.state, &r.route, &r.ordinal, &r.planned, &have)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return r, err
	}
	// A run that is not here (the file was lost) fences like a slot never taken.
	if err != nil || have != f.Generation {
		return r, &engine.StaleError{What: "generation", Subject: slotName(f), Ours: f.Generation, Have: have}
	}
	return r, nil
}

func slotName(f engine.Fence) string {
	return fmt.Sprintf("slot %d of run %s", f.Slot, f.RunID)
}
