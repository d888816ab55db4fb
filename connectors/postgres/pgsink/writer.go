package pgsink

import (
	"context"
	"fmt"
	"strings"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
)

// writer writes the rows of one epoch inside its transaction.
type writer struct {
	s       *Session
	c       *conn
	t       *engine.Target
	d       *detail
	e       *engine.Epoch
	receipt *engine.Receipt
	// rows is the number of rows received.
	rows int64

	// encoder makes tuples of records; nil for wire rows.
	encoder *pgcopy.Encoder
	misfits []*pgcopy.RowError
	// cut are the fields that wire rows lose on the way, in order.
	cut []int
	// aside are rows that the encoder left out.
	aside []engine.SetAsideRow

	// verify is true when the epoch is read back; out is then the digest of rows
	// that are not at the destination as the source has them, less what is there
	// in their place: added to what is read back it must give the source's digest.
	verify bool
	out    integrity.Digest
}

// transport is the temporary table of a session.
const (
	transport      = `pg_temp."_tranship_in"`
	transportOrder = "_tranship_ord"
)

func (s *Session) newWriter(ctx context.Context, c *conn, t *engine.Target, d *detail, e *engine.Epoch) (*writer, error) {
	w := &writer{s: s, c: c, t: t, d: d, e: e, receipt: &engine.Receipt{}, verify: t.Verify == engine.VerifyDigest}
	fields := t.Schema.Fields
	if t.Wire == "" {
		cols := make([]pgcopy.EncodeColumn, len(d.Columns))
		for i := range d.Columns {
			cols[i] = pgcopy.EncodeColumn{Name: d.Columns[i].Source, Type: d.Columns[i].load().Info, Text: d.Columns[i].Text}
		}
		var err error
		if !d.Transport {
			fields, cols = w.without(fields, cols)
		}
		if w.encoder, err = pgcopy.NewEncoder(fields, cols); err != nil {
			return nil, fmt.Errorf("write %s: %w", t.Resource, err)
		}
		w.encoder.OnMisfit = w.onMisfit
	} else if !d.Transport {
		for i := range d.Columns {
			if d.Columns[i].Generated {
				w.cut = append(w.cut, i)
			}
		}
	}
	if d.Transport {
		if err := w.makeTransport(ctx); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// makeTransport makes the session's temporary table, outside of the epoch's
// transaction: it empties itself at every commit and rollback.
func (w *writer) makeTransport(ctx context.Context) error {
	cols := make([]string, len(w.d.Columns))
	for i := range w.d.Columns {
		cols[i] = ident(w.d.Columns[i].Name) + " " + w.d.Columns[i].load().SQL
	}
	// Arrival decides which of two rows with one key is the later (P6).
	sql := "CREATE TEMP TABLE _tranship_in (" + strings.Join(cols, ", ") +
		", " + transportOrder + " bigint NOT NULL DEFAULT nextval('pg_temp." + transportOrder + "')) ON COMMIT DELETE ROWS"
	if w.c.transport == sql {
		return nil
	}
	w.c.transport = ""
	_, err := w.c.Exec(ctx, "DROP TABLE IF EXISTS "+transport+"; CREATE TEMP SEQUENCE IF NOT EXISTS "+transportOrder+" CACHE 1000; "+sql)
	if err != nil {
		if code(err) == codeNoRights {
			return engine.Permanentf("run: GRANT TEMPORARY ON DATABASE … TO the sink's role", "write %s: rows have to go through a temporary table: %w", w.t.Resource, err)
		}
		return classify(err, "make the temporary table for %s", w.t.Resource)
	}
	w.c.transport = sql
	return nil
}

// columns are the names of all planned columns.
func (w *writer) columns() []string {
	names := make([]string, len(w.d.Columns))
	for i, c := range w.d.Columns {
		names[i] = c.Name
	}
	return names
}

// write brings the epoch's rows to their table, and proves it.
func (w *writer) write(ctx context.Context) error {
	if !w.d.Transport {
		return w.direct(ctx)
	}
	if err := w.copyIn(ctx, transport, w.columns()); err != nil {
		return err
	}
	if err := w.storeAside(ctx); err != nil {
		return err
	}
	if err := w.applyPolicies(ctx); err != nil {
		return err
	}
	if err := w.supersede(ctx); err != nil {
		return err
	}
	if err := w.skipWindow(ctx); err != nil {
		return err
	}
	there, err := w.dropEqual(ctx)
	if err != nil {
		return err
	}
	left := w.rows - w.receipt.SetAside - w.receipt.Superseded - w.receipt.Skipped - there
	if w.t.Write == engine.WriteDelete {
		return w.deleteRows(ctx, left)
	}
	return w.insertRows(ctx, left, there)
}

// dropEqual drops rows that an upsert has nothing to change for: those of a
// table of nothing but its key that are there already. They count as applied.
func (w *writer) dropEqual(ctx context.Context) (int64, error) {
	if w.t.Write != engine.WriteUpsert || len(w.d.updated()) > 0 || w.t.Lineage {
		return 0, nil
	}
	return w.removeRows(ctx, "EXISTS (SELECT FROM "+w.d.place().sql()+" t WHERE "+w.onKey()+")")
}

// onKey is the SQL that joins target t and a row s of the temporary table.
func (w *writer) onKey() string {
	on := make([]string, len(w.d.Key))
	for i, k := range w.d.Key {
		on[i] = "t." + ident(k) + " = " + w.d.byName(k).stored("s."+ident(k))
	}
	return strings.Join(on, " AND ")
}

// direct copies straight into the table.
func (w *writer) direct(ctx context.Context) error {
	table := w.d.destination()
	var blocks int64
	if w.verify {
		if err := w.c.QueryRow(ctx, "SELECT pg_relation_size($1::regclass) / current_setting('block_size')::bigint", table.sql()).Scan(&blocks); err != nil {
			return w.rowFailure(err)
		}
	}
	if err := w.copyIn(ctx, table.sql(), w.d.written()); err != nil {
		return err
	}
	if err := w.storeAside(ctx); err != nil {
		return err
	}
	w.receipt.Applied = w.rows - w.receipt.SetAside
	if !w.verify {
		return nil
	}
	return w.readOwn(ctx, table, blocks)
}

// insertRows moves what is left in the temporary table to its place.
func (w *writer) insertRows(ctx context.Context, want, there int64) error {
	names := w.d.written()
	var exprs []string
	for i := range w.d.Columns {
		if c := &w.d.Columns[i]; !c.Generated {
			exprs = append(exprs, c.stored("s."+ident(c.Name)))
		}
	}
	if w.t.Lineage {
		names = append(names, lineageRun, lineageTime)
		exprs = append(exprs, literal(w.t.RunID), "now()")
	}
	// An identity column takes the source's values, never new ones (case 04).
	sql := "INSERT INTO " + w.d.destination().sql() + " AS t (" + idents("", names) + ") OVERRIDING SYSTEM VALUE SELECT " +
		strings.Join(exprs, ", ") + " FROM " + transport + " s"
	if w.t.Write == engine.WriteUpsert {
		sql += w.onConflict(names)
	}
	got, back, err := w.run(ctx, sql)
	if err != nil {
		return err
	}
	if got != want {
		return w.mismatch("rows", fmt.Sprint(want), fmt.Sprint(got))
	}
	w.receipt.Applied = got + there
	return w.compare(back)
}

// onConflict updates the row that is there, in all columns but the key and those
// that only the server may write.
func (w *writer) onConflict(names []string) string {
	var set []string
	for _, n := range names {
		if w.d.byName(n) == nil || contains(w.d.updated(), n) {
			set = append(set, ident(n)+" = EXCLUDED."+ident(n))
		}
	}
	if len(set) == 0 {
		return " ON CONFLICT (" + idents("", w.d.Key) + ") DO NOTHING"
	}
	return " ON CONFLICT (" + idents("", w.d.Key) + ") DO UPDATE SET " + strings.Join(set, ", ")
}

// run executes a statement that writes rows to the destination, and with verify
// reads them back from itself (P9): what RETURNING gives is what is stored.
func (w *writer) run(ctx context.Context, sql string) (int64, integrity.Digest, error) {
	if !w.verify {
		tag, err := w.c.Exec(ctx, sql)
		if err != nil {
			return 0, integrity.Digest{}, w.rowFailure(err)
		}
		return tag.RowsAffected(), integrity.Digest{}, nil
	}
	exprs, digester, err := w.reader((*column).readBack, "t.")
	if err != nil {
		return 0, integrity.Digest{}, err
	}
	digest, rows, err := digestOf(ctx, w.c, sql+" RETURNING "+exprs, len(w.d.Columns), digester)
	if err != nil {
		return 0, integrity.Digest{}, w.rowFailure(err)
	}
	return rows, digest, nil
}

// rowFailure explains the refusal of a row or of the key.
func (w *writer) rowFailure(err error) error {
	if code(err) == codeNoUniqueIndex {
		return engine.Permanentf(fmt.Sprintf("run: CREATE UNIQUE INDEX ON %s (%s)", w.d.place().sql(), idents("", w.d.Key)),
			"upsert into %s: its unique index on the key (%s) is gone", w.t.Name, strings.Join(w.d.Key, ", "))
	}
	if code(err) == codeNoTable && w.d.Staging != "" {
		return stagingLost(w.t, "the table "+w.d.staging().String()+" does not exist")
	}
	return rowError(err, w.t.Resource, w.d.place())
}

// deleteRows deletes by key. A row whose key the target does not have counts as
// applied: it is not there.
func (w *writer) deleteRows(ctx context.Context, left int64) error {
	where := w.onKey()
	if _, err := w.c.Exec(ctx, "DELETE FROM "+w.d.place().sql()+" t USING "+transport+" s WHERE "+where); err != nil {
		return w.rowFailure(err)
	}
	w.receipt.Applied = left
	if !w.verify {
		return nil
	}
	var still int64
	if err := w.c.QueryRow(ctx, "SELECT count(*) FROM "+transport+" s WHERE EXISTS (SELECT FROM "+w.d.place().sql()+" t WHERE "+where+")").Scan(&still); err != nil {
		return classify(err, "look for deleted rows of %s", w.t.Name)
	}
	if still > 0 {
		return w.mismatch("rows", "0 left after the delete", fmt.Sprint(still))
	}
	// What arrived is what was read: the rows to delete are all there is to compare.
	back, err := w.digestTransport(ctx, "SELECT ", "")
	if err != nil {
		return err
	}
	return w.compare(back)
}

func (w *writer) mismatch(what, source, destination string) error {
	return &engine.MismatchError{Resource: w.t.Resource, Split: w.e.Split, What: what, Source: source, Destination: destination}
}
