package pgsink

import (
	"context"
	"fmt"
	"strings"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
)

// reader makes the column list and the digester for rows that are read back;
// form is how a column named x is brought to the route's type (P9).
func (w *writer) reader(form func(c *column, x string) (string, pgcopy.TypeInfo), prefix string) (string, *pgcopy.Digester, error) {
	exprs := make([]string, len(w.d.Columns))
	infos := make([]pgcopy.TypeInfo, len(w.d.Columns))
	asText := make([]bool, len(w.d.Columns))
	for i := range w.d.Columns {
		c := &w.d.Columns[i]
		exprs[i], infos[i] = form(c, prefix+ident(c.Name))
		asText[i] = c.Text
	}
	var digester *pgcopy.Digester
	var err error
	if w.t.Wire != "" {
		// The source digests what it sends, binary or text, as it is: so do we.
		digester, err = pgcopy.NewDigester(w.t.Schema.Fields, asText)
	} else {
		digester, err = pgcopy.NewReadBackDigester(w.t.Schema.Fields, infos)
	}
	if err != nil {
		return "", nil, fmt.Errorf("read back %s: %w", w.t.Resource, err)
	}
	return strings.Join(exprs, ", "), digester, nil
}

// digestOf runs a statement that returns rows and digests them on the way.
func digestOf(ctx context.Context, c *conn, sql string, fields int, d *pgcopy.Digester) (integrity.Digest, int64, error) {
	sink := &digestWriter{scanner: pgcopy.NewScanner(fields), digester: d}
	if _, err := c.PgConn().CopyTo(ctx, sink, "COPY ("+sql+") TO STDOUT (FORMAT binary)"); err != nil {
		if sink.err != nil {
			return integrity.Digest{}, 0, sink.err
		}
		return integrity.Digest{}, 0, err
	}
	digest, rows := d.Take()
	return digest, rows, nil
}

type digestWriter struct {
	scanner  *pgcopy.Scanner
	digester *pgcopy.Digester
	err      error
}

func (w *digestWriter) Write(p []byte) (int, error) {
	if w.err == nil {
		w.err = w.scanner.Scan(p, w.digester.Tuple)
	}
	if w.err != nil {
		return 0, w.err
	}
	return len(p), nil
}

// readOwn reads back the rows that this transaction has put into staging: they
// carry its number and lie behind what was there, or in the last page of it. If
// the server has put some elsewhere, all of staging is looked through.
func (w *writer) readOwn(ctx context.Context, table place, blocks int64) error {
	exprs, digester, err := w.reader((*column).readBack, "t.")
	if err != nil {
		return err
	}
	own := "SELECT " + exprs + " FROM " + table.sql() + " t WHERE t.xmin = pg_current_xact_id()::xid"
	for _, where := range []string{fmt.Sprintf(" AND t.ctid >= '(%d,0)'::tid", max(0, blocks-1)), ""} {
		digest, rows, err := digestOf(ctx, w.c, own+where, len(w.d.Columns), digester)
		if err != nil {
			return classify(err, "read back %s", w.t.Resource)
		}
		if rows == w.receipt.Applied {
			return w.compare(digest)
		}
		if where == "" {
			return w.mismatch("rows", fmt.Sprint(w.receipt.Applied), fmt.Sprintf("%d read back", rows))
		}
	}
	return nil
}

// compare proves the content of the epoch (P9): what was read back, and what by
// a stated rule is not there as the source has it, are together what was read.
func (w *writer) compare(back integrity.Digest) error {
	if !w.verify {
		return nil
	}
	back.Add(w.out)
	if want := w.e.End().Digest; back != want {
		return w.mismatch("digest", want.String(), back.String())
	}
	w.receipt.ReadBack, w.receipt.Verified = back, true
	return nil
}

// digestTransport digests rows of the temporary table: before is what stands
// before the columns ("SELECT ", or a DELETE … RETURNING), rest what follows the
// table's name.
func (w *writer) digestTransport(ctx context.Context, before, rest string) (integrity.Digest, error) {
	digest, _, err := w.digestRows(ctx, func(exprs string) string { return before + exprs + " FROM " + transport + " s" + rest })
	return digest, err
}

// digestRows digests the rows of a statement made of the columns' expressions.
func (w *writer) digestRows(ctx context.Context, statement func(exprs string) string) (integrity.Digest, int64, error) {
	exprs, digester, err := w.reader((*column).loaded, "s.")
	if err != nil {
		return integrity.Digest{}, 0, err
	}
	digest, rows, err := digestOf(ctx, w.c, statement(exprs), len(w.d.Columns), digester)
	return digest, rows, classify(err, "read rows of %s from the temporary table", w.t.Resource)
}

// removeRows deletes rows of the temporary table that are not to be written, and
// keeps their digest: together with the rest they are what was read (P6).
func (w *writer) removeRows(ctx context.Context, where string) (int64, error) {
	remove := "DELETE FROM " + transport + " s WHERE " + where
	if !w.verify {
		tag, err := w.c.Exec(ctx, remove)
		return tag.RowsAffected(), classify(err, "remove rows of %s from the temporary table", w.t.Resource)
	}
	digest, rows, err := w.digestRows(ctx, func(exprs string) string { return remove + " RETURNING " + exprs })
	w.out.Add(digest)
	return rows, err
}

// supersede drops all but the last of the rows with one key (P6).
func (w *writer) supersede(ctx context.Context) error {
	if w.t.Write != engine.WriteUpsert && w.t.Write != engine.WriteDelete {
		return nil
	}
	keys := make([]string, len(w.d.Key))
	for i, k := range w.d.Key {
		keys[i] = w.d.byName(k).stored("s." + ident(k))
	}
	list := strings.Join(keys, ", ")
	// Most epochs have no key twice: a hash over the keys tells it without a sort.
	var twice bool
	err := w.c.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+transport+" s GROUP BY "+list+" HAVING count(*) > 1)").Scan(&twice)
	if err != nil {
		return w.rowFailure(err)
	}
	if !twice {
		return nil
	}
	w.receipt.Superseded, err = w.removeRows(ctx, "s."+transportOrder+" IN (SELECT o FROM (SELECT s."+transportOrder+
		" AS o, row_number() OVER (PARTITION BY "+list+" ORDER BY s."+transportOrder+" DESC) AS n FROM "+transport+" s) r WHERE n > 1)")
	return err
}

// skipWindow drops the rows of an append's window that earlier runs have added
// already, by key and cursor (P15).
func (w *writer) skipWindow(ctx context.Context) error {
	if w.d.Cursor == "" {
		return nil
	}
	cursor := w.d.byName(w.d.Cursor)
	value := cursor.value("s." + ident(cursor.Name))
	where := []string{"t." + ident(cursor.Name) + " = " + cursor.stored("s."+ident(cursor.Name))}
	for _, k := range w.d.Key {
		where = append(where, "t."+ident(k)+" = "+w.d.byName(k).stored("s."+ident(k)))
	}
	var err error
	w.receipt.Skipped, err = w.removeRows(ctx, value+" <= "+literal(w.d.UpTo)+"::"+cursor.Value.SQL+
		" AND EXISTS (SELECT FROM "+w.d.place().sql()+" t WHERE "+strings.Join(where, " AND ")+")")
	return err
}
