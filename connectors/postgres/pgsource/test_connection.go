package pgsource

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/engine"
)

// serverFacts are what the checks of a connection look at.
type serverFacts struct {
	version, user, database string
	superuser, allStats     bool
	standby                 bool
	statementTimeout        string
	defaultReadOnly         string
	schemas, relations      int64
	readable                int64
	unreadable              []string
	policies                []string
	policiesBypassed        bool
	freeConnections         int64
}

const factsSQL = `WITH rels AS (
	SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) AS name, n.oid AS nsp,
		pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_table_privilege(c.oid, 'SELECT') AS readable,
		c.relrowsecurity AND pg_catalog.row_security_active(c.oid) AS policies
	FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
	WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition AND c.relpersistence <> 't'
		AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_')
SELECT pg_catalog.current_setting('server_version'), current_user::text, pg_catalog.current_database()::text,
	r.rolsuper, r.rolsuper OR pg_catalog.pg_has_role(r.oid, 'pg_read_all_stats', 'USAGE'), pg_catalog.pg_is_in_recovery(),
	coalesce((SELECT s.reset_val FROM pg_catalog.pg_settings s WHERE s.name = 'statement_timeout'), '0'),
	pg_catalog.current_setting('default_transaction_read_only'),
	(SELECT count(DISTINCT nsp) FROM rels), (SELECT count(*) FROM rels), (SELECT count(*) FROM rels WHERE readable),
	ARRAY(SELECT name FROM rels WHERE NOT readable ORDER BY name LIMIT 5),
	ARRAY(SELECT name FROM rels WHERE policies ORDER BY name LIMIT 5),
	r.rolsuper OR r.rolbypassrls,
	pg_catalog.current_setting('max_connections')::int8 - (SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE backend_type = 'client backend' OR backend_type IS NULL)
FROM pg_catalog.pg_roles r WHERE r.rolname = current_user`

// TestConnection looks at what decides whether and how the database can be read.
func (s *Session) TestConnection(ctx context.Context) ([]engine.Finding, error) {
	var f serverFacts
	var changes changeFacts
	err := s.query(ctx, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, changeFactsSQL).Scan(&changes.level, &changes.keepSize, &changes.right, &changes.slots, &changes.senders); err != nil {
			return err
		}
		return tx.QueryRow(ctx, factsSQL).Scan(&f.version, &f.user, &f.database, &f.superuser, &f.allStats, &f.standby,
			&f.statementTimeout, &f.defaultReadOnly, &f.schemas, &f.relations, &f.readable, &f.unreadable, &f.policies,
			&f.policiesBypassed, &f.freeConnections)
	})
	if err != nil {
		return nil, fmt.Errorf("test connection: %w", err)
	}
	found := s.findings(&f)
	if !f.standby && s.version >= oldestStream {
		found = append(found, changes.findings()...)
	}
	return found, nil
}

func (s *Session) findings(f *serverFacts) []engine.Finding {
	found := []engine.Finding{{Level: "ok", Subject: "server",
		Message: fmt.Sprintf("PostgreSQL %s, database %q, role %q", f.version, f.database, f.user)}}
	add := func(level, subject, message, hint string) {
		found = append(found, engine.Finding{Level: level, Subject: subject, Message: message, Hint: hint})
	}
	if s.version < 140000 {
		add("warning", "version", "PostgreSQL 13 can't read block ranges: a snapshot of a table without a key is read in one piece", "")
	}
	if f.standby {
		add("warning", "standby", "the server is a standby: long reads can be canceled by replay, and transactions that are open on the primary can't be seen",
			"set hot_standby_feedback or a larger max_standby_streaming_delay; give incremental resources a lookback")
	}
	switch {
	case f.relations == 0:
		add("warning", "tables", "the database has no tables or views", "is it the right database?")
	case f.readable == 0:
		add("error", "rights", fmt.Sprintf("none of the %d tables and views can be read, such as %s", f.relations, strings.Join(f.unreadable, ", ")),
			"GRANT USAGE ON SCHEMA … TO the role; GRANT SELECT ON ALL TABLES IN SCHEMA … TO it")
	case f.readable < f.relations:
		add("warning", "rights", fmt.Sprintf("%d of %d tables and views in %d schemas can be read; not, for example, %s", f.readable, f.relations, f.schemas, strings.Join(f.unreadable, ", ")),
			"GRANT SELECT where it is needed")
	default:
		add("ok", "rights", fmt.Sprintf("all %d tables and views in %d schemas can be read", f.relations, f.schemas), "")
	}
	if !f.allStats {
		add("warning", "transactions", "the role can't see other roles' transactions, so that incremental reads can't wait for those that commit late",
			"GRANT pg_read_all_stats TO the role, or give incremental resources a lookback")
	}
	if len(f.policies) > 0 && !f.policiesBypassed {
		add("warning", "row security", "policies hide rows from this role, for example of "+strings.Join(f.policies, ", "),
			"use a role with BYPASSRLS if all rows are wanted")
	}
	if f.statementTimeout != "0" && s.cfg.StatementTimeout == 0 {
		add("ok", "statement_timeout", fmt.Sprintf("the role's default of %s ms is set aside for reads, which stall_timeout (%s) watches", f.statementTimeout, s.cfg.Stall()), "")
	}
	if t := time.Duration(s.cfg.StatementTimeout); t > 0 && t < time.Hour {
		add("warning", "statement_timeout", fmt.Sprintf("the configured %s also bounds the copy of a split", t), "leave it out, unless splits are small")
	}
	// Each slot reads on a connection, planning and a snapshot take two more.
	if need := int64(max(1, s.opt.Slots) + 2); f.freeConnections < need {
		add("warning", "connections", fmt.Sprintf("the server has about %d connections left; this run may take %d", f.freeConnections, need),
			"use fewer slots, or raise max_connections")
	}
	return found
}
