package pgsource

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/engine"
)

// holder is a session whose open transaction keeps a snapshot and the locks of
// every relation that is read in it (P12).
type holder struct {
	// id is unique over processes and time; the server's snapshot names come again
	// after a restart.
	id       string
	snapshot string

	mu   sync.Mutex
	conn *pgx.Conn
	dead bool
}

// table is a physical table below a relation.
type table struct {
	oid          uint32
	schema, name string
	kind         string
	readable     bool
	heap         bool
	// seen is the relfilenode that the transaction's snapshot shows, current the
	// one in the catalog now: they differ when the table was truncated or
	// rewritten after the snapshot, which then shows no rows and no error (P12).
	seen, current uint32
	blocks, bytes int64
}

// tablesSQL lists the tables whose files hold a relation's rows: itself, its
// partitions, and what a view reads; the relation itself is always among them.
const tablesSQL = `WITH RECURSIVE below(oid) AS (
	SELECT %[1]d::oid
	UNION
	SELECT x.oid FROM below b JOIN pg_catalog.pg_class p ON p.oid = b.oid CROSS JOIN LATERAL (
		SELECT d.refobjid AS oid FROM pg_catalog.pg_rewrite w
		JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND d.objid = w.oid
			AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
		WHERE w.ev_class = b.oid AND p.relkind = 'v'
		UNION ALL
		SELECT i.inhrelid FROM pg_catalog.pg_inherits i
		WHERE i.inhparent = b.oid AND NOT (b.oid = %[1]d AND p.relkind <> 'p')) x)
SELECT c.oid::int8, n.nspname::text, c.relname::text, c.relkind::text,
	pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_table_privilege(c.oid, 'SELECT'),
	coalesce(am.amname = 'heap', false), c.relfilenode::int8, coalesce(pg_catalog.pg_relation_filenode(c.oid), 0)::int8,
	CASE WHEN c.relkind IN ('r', 'm') AND %[2]t THEN coalesce(pg_catalog.pg_relation_size(c.oid), 0) / pg_catalog.current_setting('block_size')::int8 ELSE 0 END,
	CASE WHEN c.relkind IN ('r', 'm') AND %[2]t THEN coalesce(pg_catalog.pg_table_size(c.oid), 0) ELSE 0 END
FROM below JOIN pg_catalog.pg_class c ON c.oid = below.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_am am ON am.oid = c.relam
WHERE c.relkind IN ('r', 'm', 'f') OR c.oid = %[1]d ORDER BY c.oid`

func scanTables(rows pgx.Rows) ([]table, error) {
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (table, error) {
		var t table
		var oid, seen, current int64
		err := row.Scan(&oid, &t.schema, &t.name, &t.kind, &t.readable, &t.heap, &seen, &current, &t.blocks, &t.bytes)
		t.oid, t.seen, t.current = uint32(oid), uint32(seen), uint32(current)
		return t, err
	})
}

// moved tells whether the snapshot still shows the table's file. System tables
// that have no number of their own, and foreign tables, can't be rewritten that way.
func (t *table) moved() bool { return t.seen != 0 && t.seen != t.current }

// hold locks the relation in a session that holds a snapshot and returns the
// tables below it. All relations share one snapshot as long as that is possible:
// until one was rewritten after the snapshot was taken.
func (s *Session) hold(ctx context.Context, rel *relation) (*holder, []table, error) {
	s.holdMu.Lock()
	defer s.holdMu.Unlock()
	s.mu.Lock()
	old := s.holders
	s.mu.Unlock()
	for _, h := range old {
		tables, err := h.add(ctx, rel)
		if err != nil {
			return nil, nil, describe(rel.resource(), pgconf.Classify(err))
		}
		if tables != nil {
			return h, tables, nil
		}
	}
	for range rewriteTries {
		h, tables, err := s.newHolder(ctx, rel)
		if err != nil {
			return nil, nil, describe(rel.resource(), pgconf.Classify(err))
		}
		if tables != nil {
			s.mu.Lock()
			s.holders = append(s.holders, h)
			s.mu.Unlock()
			return h, tables, nil
		}
		h.close(ctx)
	}
	return nil, nil, rewrittenAllTheTime(rel.resource())
}

// rewriteTries bounds how often a relation that can't be locked (a materialized
// view, or without the right to) may be rewritten just when a snapshot is taken.
const rewriteTries = 5

func rewrittenAllTheTime(resource string) error {
	return engine.Retryablef("%s: it was truncated or rewritten each time that a snapshot was taken", resource)
}

func (s *Session) newHolder(ctx context.Context, rel *relation) (*holder, []table, error) {
	conn, err := pgconf.Connect(ctx, s.cfg, s.opt, pgconf.Role{Name: "snapshot"})
	if err != nil {
		return nil, nil, err
	}
	h := &holder{id: uuid.NewString(), conn: conn}
	tables, err := h.begin(ctx, rel)
	if err != nil {
		h.close(ctx)
		return nil, nil, err
	}
	return h, tables, nil
}

// begin opens the transaction. The lock comes before the snapshot (P12): LOCK
// TABLE is no query, so the snapshot is taken by the statement after it.
func (h *holder) begin(ctx context.Context, rel *relation) ([]table, error) {
	// The holder is idle for as long as the others read.
	sql := "SET idle_in_transaction_session_timeout = 0; BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; " + lockSQL(rel.kind, rel.readable, rel.sql())
	if _, err := h.conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
		return nil, fmt.Errorf("lock for a snapshot: %w", err)
	}
	if err := h.conn.QueryRow(ctx, "SELECT pg_catalog.pg_export_snapshot()").Scan(&h.snapshot); err != nil {
		return nil, fmt.Errorf("export snapshot: %w", err)
	}
	return h.look(ctx, rel)
}

// lockSQL takes the lock that P12 asks for. Materialized and foreign tables can't
// be locked by LOCK TABLE, nor can a table of which the role may read some columns
// only; selecting nothing from it locks it too, but takes the snapshot first, so
// the caller compares what the snapshot shows with what is current.
func lockSQL(kind string, readable bool, name string) string {
	switch {
	case !readable, kind == kindMatView, kind == kindForeign:
		return "SELECT FROM " + name + " LIMIT 0"
	case kind == kindTable:
		return "LOCK TABLE ONLY " + name + " IN ACCESS SHARE MODE"
	}
	return "LOCK TABLE " + name + " IN ACCESS SHARE MODE"
}

// look returns the relation's tables, or nil if one of them was rewritten after
// the snapshot.
func (h *holder) look(ctx context.Context, rel *relation) ([]table, error) {
	rows, err := h.conn.Query(ctx, fmt.Sprintf(tablesSQL, rel.oid, true))
	if err != nil {
		return nil, fmt.Errorf("list tables of the snapshot: %w", err)
	}
	tables, err := scanTables(rows)
	if err != nil {
		return nil, fmt.Errorf("list tables of the snapshot: %w", err)
	}
	known := false
	for i := range tables {
		if tables[i].moved() {
			return nil, nil
		}
		known = known || tables[i].oid == rel.oid
	}
	if !known {
		// Made after the snapshot, which shows neither it nor its partitions.
		return nil, nil
	}
	return tables, nil
}

// add locks a further relation in the transaction; nil tables and no error mean
// that this snapshot can't serve it.
func (h *holder) add(ctx context.Context, rel *relation) ([]table, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead || h.conn.IsClosed() {
		return nil, nil
	}
	// Without the savepoint a lock that is not granted would end the snapshot.
	sql := "SAVEPOINT further; " + lockSQL(rel.kind, rel.readable, rel.sql()) + "; RELEASE SAVEPOINT further"
	if _, err := h.conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
		if h.conn.IsClosed() {
			h.dead = true
			return nil, nil
		}
		if _, back := h.conn.PgConn().Exec(ctx, "ROLLBACK TO SAVEPOINT further").ReadAll(); back != nil {
			h.dead = true
		}
		return nil, fmt.Errorf("lock for a snapshot: %w", err)
	}
	return h.look(ctx, rel)
}

// alive asks the server, so that a snapshot whose transaction ended is never
// taken for another of the same name.
func (h *holder) alive(ctx context.Context) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead || h.conn.IsClosed() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := h.conn.PgConn().Exec(ctx, "SELECT 1").ReadAll(); err != nil {
		h.dead = true
	}
	return !h.dead && h.conn.PgConn().TxStatus() == 'T'
}

func (h *holder) close(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead = true
	_ = h.conn.Close(ctx) // the server ends the session either way
}

// holderOf finds the living holder of a split's snapshot.
func (s *Session) holderOf(ctx context.Context, d *descriptor) (*holder, error) {
	s.mu.Lock()
	holders := s.holders
	s.mu.Unlock()
	for _, h := range holders {
		if h.id == d.Holder {
			if !h.alive(ctx) {
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				break
			}
			return h, nil
		}
	}
	return nil, &snapshotError{resource: resourceName(d.Schema, d.Name), what: "the session that held the snapshot is gone"}
}

// snapshotError tells that a plan can't be read any more and that the resource
// must be planned anew; it is an [engine.ErrSnapshotLost].
type snapshotError struct{ resource, what string }

func (e *snapshotError) Error() string { return e.resource + ": " + strings.TrimSpace(e.what) }
func (e *snapshotError) Unwrap() error { return engine.ErrSnapshotLost }
