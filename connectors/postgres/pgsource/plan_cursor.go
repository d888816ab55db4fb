package pgsource

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

// cursorState is the cursor that a run stores; it is JSON in State and at the
// destination, so names never change their meaning. Values are the server's text
// at full precision (case 11), timestamps with zone in UTC.
type cursorState struct {
	Version int    `json:"v"`
	Column  string `json:"column"`
	Type    string `json:"type"`
	// Mark is where the next run's window begins, inclusive; nil: at the first row.
	Mark *string `json:"mark"`
	// UpTo is the greatest value read so far; nil: no row was read yet.
	UpTo *string `json:"up_to"`
}

// incremental plans a read of the rows at or above the stored mark, up to the
// greatest value that one snapshot shows (P15).
func (p *planning) incremental(ctx context.Context) error {
	c, err := p.cursorColumn()
	if err != nil {
		return err
	}
	last, err := p.lastCursor(c)
	if err != nil {
		return err
	}
	p.plan.Consistency = engine.ConsistencyChunked
	w, err := p.window(ctx, c, last)
	if err != nil {
		return err
	}
	next := cursorState{Version: 1, Column: c.field.Name, Type: c.cast, Mark: w.mark, UpTo: w.upTo}
	p.plan.NextCursor = encode(next)
	d := descriptor{
		Way: byCursor, Unproved: p.unproved, Order: append([]string{c.field.Name}, p.key...),
		Cursor: &cursorRange{Column: c.field.Name, To: w.to, Mark: w.mark, Nulls: c.field.Nullable},
	}
	d.Order = dropDoubles(d.Order)
	if last != nil {
		d.Cursor.From = last.Mark
		if last.UpTo != nil {
			p.plan.Window = &engine.Window{Cursor: c.field.Name, UpTo: *last.UpTo}
		}
	}
	p.coverage(c, w)
	if len(p.key) == 0 {
		p.keyless(d.Cursor, last)
	}
	// The estimate of a later run's window would need to read it.
	p.plan.Rows, p.plan.Bytes = p.rel.rows, p.rel.bytes
	if last != nil {
		p.plan.Rows, p.plan.Bytes = -1, -1
	}
	if w.to == nil {
		p.plan.Rows, p.plan.Bytes = 0, 0
	}
	p.addSplit(d, p.plan.Rows, p.plan.Bytes)
	return nil
}

// keyless: without a key an append sink can't tell what of the window it has, so
// the window begins after what was read, and what comes late is not read.
func (p *planning) keyless(r *cursorRange, last *cursorState) {
	if p.req.Write != engine.WriteAppend {
		return
	}
	p.plan.Window = nil
	p.warn("without a key rows can't be told apart: rows that appear later with a cursor at or below the greatest one read are not read; give columns that identify a row as key")
	if last != nil && last.UpTo != nil {
		r.From, r.After = last.UpTo, true
	}
}

func dropDoubles(list []string) []string {
	var out []string
	for _, v := range list {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

func (p *planning) cursorColumn() (*column, error) {
	name := p.req.Selection.Cursor
	if name == "" {
		return nil, engine.Permanentf("set cursor; inspect ranks the columns that can be one", "%s: an incremental read needs a cursor column", p.rel.resource())
	}
	c, ok := p.rel.column(name)
	if !ok {
		return nil, engine.Permanentf("inspect ranks the columns that can be one", "%s: there is no column %q to be the cursor", p.rel.resource(), name)
	}
	if !slices.ContainsFunc(p.columns, func(c column) bool { return c.field.Name == name }) {
		return nil, engine.Permanentf("include it", "%s: the cursor column %q is not selected", p.rel.resource(), name)
	}
	if !c.orderable {
		return nil, engine.Permanentf("inspect ranks the columns that can be one", "%s: column %q has type %s, which has no order", p.rel.resource(), name, c.field.Native.Type)
	}
	if p.req.Lookback < 0 {
		return nil, engine.Permanentf("", "%s: lookback is negative", p.rel.resource())
	}
	if p.req.Lookback > 0 && !timed(c.field.Type.Kind) {
		p.warn("lookback is a time span and means nothing for the cursor %q of type %s", name, c.field.Native.Type)
	}
	return c, nil
}

// timed tells whether values of the kind are moments, so that clocks, transaction
// starts and lookback can be compared with them.
func timed(k schema.Kind) bool {
	return k == schema.TimestampTZ || k == schema.Timestamp || k == schema.Date
}

// lastCursor reads what the last run stored. Null and absent mean the first run;
// a mark of 0 or an empty string is a value.
func (p *planning) lastCursor(c *column) (*cursorState, error) {
	raw := p.req.Cursor
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	last := &cursorState{}
	if err := json.Unmarshal(raw, last); err != nil || last.Version != 1 {
		return nil, engine.Permanentf("reset the resource to read it from its beginning", "%s: the stored cursor can't be read by this version", p.rel.resource())
	}
	if last.Column != c.field.Name || last.Type != c.cast {
		return nil, engine.Permanentf("reset the resource to read it from its beginning, or set the cursor back",
			"%s: the stored cursor is of column %q (%s), the pipeline's is %q (%s)", p.rel.resource(), last.Column, last.Type, c.field.Name, c.cast)
	}
	return last, nil
}

// window is what one run reads and what it leaves to the next.
type window struct {
	// to bounds this run's rows, upTo is the greatest value read by any run, mark
	// is where the next run begins.
	to, upTo, mark *string
	clock          clock
}

// clock is a sample of the server's sessions, taken before the snapshot (P15).
type clock struct {
	now string
	// oldest is the start of the oldest open transaction, nil without one.
	oldest *string
	// hidden counts sessions whose transactions the role may not see.
	hidden int64
	// prepared counts prepared transactions, which no session shows.
	prepared int64
	standby  bool
}

// clockSQL sees sessions of this database only: others can't write to it.
// Sessions of other roles show nothing at all without pg_read_all_stats.
const clockSQL = `SELECT pg_catalog.clock_timestamp()::text,
	(SELECT min(a.xact_start)::text FROM pg_catalog.pg_stat_activity a
		WHERE a.datname = pg_catalog.current_database() AND a.pid <> pg_catalog.pg_backend_pid()
		AND a.backend_type NOT IN ('walsender', 'autovacuum worker')),
	(SELECT count(*) FROM pg_catalog.pg_stat_activity a
		WHERE a.datname = pg_catalog.current_database() AND a.backend_type IS NULL AND a.pid <> pg_catalog.pg_backend_pid()),
	(SELECT count(*) FROM pg_catalog.pg_prepared_xacts WHERE database = pg_catalog.current_database()),
	pg_catalog.pg_is_in_recovery()`

// window samples the clock in a transaction of its own, then takes the snapshot
// that gives the upper bound: a transaction that the snapshot does not show was
// open when the clock was sampled, or began after it (P15). One second covers
// transactions that have begun and are not shown yet.
func (p *planning) window(ctx context.Context, c *column, last *cursorState) (*window, error) {
	w := &window{}
	err := p.s.query(ctx, func(tx pgx.Tx) error {
		k := &w.clock
		return tx.QueryRow(ctx, clockSQL).Scan(&k.now, &k.oldest, &k.hidden, &k.prepared, &k.standby)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: sample the server's clock and transactions: %w", p.rel.resource(), err)
	}
	err = p.s.data(ctx, p.typeSchemas([]string{c.field.Name}), func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, p.boundSQL(c, "")).Scan(&w.to); err != nil {
			return err
		}
		if w.to == nil {
			return nil
		}
		base := w.to
		if special := specials(c); special != "" {
			if err := tx.QueryRow(ctx, p.boundSQL(c, special)).Scan(&base); err != nil {
				return err
			}
		}
		return tx.QueryRow(ctx, p.markSQL(c, w, base, last)).Scan(&w.mark, &w.upTo)
	})
	if err != nil {
		return nil, p.filterError("read the greatest cursor", err)
	}
	if w.to == nil && last != nil {
		// No rows now says nothing about those read before: the cursor stays.
		w.mark, w.upTo = last.Mark, last.UpTo
	}
	if w.clock.prepared > 0 {
		// Prepared transactions have rows that nobody can date (P15): the mark stays
		// until they are gone.
		w.mark = nil
		if last != nil {
			w.mark = last.Mark
		}
	}
	return w, nil
}

// boundSQL returns the greatest cursor value, or NULL. Not every ordered type has
// max(), but each can be sorted, and an index serves both.
func (p *planning) boundSQL(c *column, condition string) string {
	name := pgconf.QuoteIdent(c.field.Name)
	from := p.rel.sql()
	if p.rel.kind == kindTable {
		from = "ONLY " + from
	}
	// Qualified: a bare name would mean the column as selected, as text.
	return fmt.Sprintf("SELECT (SELECT %s::text FROM %s WHERE %s ORDER BY %s.%s DESC LIMIT 1)",
		name, from, p.where(name+" IS NOT NULL", condition), p.rel.sql(), name)
}

// specials excludes values that sort beyond all ordinary ones and would keep the
// mark there for ever: such rows are part of every window instead.
func specials(c *column) string {
	name := pgconf.QuoteIdent(c.field.Name)
	switch c.field.Type.Kind {
	case schema.Date, schema.Timestamp, schema.TimestampTZ:
		return "pg_catalog.isfinite(" + name + ")"
	case schema.Float32, schema.Float64:
		return name + " NOT IN ('NaN', 'Infinity')"
	case schema.Decimal:
		// 'Infinity' is no numeric before version 14.
		return name + "::text NOT IN ('NaN', 'Infinity')"
	}
	return ""
}

// markSQL computes, in the server and in the column's type, the next run's mark
// and the greatest value read so far.
func (p *planning) markSQL(c *column, w *window, base *string, last *cursorState) string {
	lit := func(s *string) string {
		if s == nil {
			return "NULL::" + c.cast
		}
		return pgconf.QuoteLiteral(*s) + "::" + c.cast
	}
	upTo := lit(w.to)
	if last != nil && last.UpTo != nil {
		upTo = "greatest(" + upTo + ", " + lit(last.UpTo) + ")"
	}
	safe := pgconf.QuoteLiteral(w.clock.now) + "::timestamptz - interval '1 second'"
	if w.clock.oldest != nil {
		safe = "least(" + safe + ", " + pgconf.QuoteLiteral(*w.clock.oldest) + "::timestamptz)"
	}
	back := fmt.Sprintf("interval '%d microseconds'", p.req.Lookback.Microseconds())
	// A timestamp without zone, and a date, were written in some session's zone:
	// UTC or the one that the server gives to sessions, whichever is earlier.
	const zone = "(SELECT reset_val FROM pg_catalog.pg_settings WHERE name = 'TimeZone')"
	local := fmt.Sprintf("least((%[1]s) AT TIME ZONE 'UTC', (%[1]s) AT TIME ZONE %[2]s)", safe, zone)
	mark := lit(base)
	// A NULL base (all values are special) must stay NULL, which least() would skip.
	switch c.field.Type.Kind {
	case schema.TimestampTZ:
		mark = fmt.Sprintf("CASE WHEN %[1]s IS NOT NULL THEN least(%[1]s, %[2]s) - %[3]s END", mark, safe, back)
	case schema.Timestamp:
		mark = fmt.Sprintf("CASE WHEN %[1]s IS NOT NULL THEN least(%[1]s, %[2]s) - %[3]s END", mark, local, back)
	case schema.Date:
		days := (p.req.Lookback + 24*time.Hour - 1) / (24 * time.Hour)
		mark = fmt.Sprintf("CASE WHEN %[1]s IS NOT NULL THEN least(%[1]s, (%[2]s)::date) - %[3]d END", mark, local, days)
	}
	return fmt.Sprintf("SELECT (%s)::text, (%s)::text", mark, upTo)
}

// coverage says what the next runs will find of rows that become visible late,
// and what they can't see (P15): warned about, never refused.
func (p *planning) coverage(c *column, w *window) {
	k := w.clock
	name := c.field.Name
	var parts []string
	if w.to == nil {
		parts = append(parts, fmt.Sprintf("no row has a value in %q", name))
	} else {
		parts = append(parts, fmt.Sprintf("rows with %q up to %s", name, *w.to))
	}
	switch {
	case !timed(c.field.Type.Kind):
		parts = append(parts, fmt.Sprintf("the next run begins at the greatest value, so that equal values are found; a row that becomes visible later with a smaller %q is not read", name))
		p.warn("%q is no time: rows of transactions that commit after a run with a smaller value than it read are not found; a timestamp set by the database at the transaction's time is", name)
	case k.standby:
		parts = append(parts, "the source is a standby, where the primary's open transactions can't be seen")
		p.warn("the source is a standby: a transaction on the primary that commits late is found only if lookback (now %s) covers its duration", p.req.Lookback)
	case k.hidden > 0:
		parts = append(parts, fmt.Sprintf("%d sessions are hidden from this role", k.hidden))
		p.warn("the role may not see the transactions of %d sessions: GRANT pg_read_all_stats TO it; until then a transaction of theirs that commits late is found only if lookback (now %s) covers its duration", k.hidden, p.req.Lookback)
	default:
		parts = append(parts, fmt.Sprintf("rows of transactions that were open are found by the next run if %q is set by the database at the transaction's time", name))
		if !transactionTime(c) {
			p.warn("%q has no default that sets it to the transaction's time: if an application or its clock sets it, set a lookback (now %s) that covers its delay until commit", name, p.req.Lookback)
		}
	}
	if timed(c.field.Type.Kind) && c.field.Type.Kind != schema.TimestampTZ {
		parts = append(parts, "values are taken to be in UTC or in the server's own time zone")
	}
	if k.prepared > 0 {
		parts = append(parts, fmt.Sprintf("%d prepared transactions are open, so the next run begins where this one began", k.prepared))
	}
	if p.rel.kind == kindView || p.rel.kind == kindMatView || p.rel.kind == kindForeign {
		p.warn("of a %s it can't be known when its rows become visible", kindName(p.rel.kind))
	}
	p.plan.Coverage = strings.Join(parts, "; ")
}

// transactionTime tells whether the column's default is the transaction's time.
func transactionTime(c *column) bool {
	d := strings.ToLower(c.field.Default)
	return strings.HasPrefix(d, "now()") || strings.HasPrefix(d, "current_timestamp") || strings.HasPrefix(d, "transaction_timestamp()") ||
		strings.HasPrefix(d, "localtimestamp") || strings.HasPrefix(d, "current_date") || strings.HasPrefix(d, "(now()") || strings.HasPrefix(d, "timezone(")
}
