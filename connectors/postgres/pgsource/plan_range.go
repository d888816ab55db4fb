package pgsource

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/engine"
)

var _ engine.RangePlanner = (*Session)(nil)

// PlanRange implements [engine.RangePlanner].
func (s *Session) PlanRange(ctx context.Context, req engine.PlanRequest, r engine.CursorRange) (*engine.SourcePlan, error) {
	return s.plan(ctx, req, func(p *planning) error { return p.part(ctx, r) })
}

// part plans the rows of a range of the cursor. The route's cursor stays.
func (p *planning) part(ctx context.Context, r engine.CursorRange) error {
	c, err := p.cursorColumn()
	if err != nil {
		return err
	}
	last, err := p.lastCursor(c)
	if err != nil {
		return err
	}
	if p.req.Write == engine.WriteAppend {
		if last == nil || last.UpTo == nil {
			return engine.Permanentf("start a plain run first", "%s: no run has read it yet, so there is nothing to complete", p.rel.resource())
		}
		p.plan.Window = &engine.Window{Cursor: c.field.Name, UpTo: *last.UpTo}
	}
	from, to, err := p.ends(ctx, c, r)
	if err != nil {
		return err
	}
	d := descriptor{
		Way: byCursor, Unproved: p.unproved, Order: dropDoubles(append([]string{c.field.Name}, p.key...)),
		Cursor: &cursorRange{Column: c.field.Name, From: from, To: to, Mark: to},
	}
	p.plan.Consistency = engine.ConsistencyChunked
	p.plan.NextCursor = p.req.Cursor
	p.plan.Rows, p.plan.Bytes = -1, -1
	if to == nil {
		p.plan.Rows, p.plan.Bytes = 0, 0
		p.plan.Coverage = fmt.Sprintf("no row has a value of %q in the range", c.field.Name)
	} else {
		p.plan.Coverage = fmt.Sprintf("rows with %q from %s to %s as they are now, read again; the next run begins where it would have begun", c.field.Name, orFirst(from), *to)
	}
	p.addSplit(d, p.plan.Rows, p.plan.Bytes)
	return nil
}

func orFirst(s *string) string {
	if s == nil {
		return "the first"
	}
	return *s
}

// ends are the range's, in the column's type and as the server writes them; to is
// nil if the range is empty. An open range ends at the greatest value there is.
func (p *planning) ends(ctx context.Context, c *column, r engine.CursorRange) (from, to *string, err error) {
	err = p.s.data(ctx, p.typeSchemas([]string{c.field.Name}), func(tx pgx.Tx) error {
		given := func(text string) string {
			if text == "" {
				return "NULL::" + c.cast
			}
			return pgconf.QuoteLiteral(text) + "::" + c.cast
		}
		most := "(" + p.boundSQL(c, "") + ")::" + c.cast
		high := "coalesce(" + given(r.To) + ", " + most + ")"
		if w := p.plan.Window; w != nil {
			high = "least(" + high + ", " + given(w.UpTo) + ")"
		}
		return tx.QueryRow(ctx, fmt.Sprintf("SELECT e.low::text, CASE WHEN e.low > e.high THEN NULL ELSE e.high::text END FROM (SELECT %s AS low, %s AS high) e",
			given(r.From), high)).Scan(&from, &to)
	})
	var bad *pgconn.PgError
	if errors.As(err, &bad) && len(bad.Code) == 5 && bad.Code[:2] == "22" {
		return nil, nil, engine.Permanentf("write the ends as the source writes values of the cursor", "%s: the range %q..%q is none of %q (%s): %s",
			p.rel.resource(), r.From, r.To, c.field.Name, c.field.Native.Type, bad.Message)
	}
	if err != nil {
		return nil, nil, p.filterError("read the ends of the range", err)
	}
	return from, to, nil
}
