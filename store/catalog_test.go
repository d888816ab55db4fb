package store

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// installationTables hold nothing of an organization's.
var installationTables = []string{"meta", "migrations", "arming"}

// definerFunctions run with the owner's rights, because only an owner may do
// what they do; tranship_app may call none of them.
var definerFunctions = []string{"make_fact_partitions", "drop_fact_partition"}

// catalogRules are what a table of organizations must have (invariant 9, P26):
// each query returns the table, or function, and what is wrong with it. $1 are
// the tables that are exempt, $2 the functions.
var catalogRules = map[string]string{
	"no column organization, NOT NULL": `
		SELECT t.name, '' FROM tenants t WHERE t.name <> 'organizations' AND NOT EXISTS (SELECT FROM pg_attribute a
			WHERE a.attrelid = t.oid AND a.attname = 'organization' AND a.attnotnull AND a.atttypid = 'uuid'::regtype)`,
	"the primary key does not begin with organization": `
		SELECT t.name, '' FROM tenants t WHERE NOT EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = i.indkey[0]
			WHERE i.indrelid = t.oid AND i.indisprimary AND a.attname = t.tenant)`,
	"a unique index without organization tells of others' rows": `
		SELECT t.name, i.indexrelid::regclass::text FROM tenants t JOIN pg_index i ON i.indrelid = t.oid AND i.indisunique
		WHERE t.name <> 'organizations' AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = t.oid AND a.attname = 'organization' AND a.attnum = ANY (i.indkey::smallint[]))`,
	"row-level security is not enabled and forced": `
		SELECT t.name, '' FROM pg_class c JOIN all_tables t ON t.oid = c.oid WHERE NOT t.name = ANY ($1) AND NOT (c.relrowsecurity AND c.relforcerowsecurity)`,
	"no policy of tranship_app for the transaction's organization": `
		SELECT t.name, '' FROM tenants t WHERE NOT EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = t.oid
			AND p.polroles = ARRAY['tranship_app'::regrole::oid] AND p.polcmd = '*'
			AND pg_get_expr(p.polqual, p.polrelid) = format('(%I = (current_setting(''tranship.organization''::text))::uuid)', t.tenant)
			AND pg_get_expr(p.polwithcheck, p.polrelid) = pg_get_expr(p.polqual, p.polrelid))`,
	"a policy that is neither the tenant's nor maintenance's": `
		SELECT t.name, p.polname FROM all_tables t JOIN pg_policy p ON p.polrelid = t.oid
		WHERE p.polname NOT IN ('tenant', 'maintenance') OR p.polname = 'maintenance' AND p.polroles <> ARRAY['tranship_maintenance'::regrole::oid]`,
	"a foreign key without organization": `
		SELECT t.name, k.conname FROM tenants t JOIN pg_constraint k ON k.conrelid = t.oid AND k.contype = 'f'
		WHERE NOT EXISTS (SELECT FROM unnest(k.conkey, k.confkey) AS p (ours, theirs)
			JOIN pg_attribute o ON o.attrelid = k.conrelid AND o.attnum = p.ours
			JOIN pg_attribute f ON f.attrelid = k.confrelid AND f.attnum = p.theirs
			WHERE o.attname = 'organization' AND f.attname = CASE WHEN k.confrelid = 'organizations'::regclass THEN 'id' ELSE 'organization' END)`,
	"a state without CHECK": `
		SELECT t.name, a.attname FROM all_tables t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE NOT t.name = ANY ($1) AND (a.attname ~ '(^|_)(state|status|desired|phase)$' OR a.attname IN ('role', 'error_class', 'overlap', 'catch_up'))
		AND a.atttypid = 'text'::regtype
		AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = t.oid AND k.contype = 'c' AND a.attnum = ANY (k.conkey))`,
	"a table that everybody may use": `
		SELECT t.name, g.privilege_type FROM all_tables t JOIN pg_class c ON c.oid = t.oid, aclexplode(c.relacl) g WHERE g.grantee = 0`,
	"a partition that is reached past its parent's policies": `
		SELECT c.relname, g.privilege_type FROM pg_class c, aclexplode(c.relacl) g
		WHERE c.relnamespace = 'tranship'::regnamespace AND c.relispartition AND g.grantee <> c.relowner`,
	"a view, which would read with its owner's rights": `
		SELECT c.relname, '' FROM pg_class c WHERE c.relnamespace = 'tranship'::regnamespace AND c.relkind IN ('v', 'm')
		AND NOT coalesce(c.reloptions @> ARRAY['security_invoker=true'], false)`,
	"not owned by tranship_owner": `
		SELECT c.relname, pg_get_userbyid(c.relowner) FROM pg_class c WHERE c.relnamespace = 'tranship'::regnamespace AND c.relowner <> 'tranship_owner'::regrole`,
	"a function with its owner's rights": `
		SELECT p.proname, '' FROM pg_proc p WHERE p.pronamespace = 'tranship'::regnamespace AND p.prosecdef AND (NOT p.proname = ANY ($2)
			OR has_function_privilege('tranship_app', p.oid, 'EXECUTE') OR NOT coalesce(p.proconfig @> ARRAY['search_path=tranship'], false))`,
}

const catalogTables = `WITH all_tables AS (
	SELECT c.oid, c.relname AS name FROM pg_class c WHERE c.relnamespace = 'tranship'::regnamespace AND c.relkind IN ('r', 'p')
), tenants AS (
	SELECT t.*, CASE t.name WHEN 'organizations' THEN 'id' ELSE 'organization' END::name AS tenant
	FROM all_tables t JOIN pg_class c ON c.oid = t.oid WHERE NOT c.relispartition AND NOT t.name = ANY ($1) AND cardinality($2::text[]) >= 0
) `

// catalogProblems walks the catalog.
func catalogProblems(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	var found []string
	for rule, sql := range catalogRules {
		rows, err := conn.Query(ctx, catalogTables+`SELECT r.* FROM (`+sql+`) AS r WHERE cardinality($1::text[]) >= 0`, installationTables, definerFunctions)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rule, err)
		}
		var name, detail string
		if _, err := pgx.ForEachRow(rows, []any{&name, &detail}, func() error {
			found = append(found, fmt.Sprintf("%s %s: %s", name, detail, rule))
			return nil
		}); err != nil {
			return nil, fmt.Errorf("%s: %w", rule, err)
		}
	}
	slices.Sort(found)
	return found, nil
}

func superuser(t *testing.T, d *DB) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(d.config.URL)
	require.NoError(t, err)
	config.RuntimeParams["search_path"] = schemaName
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func TestCatalog(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	conn := superuser(t, d)
	found, err := catalogProblems(t.Context(), conn)
	require.NoError(t, err)
	require.Empty(t, found)

	// Each rule finds what is made against it.
	for _, sql := range []string{
		`SET ROLE tranship_owner`,
		`CREATE TABLE bad (id uuid PRIMARY KEY, run uuid UNIQUE, state text)`,
		`CREATE TABLE leaky (organization uuid NOT NULL, id uuid NOT NULL, run uuid, PRIMARY KEY (organization, id), UNIQUE (id), FOREIGN KEY (run) REFERENCES bad (id))`,
		`ALTER TABLE leaky ENABLE ROW LEVEL SECURITY`, `ALTER TABLE leaky FORCE ROW LEVEL SECURITY`,
		`CREATE POLICY tenant ON leaky TO tranship_app USING (true)`, `CREATE POLICY extra ON leaky TO PUBLIC USING (true)`,
		`GRANT SELECT ON leaky TO PUBLIC`, `GRANT SELECT ON facts_other TO tranship_app`, `CREATE VIEW peek AS SELECT * FROM runs`,
		`CREATE FUNCTION all_runs() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT count(*) FROM tranship.runs'`,
		`RESET ROLE`, `CREATE TABLE foreign_owner (organization uuid PRIMARY KEY)`,
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	found, err = catalogProblems(t.Context(), conn)
	require.NoError(t, err)
	for rule := range catalogRules {
		require.True(t, slices.ContainsFunc(found, func(f string) bool { return len(f) > len(rule) && f[len(f)-len(rule):] == rule }), "nothing found: %s\n%v", rule, found)
	}
}
