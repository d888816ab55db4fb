package pgsink

import (
	"context"
	"fmt"
	"strings"

	"github.com/tranship-io/tranship/engine"
)

// publishStatements are the statements that publish is expected to run.
func publishStatements(t *engine.Target, d *detail) []string {
	if d.Staging == "" {
		return nil
	}
	list := idents("", d.written())
	staging, target := d.staging().sql(), d.place().sql()
	var sql []string
	switch {
	case t.Write == engine.WriteAppend:
		return []string{"INSERT INTO " + target + " (" + list + ") OVERRIDING SYSTEM VALUE SELECT " + list + " FROM " + staging, "DROP TABLE " + staging}
	case d.Technique == techniqueCreate:
		if d.Unlogged {
			sql = append(sql, "ALTER TABLE "+staging+" SET LOGGED")
		}
		if len(d.Key) > 0 {
			sql = append(sql, "ALTER TABLE "+staging+" ADD PRIMARY KEY ("+idents("", d.Key)+")")
		}
		return append(sql, "ALTER TABLE "+staging+" RENAME TO "+ident(d.Table))
	case d.Technique == techniqueSwap:
		if d.Unlogged {
			sql = append(sql, "ALTER TABLE "+staging+" SET LOGGED")
		}
		return append(sql, "DROP TABLE "+target, "ALTER TABLE "+staging+" RENAME TO "+ident(d.Table))
	case d.Technique == techniqueMerge:
		return mergeStatements(d, nil)
	}
	return []string{"DELETE FROM " + target, "INSERT INTO " + target + " (" + list + ") OVERRIDING SYSTEM VALUE SELECT " + list + " FROM " + staging, "DROP TABLE " + staging}
}

// harden makes staging fit to be the target: written to the log, so that it
// survives a crash, with statistics.
func (p *publisher) harden(ctx context.Context) error {
	var unlogged bool
	err := p.c.QueryRow(ctx, "SELECT relpersistence = 'u' FROM pg_class WHERE oid = to_regclass($1)", p.d.staging().sql()).Scan(&unlogged)
	if err != nil {
		return classify(err, "look at staging")
	}
	if unlogged {
		return p.apart(ctx, "ALTER TABLE "+p.d.staging().sql()+" SET LOGGED")
	}
	return nil
}

// endLineage takes away the defaults that gave staged rows their lineage.
func (p *publisher) endLineage(ctx context.Context) error {
	if !p.t.Lineage {
		return nil
	}
	return p.exec(ctx, fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s DROP DEFAULT, ALTER COLUMN %s DROP DEFAULT",
		p.d.place().sql(), ident(lineageRun), ident(lineageTime)))
}

// create makes staging the target: there is none.
func (p *publisher) create(ctx context.Context) (func(ctx context.Context) error, error) {
	if p.d.Exists {
		return nil, engine.Permanentf("begin a new run (--restart), which makes it anew", "target %s was dropped since the plan was made", p.t.Name)
	}
	if err := p.harden(ctx); err != nil {
		return nil, err
	}
	keyName := fitName(p.d.Table + "_pkey")
	stagedKey := fitName(p.d.Staging + "_pkey")
	if len(p.d.Key) > 0 {
		if err := p.buildKey(ctx, stagedKey); err != nil {
			return nil, err
		}
	}
	if err := p.countStaging(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		// From here on the table has the target's name; nobody else knows it yet.
		if err := p.exec(ctx, "ALTER TABLE "+p.d.staging().sql()+" RENAME TO "+ident(p.d.Table)); err != nil {
			return err
		}
		if len(p.d.Key) > 0 {
			if err := p.renameFree(ctx, "INDEX", stagedKey, keyName); err != nil {
				return err
			}
		}
		for i := range p.d.Columns {
			if c := &p.d.Columns[i]; c.Identity != "" {
				if err := p.identity(ctx, c); err != nil {
					return err
				}
			}
		}
		if err := p.endLineage(ctx); err != nil {
			return err
		}
		return p.advance(ctx)
	}, nil
}

// identity gives a new table's column its identity, which needs NOT NULL.
func (p *publisher) identity(ctx context.Context, c *column) error {
	if !c.NotNull && !contains(p.d.Key, c.Name) {
		if err := p.exec(ctx, "ALTER TABLE "+p.d.place().sql()+" ALTER COLUMN "+ident(c.Name)+" SET NOT NULL"); err != nil {
			return err
		}
	}
	return p.exec(ctx, addIdentity(p.d.place(), c))
}

// buildKey builds the primary key on staging, if an earlier try has not.
func (p *publisher) buildKey(ctx context.Context, name string) error {
	var there bool
	if err := p.c.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_constraint WHERE conrelid = to_regclass($1) AND contype = 'p')", p.d.staging().sql()).Scan(&there); err != nil {
		return classify(err, "look for the key of staging")
	}
	if there {
		return nil
	}
	err := p.build(ctx, name, "ALTER TABLE "+p.d.staging().sql()+" ADD CONSTRAINT "+ident(name)+" PRIMARY KEY ("+idents("", p.d.Key)+")")
	if err != nil {
		return p.keyFailure(ctx, err)
	}
	return nil
}

// keyFailure names the row that keeps the key from being built.
func (p *publisher) keyFailure(ctx context.Context, cause error) error {
	if code(cause) == "" && engine.ClassOf(cause) != engine.Permanent {
		return cause
	}
	if err := p.countStaging(ctx); err != nil {
		return err
	}
	key := each(p.d.Key, " || ', ' || ", func(k string) string {
		return literal(strings.Trim(k, `"`)+"=") + " || COALESCE(" + k + "::text, 'NULL')"
	})
	nulls := each(p.d.Key, " OR ", func(k string) string { return k + " IS NULL" })
	var found string
	err := p.c.QueryRow(ctx, "SELECT "+key+" FROM "+p.d.staging().sql()+" WHERE "+nulls+" LIMIT 1").Scan(&found)
	if err == nil {
		return &engine.Error{Class: engine.Permanent, Hint: "name a key whose columns are never NULL",
			Err: &engine.ValueError{Resource: p.t.Resource, Column: strings.Join(p.t.Schema.Key, ", "), Key: found, Value: "NULL", Reason: "a key takes no NULL"}}
	}
	var n int64
	err = p.c.QueryRow(ctx, "SELECT "+key+", n FROM (SELECT "+idents("", p.d.Key)+", count(*) AS n FROM "+p.d.staging().sql()+
		" GROUP BY "+idents("", p.d.Key)+" HAVING count(*) > 1 LIMIT 1) d").Scan(&found, &n)
	if err == nil {
		return &engine.Error{Class: engine.Permanent, Hint: "name a key that is unique at the source, or correct the rows",
			Err: &engine.ValueError{Resource: p.t.Resource, Column: strings.Join(p.t.Schema.Key, ", "), Key: found, Value: found,
				Reason: fmt.Sprintf("%d rows have this key", n)}}
	}
	return cause
}

// renameFree renames an index or sequence of the target's schema if the wished
// name is free; a name is a matter of looks, not worth a failed run.
func (p *publisher) renameFree(ctx context.Context, kind, from, to string) error {
	var taken, there bool
	err := p.c.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL, to_regclass($2) IS NOT NULL",
		qualified(p.d.Schema, to), qualified(p.d.Schema, from)).Scan(&taken, &there)
	if err != nil {
		return classify(err, "look for the name %s", to)
	}
	if taken || !there || from == to {
		return nil
	}
	return p.exec(ctx, "ALTER "+kind+" "+qualified(p.d.Schema, from)+" RENAME TO "+ident(to))
}

// swap makes staging like the target and then puts it in its place.
func (p *publisher) swap(ctx context.Context, target *table) (func(ctx context.Context) error, error) {
	if err := p.harden(ctx); err != nil {
		return nil, err
	}
	parts, err := p.likeTarget(ctx, target)
	if err != nil {
		return nil, err
	}
	for _, b := range parts {
		var there bool
		err := p.c.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL OR EXISTS (SELECT FROM pg_constraint WHERE conrelid = to_regclass($2) AND conname = $3)`,
			qualified(p.d.Schema, b.Staged), p.d.staging().sql(), b.Staged).Scan(&there)
		if err != nil {
			return nil, classify(err, "look for %s on staging", b.Name)
		}
		if there {
			continue
		}
		if err := p.build(ctx, b.Staged, b.SQL); err != nil {
			return nil, p.keyFailure(ctx, err)
		}
	}
	if err := p.countStaging(ctx); err != nil {
		return nil, err
	}
	after, err := p.afterSwap(ctx, target)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return p.exchange(ctx, target, parts, after) }, nil
}

// exchange is the swap's transaction.
func (p *publisher) exchange(ctx context.Context, target *table, parts []built, after []string) error {
	place := p.d.place().sql()
	if err := p.exec(ctx, "LOCK TABLE "+place+" IN ACCESS EXCLUSIVE MODE"); err != nil {
		return err
	}
	// Nobody can add a dependent any more: look once again.
	now, err := p.s.readTable(ctx, p.c, p.d.place())
	if err != nil {
		return err
	}
	if now == nil || now.OID != target.OID {
		return engine.Retryablef("swap %s: it was replaced meanwhile", p.t.Name)
	}
	dep, err := p.s.inspect(ctx, p.c, now)
	if err != nil {
		return err
	}
	if len(dep.Holds) > 0 {
		return engine.Retryablef("swap %s: meanwhile there is %s", p.t.Name, dep.reasons())
	}
	sequences, err := p.takeSequences(ctx, target)
	if err != nil {
		return err
	}
	if err := p.exec(ctx, "DROP TABLE "+place); err != nil {
		return err
	}
	if err := p.exec(ctx, "ALTER TABLE "+p.d.staging().sql()+" RENAME TO "+ident(p.d.Table)); err != nil {
		return err
	}
	for _, b := range parts {
		sql := "ALTER INDEX " + qualified(p.d.Schema, b.Staged) + " RENAME TO " + ident(b.Name)
		if b.Rename == "CONSTRAINT" {
			sql = "ALTER TABLE " + place + " RENAME CONSTRAINT " + ident(b.Staged) + " TO " + ident(b.Name)
		}
		if err := p.exec(ctx, sql); err != nil {
			return err
		}
	}
	for _, sql := range append(sequences, after...) {
		if err := p.exec(ctx, sql); err != nil {
			return err
		}
	}
	if err := p.endLineage(ctx); err != nil {
		return err
	}
	return p.advance(ctx)
}
