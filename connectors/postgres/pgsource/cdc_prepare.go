package pgsource

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/connectors/postgres/pgoutput"
	"github.com/tranship-io/tranship/engine"
)

// publicationSQL lists what makes the publication that of exactly these tables.
func (s *Session) publicationSQL(ctx context.Context, tx pgx.Tx, d *streamDescriptor) ([]string, error) {
	oids := make([]uint32, 0, len(d.Tables))
	for oid := range d.Tables {
		oids = append(oids, oid)
	}
	slices.Sort(oids)
	var exists bool
	var missing, extra []string
	err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = $1),
		ARRAY(SELECT t::regclass::text FROM unnest($2::oid[]) t WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_publication_rel r
			JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid WHERE p.pubname = $1 AND r.prrelid = t)),
		ARRAY(SELECT r.prrelid::regclass::text FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid
			WHERE p.pubname = $1 AND NOT r.prrelid = ANY ($2::oid[]))`, d.Publication, oids).Scan(&exists, &missing, &extra)
	if err != nil {
		return nil, fmt.Errorf("look at the publication %q: %w", d.Publication, err)
	}
	name := pgconf.QuoteIdent(d.Publication)
	// ONLY: tables that inherit without being partitions are resources of their own.
	list := func(tables []string) string { return "ONLY " + strings.Join(tables, ", ONLY ") }
	if !exists {
		return []string{"CREATE PUBLICATION " + name + " FOR TABLE " + list(missing) + " WITH (publish_via_partition_root = true)"}, nil
	}
	var sql []string
	if len(missing) > 0 {
		sql = append(sql, "ALTER PUBLICATION "+name+" ADD TABLE "+list(missing))
	}
	if len(extra) > 0 {
		sql = append(sql, "ALTER PUBLICATION "+name+" DROP TABLE "+list(extra))
	}
	return sql, nil
}

// PrepareStream implements engine.Streamer. The publication comes before the slot:
// the plugin looks it up as it was when a change was made.
func (s *Session) PrepareStream(ctx context.Context, req engine.StreamRequest, plan *engine.SourcePlan, stream *engine.StreamPlan) error {
	d, err := parseStream(plan.Splits[0])
	if err != nil {
		return err
	}
	conn, err := pgconf.Connect(ctx, s.cfg, s.opt, pgconf.Role{Name: "stream"})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	run := func(sql string) error {
		if _, err := conn.Exec(ctx, sql); err != nil {
			hint := "let the owner of the tables run it"
			if pgconf.IsState(err, "53400") {
				hint = "raise max_replication_slots, or drop slots that nobody uses (tranship slots)"
			}
			return fmt.Errorf("prepare the change stream: %s: %w", sql, explainRight(err, hint))
		}
		return nil
	}
	var have *slot
	look := func() error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL search_path = pg_catalog"); err != nil {
				return err
			}
			var err error
			if stream.Statements, err = s.publicationSQL(ctx, tx, d); err != nil {
				return err
			}
			have, err = findSlot(ctx, tx, d.Slot)
			return err
		})
	}
	if err := look(); err != nil {
		return pgconf.Classify(err)
	}
	for _, sql := range stream.Statements {
		if err := run(sql); err != nil {
			return err
		}
	}
	if len(stream.Statements) > 0 {
		// So that whoever finds it knows whose it is.
		if err := run("COMMENT ON PUBLICATION " + pgconf.QuoteIdent(d.Publication) + " IS " + pgconf.QuoteLiteral(req.Route.Pipeline)); err != nil {
			return err
		}
	}
	if have != nil && len(req.Cursor) == 0 && have.state == "lost" {
		if err := run("SELECT pg_catalog.pg_drop_replication_slot(" + pgconf.QuoteLiteral(d.Slot) + ")"); err != nil {
			return err
		}
		have = nil
	}
	if have == nil && len(req.Cursor) == 0 {
		sql := s.slotSQL(d.Slot)
		if err := run(sql); err != nil {
			return err
		}
		done := slices.Concat(stream.Statements, []string{sql})
		if err := look(); err != nil {
			return pgconf.Classify(err)
		}
		stream.Statements = done
	}
	if err := s.startOf(d, have, req.Cursor); err != nil {
		return fmt.Errorf("prepare the change stream: %w", err)
	}
	fresh := slices.DeleteFunc(slices.Clone(req.Members), func(m engine.StreamMember) bool {
		return m.Follows
	})
	if len(fresh) > 0 {
		point, err := s.align(ctx, fresh)
		if err != nil {
			return err
		}
		if point.Since < d.Start.LSN {
			return engine.Bugf("the alignment point %s lies before the stream's start %s", point.Since, d.Start.LSN)
		}
		for _, m := range fresh {
			// An appended log that was begun must have no gap before the point.
			if m.Write != engine.WriteAppend || len(req.Cursor) == 0 {
				d.Since[m.Plan.Resource.Name] = point.Since
			}
		}
	}
	plan.Splits[0].Descriptor = encode(d)
	return nil
}

// explainRight adds what to do to an error that a missing right or a limit made.
func explainRight(err error, hint string) error {
	if pgconf.IsState(err, "42501") || pgconf.IsState(err, "53400") {
		return engine.Permanentf(hint, "%w", err)
	}
	return pgconf.Classify(err)
}

// align takes the alignment point of the members whose changes are wanted from now
// on, one for all of them: a temporary slot begins at a position and exports the
// snapshot that sees exactly what had committed before it.
func (s *Session) align(ctx context.Context, members []engine.StreamMember) (point alignment, err error) {
	wal, err := pgconf.Connect(ctx, s.cfg, s.opt, pgconf.Role{Name: "align", Replication: true})
	if err != nil {
		return point, err
	}
	defer func() { _ = wal.Close(context.WithoutCancel(ctx)) }() // and with it the slot
	res, err := wal.PgConn().Exec(ctx, fmt.Sprintf("CREATE_REPLICATION_SLOT %s TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT", pgconf.QuoteIdent(fmt.Sprintf("%salign_%d", streamPrefix, wal.PgConn().PID())))).ReadAll()
	if err != nil {
		return point, fmt.Errorf("take an alignment point: %w", explainRight(err, "raise max_replication_slots and max_wal_senders: one more of each is needed for a moment"))
	}
	if len(res) != 1 || len(res[0].Rows) != 1 || len(res[0].Rows[0]) < 3 {
		return point, engine.Bugf("the server answered CREATE_REPLICATION_SLOT with %d results", len(res))
	}
	if point.Since, err = pgoutput.ParseLSN(string(res[0].Rows[0][1])); err != nil {
		return point, engine.Bugf("the slot's consistent point: %w", err)
	}
	conn, err := s.take(ctx)
	if err != nil {
		return point, err
	}
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET TRANSACTION SNAPSHOT "+pgconf.QuoteLiteral(string(res[0].Rows[0][2]))); err != nil {
			return err
		}
		return tx.QueryRow(ctx, "SELECT pg_catalog.pg_current_snapshot()::text").Scan(&point.Snapshot)
	})
	if err != nil {
		_ = conn.Close(context.WithoutCancel(ctx)) // it is given up because of err
		return point, pgconf.Classify(fmt.Errorf("take an alignment point: %w", err))
	}
	s.give(ctx, conn)
	for _, m := range members {
		for i := range m.Plan.Splits {
			piece, err := parseDescriptor(m.Plan.Splits[i])
			if err != nil {
				return point, err
			}
			piece.Aligned = &point
			m.Plan.Splits[i].Descriptor = encode(piece)
		}
	}
	return point, nil
}

func parseStream(split engine.Split) (*streamDescriptor, error) {
	d := &streamDescriptor{}
	if err := decodeStrict(split.Descriptor, d); err != nil {
		return nil, engine.Bugf("split %s: its descriptor can't be read: %w", split.ID, err)
	}
	if d.Version != 1 || d.Slot == "" || d.Publication == "" || len(d.Tables) == 0 {
		return nil, engine.Bugf("split %s: its descriptor makes no sense", split.ID)
	}
	if d.Since == nil {
		d.Since = map[string]pgoutput.LSN{}
	}
	return d, nil
}

// Settled implements engine.Streamer.
func (s *Session) Settled(pos engine.Position, reads []engine.Position) (bool, error) {
	var at streamPosition
	if len(pos) == 0 {
		return len(reads) == 0, nil
	}
	if err := decodeStrict(pos, &at); err != nil {
		return false, engine.Bugf("the stream's position can't be read: %w", err)
	}
	if at.Seen > at.LSN {
		return false, nil
	}
	for _, raw := range reads {
		var p position
		if err := decodeStrict(raw, &p); err != nil {
			return false, engine.Bugf("a piece's position can't be read: %w", err)
		}
		if at.LSN < p.Seen {
			return false, nil
		}
	}
	return true, nil
}

// Lag implements engine.Streamer.
func (s *Session) Lag(ctx context.Context, pos engine.Position) (engine.StreamLag, error) {
	var at streamPosition
	if len(pos) > 0 {
		if err := decodeStrict(pos, &at); err != nil {
			return engine.StreamLag{}, engine.Bugf("the stream's position can't be read: %w", err)
		}
	}
	var lag engine.StreamLag
	err := s.query(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT greatest(0, pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), $1::pg_catalog.pg_lsn))::int8", at.LSN.String()).Scan(&lag.Bytes)
	})
	return lag, err
}

// Streams implements engine.Streamer.
func (s *Session) Streams(ctx context.Context) (list []engine.StreamInfo, err error) {
	err = s.query(ctx, func(tx pgx.Tx) error {
		slots, err := listSlots(ctx, tx, streamPrefix)
		if err != nil {
			return err
		}
		pipelines := map[string]string{}
		rows, err := tx.Query(ctx, `SELECT pubname::text, coalesce(pg_catalog.obj_description(oid, 'pg_publication'), '') FROM pg_catalog.pg_publication WHERE pg_catalog.starts_with(pubname, $1)`, streamPrefix)
		if err != nil {
			return err
		}
		var name, comment string
		if _, err := pgx.ForEachRow(rows, []any{&name, &comment}, func() error { pipelines[name] = comment; return nil }); err != nil {
			return err
		}
		for name := range pipelines {
			if slots[name] == nil {
				slots[name] = &slot{state: "no slot"}
			}
		}
		for name, x := range slots {
			list = append(list, engine.StreamInfo{Name: name, Pipeline: pipelines[name], Active: x.active, Retained: x.retained, State: x.state})
		}
		slices.SortFunc(list, func(a, b engine.StreamInfo) int { return strings.Compare(a.Name, b.Name) })
		return nil
	})
	return list, err
}

// DropStream implements engine.Streamer.
func (s *Session) DropStream(ctx context.Context, name string) error {
	if !strings.HasPrefix(name, streamPrefix) {
		return engine.Permanentf("", "the stream %q is none of ours: their names begin with %q", name, streamPrefix)
	}
	conn, err := s.take(ctx)
	if err != nil {
		return err
	}
	defer s.give(ctx, conn)
	s.closeStream(name)
	err = whenFree(ctx, func() error {
		_, err := conn.Exec(ctx, "SELECT pg_catalog.pg_drop_replication_slot(slot_name) FROM pg_catalog.pg_replication_slots WHERE slot_name = $1 AND database = pg_catalog.current_database()", name)
		return err
	})
	if err != nil {
		return pgconf.Classify(fmt.Errorf("drop the replication slot %q: %w", name, err))
	}
	if _, err := conn.Exec(ctx, "DROP PUBLICATION IF EXISTS "+pgconf.QuoteIdent(name)); err != nil {
		return pgconf.Classify(fmt.Errorf("drop the publication %q: %w", name, err))
	}
	return nil
}
