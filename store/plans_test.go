package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// queryTexts are the store's queries as they are sent, by name.
func queryTexts(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("internal/db/*.sql.go")
	require.NoError(t, err)
	texts := map[string]string{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok || len(v.Values) != 1 {
				return true
			}
			if lit, ok := v.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, err := strconv.Unquote(lit.Value)
				require.NoError(t, err)
				if head, body, ok := strings.Cut(text, "\n"); ok && strings.HasPrefix(head, "-- name: ") {
					texts[strings.Fields(head)[2]] = body
				}
			}
			return true
		})
	}
	return texts
}

// largeTables grow with what an installation does; fillForPlans fills them, so
// that the planner has a choice.
var largeTables = []string{
	"runs", "facts", "splits", "resources", "slots", "fact_relays", "audit_log", "idempotency",
	"run_history", "run_resources", "run_costs", "metrics_hourly", "metrics_durations", "metrics_daily", "metrics_daily_durations",
	"schedule_occurrences", "notification_deliveries", "notification_attempts", "inspections",
	"pipelines", "pipeline_versions", "pipeline_routes", "pipeline_uses", "route_names", "connections", "connection_versions", "connection_secrets",
	"secrets", "members", "service_accounts", "api_keys", "operations", "schedules", "notification_rules", "attempt_offers", "attempt_tasks",
	"artifacts", "seen_rows", "cursors", "routes",
}

// wholeOrganization are queries about all of an organization's rows in a large
// table, and why that is so.
var wholeOrganization = map[string]string{
	"LackingFacts": "a rebuild of the read models looks once whether all facts are still there",
}

type planNode struct {
	Type      string     `json:"Node Type"`
	Relation  string     `json:"Relation Name"`
	Index     string     `json:"Index Name"`
	Condition string     `json:"Index Cond"`
	Plans     []planNode `json:"Plans"`
}

// TestQueriesUseIndexes explains every query of the store, as the role that runs
// it, with the planner told to avoid sequential scans: what is left of them has
// no index. In large tables the index must narrow beyond the organization, be
// partial, or give the order of a list that is cut.
func TestQueriesUseIndexes(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	conn := superuser(t, d)
	ctx := t.Context()
	fillForPlans(t, d)
	// Plans for any values: parameters stay unknown, as EXPLAIN (GENERIC_PLAN), which
	// is from 16 on only, would leave them.
	for _, sql := range []string{`SET enable_seqscan = off`, `SET plan_cache_mode = force_generic_plan`, `SELECT set_config('tranship.organization', (SELECT id::text FROM organizations LIMIT 1), false)`} {
		_, err := conn.Exec(ctx, sql)
		require.NoError(t, err)
	}
	rows, err := conn.Query(ctx, `SELECT indexrelid::regclass::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace = 'tranship'::regnamespace AND indpred IS NOT NULL`)
	require.NoError(t, err)
	partial := map[string]bool{}
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		partial[strings.TrimPrefix(name, "tranship.")] = true
	}
	require.NoError(t, rows.Err())
	explained := 0
	for name, text := range queryTexts(t) {
		var body []byte
		var errs []error
		roles := []string{roleMaintenance, roleApp}
		if strings.Contains(text, "organization()") || strings.Contains(text, "organization = $") {
			roles = []string{roleApp, roleMaintenance}
		}
		for _, role := range roles {
			_, err := conn.Exec(ctx, "SET ROLE "+role)
			require.NoError(t, err)
			if body, err = explain(ctx, conn, text); err == nil {
				errs = nil
				break
			}
			errs = append(errs, err)
		}
		require.Empty(t, errs, name)
		var plan []struct {
			Plan planNode `json:"Plan"`
		}
		require.NoError(t, json.Unmarshal(body, &plan), name)
		explained++
		for _, problem := range planProblems(plan[0].Plan, partial, false) {
			if wholeOrganization[name] == "" {
				assert.Fail(t, "no index serves a query", "%s: %s\n%s\n%s", name, problem, text, body)
			}
		}
	}
	require.Greater(t, explained, 150)
}

// explain returns the plan of a query for any values of its parameters, on every
// version of the server.
func explain(ctx context.Context, conn *pgx.Conn, text string) (plan []byte, err error) {
	s, err := conn.Prepare(ctx, "explained", text)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Deallocate(ctx, "explained")) }()
	values := ""
	if n := len(s.ParamOIDs); n > 0 {
		values = "(" + strings.TrimSuffix(strings.Repeat("NULL, ", n), ", ") + ")"
	}
	result, err := conn.PgConn().Exec(ctx, "EXPLAIN (FORMAT JSON) EXECUTE explained"+values).ReadAll()
	if err != nil {
		return nil, err
	}
	return result[0].Rows[0][0], nil
}

// planProblems finds what a plan reads without the help of an index; cut: only
// the first rows of it are wanted.
func planProblems(n planNode, partial map[string]bool, cut bool) (problems []string) {
	cut = cut && n.Type != "Sort" && n.Type != "Aggregate" && n.Type != "Hash" || n.Type == "Limit"
	table := n.Relation
	if strings.HasPrefix(table, "facts_") {
		table = "facts"
	}
	large := false
	for _, l := range largeTables {
		large = large || l == table
	}
	switch {
	case n.Type == "Seq Scan" && large:
		problems = append(problems, "sequential scan of "+n.Relation)
	case n.Type == "Seq Scan" && table != "meta" && table != "arming" && table != "migrations" && !cut:
		problems = append(problems, "sequential scan of "+n.Relation)
	case large && strings.HasPrefix(n.Type, "Index") && !partial[n.Index] && !strings.Contains(n.Condition, " AND ") &&
		(n.Condition == "" || strings.HasPrefix(n.Condition, "(organization =")) && !cut:
		problems = append(problems, fmt.Sprintf("%s is read by %s with nothing but %q", n.Relation, n.Index, n.Condition))
	}
	for _, p := range n.Plans {
		problems = append(problems, planProblems(p, partial, cut)...)
	}
	return problems
}

// fillForPlans makes the large tables of the engine so large that the right
// index is cheaper than another one.
func fillForPlans(t *testing.T, d *DB) {
	t.Helper()
	conn := superuser(t, d)
	for _, sql := range []string{
		`SET session_replication_role = replica`,
		`CREATE TEMPORARY TABLE o AS SELECT gen_random_uuid() AS id, n AS o FROM generate_series(1, 5) n`,
		`INSERT INTO organizations (id, key, name) SELECT id, 'o' || o, 'o' FROM o`,
		`INSERT INTO routes (organization, id, installation, pipeline, source, sink) SELECT o.id, gen_random_uuid(), 'i', 'p' || n, 's', 'd' FROM o, generate_series(1, 40) n`,
		`INSERT INTO runs (organization, id, pipeline, pipeline_name, version, route, ordinal, state, created_at, ended_at)
			SELECT r.organization, (substr(uuid_at(now() - n * interval '1 hour')::text, 1, 14) || substr(gen_random_uuid()::text, 15))::uuid, r.id, r.pipeline, 'v', r.id, n,
				CASE WHEN n = 1 THEN 'running' ELSE 'completed' END, now() - n * interval '1 hour', now() FROM routes r, generate_series(1, 25) n`,
		`INSERT INTO facts (organization, run, number, id, type, version, at, payload) SELECT organization, id, n, gen_random_uuid(), 't', 1, now(), '{}' FROM runs, generate_series(1, 4) n`,
		`INSERT INTO resources (organization, run, seq, name, generation, plan) SELECT organization, id, n, 'r' || n, 0, '{}' FROM runs, generate_series(1, 2) n`,
		`INSERT INTO splits (organization, run, id, resource, resource_seq, seq, kind, generation, done) SELECT organization, run, name || n, name, seq, n, 'read', 0, n > 1 FROM resources, generate_series(1, 3) n`,
		`INSERT INTO slots (organization, run, slot, generation, holder, expires) SELECT organization, id, 0, 1, CASE WHEN state = 'running' THEN 'w' ELSE '' END, now() FROM runs`,
		`INSERT INTO fact_relays (organization, run, first, last) SELECT organization, id, 1, 4 FROM runs`,
		`INSERT INTO audit_log (organization, id, actor_kind, actor_name, actor_role, request_id, action, kind) SELECT organization, id, 'system', '', '', '', 'x', 'x' FROM runs`,
		`INSERT INTO idempotency (organization, key, kind, hash, object) SELECT organization, id::text, 'x', 'x', id FROM runs`,
		`INSERT INTO run_history (organization, run, pipeline, pipeline_name, route_key, version, created_at, state, started_at, ended_at)
			SELECT organization, id, pipeline, pipeline_name, '', 'v', created_at, state, created_at, CASE WHEN state <> 'running' THEN created_at END FROM runs`,
		`INSERT INTO run_resources SELECT organization, run, name, 'completed', 't', 'full', 'append', 1, 1, 1, 1, 0, 0, 0, 1, '', now(), now(), '{}' FROM resources`,
		`INSERT INTO run_costs SELECT organization, id, pipeline, created_at, 1, 1, 1 FROM runs`,
		`INSERT INTO metrics_hourly SELECT DISTINCT organization, date_trunc('hour', created_at), pipeline, 's', 'd', r, 'completed', 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1
			FROM runs, unnest('{"", a, b}'::text[]) r`,
		`INSERT INTO metrics_durations SELECT organization, hour, pipeline, source, sink, resource, status, n, 1 FROM metrics_hourly, generate_series(1, 2) n`,
		`INSERT INTO metrics_daily SELECT DISTINCT ON (organization, date_trunc('day', hour, 'UTC'), pipeline, resource) organization, date_trunc('day', hour, 'UTC'),
			pipeline, source, sink, resource, status, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1 FROM metrics_hourly`,
		`INSERT INTO metrics_daily_durations SELECT organization, day, pipeline, source, sink, resource, status, n, 1 FROM metrics_daily, generate_series(1, 2) n`,
		`INSERT INTO schedules (organization, id, name, pipeline, cron, time_zone, jitter_seconds, overlap, catch_up, catch_up_limit, options, state)
			SELECT organization, id, pipeline, id, '@daily', 'UTC', 0, 'skip', 'none', 1, '{}', 'paused' FROM routes`,
		`INSERT INTO schedule_occurrences (organization, schedule, instant, pipeline, state, concluded_at)
			SELECT organization, id, now() - n * interval '1 hour', id, 'fired', now() FROM routes, generate_series(1, 25) n`,
		`INSERT INTO notification_rules (organization, id, name, events, channel) SELECT organization, id, pipeline, '{run.failed}', 'email' FROM routes`,
		`INSERT INTO notification_deliveries (organization, id, rule, event, event_key, pipeline, run, channel, state, payload, sent_at)
			SELECT organization, id, pipeline, 'run.failed', id::text, pipeline, id, 'email', 'sent', '{}', now() FROM runs`,
		`INSERT INTO notification_attempts SELECT organization, id, 1, 1, now(), 200, '', 1 FROM notification_deliveries`,
		`INSERT INTO inspections (organization, id, kind, connection, state, expires_at, ended_at, started_at, created_at)
			SELECT organization, id, 'test', pipeline, 'succeeded', now() + interval '1 hour', now(), now(), created_at FROM runs`,
		`INSERT INTO pipelines (organization, id, name, current) SELECT organization, id, pipeline, 2 FROM routes`,
		`INSERT INTO pipeline_versions (organization, pipeline, number, hash, graph, created_by) SELECT organization, id, n, 'h', '{}', '' FROM routes, generate_series(1, 5) n`,
		`INSERT INTO pipeline_routes (organization, pipeline, number, route_key, position, source, sink, name, hash)
			SELECT organization, pipeline, number, 'k' || n, n, 's', 'd', 'n', 'h' FROM pipeline_versions, generate_series(1, 2) n`,
		`INSERT INTO connections (organization, id, name, role, connector, config, secrets) SELECT organization, id, pipeline, 'source', 'postgres', '{}', '[]' FROM routes`,
		`INSERT INTO connection_versions (organization, connection, version, name, config, secrets, created_by) SELECT organization, id, n, name, '{}', '[]', '' FROM connections, generate_series(1, 5) n`,
		`INSERT INTO pipeline_uses (organization, pipeline, number, connection) SELECT organization, pipeline, number, pipeline FROM pipeline_versions`,
		`INSERT INTO route_names (organization, pipeline, route_key, name) SELECT organization, pipeline, route_key, pipeline || route_key FROM pipeline_routes WHERE number = 1`,
		`INSERT INTO members (organization, id, name, issuer, subject, role) SELECT organization, id, pipeline, 'i', pipeline, 'viewer' FROM routes`,
		`INSERT INTO service_accounts (organization, id, name, role) SELECT organization, id, pipeline, 'viewer' FROM routes`,
		`INSERT INTO api_keys (organization, id, service_account, name, prefix, hash, role)
			SELECT organization, gen_random_uuid(), id, 'k', 'prefix12', sha256(id::text::bytea), 'viewer' FROM routes, generate_series(1, 3) n`,
		`INSERT INTO secrets (organization, name, id, owner, key, data_key, value) SELECT organization, id::text, id, id, 'm', '', '' FROM routes`,
		`INSERT INTO connection_secrets SELECT organization, id, 'url', id::text FROM routes`,
		`INSERT INTO operations (organization, id, kind, key, request, hash, target, state, concluded_at)
			SELECT organization, id, 'task.run', id::text, '{}', sha256(id::text::bytea), '', 'succeeded', created_at FROM runs`,
		`INSERT INTO attempt_offers (organization, run, slot) SELECT organization, id, 0 FROM runs WHERE state = 'running'`,
		`INSERT INTO attempt_tasks (organization, run, slot, number, id, stopped_at) SELECT organization, id, 0, n, 't', now() FROM runs, generate_series(1, 2) n`,
		`INSERT INTO artifacts SELECT organization, run, name, n::text, '{}' FROM resources, generate_series(1, 2) n`,
		`INSERT INTO seen_rows (organization, run, resource, ids) SELECT organization, run, name, '' FROM resources`,
		`INSERT INTO cursors (organization, route, resource) SELECT organization, id, 'r' || n FROM routes, generate_series(1, 3) n`,
		`ANALYZE`,
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
}
