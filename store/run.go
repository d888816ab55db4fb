package store

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tranship-io/tranship/control"
)

// maxTries bounds how often a transaction is begun that the server ended for
// another's sake (a deadlock, a serialization failure) or that lost its
// connection before it could commit.
const maxTries = 6

// Tx runs fn in a transaction (READ COMMITTED) as tranship_app in an
// organization, and commits it unless fn returns an error. fn is run again if
// the server ended the transaction for a deadlock or serialization failure, or
// the connection was lost before the commit; it must have no effects but those
// of its statements. Errors of fn are returned as they are; that the database
// cannot be asked, or did not answer the commit, is *control.UnavailableError:
// what was asked for is then done wholly or not at all. In the context of a
// request ([control.WithCaller]) its first statement also checks the caller.
func (d *DB) Tx(ctx context.Context, organization uuid.UUID, fn func(ctx context.Context, tx Tx) error) error {
	if organization == uuid.Nil {
		return errors.New("begin a transaction: no organization")
	}
	t := txState{role: roleApp, org: organization}
	if a, ok := control.CallerOf(ctx); ok && a.Kind != control.ActorSystem {
		t.caller = &a
	}
	return refusal(d.transact(ctx, d.app, t, fn))
}

// Maintain is [DB.Tx] as tranship_maintenance, which sees the rows of all
// organizations in the tables that are open to it.
func (d *DB) Maintain(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error {
	return d.transact(ctx, d.system, txState{role: roleMaintenance}, fn)
}

func (d *DB) transact(ctx context.Context, pool *pgxpool.Pool, t txState, fn func(ctx context.Context, tx Tx) error) error {
	return d.again(ctx, pool, func(conn *pgxpool.Conn) (committing bool, err error) {
		t := t
		t.db, t.conn = d, conn
		if err := fn(ctx, Tx{&t}); err != nil {
			t.rollback(ctx)
			return false, err
		}
		if t.owes {
			if err := arm(ctx, Tx{&t}); err != nil {
				t.rollback(ctx)
				return false, err
			}
		}
		err = t.commit(ctx)
		if err == nil && d.config.Hints != nil {
			d.pass(t.hints)
		}
		return true, err
	})
}

// again runs do on a connection until it succeeds, fails for good, or may not be
// repeated: committing says that do may have committed when it failed.
func (d *DB) again(ctx context.Context, pool *pgxpool.Pool, do func(conn *pgxpool.Conn) (committing bool, err error)) error {
	wait := &backoff.ExponentialBackOff{InitialInterval: 5 * time.Millisecond, Multiplier: 2, RandomizationFactor: 0.5, MaxInterval: 200 * time.Millisecond}
	for try := 1; ; try++ {
		conn, err := d.acquire(ctx, pool)
		if err != nil {
			return err
		}
		committing, lost, err := on(ctx, conn, do)
		switch {
		case err == nil:
			return nil
		case lost && !committing && try < maxTries:
			// The others are likely broken too: the server was restarted.
			pool.Reset()
		case rolledBack(err) && try < maxTries:
		default:
			return failure(err, lost)
		}
		d.log.DebugContext(ctx, "a transaction is begun again", "try", try, "error", err)
		select {
		case <-time.After(wait.NextBackOff()):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// on runs do on a connection and gives it back, even in a panic. lost tells that
// the connection broke.
func on(ctx context.Context, conn *pgxpool.Conn, do func(conn *pgxpool.Conn) (committing bool, err error)) (committing, lost bool, err error) {
	defer conn.Release()
	committing, err = do(conn)
	return committing, err != nil && conn.Conn().IsClosed() && ctx.Err() == nil, err
}
