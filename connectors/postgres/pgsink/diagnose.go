package pgsink

import (
	"context"
	"fmt"

	"github.com/tranship-io/tranship/engine"
)

// TestConnection implements engine.ConnectionTester.
func (s *Session) TestConnection(ctx context.Context) ([]engine.Finding, error) {
	var f []engine.Finding
	err := s.with(ctx, "", func(c *conn) error {
		var err error
		f, err = s.diagnose(ctx, c)
		return err
	})
	return f, err
}

func (s *Session) diagnose(ctx context.Context, c *conn) ([]engine.Finding, error) {
	var version, role, encoding string
	var standby, temp, create, schemaThere, schemaCreate, super bool
	err := c.QueryRow(ctx, `SELECT current_setting('server_version'), current_user::text, current_setting('server_encoding'), pg_is_in_recovery(),
		has_database_privilege(current_database(), 'TEMPORARY'), has_database_privilege(current_database(), 'CREATE'),
		EXISTS (SELECT FROM pg_namespace WHERE nspname = $1),
		EXISTS (SELECT FROM pg_namespace WHERE nspname = $1 AND has_schema_privilege(oid, 'CREATE')),
		(SELECT rolsuper FROM pg_roles WHERE rolname = current_user)`, s.options.Schema).
		Scan(&version, &role, &encoding, &standby, &temp, &create, &schemaThere, &schemaCreate, &super)
	if err != nil {
		return nil, classify(err, "look at the server")
	}
	f := []engine.Finding{{Level: "ok", Subject: "server", Message: fmt.Sprintf("PostgreSQL %s as %s", version, role)}}
	add := func(bad bool, level, subject, good, message, hint string) {
		if bad {
			f = append(f, engine.Finding{Level: level, Subject: subject, Message: message, Hint: hint})
		} else if good != "" {
			f = append(f, engine.Finding{Level: "ok", Subject: subject, Message: good})
		}
	}
	const minimum = 13
	add(s.major < minimum, "error", "version", "", fmt.Sprintf("PostgreSQL %d is older than %d", s.major, minimum), "upgrade the server")
	add(standby, "error", "standby", "", "the server is a standby and takes no writes", "connect to the primary")
	add(encoding != "UTF8", "warning", "encoding", "", "the database's encoding is "+encoding+": text that it has no characters for fails", "use a database in UTF8")
	add(!temp, "warning", "temporary tables", "the role may make temporary tables",
		"the role may not make temporary tables: upsert, delete, conversions and verification of appends need them", "GRANT TEMPORARY ON DATABASE … TO "+ident(role))
	if s.options.Schema != "" {
		switch {
		case schemaThere:
			add(!schemaCreate, "warning", "schema "+s.options.Schema, "the role may make tables in it",
				"the role may not make tables in it: new targets and staging can't be made", "GRANT CREATE ON SCHEMA "+ident(s.options.Schema)+" TO "+ident(role))
		default:
			add(!create, "error", "schema "+s.options.Schema, "it will be made", "it does not exist and the role may not make it",
				"CREATE SCHEMA "+ident(s.options.Schema)+" AUTHORIZATION "+ident(role))
		}
	}
	f = append(f, engine.Finding{Level: "ok", Subject: "ledger", Message: "fence and ledger are kept in schema " + s.ledger.schema})
	add(super, "warning", "role", "", role+" is a superuser: row-level security does not hold for it, and mistakes go far", "use a role that owns the targets")
	return f, nil
}
