package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/store/internal/db"
)

// The roles that transactions take.
const (
	roleOwner       = "tranship_owner"
	roleApp         = "tranship_app"
	roleMaintenance = "tranship_maintenance"
)

const (
	beginSQL = `begin isolation level read committed`
	// One statement sets all that a transaction needs (P26); a local setting ends
	// with it.
	prepareSQL = `select set_config('role', $1, true), set_config('tranship.organization', $2, true)`
	// Statements alone look rows up by their keys, for which one plan serves all:
	// making another each time took as long as a commit's work.
	prepareSingleSQL = `select set_config('role', $1, true), set_config('tranship.organization', $2, true), set_config('plan_cache_mode', 'force_generic_plan', true)`
	// Whether a request's key and role still hold is checked in its own transaction.
	callerSQL = `select check_caller($1, $2, $3, $4, $5)`
)

// Tx is a running transaction: of one organization ([DB.Tx]) or of maintenance
// ([DB.Maintain]). It begins with its first statement, in the same round trip.
// Like a connection it serves one goroutine, one statement at a time.
type Tx struct{ *txState }

type txState struct {
	db    *DB
	conn  *pgxpool.Conn
	role  string
	org   uuid.UUID
	begun bool
	// single: each statement is a transaction of its own, in one round trip.
	single bool
	hints  []Hint
	// owes: the transaction makes something fall due later.
	owes bool
	// caller is who must still be allowed in; nil outside of requests.
	caller *control.Actor
}

// Organization is the organization whose rows the transaction sees; uuid.Nil in
// one of maintenance.
func (t Tx) Organization() uuid.UUID { return t.org }

// Q returns the queries of this transaction.
func (t Tx) Q() *db.Queries { return db.New(t) }

// Exec runs a statement.
func (t Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if t.begun {
		return t.conn.Exec(ctx, sql, args...)
	}
	var b pgx.Batch
	b.Queue(sql, args...)
	r := t.SendBatch(ctx, &b)
	tag, err := r.Exec()
	if err != nil {
		_ = r.Close()
		return tag, err
	}
	return tag, r.Close()
}

// Query runs a query. Its rows are closed before the next statement.
func (t Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if t.begun {
		return t.conn.Query(ctx, sql, args...)
	}
	var b pgx.Batch
	b.Queue(sql, args...)
	r := t.SendBatch(ctx, &b)
	rows, err := r.Query()
	if err != nil {
		_ = r.Close()
		return rows, err
	}
	return &batchRows{Rows: rows, batch: r}, nil
}

// batchRows are the rows of a batch's last query, which end the batch.
type batchRows struct {
	pgx.Rows
	batch pgx.BatchResults
	err   error
}

func (r *batchRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *batchRows) Close() {
	r.Rows.Close()
	if r.batch != nil {
		r.err = r.batch.Close()
		r.batch = nil
	}
}

func (r *batchRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}

// QueryRow runs a query for one row; Scan returns pgx.ErrNoRows if it has none.
func (t Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if t.begun {
		return t.conn.QueryRow(ctx, sql, args...)
	}
	rows, err := t.Query(ctx, sql, args...)
	return firstRow{rows, err}
}

type firstRow struct {
	rows pgx.Rows
	err  error
}

func (r firstRow) Scan(into ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(into...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

// SendBatch sends several statements in one round trip.
func (t Tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.begun {
		return t.conn.SendBatch(ctx, b)
	}
	var all pgx.Batch
	if t.single {
		// Statements of a batch without a begin are one transaction too.
		all.Queue(prepareSingleSQL, t.role, t.settings())
	} else {
		t.begun = true
		all.Queue(beginSQL)
		all.Queue(prepareSQL, t.role, t.settings())
	}
	if c := t.caller; c != nil {
		all.Queue(callerSQL, string(c.Kind), c.ID, optional(c.Key), c.KeyHash, string(c.Role))
	}
	ours := len(all.QueuedQueries)
	all.QueuedQueries = append(all.QueuedQueries, b.QueuedQueries...)
	r := t.conn.SendBatch(ctx, &all)
	for range ours {
		if _, err := r.Exec(); err != nil {
			return failedBatch{r, err}
		}
	}
	if t.caller != nil {
		control.ConfirmCaller(ctx)
	}
	return r
}

// settings is the value of tranship.organization; empty matches no organization.
func (t *txState) settings() string {
	if t.org == uuid.Nil {
		return ""
	}
	return t.org.String()
}

// failedBatch answers for a batch whose transaction could not begin.
type failedBatch struct {
	pgx.BatchResults
	err error
}

func (b failedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, b.err }
func (b failedBatch) Query() (pgx.Rows, error)         { return nil, b.err }
func (b failedBatch) QueryRow() pgx.Row                { return firstRow{err: b.err} }
func (b failedBatch) Close() error                     { _ = b.BatchResults.Close(); return b.err }

// Savepoint runs fn so that what it did is undone, and the transaction goes on,
// if it returns an error; that is then Savepoint's.
func (t Tx) Savepoint(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error {
	if _, err := t.Exec(ctx, "savepoint s"); err != nil {
		return err
	}
	err := fn(ctx, t)
	if err == nil {
		_, err = t.Exec(ctx, "release savepoint s")
		return err
	}
	if _, undo := t.Exec(ctx, "rollback to savepoint s; release savepoint s", pgx.QueryExecModeSimpleProtocol); undo != nil {
		return errors.Join(err, undo)
	}
	return err
}

// commit ends the transaction and sends its hints, in one round trip.
func (t *txState) commit(ctx context.Context) error {
	if !t.begun {
		return nil
	}
	var b pgx.Batch
	b.Queue("commit")
	if t.db.config.Hints == nil {
		queueHints(&b, t.hints)
	}
	r := t.conn.SendBatch(ctx, &b)
	tag, err := r.Exec()
	if err == nil && tag.String() != "COMMIT" {
		err = pgx.ErrTxCommitRollback
	}
	// Hints may be lost; the commit stands.
	_ = r.Close()
	return err
}

// rollback undoes the transaction; a connection on which that fails is broken
// and not used again.
func (t *txState) rollback(ctx context.Context) {
	if !t.begun || t.conn.Conn().IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, err := t.conn.Exec(ctx, "rollback"); err != nil {
		_ = t.conn.Conn().Close(ctx)
	}
}
