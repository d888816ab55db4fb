package pgsink

import (
	"context"
	"fmt"
	"strings"

	"github.com/tranship-io/tranship/engine"
)

// defaultLedgerSchema holds fence and ledger unless the sink names another.
const defaultLedgerSchema = "_tranship"

// ledgerLock serializes the making of the ledger's tables.
const ledgerLock int64 = 0x7472616e73686970

// ledger knows where the destination keeps fence and ledger.
type ledger struct {
	schema string
	// prefix stands before the tables' names when they share a schema with
	// tables of others.
	prefix string
}

func (l ledger) fence() string { return qualified(l.schema, l.prefix+"fence") }

// rows is the ledger; staged its unlogged twin (P7).
func (l ledger) rows() string   { return qualified(l.schema, l.prefix+"ledger") }
func (l ledger) staged() string { return qualified(l.schema, l.prefix+"ledger_staged") }

// tables are the statements that make the ledger, by the table's name.
func (l ledger) tables() [][2]string {
	const row = ` (
	installation text NOT NULL,
	route text NOT NULL,
	resource text NOT NULL,
	run_id text NOT NULL,
	split text NOT NULL,
	generation integer NOT NULL,
	descriptor json,
	claim bigint NOT NULL DEFAULT 0,
	owner text NOT NULL DEFAULT '',
	epoch bigint NOT NULL DEFAULT 0,
	position json,
	done boolean NOT NULL DEFAULT false,
	totals json NOT NULL DEFAULT '{}',
	receipt json,
	backend_pid integer,
	backend_start timestamptz,
	updated_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (installation, route, resource, run_id, split)
) WITH (fillfactor = 70)`
	return [][2]string{
		{l.prefix + "fence", "CREATE TABLE " + l.fence() + ` (
	installation text NOT NULL,
	route text NOT NULL,
	resource text NOT NULL,
	pipeline text NOT NULL,
	source text NOT NULL,
	sink text NOT NULL,
	target text NOT NULL,
	ordinal bigint NOT NULL DEFAULT 0,
	run_id text NOT NULL DEFAULT '',
	frozen_run text NOT NULL DEFAULT '',
	frozen_generation integer NOT NULL DEFAULT 0,
	plan json,
	claimed boolean NOT NULL DEFAULT false,
	published_run text NOT NULL DEFAULT '',
	cursor json,
	updated_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (installation, route, resource)
)`},
		{l.prefix + "ledger", "CREATE TABLE " + l.rows() + row},
		{l.prefix + "ledger_staged", "CREATE UNLOGGED TABLE " + l.staged() + row},
	}
}

// findLedger looks where the ledger is, and if it is nowhere, where it can be
// made. A ledger that exists decides, so that rights granted later don't move it.
func findLedger(ctx context.Context, c *conn, o Options) (ledger, error) {
	if o.LedgerSchema != "" {
		l := ledger{schema: o.LedgerSchema}
		if o.LedgerSchema != defaultLedgerSchema {
			l.prefix = "_tranship_"
		}
		return l, nil
	}
	own := ledger{schema: defaultLedgerSchema}
	beside := ledger{schema: o.Schema, prefix: "_tranship_"}
	if beside.schema == "" {
		beside.schema = "public"
	}
	var ownTable, besideTable, mayCreate bool
	err := c.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL, to_regclass($2) IS NOT NULL,
		EXISTS (SELECT FROM pg_namespace WHERE nspname = $3 AND has_schema_privilege(oid, 'CREATE'))
		OR (NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = $3)
			AND has_database_privilege(current_database(), 'CREATE'))`,
		own.fence(), beside.fence(), own.schema).Scan(&ownTable, &besideTable, &mayCreate)
	if err != nil {
		return ledger{}, classify(err, "look for the ledger")
	}
	if !ownTable && (besideTable || !mayCreate) {
		return beside, nil
	}
	return own, nil
}

// ensureLedger makes what is missing and returns the statements that it ran. It
// asks first: CREATE … IF NOT EXISTS needs the right to create even if it exists.
func (s *Session) ensureLedger(ctx context.Context, c *conn) ([]string, error) {
	missing, err := s.missingLedger(ctx, c)
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	err = inTx(ctx, c, 0, func() error {
		if _, err := c.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", ledgerLock); err != nil {
			return classify(err, "lock the ledger's tables")
		}
		if missing, err = s.missingLedger(ctx, c); err != nil {
			return err
		}
		for _, sql := range missing {
			if _, err := c.Exec(ctx, sql); err != nil {
				if code(err) == codeNoRights {
					return engine.Permanentf(fmt.Sprintf(
						"let the administrator run: CREATE SCHEMA %s AUTHORIZATION CURRENT_USER, or name a schema where tables may be made in the sink's ledger_schema", ident(s.ledger.schema)),
						"make the ledger in schema %q: %w", s.ledger.schema, err)
				}
				return classify(err, "make the ledger in schema %q", s.ledger.schema)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return missing, nil
}

// missingLedger lists the statements that would make the ledger whole.
func (s *Session) missingLedger(ctx context.Context, c *conn) ([]string, error) {
	var have []string
	var schemaThere bool
	err := c.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1),
		ARRAY(SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = $1 AND c.relkind = 'r')`, s.ledger.schema).Scan(&schemaThere, &have)
	if err != nil {
		return nil, classify(err, "look for the ledger's tables")
	}
	var sql []string
	if !schemaThere {
		sql = append(sql, "CREATE SCHEMA "+ident(s.ledger.schema))
	}
	there := "\x00" + strings.Join(have, "\x00") + "\x00"
	for _, t := range s.ledger.tables() {
		if !strings.Contains(there, "\x00"+t[0]+"\x00") {
			sql = append(sql, t[1])
		}
	}
	return sql, nil
}
