package store

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/store/internal/db"
)

// columnsSQL are the columns that a row cannot leave out, with the CHECKs that
// are about each of them.
const columnsSQL = `SELECT c.relname, a.attname, format_type(a.atttypid, NULL),
	coalesce((SELECT string_agg(pg_get_constraintdef(k.oid), ' ') FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'c' AND k.conkey = ARRAY[a.attnum]), '')
	FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
	WHERE c.relnamespace = 'tranship'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND NOT c.relname = ANY ($1) AND a.attidentity = '' AND a.attgenerated = ''
	AND (a.attnotnull AND NOT a.atthasdef OR a.atttypid = 'uuid'::regtype OR a.attname = 'state')
	ORDER BY c.relname, a.attnum`

// rowExtras are columns without which a row would break a CHECK of several.
var rowExtras = map[string]map[string]string{
	"runs":                    {"ordinal": "1"},
	"splits":                  {"owner": "0", "owner_generation": "1"},
	"members":                 {"issuer": "'x'", "subject": "'x'"},
	"inspections":             {"pipeline": "NULL", "claim": "NULL"},
	"schedules":               {"cron": "'x'", "next_instant": "now()", "next_at": "now()"},
	"schedule_occurrences":    {"due_at": "now()"},
	"notification_deliveries": {"next_at": "now()"},
	"operations":              {"next_at": "now()"},
}

// plant gives an organization one row in each of its tables, all of whose ids are
// the same.
func plant(t *testing.T, conn *pgx.Conn, org, id uuid.UUID) (tables []string) {
	t.Helper()
	ctx := t.Context()
	rows, err := conn.Query(ctx, columnsSQL, installationTables)
	require.NoError(t, err)
	values := map[string]map[string]string{}
	var table, column, typ, check string
	_, err = pgx.ForEachRow(rows, []any{&table, &column, &typ, &check}, func() error {
		if values[table] == nil {
			values[table] = map[string]string{}
			tables = append(tables, table)
		}
		values[table][column] = literal(table, column, typ, check, org, id)
		return nil
	})
	require.NoError(t, err)
	_, err = conn.Exec(ctx, `SET session_replication_role = replica`)
	require.NoError(t, err)
	for _, table := range tables {
		for column, value := range rowExtras[table] {
			values[table][column] = value
		}
		var names, list []string
		for column, value := range values[table] {
			names, list = append(names, pgx.Identifier{column}.Sanitize()), append(list, value)
		}
		_, err := conn.Exec(ctx, fmt.Sprintf(`INSERT INTO %s (%s) VALUES (%s)`, table, strings.Join(names, ", "), strings.Join(list, ", ")))
		require.NoError(t, err, "a row of %s: teach rowExtras what its CHECKs want", table)
	}
	return tables
}

var firstOption = regexp.MustCompile(`ARRAY\[('[^']*'::text)`)

func literal(table, column, typ, check string, org, id uuid.UUID) string {
	if m := firstOption.FindStringSubmatch(check); m != nil {
		return m[1]
	}
	switch {
	case typ == "uuid" && (column == "organization" || table == "organizations" && column == "id"):
		return "'" + org.String() + "'"
	case typ == "uuid":
		return "'" + id.String() + "'"
	case typ == "text":
		if table == "organizations" && column == "key" {
			return "'" + org.String() + "'"
		}
		if column == "prefix" {
			return "'xxxxxxxx'"
		}
		return "'x'"
	case typ == "text[]":
		return "'{x}'"
	case typ == "bytea":
		return "sha256('x')"
	case strings.HasPrefix(typ, "timestamp"):
		return "now()"
	case typ == "json", typ == "jsonb":
		return `'{"x":1}'`
	case typ == "boolean":
		return "true"
	case strings.HasSuffix(typ, "[]"):
		return "'{}'"
	}
	return "60"
}

// guess makes an argument of a query: ids of the other organization wherever an
// id is wanted, and values that its rows have.
type guess struct{ org, id uuid.UUID }

func (g guess) value(name string, typ reflect.Type) reflect.Value {
	switch v := reflect.New(typ).Elem(); typ {
	case reflect.TypeFor[uuid.UUID]():
		if strings.EqualFold(name, "organization") {
			return reflect.ValueOf(g.org)
		}
		return reflect.ValueOf(g.id)
	case reflect.TypeFor[time.Time]():
		return reflect.ValueOf(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
	case reflect.TypeFor[json.RawMessage]():
		return reflect.ValueOf(json.RawMessage(`{"x":1}`))
	case reflect.TypeFor[[]byte]():
		if strings.Contains(strings.ToLower(name), "hash") {
			return reflect.ValueOf(make([]byte, 32))
		}
		return reflect.ValueOf([]byte(`{"x":1}`))
	default:
		switch typ.Kind() {
		case reflect.Pointer:
			p := reflect.New(typ.Elem())
			p.Elem().Set(g.value(name, typ.Elem()))
			return p
		case reflect.Slice:
			return reflect.Append(v, g.value(name, typ.Elem()))
		case reflect.Struct:
			for i := range typ.NumField() {
				v.Field(i).Set(g.value(typ.Field(i).Name, typ.Field(i).Type))
			}
		case reflect.String:
			v.SetString("x")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Float64, reflect.Float32:
			v.SetFloat(1)
		default:
			v.SetInt(1)
		}
		return v
	}
}

// call runs one query and tells all that it told, without times and with ids
// under the names of what they are.
func (g guess) call(ctx context.Context, tx Tx, m reflect.Method, own uuid.UUID) string {
	args := []reflect.Value{reflect.ValueOf(tx.Q()), reflect.ValueOf(ctx)}
	for i := 2; i < m.Type.NumIn(); i++ {
		args = append(args, g.value("", m.Type.In(i)))
	}
	var told []any
	for _, out := range m.Func.Call(args) {
		if err, ok := out.Interface().(error); ok {
			if c := code(err); c != "" {
				err = fmt.Errorf("%s %w", c, err)
			}
			told = append(told, err.Error())
			continue
		}
		if exec := out.MethodByName("Exec"); exec.IsValid() {
			exec.Call([]reflect.Value{reflect.ValueOf(func(_ int, err error) { told = append(told, fmt.Sprint(err)) })})
			continue
		}
		told = append(told, out.Interface())
	}
	text := fmt.Sprintf("%+v", told)
	if b, err := json.Marshal(told); err == nil {
		text = string(b)
	}
	for from, to := range map[uuid.UUID]string{g.org: "ORG", g.id: "ID", own: "OWN"} {
		text = strings.ReplaceAll(text, from.String(), to)
	}
	return generated.ReplaceAllString(text, "NEW")
}

// generated are values that differ each time: instants, ids, names of organizations.
var generated = regexp.MustCompile(`\d{4}-\d{2}-\d{2}T[0-9:.]+(Z|[+-][0-9:]+)|own-\d|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// TestForeignIDs runs every query of the store with the ids of another
// organization's rows, and once more with ids that nobody has: nothing tells the
// two apart, and no row of the other organization changes (invariant 9).
func TestForeignIDs(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	conn := superuser(t, d)
	theirs := guess{uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())}
	nobodys := guess{uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())}
	tables := plant(t, conn, theirs.org, theirs.id)
	require.Greater(t, len(tables), 20)
	// Whether the sweep is armed is nobody's own, and told to whoever arms it.
	_, err := conn.Exec(t.Context(), `SELECT arm()`)
	require.NoError(t, err)
	before := contents(t, conn, tables, theirs.org)
	var queries []reflect.Method
	for m := range reflect.TypeFor[*db.Queries]().Methods() {
		if m.Name != "WithTx" {
			queries = append(queries, m)
		}
	}
	told := make([][]string, 2)
	for i, g := range []guess{theirs, nobodys} {
		own := newOrganization(t, d, fmt.Sprint("own-", i))
		for _, m := range queries {
			var answer string
			err := d.Tx(t.Context(), own, func(ctx context.Context, tx Tx) error {
				answer = g.call(ctx, tx, m, own)
				return nil
			})
			told[i] = append(told[i], fmt.Sprintf("%s: %s %s", m.Name, answer, code(err)))
		}
	}
	require.Greater(t, len(told[0]), 100)
	for j := range told[0] {
		assert.Equal(t, told[1][j], told[0][j], "a foreign id is told from an unknown one")
	}
	require.Equal(t, before, contents(t, conn, tables, theirs.org), "rows of the other organization changed")

	// As a member of the other organization they do find something: the rows are
	// what the queries look for.
	found := 0
	for j, m := range queries {
		undo := fmt.Errorf("undo")
		require.ErrorIs(t, d.Tx(t.Context(), theirs.org, func(ctx context.Context, tx Tx) error {
			if fmt.Sprintf("%s: %s ", m.Name, theirs.call(ctx, tx, m, theirs.org)) != strings.ReplaceAll(told[1][j], "OWN", "ORG") {
				found++
			}
			return undo
		}), undo)
	}
	t.Logf("%d queries, %d of which find rows or act on them for their own organization; %d tables", len(told[0]), found, len(tables))
	require.Greater(t, found, len(told[0])/3)
}

// contents is all that an organization has.
func contents(t *testing.T, conn *pgx.Conn, tables []string, org uuid.UUID) string {
	t.Helper()
	var all []string
	for _, table := range tables {
		column := "organization"
		if table == "organizations" {
			column = "id"
		}
		var rows string
		require.NoError(t, conn.QueryRow(t.Context(), fmt.Sprintf(`SELECT coalesce(string_agg(t::text, E'\n' ORDER BY t::text), '') FROM %s t WHERE %s = $1`, table, column), org).Scan(&rows))
		require.NotEmpty(t, rows, table)
		all = append(all, table+"\n"+rows)
	}
	return strings.Join(all, "\n")
}

// TestStateOfAnotherOrganization calls every method of the engine's State with
// another organization's run, route and lease: they are unknown.
func TestStateOfAnotherOrganization(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	ctx := t.Context()
	a, b := d.State(newOrganization(t, d, "a")), d.State(newOrganization(t, d, "b"))
	run, _, err := a.StartRun(ctx, engine.StartRequest{Route: testRoute, Version: "v"})
	require.NoError(t, err)
	l, err := a.Acquire(ctx, run.ID, 0, "w", time.Hour)
	require.NoError(t, err)
	require.NoError(t, a.SavePlan(ctx, l.Fence, &engine.RunPlan{Resources: []*engine.ResourcePlan{resourcePlan("a", engine.WriteAppend, 2)}}, nil))
	c, err := a.ClaimSplit(ctx, l.Fence, nil)
	require.NoError(t, err)
	conn := superuser(t, d)
	tables := []string{"runs", "routes", "resources", "splits", "slots"}
	before := contents(t, conn, tables, a.org)
	s, runState := reflect.ValueOf(b), d.RunState(b.org, run.ID)
	_, _, err = runState.StartRun(ctx, engine.StartRequest{Route: testRoute})
	require.Error(t, err)
	port := reflect.TypeFor[engine.State]()
	for i := range port.NumMethod() {
		m := port.Method(i)
		if m.Name == "StartRun" || m.Name == "AdoptRoute" {
			continue // They make runs and routes of their own organization.
		}
		args := []reflect.Value{}
		for j := range m.Type.NumIn() {
			switch typ := m.Type.In(j); typ {
			case reflect.TypeFor[context.Context]():
				args = append(args, reflect.ValueOf(ctx))
			case reflect.TypeFor[uuid.UUID]():
				args = append(args, reflect.ValueOf(run.ID))
			case reflect.TypeFor[engine.Fence]():
				args = append(args, reflect.ValueOf(l.Fence))
			case reflect.TypeFor[engine.Lease]():
				args = append(args, reflect.ValueOf(l))
			case reflect.TypeFor[engine.Route]():
				args = append(args, reflect.ValueOf(testRoute))
			case reflect.TypeFor[*engine.RunPlan]():
				args = append(args, reflect.ValueOf(&engine.RunPlan{}))
			case reflect.TypeFor[*engine.ResourcePlan]():
				args = append(args, reflect.ValueOf(resourcePlan("a", engine.WriteAppend, 1)))
			case reflect.TypeFor[engine.Progress]():
				args = append(args, reflect.ValueOf(engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 1}))
			case reflect.TypeFor[string]():
				args = append(args, reflect.ValueOf(c.ID))
			case reflect.TypeFor[time.Duration]():
				args = append(args, reflect.ValueOf(time.Hour))
			case reflect.TypeFor[int64]():
				args = append(args, reflect.ValueOf(c.Claim))
			default:
				args = append(args, reflect.Zero(typ))
			}
		}
		out := s.MethodByName(m.Name).Call(args)
		failed := !out[len(out)-1].IsNil()
		switch m.Name {
		case "Installation", "ResetResource":
			require.False(t, failed, m.Name)
		case "RouteKnown", "Cursor", "ListRuns", "Facts":
			require.False(t, failed, m.Name)
			require.True(t, out[0].IsZero() || out[0].Kind() == reflect.Slice && out[0].Len() == 0, "%s tells %v", m.Name, out[0])
		default:
			require.True(t, failed, "%s worked on a run of another organization", m.Name)
		}
	}
	require.Equal(t, before, contents(t, conn, tables, a.org))
}
