package pgsink

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/engine"
)

// technique is how a replaced table's new rows become visible (P10).
type technique string

const (
	// techniqueCreate: there is no target; staging becomes it.
	techniqueCreate technique = "create"
	// techniqueSwap: nothing holds on to the target; staging takes its place.
	techniqueSwap technique = "swap"
	// techniqueMerge: the target stays; differences are written by key.
	techniqueMerge technique = "merge"
	// techniqueRewrite: the target stays; all its rows are deleted and inserted.
	techniqueRewrite technique = "rewrite"
)

func (t technique) words() string {
	switch t {
	case techniqueCreate:
		return "staging becomes the table (rename)"
	case techniqueSwap:
		return "swapped with staging in one transaction (rename)"
	case techniqueMerge:
		return "differences are merged by key in one transaction (UPDATE, DELETE, INSERT)"
	}
	return "rows are exchanged in one transaction (DELETE, INSERT)"
}

// incoming is a foreign key that points to the target.
type incoming struct {
	Name  string
	Child string
	// Delete is pg_constraint.confdeltype: 'a' no action, 'r' restrict, 'c'
	// cascade, 'n' set null, 'd' set default.
	Delete string
	// Columns are the child's, Refers the target's, in order.
	Columns, Refers []string
}

// cascades tells whether deleting a row of the target changes the child.
func (f incoming) cascades() bool { return f.Delete == "c" || f.Delete == "n" || f.Delete == "d" }

// dependents is what would not survive another table in the target's place.
type dependents struct {
	// Holds are in words: "view public.v", "publication p".
	Holds    []string
	Incoming []incoming
}

// inspect finds out what depends on a table.
func (s *Session) inspect(ctx context.Context, c *conn, t *table) (*dependents, error) {
	d := new(dependents)
	if !t.Owned {
		d.Holds = append(d.Holds, "the role does not own the table")
	}
	for _, q := range dependentQueries {
		rows, err := c.Query(ctx, q, int64(t.OID))
		if err != nil {
			return nil, classify(err, "look for what depends on %s", t.place)
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, classify(err, "look for what depends on %s", t.place)
		}
		d.Holds = append(d.Holds, found...)
	}
	rows, err := c.Query(ctx, `SELECT k.conname::text, k.conrelid::regclass::text, k.confdeltype::text,
			ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY n(num, pos)
				JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = n.num ORDER BY n.pos),
			ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY n(num, pos)
				JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = n.num ORDER BY n.pos)
		FROM pg_constraint k WHERE k.contype = 'f' AND k.confrelid = $1 AND k.conparentid = 0 ORDER BY k.conname`, int64(t.OID))
	if err != nil {
		return nil, classify(err, "look for foreign keys to %s", t.place)
	}
	d.Incoming, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (f incoming, err error) {
		err = row.Scan(&f.Name, &f.Child, &f.Delete, &f.Columns, &f.Refers)
		return f, err
	})
	if err != nil {
		return nil, classify(err, "look for foreign keys to %s", t.place)
	}
	for _, f := range d.Incoming {
		d.Holds = append(d.Holds, fmt.Sprintf("foreign key %s of %s", f.Name, f.Child))
	}
	return d, nil
}

// dependentQueries each give descriptions of what a swap of table $1 would lose.
// What belongs to the table alone (indexes, constraints, defaults, its own
// sequences and row type) is made anew with staging and left out.
var dependentQueries = []string{
	`SELECT DISTINCT pg_describe_object(d.classid, d.objid, 0)
		FROM pg_depend d JOIN pg_class t ON t.oid = $1
		WHERE (d.refclassid = 'pg_class'::regclass AND d.refobjid = t.oid
				OR d.refclassid = 'pg_type'::regclass AND d.refobjid = t.reltype
				OR d.refclassid = 'pg_type'::regclass AND d.refobjid = (SELECT typarray FROM pg_type WHERE oid = t.reltype))
			AND NOT (d.classid = 'pg_class'::regclass AND EXISTS (SELECT FROM pg_class o
				WHERE o.oid = d.objid AND o.relkind IN ('i', 't', 'S')))
			AND NOT (d.classid = 'pg_class'::regclass AND d.objid = t.oid)
			AND NOT (d.classid = 'pg_type'::regclass AND EXISTS (SELECT FROM pg_type o
				WHERE o.oid = d.objid AND (o.oid = t.reltype OR o.typelem = t.reltype)))
			AND NOT (d.classid = 'pg_constraint'::regclass AND EXISTS (SELECT FROM pg_constraint o WHERE o.oid = d.objid AND o.conrelid = t.oid))
			AND NOT (d.classid = 'pg_constraint'::regclass AND EXISTS (SELECT FROM pg_constraint o WHERE o.oid = d.objid AND o.contype = 'f'))
			AND NOT (d.classid = 'pg_attrdef'::regclass AND EXISTS (SELECT FROM pg_attrdef o WHERE o.oid = d.objid AND o.adrelid = t.oid))
			AND NOT (d.classid = 'pg_trigger'::regclass AND EXISTS (SELECT FROM pg_trigger o WHERE o.oid = d.objid AND o.tgisinternal))`,
	`SELECT 'publication ' || p.pubname FROM pg_publication_tables p
		JOIN pg_class c ON c.oid = $1 JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE p.schemaname = n.nspname AND p.tablename = c.relname`,
	`SELECT CASE WHEN relkind = 'p' THEN 'it is partitioned' WHEN relispartition THEN 'it is a partition'
			WHEN relhassubclass THEN 'other tables may inherit from it' WHEN reloftype <> 0 THEN 'it is a typed table'
			WHEN relrowsecurity THEN 'it has row-level security'
			WHEN EXISTS (SELECT FROM pg_inherits WHERE inhrelid = pg_class.oid) THEN 'it inherits from another table'
			WHEN reltablespace <> 0 THEN 'it lies in a tablespace of its own' WHEN relpersistence <> 'p' THEN 'it is unlogged'
			WHEN relam <> (SELECT oid FROM pg_am WHERE amname = current_setting('default_table_access_method')) THEN 'it has another access method'
			ELSE 'some of its indexes are marked for clustering or replica identity' END
		FROM pg_class WHERE oid = $1 AND (relkind = 'p' OR relispartition OR relhassubclass OR reloftype <> 0 OR relrowsecurity
			OR reltablespace <> 0 OR relpersistence <> 'p' OR relam <> (SELECT oid FROM pg_am WHERE amname = current_setting('default_table_access_method'))
			OR EXISTS (SELECT FROM pg_inherits WHERE inhrelid = pg_class.oid)
			OR EXISTS (SELECT FROM pg_index WHERE indrelid = pg_class.oid AND (indisclustered OR indisreplident)))`,
	`SELECT DISTINCT 'rights or options of column ' || attname FROM pg_attribute
		WHERE attrelid = $1 AND (attacl IS NOT NULL OR attoptions IS NOT NULL)`,
	`SELECT DISTINCT 'a security label of ' || provider FROM pg_seclabel WHERE objoid = $1 AND classoid = 'pg_class'::regclass`,
}

// choose picks the technique for a table that exists, and says why it is not the
// swap. A table that rows can't be exchanged in is refused (P10).
func (d *dependents) choose(t *table, key []string) (how technique, why string, err error) {
	if len(d.Holds) == 0 {
		return techniqueSwap, "", nil
	}
	why = d.reasons()
	if len(key) > 0 && t.unique(key) {
		return techniqueMerge, why, nil
	}
	if len(d.Incoming) == 0 {
		return techniqueRewrite, why, nil
	}
	f := d.Incoming[0]
	if i := slices.IndexFunc(d.Incoming, incoming.cascades); i >= 0 {
		f = d.Incoming[i]
	}
	hint := "name the key of the rows in the pipeline (key: […]), with a unique index on it at the target"
	if len(key) > 0 {
		hint = fmt.Sprintf("run: CREATE UNIQUE INDEX ON %s (%s)", t.sql(), idents("", key))
	}
	return "", "", engine.Permanentf(hint+", so that differences can be merged by key",
		"replace %s: foreign key %s of %s points to it, so its rows can't all be deleted", t.place, f.Name, f.Child)
}

// reasons lists what holds on to the table, shortly.
func (d *dependents) reasons() string {
	const shown = 4
	holds := d.Holds
	if len(holds) > shown {
		return strings.Join(holds[:shown], ", ") + fmt.Sprintf(" and %d more", len(holds)-shown) + " would not survive a swap"
	}
	return strings.Join(holds, ", ") + " would not survive a swap"
}
