package pgsink

import (
	"context"
	"fmt"
	"strings"

	"github.com/tranship-io/tranship/engine"
)

// A member whose rows are still being read has its changes kept apart, in a table
// beside staging: one row for each key that a change has touched, with what the
// changes made of it. Publish brings both together (engine/stream.go).

// deltaTruncated is the comment on a delta whose table was truncated meanwhile.
const deltaTruncated = "truncated"

func (d *detail) delta() place { return place{d.Schema, d.Delta} }

// makeDelta is the statement that makes it.
func makeDelta(d *detail) change {
	var cols []string
	for _, i := range d.writtenAt() {
		cols = append(cols, ident(d.Columns[i].Name)+" "+d.Columns[i].Target.SQL)
	}
	cols = append(cols, changeKind+" int2 NOT NULL", changeUnsent+" varbit", changeMoved+" boolean NOT NULL")
	for i, k := range d.Key {
		cols = append(cols, fmt.Sprintf("%s%d %s", changeFrom, i, d.byName(k).Target.SQL))
	}
	cols = append(cols, "PRIMARY KEY ("+idents("", d.Key)+")")
	return change{SQL: "CREATE TABLE " + d.delta().sql() + " (" + strings.Join(cols, ", ") + ")", Done: exists(d.delta())}
}

// keepApart adds the outcomes to the delta.
func (w *changeWriter) keepApart(ctx context.Context) error {
	from := "pg_temp." + changeTable(w.t) + " s"
	delta := w.d.delta().sql()
	names := w.d.written()
	// Rows that moved take with them what is known of the row that they were.
	if w.counts[keyMoved] > 0 {
		set := make([]string, 0, len(names)+2)
		for i, name := range names {
			back, _ := w.d.byName(name).readBack("t." + ident(name))
			set = append(set, fmt.Sprintf("%[1]s = CASE WHEN get_bit(s.%[2]s, %[3]d) = 1 THEN %[4]s ELSE s.%[1]s END", ident(name), changeUnsent, i, back))
		}
		zero := fmt.Sprintf("B'%s'", strings.Repeat("0", len(names)))
		set = append(set, fmt.Sprintf("%[1]s = NULLIF(s.%[1]s & COALESCE(t.%[1]s, %[2]s), %[2]s)", changeUnsent, zero))
		for i, k := range w.d.Key {
			// Where it was when its table's rows began to be read.
			back, _ := w.d.byName(k).readBack(fmt.Sprintf("t.%s%d", changeFrom, i))
			set = append(set, fmt.Sprintf("%[1]s%[2]d = CASE WHEN t.%[3]s THEN %[4]s ELSE s.%[1]s%[2]d END", changeFrom, i, changeMoved, back))
		}
		if _, err := w.exec(ctx, "UPDATE "+from+" SET "+strings.Join(set, ", ")+" FROM "+delta+" t WHERE "+w.matchFrom()+
			fmt.Sprintf(" AND s.%s = %d AND t.%[1]s <> %[3]d", changeKind, keyMoved, keyGone), -1); err != nil {
			return err
		}
	}
	exprs := make([]string, 0, len(names))
	set := []string{}
	for i, name := range names {
		exprs = append(exprs, w.d.byName(name).stored("s."+ident(name)))
		if !contains(w.d.Key, name) {
			// A plain update leaves what it did not send; every other outcome is the row.
			set = append(set, fmt.Sprintf("%[1]s = CASE WHEN EXCLUDED.%[2]s = %[3]d AND get_bit(EXCLUDED.%[4]s, %[5]d) = 1 THEN t.%[1]s ELSE EXCLUDED.%[1]s END",
				ident(name), changeKind, keyPart, changeUnsent, i))
		}
	}
	zero := fmt.Sprintf("B'%s'", strings.Repeat("0", len(names)))
	set = append(set,
		fmt.Sprintf("%[1]s = CASE WHEN EXCLUDED.%[2]s = %[3]d THEN NULLIF(EXCLUDED.%[1]s & COALESCE(t.%[1]s, %[4]s), %[4]s) ELSE EXCLUDED.%[1]s END", changeUnsent, changeKind, keyPart, zero),
		fmt.Sprintf("%[1]s = CASE WHEN EXCLUDED.%[2]s = %[3]d THEN t.%[1]s ELSE EXCLUDED.%[1]s END", changeMoved, changeKind, keyPart),
		fmt.Sprintf("%[1]s = EXCLUDED.%[1]s", changeKind))
	fromNames, fromExprs := "", ""
	for i, k := range w.d.Key {
		name := fmt.Sprintf("%s%d", changeFrom, i)
		fromNames += ", " + name
		fromExprs += ", " + w.d.byName(k).stored("s."+name)
		set = append(set, fmt.Sprintf("%[1]s = CASE WHEN EXCLUDED.%[2]s = %[3]d THEN t.%[1]s ELSE EXCLUDED.%[1]s END", name, changeKind, keyPart))
	}
	keys := make([]string, len(w.d.Key))
	for i, k := range w.d.Key {
		keys[i] = w.d.byName(k).stored("s." + ident(k))
	}
	// What is gone first: of two keys that the server takes for equal the other one
	// stays, and no statement may write a row twice.
	for _, which := range []struct{ distinct, where string }{
		{"DISTINCT ON (" + strings.Join(keys, ", ") + ") ", fmt.Sprintf("= %d", keyGone)}, {"", fmt.Sprintf("<> %d", keyGone)},
	} {
		sql := "INSERT INTO " + delta + " AS t (" + idents("", names) + ", " + changeKind + ", " + changeUnsent + ", " + changeMoved + fromNames + ") SELECT " + which.distinct + strings.Join(exprs, ", ") +
			fmt.Sprintf(", s.%[1]s, s.%[2]s, s.%[1]s = %[3]d AND s.%[2]s IS NOT NULL", changeKind, changeUnsent, keyMoved) + fromExprs + " FROM " + from +
			" WHERE s." + changeKind + " " + which.where + " ON CONFLICT (" + idents("", w.d.Key) + ") DO UPDATE SET " + strings.Join(set, ", ")
		if _, err := w.exec(ctx, sql, -1); err != nil {
			return err
		}
	}
	return nil
}

// mergeDelta brings staging to where the stream is, in the publish's transaction,
// and returns how many rows it has then.
func (p *publisher) mergeDelta(ctx context.Context) (int64, error) {
	// Epochs that are under way hold this lock; later ones see the publish (P2, P8).
	if _, err := p.c.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", keyOf(p.t).lock()); err != nil {
		return 0, classify(err, "wait for the change stream's epoch")
	}
	if at := p.p.Stream; at != nil {
		// A destination that was set back has less of the stream than the rows need (P3).
		k := keyOf(at.Target)
		var epoch int64
		err := p.c.QueryRow(ctx, `SELECT COALESCE((SELECT epoch FROM `+p.s.ledger.rows()+` WHERE `+rowWhere+`), -1)`,
			k.installation, k.route, k.resource, at.Target.RunID, at.Split).Scan(&epoch)
		if err != nil {
			return 0, classify(err, "read the change stream's ledger row")
		}
		if epoch < at.Epoch {
			return 0, fmt.Errorf("the change stream is applied up to epoch %d and %s needs %d: %w", epoch, p.t.Resource, at.Epoch, engine.ErrLedgerBehind)
		}
	}
	var truncated bool
	err := p.c.QueryRow(ctx, "SELECT COALESCE(obj_description(to_regclass($1), 'pg_class'), '') = $2", p.d.delta().sql(), deltaTruncated).Scan(&truncated)
	if err != nil {
		return 0, classify(err, "look at the changes of %s", p.t.Resource)
	}
	if truncated {
		return 0, stagingLost(p.t, "the table was truncated while its rows were read")
	}
	names := p.d.written()
	delta, staging := p.d.delta().sql(), p.d.staging().sql()
	match := each(p.d.Key, " AND ", func(k string) string { return "t." + k + " = s." + k })
	var set []string
	for i, name := range names {
		if !contains(p.d.Key, name) {
			set = append(set, fmt.Sprintf("%[1]s = CASE WHEN get_bit(t.%[2]s, %[3]d) = 1 THEN s.%[1]s ELSE t.%[1]s END", ident(name), changeUnsent, i))
		}
	}
	if len(set) > 0 {
		was := make([]string, len(p.d.Key))
		for i, k := range p.d.Key {
			was[i] = fmt.Sprintf("t.%s%d = s.%s", changeFrom, i, ident(k))
		}
		// A row that moved after all pieces were read was read under its old key; what
		// moved before comes whole, or is gone by now (engine/stream.go).
		for _, on := range []string{match + " AND NOT t." + changeMoved, strings.Join(was, " AND ") + " AND t." + changeMoved} {
			if err := p.exec(ctx, "UPDATE "+delta+" t SET "+strings.Join(set, ", ")+", "+changeUnsent+" = NULL FROM "+staging+" s WHERE "+on+
				fmt.Sprintf(" AND t.%s IS NOT NULL AND t.%s <> %d", changeUnsent, changeKind, keyGone)); err != nil {
				return 0, err
			}
		}
	}
	var holes int64
	if err := p.c.QueryRow(ctx, fmt.Sprintf("SELECT count(*) FROM %s WHERE %s IS NOT NULL AND %s <> %d", delta, changeUnsent, changeKind, keyGone)).Scan(&holes); err != nil {
		return 0, classify(err, "look at the changes of %s", p.t.Resource)
	}
	if holes > 0 {
		return 0, stagingLost(p.t, fmt.Sprintf("of %d rows whose key changed meanwhile a large value was read under neither key", holes))
	}
	list := idents("", names)
	for _, sql := range []string{
		"DELETE FROM " + staging + " s USING " + delta + " t WHERE " + match,
		"INSERT INTO " + staging + " (" + list + ") OVERRIDING SYSTEM VALUE SELECT " + list + " FROM " + delta + fmt.Sprintf(" WHERE %s <> %d", changeKind, keyGone),
	} {
		if err := p.exec(ctx, sql); err != nil {
			return 0, err
		}
	}
	var n int64
	err = p.c.QueryRow(ctx, "SELECT count(*) FROM "+staging).Scan(&n)
	return n, classify(err, "count staging")
}

// aligned wraps what makes staging visible: first it is brought to where the
// stream is.
func (p *publisher) aligned(finish func(ctx context.Context) error) func(ctx context.Context) error {
	if p.d.Delta == "" {
		return finish
	}
	return func(ctx context.Context) error {
		n, err := p.mergeDelta(ctx)
		if err != nil {
			return err
		}
		p.expect = n
		if err := finish(ctx); err != nil {
			return err
		}
		return p.exec(ctx, "DROP TABLE "+p.d.delta().sql())
	}
}
