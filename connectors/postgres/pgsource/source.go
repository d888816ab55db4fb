package pgsource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/engine"
)

// oldest is the oldest server version that is supported.
const oldest = 130000

// Source is the PostgreSQL source.
type Source struct{}

// New returns the source.
func New() *Source { return &Source{} }

var (
	_ engine.Source           = (*Source)(nil)
	_ engine.SourceSession    = (*Session)(nil)
	_ engine.ConnectionTester = (*Session)(nil)
	_ engine.CursorRanker     = (*Session)(nil)
)

// Spec describes the source.
func (*Source) Spec() engine.Spec {
	return engine.Spec{
		Name:          "postgres",
		Title:         "PostgreSQL",
		Summary:       "Reads tables, partitioned tables, views, materialized views and foreign tables of PostgreSQL 13 to 18.",
		Config:        &pgconf.Config{},
		Reads:         []engine.ReadMode{engine.ReadFull, engine.ReadIncremental, engine.ReadCDC},
		Consistencies: []engine.Consistency{engine.ConsistencyChunked, engine.ConsistencySnapshot},
		Wire:          []engine.WireFormat{engine.WirePostgresCopy},
		Notes: []string{
			"Full reads of a table with a key are chunked by default: ranges of the key, each in its own transaction. A row whose key changes during the run may be missed or read twice; `consistency: snapshot` has no such limit.",
			"Tables without a key, views and foreign tables are read in one snapshot, which this process must hold until the read ends.",
			"Readers take ACCESS SHARE locks, so TRUNCATE, DROP and rewriting ALTER TABLE wait for them, and they for those.",
			"Incremental reads find rows of transactions that commit late if the cursor is set by the database at the transaction's time (a default or trigger with now()) and the role may see all sessions (GRANT pg_read_all_stats); otherwise set a lookback that covers the longest transaction.",
			"Incremental reads do not see deleted rows.",
			"Changes (read: cdc, PostgreSQL 14 and later) need wal_level = logical, the right REPLICATION, ownership of the tables and a key; docs/cdc.md says what is guaranteed, and what is not built yet.",
			"Tables that inherit without being partitions are read without their children, which are resources of their own.",
			"PostgreSQL 13 can't read block ranges: there a snapshot of a table with a key is read by key ranges, and one without a key in one piece.",
			"Databases with the encoding SQL_ASCII are refused.",
			"A pooler must work in session mode; one that shares sessions between transactions is refused.",
		},
	}
}

// Open connects, and refuses servers that are too old.
func (*Source) Open(ctx context.Context, cfg engine.Config, opt engine.OpenOptions) (engine.SourceSession, error) {
	c := &pgconf.Config{}
	if err := json.Unmarshal(cfg, c); err != nil {
		return nil, engine.Permanentf("", "read postgres source configuration: %w", err)
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	conn, err := pgconf.Connect(ctx, c, opt, pgconf.Role{Name: "plan"})
	if err != nil {
		return nil, err
	}
	s := &Session{cfg: c, opt: opt, idle: []*pgx.Conn{conn}, version: pgconf.ServerVersion(conn), buffers: newBuffers(opt.Slots)}
	if s.version < oldest {
		err := engine.Permanentf("upgrade the server", "the server is PostgreSQL %d; 13 is the oldest that can be read", s.version/10000)
		return nil, errors.Join(err, s.Close(ctx))
	}
	if err := pgconf.RequireSession(ctx, c, opt, conn); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	if s.identity, err = pgconf.Identity(ctx, conn); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

// Session is a live connection to a source database. Planning uses a connection
// of its own, and so does each read; a snapshot has a third that holds it.
type Session struct {
	cfg      *pgconf.Config
	opt      engine.OpenOptions
	identity string
	version  int
	buffers  *buffers

	mu sync.Mutex
	// idle are connections for catalog queries, readers those for reads.
	idle    []*pgx.Conn
	readers []*readerConn
	closed  bool
	// wal are the replication connections by slot.
	wal map[string]*walConn

	// holdMu serializes planning of snapshots; holders is guarded by mu.
	holdMu  sync.Mutex
	holders []*holder
}

// Identity names the database; see pgconf.Identity.
func (s *Session) Identity() string { return s.identity }

// Close ends every session of this one, and with them its snapshots.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	idle, readers, holders, streams := s.idle, s.readers, s.holders, s.wal
	s.idle, s.readers, s.holders, s.wal, s.closed = nil, nil, nil, nil, true
	s.mu.Unlock()
	for _, w := range streams {
		w.close()
	}
	for _, r := range readers {
		r.close()
	}
	for _, h := range holders {
		h.close(ctx)
	}
	for _, c := range idle {
		_ = c.Close(ctx) // the server ends the session either way
	}
	return nil
}

// query runs fn on a connection for catalog queries, inside a read-only
// transaction whose search_path makes names come out qualified. A connection
// whose fn failed is not used again.
func (s *Session) query(ctx context.Context, fn func(tx pgx.Tx) error) error {
	conn, err := s.take(ctx)
	if err != nil {
		return err
	}
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL search_path = pg_catalog"); err != nil {
			return err
		}
		return fn(tx)
	})
	if err != nil {
		_ = conn.Close(context.WithoutCancel(ctx)) // it is given up because of err
		return pgconf.Classify(err)
	}
	s.give(ctx, conn)
	return nil
}

func (s *Session) take(ctx context.Context) (*pgx.Conn, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, engine.Bugf("use of a closed postgres source session")
	}
	if n := len(s.idle); n > 0 {
		conn := s.idle[n-1]
		s.idle = s.idle[:n-1]
		s.mu.Unlock()
		// The server may have ended it meanwhile.
		if err := conn.Ping(ctx); err == nil {
			return conn, nil
		}
		_ = conn.Close(context.WithoutCancel(ctx)) // it is broken
	} else {
		s.mu.Unlock()
	}
	return pgconf.Connect(ctx, s.cfg, s.opt, pgconf.Role{Name: "plan"})
}

func (s *Session) give(ctx context.Context, conn *pgx.Conn) {
	s.mu.Lock()
	if !s.closed && len(s.idle) == 0 {
		s.idle = append(s.idle, conn)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	_ = conn.Close(ctx) // the server ends the session either way
}

// describe adds the resource to an error that has a class already.
func describe(resource string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", resource, err)
}
