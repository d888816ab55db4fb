package pgsource

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

// Kinds of relations, as pg_class.relkind has them.
const (
	kindTable       = "r"
	kindPartitioned = "p"
	kindView        = "v"
	kindMatView     = "m"
	kindForeign     = "f"
)

func kindName(relkind string) string {
	switch relkind {
	case kindTable:
		return "table"
	case kindPartitioned:
		return "partitioned table"
	case kindView:
		return "view"
	case kindMatView:
		return "materialized view"
	case kindForeign:
		return "foreign table"
	}
	return relkind
}

// relation is what the catalog says about a resource.
type relation struct {
	oid          uint32
	schema, name string
	kind         string
	comment      string
	// leaf is true for a partition of another table.
	leaf bool
	// readable: the role may select the whole table; partly: some columns.
	readable, partly bool
	// policies: row-level security applies to the role.
	policies bool
	// heap is true when the rows lie in blocks of a heap, whose ranges can be read.
	heap bool
	// rows and bytes are estimates, -1 if unknown; bytes include TOAST.
	rows, bytes int64
	columns     []column
	indexes     []index
}

// column is one column of a relation.
type column struct {
	field schema.Field
	info  pgcopy.TypeInfo
	// cast is the type's name without a modifier, for literals.
	cast       string
	selectable bool
	// orderable: the type has a default btree order. exact: values that are equal
	// in that order have equal bytes.
	orderable, exact bool
}

// index is a valid btree index on plain columns.
type index struct {
	columns []string
	// unique is true when no two committed rows have equal columns, none of which is NULL.
	unique, primary bool
}

func (r *relation) resource() string { return resourceName(r.schema, r.name) }
func (r *relation) sql() string      { return qualified(r.schema, r.name) }

func (r *relation) column(name string) (*column, bool) {
	i := slices.IndexFunc(r.columns, func(c column) bool { return c.field.Name == name })
	if i < 0 {
		return nil, false
	}
	return &r.columns[i], true
}

// key returns the columns that identify a row: the primary key, else the unique
// index with the fewest columns; nil without either.
func (r *relation) key() []string {
	var best *index
	for i := range r.indexes {
		x := &r.indexes[i]
		if !x.unique {
			continue
		}
		if best == nil || x.primary || (!best.primary && len(x.columns) < len(best.columns)) {
			best = x
		}
	}
	if best == nil {
		return nil
	}
	return slices.Clone(best.columns)
}

// uniqueOn tells whether an index proves that the columns identify a row.
func (r *relation) uniqueOn(columns []string) bool {
	return slices.ContainsFunc(r.indexes, func(x index) bool {
		return x.unique && !slices.ContainsFunc(x.columns, func(c string) bool { return !slices.Contains(columns, c) })
	})
}

// indexedBy tells whether rows come in the columns' order from an index.
func (r *relation) indexedBy(columns []string) bool {
	return slices.ContainsFunc(r.indexes, func(x index) bool {
		n := min(len(columns), len(x.columns))
		return n > 0 && slices.Equal(x.columns[:n], columns[:n])
	})
}

// asResource returns the relation as the contract has it, with these columns.
func (r *relation) asResource(columns []column, key []string) engine.Resource {
	s := schema.Schema{Key: key, Comment: r.comment}
	for _, c := range columns {
		s.Fields = append(s.Fields, c.field)
	}
	return engine.Resource{Name: r.resource(), Path: []string{r.schema, r.name}, Kind: kindName(r.kind), Schema: s, Rows: r.rows, Bytes: r.bytes}
}

// relationsSQL lists relations; $1 restricts to names ("schema" and "name" as
// arrays of equal length), NULL means all that are not partitions. A partitioned
// table's size and rows are its leaves'.
const relationsSQL = `SELECT c.oid::int8, n.nspname::text, c.relname::text, c.relkind::text,
	coalesce(pg_catalog.obj_description(c.oid, 'pg_class'), ''), c.relispartition,
	pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_table_privilege(c.oid, 'SELECT'),
	pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_any_column_privilege(c.oid, 'SELECT'),
	c.relrowsecurity AND pg_catalog.row_security_active(c.oid),
	CASE c.relkind WHEN 'r' THEN coalesce(am.amname = 'heap', false) WHEN 'm' THEN coalesce(am.amname = 'heap', false)
		WHEN 'p' THEN true ELSE false END,
	CASE WHEN c.relkind = 'p' THEN l.rows WHEN c.relkind = 'v' OR c.reltuples < 0 OR (c.reltuples = 0 AND c.relpages = 0) THEN -1 ELSE c.reltuples::int8 END,
	CASE c.relkind WHEN 'p' THEN l.bytes WHEN 'r' THEN pg_catalog.pg_table_size(c.oid) WHEN 'm' THEN pg_catalog.pg_table_size(c.oid) ELSE -1 END
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_am am ON am.oid = c.relam
LEFT JOIN LATERAL (
	SELECT coalesce(sum(CASE WHEN lc.reltuples < 0 THEN 0 ELSE lc.reltuples END), 0)::int8 AS rows,
		coalesce(sum(pg_catalog.pg_table_size(lc.oid)), 0)::int8 AS bytes
	FROM pg_catalog.pg_partition_tree(c.oid) t JOIN pg_catalog.pg_class lc ON lc.oid = t.relid
	WHERE t.isleaf AND lc.relkind = 'r') l ON c.relkind = 'p'
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't'
	AND CASE WHEN $1::text[] IS NULL
		THEN NOT c.relispartition AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
		ELSE EXISTS (SELECT FROM unnest($1::text[], $2::text[]) w(s, t) WHERE n.nspname = w.s AND c.relname = w.t) END
ORDER BY n.nspname, c.relname`

// columnsSQL lists the columns of the relations $1. A NOT NULL that was not
// validated (PostgreSQL 18) proves nothing about the rows.
const columnsSQL = `SELECT a.attrelid::int8, a.attname::text, a.atttypid::int8, a.atttypmod,
	pg_catalog.format_type(a.atttypid, a.atttypmod), pg_catalog.format_type(a.atttypid, -1),
	a.attnotnull AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint k
		WHERE k.conrelid = a.attrelid AND k.contype = 'n' AND a.attnum = ANY (k.conkey) AND NOT k.convalidated),
	a.attgenerated <> '', a.attidentity::text,
	CASE WHEN a.attgenerated = '' THEN coalesce(pg_catalog.pg_get_expr(d.adbin, d.adrelid), '') ELSE '' END,
	coalesce(pg_catalog.col_description(a.attrelid, a.attnum), ''),
	pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'SELECT'),
	coalesce(co.collisdeterministic, true)
FROM pg_catalog.pg_attribute a
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_catalog.pg_collation co ON co.oid = a.attcollation
WHERE a.attrelid = ANY ($1::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum`

// indexesSQL lists valid btree indexes on plain columns without a filter, in the
// columns' own collations; an index in another collation has another equality.
// A deferrable primary key still holds for committed rows.
const indexesSQL = `SELECT i.indrelid::int8, i.indisprimary,
	i.indisunique AND (i.indimmediate OR i.indisprimary) AND bool_and(a.attnotnull),
	array_agg(a.attname::text ORDER BY k.n)
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
JOIN pg_catalog.pg_am am ON am.oid = x.relam AND am.amname = 'btree'
CROSS JOIN LATERAL (SELECT g.n, i.indkey[g.n - 1] AS attnum, i.indcollation[g.n - 1] AS coll
	FROM pg_catalog.generate_series(1, i.indnkeyatts) g(n)) k
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = ANY ($1::oid[]) AND i.indisvalid AND i.indisready AND i.indislive
	AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid, i.indrelid, i.indisprimary, i.indisunique, i.indimmediate, x.relname
HAVING bool_and(k.coll = a.attcollation)
ORDER BY i.indrelid, i.indisprimary DESC, count(*), x.relname`

// orderableSQL returns those of the types $1 that have a default btree order, be
// it by way of a type with the same representation (varchar orders as text).
const orderableSQL = `SELECT t.oid::int8 FROM pg_catalog.pg_type t
WHERE t.oid = ANY ($1::oid[]) AND EXISTS (
	SELECT FROM pg_catalog.pg_opclass o JOIN pg_catalog.pg_am am ON am.oid = o.opcmethod AND am.amname = 'btree'
	WHERE o.opcdefault AND (o.opcintype = t.oid
		OR (t.typtype = 'e' AND o.opcintype = 'pg_catalog.anyenum'::pg_catalog.regtype)
		OR (t.typtype = 'r' AND o.opcintype = 'pg_catalog.anyrange'::pg_catalog.regtype)
		OR EXISTS (SELECT FROM pg_catalog.pg_cast ca WHERE ca.castsource = t.oid AND ca.casttarget = o.opcintype
			AND ca.castmethod = 'b' AND ca.castcontext = 'i')))`

// load reads relations with columns and indexes; names nil means all.
func (s *Session) load(ctx context.Context, tx pgx.Tx, names []pattern) ([]*relation, error) {
	var schemas, tables []string
	for _, n := range names {
		schemas, tables = append(schemas, n.schema.text), append(tables, n.name.text)
	}
	rows, err := tx.Query(ctx, relationsSQL, schemas, tables)
	if err != nil {
		return nil, fmt.Errorf("list relations: %w", err)
	}
	rels, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*relation, error) {
		r := &relation{}
		var oid int64
		err := row.Scan(&oid, &r.schema, &r.name, &r.kind, &r.comment, &r.leaf, &r.readable, &r.partly,
			&r.policies, &r.heap, &r.rows, &r.bytes)
		r.oid = uint32(oid)
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("list relations: %w", err)
	}
	if err := s.loadColumns(ctx, tx, rels); err != nil {
		return nil, err
	}
	return rels, loadIndexes(ctx, tx, rels)
}

func byOID(rels []*relation) (map[uint32]*relation, []uint32) {
	m := make(map[uint32]*relation, len(rels))
	oids := make([]uint32, len(rels))
	for i, r := range rels {
		m[r.oid], oids[i] = r, r.oid
	}
	return m, oids
}

func (s *Session) loadColumns(ctx context.Context, tx pgx.Tx, rels []*relation) error {
	of, oids := byOID(rels)
	rows, err := tx.Query(ctx, columnsSQL, oids)
	if err != nil {
		return fmt.Errorf("list columns: %w", err)
	}
	type found struct {
		rel uint32
		column
		deterministic bool
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (found, error) {
		var f found
		var rel, typ int64
		var notNull bool
		var identity string
		err := row.Scan(&rel, &f.field.Name, &typ, &f.info.Typmod, &f.info.Name, &f.cast, &notNull,
			&f.field.Generated, &identity, &f.field.Default, &f.field.Comment, &f.selectable, &f.deterministic)
		f.rel, f.info.OID, f.field.Nullable = uint32(rel), uint32(typ), !notNull
		f.field.Identity = map[string]string{"a": "always", "d": "by default"}[identity]
		return f, err
	})
	if err != nil {
		return fmt.Errorf("list columns: %w", err)
	}
	types := make([]uint32, 0, len(all))
	for _, f := range all {
		types = append(types, f.info.OID)
	}
	slices.Sort(types)
	catalog, orderable, err := s.loadTypes(ctx, tx, slices.Compact(types))
	if err != nil {
		return err
	}
	for _, f := range all {
		c := f.column
		if c.info, err = catalog.Type(c.info.OID, c.info.Typmod, c.info.Name); err != nil {
			return err
		}
		base := c.info
		if base.Base != nil {
			base = *base.Base
		}
		c.field.Type, c.field.Native = c.info.Logical(), c.info.Native()
		c.orderable = orderable[base.OID] || (base.Elem != nil && orderable[elementOID(base.Elem)])
		c.exact = f.deterministic && exactKind(c.field.Type.Kind)
		of[f.rel].columns = append(of[f.rel].columns, c)
	}
	return nil
}

// elementOID is the type that an array's elements are compared in.
func elementOID(elem *pgcopy.TypeInfo) uint32 {
	if elem.Base != nil {
		return elem.Base.OID
	}
	return elem.OID
}

// exactKind tells whether equal values of the kind have equal bytes, as 1.0 and
// 1.00, −0 and 0, or values of citext have not.
func exactKind(k schema.Kind) bool {
	switch k {
	case schema.Bool, schema.String, schema.Bytes, schema.Date, schema.Time, schema.Timestamp,
		schema.TimestampTZ, schema.UUID, schema.Enum:
		return true
	}
	return k.Integer()
}

func (s *Session) loadTypes(ctx context.Context, tx pgx.Tx, oids []uint32) (*pgcopy.Catalog, map[uint32]bool, error) {
	rows, err := tx.Query(ctx, pgcopy.CatalogSQL, oids)
	if err != nil {
		return nil, nil, fmt.Errorf("list types: %w", err)
	}
	types, err := pgx.CollectRows(rows, pgx.RowToStructByPos[pgcopy.CatalogRow])
	if err != nil {
		return nil, nil, fmt.Errorf("list types: %w", err)
	}
	all := make([]uint32, len(types))
	for i, t := range types {
		all[i] = uint32(t.OID)
	}
	rows, err = tx.Query(ctx, orderableSQL, all)
	if err != nil {
		return nil, nil, fmt.Errorf("list ordered types: %w", err)
	}
	ordered, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, nil, fmt.Errorf("list ordered types: %w", err)
	}
	orderable := make(map[uint32]bool, len(ordered))
	for _, o := range ordered {
		orderable[uint32(o)] = true
	}
	return pgcopy.NewCatalog(s.version/10000, types), orderable, nil
}

func loadIndexes(ctx context.Context, tx pgx.Tx, rels []*relation) error {
	of, oids := byOID(rels)
	rows, err := tx.Query(ctx, indexesSQL, oids)
	if err != nil {
		return fmt.Errorf("list indexes: %w", err)
	}
	var oid int64
	var x index
	_, err = pgx.ForEachRow(rows, []any{&oid, &x.primary, &x.unique, &x.columns}, func() error {
		r := of[uint32(oid)]
		r.indexes = append(r.indexes, index{columns: slices.Clone(x.columns), unique: x.unique, primary: x.primary})
		return nil
	})
	if err != nil {
		return fmt.Errorf("list indexes: %w", err)
	}
	return nil
}
