package pgsource

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/engine"
)

// Sampling for range boundaries.
const (
	// samplePages is how many blocks a sample takes at least, so that even a
	// plan of few ranges cuts them evenly.
	samplePages = 300
	// pagesPerSplit adds to it: the size of ranges then varies by some 20 %.
	pagesPerSplit = 8
)

// byKeys cuts the key into ranges whose boundaries the server takes from a sample
// of the table, in the columns' own order (P13).
func (p *planning) byKeys(ctx context.Context, base descriptor) error {
	base.Way, base.Order, base.Unproved = byKeys, p.key, p.unproved
	files, foreign, err := p.files(ctx)
	if err != nil {
		return err
	}
	n := int(1)
	if p.rel.bytes > 0 {
		size := p.splitBytes(p.rel.bytes)
		n = int((p.rel.bytes + size - 1) / size)
	}
	var bounds [][]string
	switch {
	case n == 1:
	case !p.rel.indexedBy(p.key):
		p.warn("no index has the key (%s) as its first columns: the table is sorted by the server and read in one piece", strings.Join(p.key, ", "))
	case foreign || p.rel.kind == kindView || p.rel.kind == kindForeign:
	default:
		if bounds, err = p.sample(ctx, n); err != nil {
			return err
		}
	}
	bytes, rows := p.rel.bytes, p.rel.rows
	if bytes > 0 {
		bytes /= int64(len(bounds) + 1)
	}
	if rows > 0 {
		rows /= int64(len(bounds) + 1)
	}
	for i := range len(bounds) + 1 {
		d := base
		if i == 0 {
			d.Files = files
		} else {
			d.From = bounds[i-1]
		}
		if i < len(bounds) {
			d.To = bounds[i]
		} else {
			d.Last = true
		}
		p.addSplit(d, rows, bytes)
	}
	return nil
}

// files returns the numbers of the files that hold the rows now, and whether
// foreign tables are among them.
func (p *planning) files(ctx context.Context) (map[uint32]uint32, bool, error) {
	files, foreign := map[uint32]uint32{}, false
	err := p.s.query(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, fmt.Sprintf(tablesSQL, p.rel.oid, false))
		if err != nil {
			return fmt.Errorf("list tables: %w", err)
		}
		tables, err := scanTables(rows)
		if err != nil {
			return fmt.Errorf("list tables: %w", err)
		}
		for _, t := range tables {
			foreign = foreign || t.kind == kindForeign
			if t.current != 0 {
				files[t.oid] = t.current
			}
		}
		return nil
	})
	return files, foreign, err
}

// sample returns up to n−1 keys that cut the table into about equal parts.
func (p *planning) sample(ctx context.Context, n int) ([][]string, error) {
	pages := max(1, p.rel.bytes/8192)
	percent := min(100, 100*float64(samplePages+n*pagesPerSplit)/float64(pages))
	names := make([]string, len(p.key))
	picked := make([]string, len(p.key))
	for i, k := range p.key {
		names[i] = fmt.Sprintf("%s AS k%d", pgconf.QuoteIdent(k), i)
		picked[i] = fmt.Sprintf("k%d", i)
	}
	keys := strings.Join(picked, ", ")
	only := ""
	if p.rel.kind == kindTable {
		only = "ONLY "
	}
	sql := fmt.Sprintf(`SELECT ARRAY[%s] FROM (
	SELECT %s, row_number() OVER (ORDER BY %s) AS rn, count(*) OVER () AS n FROM (
		SELECT %s FROM %s%s TABLESAMPLE SYSTEM (%g) REPEATABLE (1) WHERE %s) s) q
WHERE rn > 1 AND (rn - 1) * %d / n <> (rn - 2) * %d / n ORDER BY rn`,
		strings.Join(texts(picked), ", "), keys, keys, strings.Join(names, ", "), only, p.rel.sql(), percent,
		p.where(notNull(p.key)), n, n)
	var bounds [][]string
	err := p.s.data(ctx, p.typeSchemas(p.key), func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sql)
		if err != nil {
			return err
		}
		bounds, err = pgx.CollectRows(rows, pgx.RowTo[[]string])
		return err
	})
	if err != nil {
		return nil, p.filterError("sample the key", err)
	}
	// A sample with many equal values gives equal boundaries.
	return slices.CompactFunc(bounds, slices.Equal[[]string]), nil
}

func texts(exprs []string) []string {
	out := make([]string, len(exprs))
	for i, e := range exprs {
		out[i] = e + "::text"
	}
	return out
}

func notNull(columns []string) string {
	conds := make([]string, len(columns))
	for i, c := range columns {
		conds[i] = pgconf.QuoteIdent(c) + " IS NOT NULL"
	}
	return strings.Join(conds, " AND ")
}

// where joins conditions with the selection's own filter.
func (p *planning) where(conds ...string) string {
	return joinConditions(append(conds, userFilter(p.req.Where)))
}

func userFilter(where string) string {
	if strings.TrimSpace(where) == "" {
		return ""
	}
	// The line break ends a comment that the filter may end with.
	return "(" + where + "\n)"
}

func joinConditions(conds []string) string {
	conds = slices.DeleteFunc(conds, func(c string) bool { return c == "" })
	if len(conds) == 0 {
		return "true"
	}
	return strings.Join(conds, " AND ")
}

// filterError says which statement failed, and shows the filter when it can be at fault.
func (p *planning) filterError(what string, err error) error {
	if strings.TrimSpace(p.req.Where) != "" && engine.ClassOf(err) == engine.Permanent {
		return fmt.Errorf("%s: %s with the filter %q: %w", p.rel.resource(), what, p.req.Where, err)
	}
	return fmt.Errorf("%s: %s: %w", p.rel.resource(), what, err)
}

// typeSchemas are the schemas that hold the columns' types, for finding their operators.
func (p *planning) typeSchemas(columns []string) []string {
	var schemas []string
	for _, name := range columns {
		if c, ok := p.rel.column(name); ok {
			schemas = append(schemas, c.schemas()...)
		}
	}
	slices.Sort(schemas)
	return slices.Compact(schemas)
}

func (c *column) schemas() []string {
	var schemas []string
	for _, t := range []string{c.info.Schema, baseSchema(c)} {
		if t != "" && t != "pg_catalog" {
			schemas = append(schemas, t)
		}
	}
	return schemas
}

func baseSchema(c *column) string {
	if c.info.Base != nil {
		return c.info.Base.Schema
	}
	return ""
}

// data runs fn in a read-only transaction with the user's own search_path, for
// statements with the user's filter, extended by the schemas of types.
func (s *Session) data(ctx context.Context, schemas []string, fn func(tx pgx.Tx) error) error {
	conn, err := s.take(ctx)
	if err != nil {
		return err
	}
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if sql := searchPathSQL(schemas); sql != "" {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return fn(tx)
	})
	if err != nil {
		_ = conn.Close(context.WithoutCancel(ctx)) // it is given up because of err
		return pgconf.Classify(err)
	}
	s.give(ctx, conn)
	return nil
}

func searchPathSQL(schemas []string) string {
	if len(schemas) == 0 {
		return ""
	}
	return "SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('search_path') || " +
		pgconf.QuoteLiteral(", "+quoteList(schemas)) + ", true)"
}

func quoteList(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = pgconf.QuoteIdent(n)
	}
	return strings.Join(quoted, ", ")
}
