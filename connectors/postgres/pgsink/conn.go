package pgsink

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/engine"
)

// backend identifies a server process for ever: a pid alone is used again.
type backend struct {
	PID   int32
	Start time.Time
}

// conn is a server session of ours.
type conn struct {
	*pgx.Conn
	backend backend
	// duty names split and claim that the ledger has this backend recorded for.
	duty string
	// transport describes the temporary table that the session has; "": none.
	transport string
	// changes are the temporary tables for changes that it has, by name.
	changes map[string]string
}

// pool keeps the sessions. One is used by one call at a time; a call prefers the
// session that is recorded for its split, so that the record stays true.
type pool struct {
	dial func(ctx context.Context) (*pgx.Conn, error)

	mu     sync.Mutex
	idle   []*conn
	all    map[*conn]struct{}
	closed bool
}

var errClosed = errors.New("the session is closed")

func newPool(dial func(ctx context.Context) (*pgx.Conn, error)) *pool {
	return &pool{dial: dial, all: map[*conn]struct{}{}}
}

// get returns a session, preferably the one with the duty.
func (p *pool) get(ctx context.Context, duty string) (*conn, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, engine.Bugf("use sink: %w", errClosed)
	}
	i := slices.IndexFunc(p.idle, func(c *conn) bool { return duty != "" && c.duty == duty })
	if i < 0 {
		i = len(p.idle) - 1
	}
	if i >= 0 {
		c := p.idle[i]
		p.idle = slices.Delete(p.idle, i, i+1)
		p.mu.Unlock()
		return c, nil
	}
	p.mu.Unlock()

	pg, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: pg}
	err = pg.QueryRow(ctx, `SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()`).
		Scan(&c.backend.PID, &c.backend.Start)
	if err != nil {
		_ = pg.Close(context.WithoutCancel(ctx))
		return nil, classify(err, "identify own session")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all[c] = struct{}{}
	return c, nil
}

// put gives a session back; one that is broken or inside a transaction is ended,
// which rolls back what it had open.
func (p *pool) put(c *conn) {
	p.mu.Lock()
	keep := !p.closed && !c.IsClosed() && c.PgConn().TxStatus() == 'I'
	if keep {
		p.idle = append(p.idle, c)
	} else {
		delete(p.all, c)
	}
	p.mu.Unlock()
	if !keep {
		end(c)
	}
}

func end(c *conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = c.Close(ctx)
}

// owns tells whether the backend belongs to a session of this process, which
// ends by its own context and need not be terminated.
func (p *pool) owns(b backend) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.all {
		if c.backend.PID == b.PID && c.backend.Start.Equal(b.Start) {
			return true
		}
	}
	return false
}

// close ends all sessions; those in use end when they are put back.
func (p *pool) close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	for _, c := range idle {
		end(c)
	}
}

// with runs f with a session.
func (s *Session) with(ctx context.Context, duty string, f func(c *conn) error) error {
	c, err := s.pool.get(ctx, duty)
	if err != nil {
		return err
	}
	defer s.pool.put(c)
	return f(c)
}

// inTx runs f in a READ COMMITTED transaction whose lock waits are bounded (0:
// the session's own bound). A lost answer to the commit gives ErrCommitUnknown.
func inTx(ctx context.Context, c *conn, lockTimeout time.Duration, f func() error) error {
	if err := begin(ctx, c, lockTimeout); err != nil {
		return err
	}
	if err := f(); err != nil {
		rollback(ctx, c)
		return err
	}
	return commit(ctx, c)
}

// begin opens a transaction whose isolation is stated, whatever the role's
// default: the fence's checks need every statement to see what is committed (P2).
func begin(ctx context.Context, c *conn, lockTimeout time.Duration) error {
	sql := "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
	if lockTimeout > 0 {
		sql += "; SET LOCAL lock_timeout = " + literal(millis(lockTimeout))
	}
	if _, err := c.Exec(ctx, sql); err != nil {
		return classify(err, "begin transaction")
	}
	return nil
}

// rollback ends a failed transaction; if that is not possible, putting the
// session back ends the session.
func rollback(ctx context.Context, c *conn) {
	if c.IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = c.Exec(ctx, "ROLLBACK")
}

// commit commits. A commit that was sent is waited for even when the context
// ends, for a while, so that its outcome is rarely unknown.
func commit(ctx context.Context, c *conn) error {
	const grace = 3 * time.Second
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		t := time.AfterFunc(grace, cancel)
		context.AfterFunc(own, func() { t.Stop() })
	})
	defer stop()
	tag, err := c.Exec(own, "COMMIT")
	if err == nil && tag.String() != "COMMIT" {
		return engine.Bugf("commit: the server answered %s, so a statement of the transaction had failed", tag)
	}
	if err == nil {
		return nil
	}
	if definite(err) {
		return classify(err, "commit")
	}
	// P4: the transaction may be in, or not; only the ledger tells.
	return engine.Retryablef("commit: %w: %w", engine.ErrCommitUnknown, err)
}
