package store

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

const dataModel = "../docs/data-model.md"

// TestDataModel keeps the drawn part of docs/data-model.md equal to the tables as
// the migrations make them. TRANSHIP_UPDATE=1 writes it anew.
func TestDataModel(t *testing.T) {
	t.Parallel()
	conn := superuser(t, newDB(t))
	drawn := drawTables(t, conn)
	body, err := os.ReadFile(dataModel)
	require.NoError(t, err)
	const begin, end = "<!-- drawn by TestDataModel -->\n", "<!-- end -->"
	before, rest, ok := strings.Cut(string(body), begin)
	require.True(t, ok, "%s has no %s", dataModel, begin)
	old, after, ok := strings.Cut(rest, end)
	require.True(t, ok, "%s has no %s", dataModel, end)
	if os.Getenv("TRANSHIP_UPDATE") != "" {
		require.NoError(t, os.WriteFile(dataModel, []byte(before+begin+drawn+end+after), 0o644))
		return
	}
	require.Equal(t, drawn, old, "write it anew: TRANSHIP_UPDATE=1 go test -run TestDataModel ./store")
	rows, err := conn.Query(t.Context(), `SELECT relname FROM pg_class WHERE relnamespace = 'tranship'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY 1`)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for _, table := range tables {
		require.Contains(t, before, "`"+table+"`", "%s does not say what the table is for", dataModel)
	}
}

// drawTables draws tables, keys and references as a Mermaid diagram.
func drawTables(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("\n```mermaid\nerDiagram\n")
	var from, to, how string
	rows, err := conn.Query(t.Context(), `SELECT f.relname, c.relname,
			(SELECT string_agg(a.attname, ' ' ORDER BY n) FROM unnest(k.conkey) WITH ORDINALITY u (num, n) JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = u.num
				WHERE a.attname <> 'organization' OR cardinality(k.conkey) = 1)
		FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_class f ON f.oid = k.confrelid
		WHERE k.contype = 'f' AND k.connamespace = 'tranship'::regnamespace AND NOT c.relispartition AND k.conparentid = 0 ORDER BY 1, 2, 3`)
	require.NoError(t, err)
	_, err = pgx.ForEachRow(rows, []any{&from, &to, &how}, func() error {
		fmt.Fprintf(&b, "    %s ||--o{ %s : %q\n", from, to, how)
		return nil
	})
	require.NoError(t, err)
	var table, column, typ, key string
	last := ""
	rows, err = conn.Query(t.Context(), `SELECT c.relname, a.attname, replace(replace(format_type(a.atttypid, NULL), ' with time zone', 'tz'), 'character varying', 'text'),
			CASE WHEN EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND a.attnum = ANY (i.indkey::smallint[])) THEN ' PK' ELSE '' END
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE c.relnamespace = 'tranship'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY c.relname, a.attnum`)
	require.NoError(t, err)
	_, err = pgx.ForEachRow(rows, []any{&table, &column, &typ, &key}, func() error {
		if table != last {
			if last != "" {
				b.WriteString("    }\n")
			}
			fmt.Fprintf(&b, "    %s {\n", table)
			last = table
		}
		fmt.Fprintf(&b, "        %s %s%s\n", strings.NewReplacer(" ", "_", "[]", "_list").Replace(typ), column, key)
		return nil
	})
	require.NoError(t, err)
	b.WriteString("    }\n```\n\n")
	return b.String()
}
