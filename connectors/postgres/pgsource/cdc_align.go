package pgsource

import (
	"context"
	"fmt"
	"time"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/connectors/postgres/pgoutput"
	"github.com/tranship-io/tranship/engine"
)

// alignPause is how long a snapshot that lacks a commit is waited for.
const alignPause = 50 * time.Millisecond

// alignSnapshot makes sure that the read's snapshot sees whatever the alignment
// point's does, and otherwise takes another one: a commit can be in the log, and
// thus before the point, while it waits for a standby and nobody sees it yet (P16).
func (r *read) alignSnapshot(ctx context.Context) error {
	need, err := parseSnapshot(r.d.Aligned.Snapshot)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(r.s.cfg.Stall())
	for {
		res, err := r.conn.results(ctx, "SELECT pg_catalog.pg_current_snapshot(), pg_catalog.pg_is_in_recovery(), CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_current_wal_insert_lsn() END")
		if err != nil {
			return pgconf.Classify(fmt.Errorf("take an aligned snapshot: %w", err))
		}
		row := res[0].Rows[0]
		if string(row[1]) == "t" {
			return engine.Permanentf("connect to the primary", "the server is a standby: its snapshots don't say which transactions they see (P16)")
		}
		have, err := parseSnapshot(string(row[0]))
		if err != nil {
			return err
		}
		seen, err := pgoutput.ParseLSN(string(row[2]))
		if err != nil {
			return engine.Bugf("%w", err)
		}
		covers, xid := have.covers(need)
		if covers {
			r.pos.Seen = max(r.pos.Seen, seen)
			return nil
		}
		if time.Now().After(deadline) {
			return engine.Retryablef("transaction %d has committed, but nobody sees it yet: is a synchronous standby away?", xid)
		}
		if _, err := r.conn.results(ctx, "ROLLBACK"); err != nil {
			return pgconf.Classify(err)
		}
		select {
		case <-time.After(alignPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := r.s.begin(ctx, r.conn, r.d, r.req); err != nil {
			return err
		}
	}
}
