package pgsink

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
)

// table is what the catalog says of a target that exists.
type table struct {
	place
	OID uint32
	// Kind is pg_class.relkind: 'r' table, 'p' partitioned, 'v' view, …
	Kind string
	// Owned is true when the role may act as the owner.
	Owned   bool
	Columns []tableColumn
	// Uniques are the column sets of unique indexes that ON CONFLICT can use.
	Uniques [][]string
}

type tableColumn struct {
	Name    string
	Type    sqlType
	NotNull bool
	Default bool
	// Identity is "a" (always), "d" (by default) or "".
	Identity string
	// Generated is "s" (stored), "v" (virtual) or "".
	Generated string
}

func (t *table) column(name string) *tableColumn {
	i := slices.IndexFunc(t.Columns, func(c tableColumn) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &t.Columns[i]
}

// unique tells whether a unique index covers exactly these columns.
func (t *table) unique(key []string) bool {
	want := slices.Sorted(slices.Values(key))
	return slices.ContainsFunc(t.Uniques, func(u []string) bool {
		return slices.Equal(slices.Sorted(slices.Values(u)), want)
	})
}

// readTable reads a table, nil if there is none.
func (s *Session) readTable(ctx context.Context, c *conn, p place) (*table, error) {
	t := &table{place: p}
	err := c.QueryRow(ctx, `SELECT c.oid::int8, c.relkind::text, pg_has_role(c.relowner, 'USAGE')
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relname = $2`, p.Schema, p.Table).Scan(&t.OID, &t.Kind, &t.Owned)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, classify(err, "look up table %s", p)
	}
	rows, err := c.Query(ctx, `SELECT attname::text, atttypid::int8, atttypmod, format_type(atttypid, atttypmod),
			attnotnull, atthasdef, attidentity::text, attgenerated::text
		FROM pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum`, int64(t.OID))
	if err != nil {
		return nil, classify(err, "read columns of %s", p)
	}
	var refs []typeRef
	for rows.Next() {
		var col tableColumn
		var ref typeRef
		if err := rows.Scan(&col.Name, &ref.OID, &ref.Typmod, &ref.Name, &col.NotNull, &col.Default, &col.Identity, &col.Generated); err != nil {
			rows.Close()
			return nil, classify(err, "read columns of %s", p)
		}
		refs = append(refs, ref)
		t.Columns = append(t.Columns, col)
	}
	if err := rows.Err(); err != nil {
		return nil, classify(err, "read columns of %s", p)
	}
	infos, err := (&typeReader{s, c}).byOID(ctx, refs)
	if err != nil {
		return nil, err
	}
	for i, info := range infos {
		t.Columns[i].Type = sqlType{Info: info, SQL: info.Name}
	}
	return t, s.readUniques(ctx, c, t)
}

func (s *Session) readUniques(ctx context.Context, c *conn, t *table) error {
	// An index counts if ON CONFLICT can infer it and it decides at once: no
	// predicate, no expression, not deferrable, valid. Included columns are no key.
	rows, err := c.Query(ctx, `SELECT ARRAY(SELECT a.attname::text
			FROM unnest(i.indkey::int2[]) WITH ORDINALITY k(num, pos)
			JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.num
			WHERE k.pos <= i.indnkeyatts ORDER BY k.pos)
		FROM pg_index i WHERE i.indrelid = $1 AND i.indisunique AND i.indimmediate AND i.indisvalid
			AND i.indpred IS NULL AND i.indexprs IS NULL
		ORDER BY i.indisprimary DESC, i.indexrelid`, int64(t.OID))
	if err != nil {
		return classify(err, "read unique indexes of %s", t.place)
	}
	t.Uniques, err = pgx.CollectRows(rows, pgx.RowTo[[]string])
	return classify(err, "read unique indexes of %s", t.place)
}
