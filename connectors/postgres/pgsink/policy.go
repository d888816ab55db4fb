package pgsink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/engine"
)

// applyPolicies looks for values in the temporary table that the target can't
// hold, and does with them what the user has stated: nothing is changed silently
// (invariant 6). All tests are asked in one pass; most epochs pass it.
func (w *writer) applyPolicies(ctx context.Context) error {
	var tests []string
	var cols []*column
	for i := range w.d.Columns {
		c := &w.d.Columns[i]
		if c.Generated {
			continue
		}
		if test := c.test("s." + ident(c.Name)); test != "" {
			tests = append(tests, "count(*) FILTER (WHERE NOT ("+test+"))")
			cols = append(cols, c)
		}
	}
	if len(cols) == 0 {
		return nil
	}
	counts := make([]int64, len(cols))
	dest := make([]any, len(cols))
	for i := range counts {
		dest[i] = &counts[i]
	}
	if err := w.c.QueryRow(ctx, "SELECT "+strings.Join(tests, ", ")+" FROM "+transport+" s").Scan(dest...); err != nil {
		return w.rowFailure(err)
	}
	for i, n := range counts {
		if n > 0 {
			if err := w.policy(ctx, cols[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// policy treats the values of one column that don't fit.
func (w *writer) policy(ctx context.Context, c *column) error {
	x := "s." + ident(c.Name)
	misfit := "NOT (" + c.test(x) + ")"
	var err error
	var n int64
	switch {
	case c.Policy == engine.PolicySetAside:
		n, err = w.setAsideRows(ctx, c, misfit)
	case c.Policy == engine.PolicyNull && !c.NeedValue && !contains(w.d.Key, c.Name):
		n, err = w.change(ctx, c, misfit, "NULL")
	case c.Policy == engine.PolicyClamp && c.Clamp != "":
		clamp := fmt.Sprintf(c.Clamp, "("+c.value(x)+")")
		// Where nothing near fits (NaN into an integer, NULL), the value fails.
		if err := w.failOn(ctx, c, misfit+" AND ("+x+" IS NULL OR ("+clamp+") IS NULL)"); err != nil {
			return err
		}
		n, err = w.change(ctx, c, misfit, "("+clamp+")::"+c.load().SQL)
	default:
		return w.failOn(ctx, c, misfit)
	}
	if err != nil || n == 0 {
		return err
	}
	w.count(c, c.Policy, c.why(), n)
	return nil
}

func (c *column) why() string {
	if c.Reason != "" {
		return c.Reason
	}
	return "it takes no NULL"
}

func (w *writer) count(c *column, policy engine.Policy, reason string, n int64) {
	totals := engine.Totals{Policies: w.receipt.Policies}
	totals.AddPolicies([]engine.PolicyCount{{Column: c.Source, Policy: policy, Reason: reason, Count: n}})
	w.receipt.Policies = totals.Policies
}

// change writes another value into the rows, and keeps the difference of their
// digests, so that what is read back can still be compared with what was read.
func (w *writer) change(ctx context.Context, c *column, where, value string) (int64, error) {
	update := "UPDATE " + transport + " s SET " + ident(c.Name) + " = " + value + " WHERE " + where
	if !w.verify {
		tag, err := w.c.Exec(ctx, update)
		return tag.RowsAffected(), classify(err, "apply the value policy of %s column %q", w.t.Resource, c.Source)
	}
	before, err := w.digestTransport(ctx, "SELECT ", " WHERE "+where)
	if err != nil {
		return 0, err
	}
	after, n, err := w.digestRows(ctx, func(exprs string) string { return update + " RETURNING " + exprs })
	if err != nil {
		return 0, err
	}
	w.out.Add(before)
	w.out.Sub(after)
	return n, nil
}

// failOn makes an error of the first row where the condition holds, if any.
func (w *writer) failOn(ctx context.Context, c *column, where string) error {
	x := "s." + ident(c.Name)
	var value, key *string
	err := w.c.QueryRow(ctx, "SELECT ("+x+")::text, "+w.keyText()+" FROM "+transport+" s WHERE "+where+
		" ORDER BY s."+transportOrder+" LIMIT 1").Scan(&value, &key)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return w.rowFailure(err)
	}
	e := &engine.ValueError{Resource: w.t.Resource, Column: c.Source, Value: "NULL", Reason: c.why()}
	if value != nil {
		e.Value = shorten(*value)
		e.Reason = c.Target.SQL + ": " + c.Reason
	}
	if key != nil {
		e.Key = *key
	}
	hint := "correct the value, widen the target's column, or state a value policy for it (null, clamp, text, set_aside)"
	if c.Clamp == "" {
		hint = "correct the value, widen the target's column, or state a value policy for it (null, text, set_aside)"
	}
	return &engine.Error{Class: engine.Permanent, Err: e, Hint: hint}
}

// keyText is the SQL for a row's key as "id=3".
func (w *writer) keyText() string {
	if len(w.d.Key) == 0 {
		return "NULL::text"
	}
	parts := make([]string, len(w.d.Key))
	for i, k := range w.d.Key {
		parts[i] = literal(w.d.byName(k).Source+"=") + " || COALESCE((s." + ident(k) + ")::text, 'NULL')"
	}
	return strings.Join(parts, " || ', ' || ")
}

// rowJSON is the SQL for a row's values by source column.
func (w *writer) rowJSON() string {
	parts := make([]string, len(w.d.Columns))
	for i, c := range w.d.Columns {
		parts[i] = "s." + ident(c.Name) + " AS " + ident(fitName(c.Source))
	}
	return "(SELECT row_to_json(r) FROM (SELECT " + strings.Join(parts, ", ") + ") r)"
}

// setAsideRows takes rows out of the temporary table, with reason and original
// values, into the user's table in the same transaction, or into the receipt.
func (w *writer) setAsideRows(ctx context.Context, c *column, where string) (int64, error) {
	rows, err := w.c.Query(ctx, "SELECT COALESCE("+w.keyText()+", ''), "+w.rowJSON()+"::text FROM "+transport+" s WHERE "+where+" ORDER BY s."+transportOrder)
	if err != nil {
		return 0, w.rowFailure(err)
	}
	reason := c.Target.SQL + ": " + c.why()
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (engine.SetAsideRow, error) {
		r := engine.SetAsideRow{Column: c.Source, Reason: reason}
		var values string
		err := row.Scan(&r.Key, &values)
		r.Values = []byte(values)
		return r, err
	})
	if err != nil {
		return 0, w.rowFailure(err)
	}
	if err := w.putAside(ctx, found); err != nil {
		return 0, err
	}
	n, err := w.removeRows(ctx, where)
	if err != nil {
		return 0, err
	}
	if n != int64(len(found)) {
		return 0, w.mismatch("rows", fmt.Sprint(len(found)), fmt.Sprintf("%d set aside", n))
	}
	w.receipt.SetAside += n
	return n, nil
}

// putAside writes rows to the user's table, or hands them to the engine.
func (w *writer) putAside(ctx context.Context, rows []engine.SetAsideRow) error {
	if w.d.SetAside == nil {
		w.receipt.SetAsideRows = append(w.receipt.SetAsideRows, rows...)
		return nil
	}
	for part := range slices.Chunk(rows, 1000) {
		var cols, keys, reasons, values []string
		for _, r := range part {
			cols, keys = append(cols, clean(r.Column)), append(keys, clean(r.Key))
			reasons, values = append(reasons, clean(r.Reason)), append(values, string(r.Values))
		}
		_, err := w.c.Exec(ctx, `INSERT INTO `+w.d.SetAside.sql()+` (run_id, resource, split, "column", key, reason, "values")
			SELECT $1::text, $2::text, $3::text, c, NULLIF(k, ''), r, v::json FROM unnest($4::text[], $5::text[], $6::text[], $7::text[]) u(c, k, r, v)`,
			w.t.RunID, w.t.Resource, w.e.Split, cols, keys, reasons, values)
		if err != nil {
			return classify(err, "set rows of %s aside into %s", w.t.Resource, w.d.SetAside)
		}
	}
	return nil
}

// clean keeps what the server's text can't hold out of keys and reasons; the
// row's values are JSON, where it is escaped.
func clean(s string) string { return strings.ReplaceAll(s, "\x00", `\0`) }
