package pgsink

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/engine"
)

// built is an index or constraint that staging needs to be like the target.
type built struct {
	// Name is the target's, Staged the one on staging until the swap.
	Name, Staged string
	// SQL makes it; Rename is "INDEX" or "CONSTRAINT".
	SQL, Rename string
}

// likeTarget lists the indexes and constraints of the target, as staging is to
// have them: LIKE has brought columns, defaults, checks and comments.
func (p *publisher) likeTarget(ctx context.Context, target *table) ([]built, error) {
	rows, err := p.c.Query(ctx, `SELECT ic.relname::text, pg_get_indexdef(i.indexrelid), COALESCE(k.conname::text, ''),
			COALESCE(pg_get_constraintdef(k.oid), ''), COALESCE(k.contype::text, ''), COALESCE(obj_description(i.indexrelid, 'pg_class'), '')
		FROM pg_index i JOIN pg_class ic ON ic.oid = i.indexrelid
		LEFT JOIN pg_constraint k ON k.conindid = i.indexrelid AND k.conrelid = i.indrelid AND k.contype IN ('p', 'u', 'x')
		WHERE i.indrelid = $1 AND i.indisvalid ORDER BY i.indisprimary DESC, ic.relname`, int64(target.OID))
	if err != nil {
		return nil, classify(err, "read indexes of %s", p.t.Name)
	}
	staging := p.d.staging().sql()
	type index struct{ Name, Def, Constraint, ConstraintDef, Type, Comment string }
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[index])
	if err != nil {
		return nil, classify(err, "read indexes of %s", p.t.Name)
	}
	var parts []built
	for _, x := range found {
		staged := fitName(p.d.Staging + "_" + hash(x.Name)[:8])
		if x.Constraint != "" {
			parts = append(parts, built{Name: x.Constraint, Staged: staged, Rename: "CONSTRAINT",
				SQL: "ALTER TABLE " + staging + " ADD CONSTRAINT " + ident(staged) + " " + x.ConstraintDef})
			continue
		}
		sql, err := p.indexOn(x.Name, x.Def, staged)
		if err != nil {
			return nil, err
		}
		parts = append(parts, built{Name: x.Name, Staged: staged, Rename: "INDEX", SQL: sql})
	}
	rows, err = p.c.Query(ctx, `SELECT conname::text, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = $1 AND contype = 'f' ORDER BY conname`, int64(target.OID))
	if err != nil {
		return nil, classify(err, "read foreign keys of %s", p.t.Name)
	}
	type foreign struct{ Name, Def string }
	keys, err := pgx.CollectRows(rows, pgx.RowToStructByPos[foreign])
	if err != nil {
		return nil, classify(err, "read foreign keys of %s", p.t.Name)
	}
	for _, f := range keys {
		staged := fitName(p.d.Staging + "_" + hash(f.Name)[:8])
		parts = append(parts, built{Name: f.Name, Staged: staged, Rename: "CONSTRAINT",
			SQL: "ALTER TABLE " + staging + " ADD CONSTRAINT " + ident(staged) + " " + f.Def})
	}
	return parts, nil
}

// indexOn turns the server's definition of an index of the target into one of
// staging: the definition begins with the two names.
func (p *publisher) indexOn(name, def, staged string) (string, error) {
	// Names may hold the word, too: look behind them.
	names := min(len(name)+len(p.d.Schema)+len(p.d.Table), len(def))
	at := strings.Index(def[names:], " USING ") + names
	if at < names {
		return "", engine.Bugf("copy index %s of %s: its definition has no method", name, p.t.Name)
	}
	unique := ""
	if strings.HasPrefix(def, "CREATE UNIQUE ") {
		unique = "UNIQUE "
	}
	return "CREATE " + unique + "INDEX " + ident(staged) + " ON " + p.d.staging().sql() + def[at:], nil
}

// afterSwap lists what the table that is dropped has and its successor lacks:
// owner, rights, comment, replica identity, storage parameters, statistics targets.
func (p *publisher) afterSwap(ctx context.Context, target *table) ([]string, error) {
	rows, err := p.c.Query(ctx, afterSwapSQL, int64(target.OID), p.d.place().sql(), p.d.staging().sql())
	if err != nil {
		return nil, classify(err, "read rights of %s", p.t.Name)
	}
	sql, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return sql, classify(err, "read rights of %s", p.t.Name)
}

// afterSwapSQL makes statements for table $1, named $2, out of its catalog rows;
// $3 is staging, whose rights by default are taken back first.
const afterSwapSQL = `WITH t AS (SELECT * FROM pg_class WHERE oid = $1)
SELECT sql FROM (
	SELECT 1 AS o, 'ALTER TABLE ' || $2::text || ' OWNER TO ' || quote_ident(pg_get_userbyid(relowner)) AS sql
		FROM t WHERE relowner <> (SELECT relowner FROM pg_class WHERE oid = to_regclass($3))
	UNION ALL SELECT 2, 'REVOKE ALL ON ' || $2::text || ' FROM ' || CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END
		FROM pg_class s, aclexplode(s.relacl) a WHERE s.oid = to_regclass($3) AND a.grantee <> s.relowner
	UNION ALL SELECT 3, 'GRANT ' || a.privilege_type || ' ON ' || $2::text || ' TO '
			|| CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END
			|| CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END
		FROM t, aclexplode(t.relacl) a WHERE a.grantee <> t.relowner
	UNION ALL SELECT 4, 'COMMENT ON TABLE ' || $2::text || ' IS ' || quote_literal(obj_description(oid, 'pg_class'))
		FROM t WHERE obj_description(oid, 'pg_class') IS NOT NULL
	UNION ALL SELECT 5, 'COMMENT ON INDEX ' || i.indexrelid::regclass::text || ' IS ' || quote_literal(obj_description(i.indexrelid, 'pg_class'))
		FROM pg_index i WHERE i.indrelid = $1 AND obj_description(i.indexrelid, 'pg_class') IS NOT NULL
	UNION ALL SELECT 6, 'ALTER TABLE ' || $2::text || ' REPLICA IDENTITY ' || CASE relreplident WHEN 'f' THEN 'FULL' ELSE 'NOTHING' END
		FROM t WHERE relreplident IN ('f', 'n')
	UNION ALL SELECT 7, 'ALTER TABLE ' || $2::text || ' SET (' || option_name || ' = ' || quote_literal(option_value) || ')'
		FROM t, pg_options_to_table(t.reloptions)
	UNION ALL SELECT 8, 'ALTER TABLE ' || $2::text || ' ALTER COLUMN ' || quote_ident(attname) || ' SET STATISTICS ' || attstattarget
		FROM pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped AND attstattarget > 0
) s GROUP BY o, sql ORDER BY o, sql`

// takeSequences keeps the sequences of the target's columns. One behind a serial
// column changes hands before the table is dropped; one of an identity column
// goes with it, and its values and rights pass to staging's. It returns the
// statements for after the rename.
func (p *publisher) takeSequences(ctx context.Context, target *table) ([]string, error) {
	rows, err := p.c.Query(ctx, `SELECT a.attname::text, d.objid::int8, d.objid::regclass::text, c.relname::text, n.nspname::text, d.deptype::text
		FROM pg_depend d JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
		JOIN pg_class c ON c.oid = d.objid AND c.relkind = 'S' JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = $1 AND d.deptype IN ('a', 'i')`, int64(target.OID))
	if err != nil {
		return nil, classify(err, "look for sequences of %s", p.t.Name)
	}
	type sequence struct {
		Column       string
		OID          int64
		SQL          string
		Name, Schema string
		Kind         string
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[sequence])
	if err != nil {
		return nil, classify(err, "look for sequences of %s", p.t.Name)
	}
	var after []string
	for _, q := range found {
		if q.Kind == "a" {
			if err := p.exec(ctx, "ALTER SEQUENCE "+q.SQL+" OWNED BY "+p.d.staging().sql()+"."+ident(q.Column)); err != nil {
				return nil, err
			}
			continue
		}
		var staged *string
		var value int64
		var called bool
		err := p.c.QueryRow(ctx, "SELECT pg_get_serial_sequence($1, $2), last_value, is_called FROM "+q.SQL, p.d.staging().sql(), q.Column).Scan(&staged, &value, &called)
		if err != nil {
			return nil, classify(err, "read sequence %s", q.SQL)
		}
		if staged == nil {
			return nil, engine.Bugf("swap %s: staging has no identity for column %q", p.t.Name, q.Column)
		}
		after = append(after,
			"ALTER SEQUENCE "+*staged+" RENAME TO "+ident(q.Name),
			fmt.Sprintf("SELECT setval(%s, %d, %t)", literal(qualified(q.Schema, q.Name)), value, called))
		rows, err := p.c.Query(ctx, `SELECT 'GRANT ' || a.privilege_type || ' ON SEQUENCE ' || $2::text || ' TO '
				|| CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END
				|| CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END
			FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = $1 AND a.grantee <> c.relowner`, q.OID, qualified(q.Schema, q.Name))
		if err != nil {
			return nil, classify(err, "read rights of sequence %s", q.SQL)
		}
		grants, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, classify(err, "read rights of sequence %s", q.SQL)
		}
		after = append(after, grants...)
	}
	return after, nil
}
