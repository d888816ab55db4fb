package pgsink

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/engine"
)

// only names the target without tables that inherit from it; the partitions of a
// partitioned table are the table.
func (d *detail) only() string {
	if d.Partitioned {
		return d.place().sql()
	}
	return "ONLY " + d.place().sql()
}

// match is the SQL that joins target t and staging s by key.
func (d *detail) match() string {
	return each(d.Key, " AND ", func(k string) string { return "t." + k + " = s." + k })
}

// mergeStatements write the differences between staging and target by key. The
// target's rows keep their identity: what did not change is not touched, what
// changed is updated, so no foreign key's ON DELETE fires for it (P10).
func mergeStatements(d *detail, lineage []string) []string {
	staging, match := d.staging().sql(), d.match()
	compared := d.updated()
	var set []string
	for _, n := range compared {
		set = append(set, ident(n)+" = s."+ident(n))
	}
	for _, n := range lineage {
		set = append(set, ident(n)+" = s."+ident(n))
	}
	list := append(d.written(), lineage...)
	sql := []string{"DELETE FROM " + d.only() + " t WHERE NOT EXISTS (SELECT FROM " + staging + " s WHERE " + match + ")"}
	if len(compared) > 0 {
		// *<> compares the stored images: it works for types without equality and
		// notices what equality does not (1.0 and 1.00, −0).
		sql = append(sql, "UPDATE "+d.only()+" t SET "+strings.Join(set, ", ")+" FROM "+staging+" s WHERE "+match+
			" AND ROW("+idents("t.", compared)+")::record *<> ROW("+idents("s.", compared)+")::record")
	}
	return append(sql, "INSERT INTO "+d.place().sql()+" ("+idents("", list)+") OVERRIDING SYSTEM VALUE SELECT "+idents("s.", list)+
		" FROM "+staging+" s WHERE NOT EXISTS (SELECT FROM "+d.only()+" t WHERE "+match+")", "DROP TABLE "+staging)
}

func (p *publisher) lineageColumns() []string {
	if p.t.Lineage {
		return []string{lineageRun, lineageTime}
	}
	return nil
}

// merge prepares staging for the comparison by key.
func (p *publisher) merge(ctx context.Context, dep *dependents) (func(ctx context.Context) error, error) {
	if err := p.buildKey(ctx, fitName(p.d.Staging+"_pkey")); err != nil {
		return nil, err
	}
	if err := p.apart(ctx, "ANALYZE "+p.d.staging().sql()); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := p.lockOut(ctx); err != nil {
			return err
		}
		for _, f := range dep.Incoming {
			if f.cascades() {
				if err := p.refuseCascade(ctx, f); err != nil {
					return err
				}
			}
		}
		return p.finishIn(ctx, mergeStatements(p.d, p.lineageColumns()))
	}, nil
}

// lockOut keeps other writers away; readers go on and see the old rows until the
// commit (invariant 8).
func (p *publisher) lockOut(ctx context.Context) error {
	return p.exec(ctx, "LOCK TABLE "+p.d.only()+" IN SHARE ROW EXCLUSIVE MODE")
}

// refuseCascade refuses to delete a row that would take rows of another table
// with it, or change them (P10).
func (p *publisher) refuseCascade(ctx context.Context, f incoming) error {
	on := make([]string, len(f.Columns))
	for i := range f.Columns {
		on[i] = "c." + ident(f.Columns[i]) + " = t." + ident(f.Refers[i])
	}
	key := each(p.d.Key, " || ', ' || ", func(k string) string { return literal(strings.Trim(k, `"`)+"=") + " || t." + k + "::text" })
	var found string
	err := p.c.QueryRow(ctx, "SELECT "+key+" FROM "+p.d.only()+" t WHERE NOT EXISTS (SELECT FROM "+p.d.staging().sql()+" s WHERE "+p.d.match()+
		") AND EXISTS (SELECT FROM "+f.Child+" c WHERE "+strings.Join(on, " AND ")+") LIMIT 1").Scan(&found)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return classify(err, "look for rows that refer to %s", p.t.Name)
	}
	return engine.Permanentf("delete or move those rows of "+f.Child+" first, or let the key be ON DELETE NO ACTION",
		"replace %s: the row %s is gone at the source, and foreign key %s of %s would change the rows that refer to it", p.t.Name, found, f.Name, f.Child)
}

// rewrite exchanges all rows inside the table: it stays, with all that depends on it.
func (p *publisher) rewrite(ctx context.Context) error {
	if err := p.lockOut(ctx); err != nil {
		return err
	}
	list := idents("", append(p.d.written(), p.lineageColumns()...))
	return p.finishIn(ctx, []string{
		"DELETE FROM " + p.d.only(),
		"INSERT INTO " + p.d.place().sql() + " (" + list + ") OVERRIDING SYSTEM VALUE SELECT " + list + " FROM " + p.d.staging().sql(),
		"DROP TABLE " + p.d.staging().sql(),
	})
}

// finishIn runs the statements and proves that the target has as many rows as
// staging had: a trigger or rule may have kept some away (invariant 7).
func (p *publisher) finishIn(ctx context.Context, statements []string) error {
	for _, sql := range statements {
		if err := p.exec(ctx, sql); err != nil {
			return err
		}
	}
	var n int64
	if err := p.c.QueryRow(ctx, "SELECT count(*) FROM "+p.d.only()).Scan(&n); err != nil {
		return classify(err, "count %s", p.t.Name)
	}
	if n != p.expect {
		return &engine.MismatchError{Resource: p.t.Resource, What: "rows", Source: fmt.Sprint(p.expect), Destination: fmt.Sprintf("%d in %s", n, p.t.Name)}
	}
	return p.advance(ctx)
}
