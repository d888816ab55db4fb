package pgsource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/connectors/postgres/pgoutput"
	"github.com/tranship-io/tranship/engine"
)

var _ engine.Streamer = (*Session)(nil)

// oldestStream is the oldest version whose changes come in the binary form that
// full reads have (invariant 5).
const oldestStream = 140000

// memberCursor says that a member's rows stand and its changes follow.
var memberCursor = json.RawMessage(`{"v":1}`)

// changes plans a member of a change stream: with splits for its rows if the route
// has none of them yet.
func (p *planning) changes(ctx context.Context) error {
	name := p.rel.resource()
	switch {
	case p.s.version < oldestStream:
		return engine.Permanentf("upgrade the server, or read the table with read: incremental",
			"%s: PostgreSQL %d sends changes only as text; 14 is the oldest whose changes can be read", name, p.s.version/10000)
	case p.rel.kind != kindTable && p.rel.kind != kindPartitioned:
		return engine.Permanentf("read it with read: full", "%s: a %s has no changes of its own", name, kindName(p.rel.kind))
	case p.req.Where != "":
		return engine.Permanentf("remove where", "%s: changes can't be filtered with where", name)
	case p.req.Write == engine.WriteMerge && len(p.key) == 0:
		return engine.Permanentf("add a primary key to the table, or use write: append", "%s: it has no key by which changes could be merged", name)
	case p.unproved:
		return engine.Permanentf("create a unique index on the key with NOT NULL columns", "%s: no index proves the key (%s)", name, strings.Join(p.key, ", "))
	}
	if err := p.identity(ctx); err != nil {
		return err
	}
	p.plan.NextCursor = memberCursor
	p.plan.Coverage = "all changes that commit, in the order of their commits"
	if p.req.Cursor != nil || p.req.Initial == engine.InitialNone {
		p.plan.Rows, p.plan.Bytes = -1, -1
		return nil
	}
	p.plan.Consistency = engine.ConsistencyAligned
	p.plan.Coverage = "all rows as of a position of the change stream, and all changes after it"
	if len(p.key) == 0 {
		return engine.Permanentf("add a primary key, or use initial: none", "%s: it has no key by which its rows could be read in pieces beside its changes", name)
	}
	return p.byKeys(ctx, descriptor{Aligned: &alignment{}, Restart: true})
}

const identitySQL = `SELECT c.relreplident::text, coalesce((SELECT array_agg(a.attname::text) FROM pg_catalog.pg_index i
		JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
		WHERE i.indrelid = c.oid AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END), '{}'),
	c.relpersistence = 'p'
FROM pg_catalog.pg_class c WHERE c.oid = $1`

// identity refuses tables whose changes don't say which row they are about.
func (p *planning) identity(ctx context.Context) error {
	var identity string
	var columns []string
	var logged bool
	err := p.s.query(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, identitySQL, p.rel.oid).Scan(&identity, &columns, &logged)
	})
	if err != nil {
		return fmt.Errorf("%s: look at its replica identity: %w", p.rel.resource(), err)
	}
	if !logged {
		return engine.Permanentf("run: ALTER TABLE "+p.rel.sql()+" SET LOGGED", "%s: the changes of an unlogged table are written nowhere", p.rel.resource())
	}
	if identity == string(pgoutput.IdentityFull) {
		return nil
	}
	if len(columns) == 0 {
		return engine.Permanentf("run: ALTER TABLE "+p.rel.sql()+" REPLICA IDENTITY FULL, or add a primary key",
			"%s: it has no replica identity, so the server would refuse its updates and deletes once it is published", p.rel.resource())
	}
	for _, k := range p.key {
		if !slices.Contains(columns, k) {
			return engine.Permanentf("run: ALTER TABLE "+p.rel.sql()+" REPLICA IDENTITY FULL, or use the columns of its replica identity as key",
				"%s: column %q of the key is not part of the replica identity (%s), so deleted rows would not be known", p.rel.resource(), k, strings.Join(columns, ", "))
		}
	}
	return nil
}

// PlanStream implements engine.Streamer.
func (s *Session) PlanStream(ctx context.Context, req engine.StreamRequest) (*engine.SourcePlan, *engine.StreamPlan, error) {
	d := &streamDescriptor{Version: 1, Slot: streamName(req.Route), Publication: streamName(req.Route), Tables: map[uint32]string{}, Since: map[string]pgoutput.LSN{}}
	stream := &engine.StreamPlan{}
	for _, m := range req.Members {
		name := m.Plan.Resource.Name
		rel, err := s.relationOf(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		d.Tables[rel.oid] = name
		stream.Members = append(stream.Members, name)
	}
	var problem error
	err := s.query(ctx, func(tx pgx.Tx) error {
		var err error
		if problem, err = checkStreams(ctx, tx); err != nil || problem != nil {
			return err
		}
		var statements []string
		if statements, err = s.publicationSQL(ctx, tx, d); err != nil {
			return err
		}
		slot, err := findSlot(ctx, tx, d.Slot)
		if err != nil {
			return err
		}
		if slot == nil {
			statements = append(statements, s.slotSQL(d.Slot))
		}
		stream.Statements = statements
		problem = s.startOf(d, slot, req.Cursor)
		return nil
	})
	if err = errors.Join(err, problem); err != nil {
		return nil, nil, fmt.Errorf("plan the change stream: %w", err)
	}
	plan := &engine.SourcePlan{
		Resource: engine.Resource{Name: engine.StreamResource, Kind: "change stream", Rows: -1, Bytes: -1},
		Rows:     -1, Bytes: -1, Splits: []engine.Split{{Resource: engine.StreamResource, Descriptor: encode(d), Rows: -1, Bytes: -1}},
	}
	return plan, stream, nil
}

// relationOf finds a resource that is planned already.
func (s *Session) relationOf(ctx context.Context, name string) (rel *relation, err error) {
	err = s.query(ctx, func(tx pgx.Tx) error {
		rel, err = s.find(ctx, tx, name)
		return err
	})
	return rel, err
}

const streamSettingsSQL = `SELECT pg_catalog.current_setting('wal_level'), pg_catalog.pg_is_in_recovery(),
	(SELECT r.rolreplication OR r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user)`

// checkStreams refuses servers and roles that can't stream changes.
func checkStreams(ctx context.Context, tx pgx.Tx) (problem, err error) {
	var level string
	var standby, right bool
	if err := tx.QueryRow(ctx, streamSettingsSQL).Scan(&level, &standby, &right); err != nil {
		return nil, fmt.Errorf("look at the server's settings: %w", err)
	}
	switch {
	case standby:
		return engine.Permanentf("connect to the primary", "the server is a standby: its snapshots don't say which transactions they see (P16)"), nil
	case level != "logical":
		return engine.Permanentf("run: ALTER SYSTEM SET wal_level = 'logical', and restart the server (managed services: set logical replication in the parameter group)",
			"the server writes its log with wal_level %q, which has no changes to read", level), nil
	case !right:
		return engine.Permanentf("run: ALTER ROLE … REPLICATION (managed services: GRANT rds_replication TO …)", "the role may not use replication"), nil
	}
	return nil, nil
}

// slot is a replication slot as the server shows it.
type slot struct {
	plugin, state string
	active        bool
	confirmed     pgoutput.LSN
	retained      int64
}

const slotsSQL = `SELECT s.slot_name::text, coalesce(s.plugin::text, ''), coalesce(s.wal_status, ''), s.active, coalesce(s.confirmed_flush_lsn, '0/0')::text,
	coalesce(pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), s.restart_lsn), 0)::int8
FROM pg_catalog.pg_replication_slots s WHERE s.database = pg_catalog.current_database() AND pg_catalog.starts_with(s.slot_name, $1) ORDER BY 1`

func listSlots(ctx context.Context, tx pgx.Tx, prefix string) (map[string]*slot, error) {
	rows, err := tx.Query(ctx, slotsSQL, prefix)
	if err != nil {
		return nil, fmt.Errorf("list replication slots: %w", err)
	}
	out := map[string]*slot{}
	var name, confirmed string
	var s slot
	_, err = pgx.ForEachRow(rows, []any{&name, &s.plugin, &s.state, &s.active, &confirmed, &s.retained}, func() error {
		one := s
		var err error
		one.confirmed, err = pgoutput.ParseLSN(confirmed)
		out[name] = &one
		return err
	})
	return out, err
}

func findSlot(ctx context.Context, tx pgx.Tx, name string) (*slot, error) {
	all, err := listSlots(ctx, tx, name)
	return all[name], err
}

func (s *Session) slotSQL(name string) string {
	args := pgconf.QuoteLiteral(name) + ", 'pgoutput', false, false"
	if s.version >= 170000 {
		// Follows a failover to a standby that is prepared for it.
		args += ", true"
	}
	return "SELECT pg_catalog.pg_create_logical_replication_slot(" + args + ")"
}

// startOf sets where the stream begins, or says why it can't go on.
func (s *Session) startOf(d *streamDescriptor, have *slot, cursor json.RawMessage) error {
	if len(cursor) == 0 {
		if have != nil {
			d.Start.LSN = have.confirmed
		}
		return nil
	}
	var at streamPosition
	if err := decodeStrict(cursor, &at); err != nil {
		return engine.Bugf("the stream's cursor can't be read: %w", err)
	}
	d.Start = at
	return usable(d.Slot, have, at.LSN)
}

// usable tells why a slot can't give the changes from a position on (P3: asked for
// an earlier one than it has confirmed, the server silently begins there).
func usable(name string, have *slot, from pgoutput.LSN) error {
	const out = "set settings.changes.on_lost to resync to read the rows of its tables again beside a new slot"
	switch {
	case have == nil:
		return engine.Permanentf(out, "the replication slot %q is gone, and with it the changes since %s: %w", name, from, engine.ErrPositionLost)
	case have.plugin != "pgoutput":
		return engine.Permanentf("drop it", "the replication slot %q uses the plugin %q, not pgoutput", name, have.plugin)
	case have.state == "lost":
		return engine.Permanentf(out+"; raise max_slot_wal_keep_size to keep changes longer", "the server has removed the log that the replication slot %q needs (wal_status lost): %w", name, engine.ErrPositionLost)
	case from < have.confirmed:
		return engine.Permanentf(out, "the replication slot %q has been confirmed up to %s, beyond %s, which is what the destination has: %w", name, have.confirmed, from, engine.ErrPositionLost)
	}
	return nil
}
