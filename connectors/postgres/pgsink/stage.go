package pgsink

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tranship-io/tranship/engine"
)

// The lineage columns, opt-in.
const (
	lineageRun  = "_tranship_run_id"
	lineageTime = "_tranship_loaded_at"
)

// lineage plans the lineage columns of a target that exists without them.
func (p *planner) lineage() {
	if !p.req.Lineage || p.exists == nil {
		return
	}
	for name, typ := range map[string]string{lineageRun: "text", lineageTime: "timestamptz"} {
		if p.exists.column(name) == nil {
			p.d.Alter = append(p.d.Alter, change{Done: p.columnIs(name, "true"),
				SQL: "ALTER TABLE " + p.d.place().sql() + " ADD COLUMN " + ident(name) + " " + typ})
		}
	}
}

// definitions are the columns of a table to be made.
func (d *detail) definitions() string {
	defs := make([]string, len(d.Columns))
	for i, c := range d.Columns {
		defs[i] = ident(c.Name) + " " + c.Target.SQL
		if c.Expression != "" {
			defs[i] += " GENERATED ALWAYS AS (" + c.Expression + ") STORED"
		}
		if c.NotNull {
			defs[i] += " NOT NULL"
		}
	}
	return strings.Join(defs, ", ")
}

func exists(p place) string { return "to_regclass(" + literal(p.sql()) + ") IS NOT NULL" }

// makeTables are the tables that Prepare makes: target, staging, set aside.
func makeTables(t *engine.Target, d *detail) []change {
	var made []change
	create := func(p place, kind, rest string) {
		made = append(made, change{SQL: "CREATE " + kind + "TABLE " + p.sql() + " " + rest, Done: exists(p)})
	}
	definitions := d.definitions()
	if t.Lineage {
		definitions += ", " + ident(lineageRun) + " text, " + ident(lineageTime) + " timestamptz"
	}
	kind := ""
	if d.Unlogged {
		kind = "UNLOGGED "
	}
	if (t.Write == engine.WriteReplace || d.Delta != "") && !d.Exists {
		create(d.staging(), kind, "("+definitions+")")
		made = append(made, comments(t, d, d.staging())...)
	} else {
		if !d.Exists {
			create(d.place(), "", "("+definitions+")")
			made = append(made, comments(t, d, d.place())...)
			made = append(made, newTableKeys(t, d)...)
		}
		if d.Staging != "" {
			create(d.staging(), kind, "(LIKE "+d.place().sql()+" INCLUDING ALL EXCLUDING INDEXES EXCLUDING STATISTICS)")
		}
	}
	if d.Delta != "" {
		made = append(made, makeDelta(d))
	}
	if t.Lineage && d.Staging != "" {
		// Rows copied straight into staging get their lineage as defaults.
		made = append(made, change{Done: "false", SQL: fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s SET DEFAULT %s, ALTER COLUMN %s SET DEFAULT now()",
			d.staging().sql(), ident(lineageRun), literal(t.RunID), ident(lineageTime))})
	}
	if d.SetAside != nil {
		create(*d.SetAside, "", `(at timestamptz NOT NULL DEFAULT now(), run_id text NOT NULL, resource text NOT NULL, split text NOT NULL, `+
			`"column" text NOT NULL, key text, reason text NOT NULL, "values" json NOT NULL)`)
	}
	return made
}

// newTableKeys are the key, identity and index of a target that is made at once.
func newTableKeys(t *engine.Target, d *detail) []change {
	var made []change
	table := d.place()
	if t.Write == engine.WriteUpsert || t.Write == engine.WriteMerge {
		made = append(made, change{SQL: "ALTER TABLE " + table.sql() + " ADD PRIMARY KEY (" + idents("", d.Key) + ")",
			Done: "EXISTS (SELECT FROM pg_constraint WHERE contype = 'p' AND conrelid = to_regclass(" + literal(table.sql()) + "))"})
	}
	if d.Index {
		// Every epoch looks here for rows of its window (P15).
		cols := d.Key
		if d.Cursor != "" {
			cols = append(append([]string(nil), cols...), d.Cursor)
		}
		name := fitName(d.Table + "_tranship_window")
		made = append(made, change{SQL: "CREATE INDEX " + ident(name) + " ON " + table.sql() + " (" + idents("", cols) + ")",
			Done: exists(place{d.Schema, name})})
	}
	for _, c := range d.Columns {
		if c.Identity != "" {
			made = append(made, change{SQL: addIdentity(table, &c),
				Done: "EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass(" + literal(table.sql()) + ") AND attname = " + literal(c.Name) + " AND attidentity <> '')"})
		}
	}
	return made
}

func addIdentity(table place, c *column) string {
	return "ALTER TABLE " + table.sql() + " ALTER COLUMN " + ident(c.Name) + " ADD GENERATED " + strings.ToUpper(c.Identity) + " AS IDENTITY"
}

func comments(t *engine.Target, d *detail, on place) []change {
	var made []change
	if t.Schema.Comment != "" {
		made = append(made, change{SQL: "COMMENT ON TABLE " + on.sql() + " IS " + literal(t.Schema.Comment), Done: "false"})
	}
	for _, c := range d.Columns {
		if c.Comment != "" {
			made = append(made, change{SQL: "COMMENT ON COLUMN " + on.sql() + "." + ident(c.Name) + " IS " + literal(c.Comment), Done: "false"})
		}
	}
	return made
}

// ddlLock bounds the wait of a statement that changes a table others use, so
// that a long query of a reader never queues everybody behind us (P8); ddlTries
// bounds the tries.
const (
	ddlLock  = 2 * time.Second
	ddlTries = 15
)

// retryLocked runs f until its locks are granted.
func retryLocked(ctx context.Context, what string, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		if code(err) != codeLockTimeout || try == ddlTries {
			return err
		}
		select {
		case <-time.After(min(time.Duration(try)*100*time.Millisecond, time.Second)):
		case <-ctx.Done():
			return fmt.Errorf("wait for the locks of %s: %w", what, context.Cause(ctx))
		}
	}
}

// Prepare implements engine.SinkSession.
func (s *Session) Prepare(ctx context.Context, t *engine.Target) (*engine.Prepared, error) {
	d, err := s.detailOf(t)
	if err != nil {
		return nil, err
	}
	if t.Resource != engine.StreamResource {
		if err := s.register(t, d); err != nil {
			return nil, err
		}
	}
	prepared := &engine.Prepared{}
	err = s.with(ctx, "", func(c *conn) error {
		made, err := s.ensureLedger(ctx, c)
		if err != nil {
			return err
		}
		prepared.Statements = append(prepared.Statements, made...)
		if t.Resource == engine.StreamResource {
			return nil
		}
		ready, err := s.checkStaging(ctx, c, t, d)
		if err != nil || ready {
			return err
		}
		if err := s.checkTarget(ctx, c, t, d); err != nil {
			return err
		}
		return retryLocked(ctx, t.Name, func() error {
			ran, err := s.makeReady(ctx, c, t, d)
			if err == nil {
				prepared.Statements = append(prepared.Statements, ran...)
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return prepared, nil
}

// register refuses two resources of a run with one target.
func (s *Session) register(t *engine.Target, d *detail) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other, ok := s.places[d.place()]; ok && other != t.Resource {
		return collision(t.Resource, other, d.place())
	}
	s.places[d.place()] = t.Resource
	return nil
}

// checkStaging tells whether nothing is to be made: the publish is done (P8), or
// the plan is in use and its staging is there. Staging that is gone though rows
// were loaded gives ErrStagingLost (P7).
func (s *Session) checkStaging(ctx context.Context, c *conn, t *engine.Target, d *detail) (ready bool, err error) {
	f, err := s.readFence(ctx, c, t)
	if err != nil {
		return false, err
	}
	if f.RunID != "" && f.RunID != t.RunID && f.Ordinal >= t.Ordinal {
		return false, &engine.StaleError{What: "ordinal", Subject: t.Resource, Ours: t.Ordinal, Have: f.Ordinal}
	}
	if f.PublishedRun == t.RunID {
		return true, nil
	}
	if !f.begun(t) {
		return false, nil
	}
	if d.Staging == "" {
		return false, nil
	}
	var there bool
	if err := c.QueryRow(ctx, "SELECT "+exists(d.staging())).Scan(&there); err != nil {
		return false, classify(err, "look for staging of %s", t.Resource)
	}
	if !there {
		return false, stagingLost(t, "the table "+d.staging().String()+" does not exist")
	}
	return true, s.checkTwin(ctx, c, t, d)
}

// checkTarget notices that the target is gone that the plan found: dropped, or the
// destination was set back (P3). A plan that nothing was done for is void then.
func (s *Session) checkTarget(ctx context.Context, c *conn, t *engine.Target, d *detail) error {
	if !d.Exists {
		return nil
	}
	var there bool
	if err := c.QueryRow(ctx, "SELECT "+exists(d.place())).Scan(&there); err != nil {
		return classify(err, "look for %s", t.Name)
	}
	if there {
		return nil
	}
	f, err := s.readFence(ctx, c, t)
	if err != nil {
		return err
	}
	if !f.begun(t) {
		return fmt.Errorf("%s, which %s was planned for, does not exist any more: %w", t.Name, t.Resource, engine.ErrPlanVoid)
	}
	return engine.Permanentf("restore the table, or begin anew with --restart",
		"%s, which %s was planned for and rows were written to, does not exist any more", t.Name, t.Resource)
}

// checkTwin notices that a crash has emptied unlogged staging: its ledger rows,
// unlogged too, are gone with it (P7).
func (s *Session) checkTwin(ctx context.Context, c *conn, t *engine.Target, d *detail) error {
	if !d.Unlogged {
		return nil
	}
	var rows, planned int64
	k := keyOf(t)
	err := c.QueryRow(ctx, `SELECT (SELECT count(*) FROM `+s.ledger.staged()+` WHERE `+runWhere+`),
		COALESCE((SELECT json_array_length(plan->'source'->'splits') FROM `+s.ledger.fence()+` WHERE `+fenceWhere+`), 0)`,
		k.installation, k.route, k.resource, t.RunID).Scan(&rows, &planned)
	if err != nil {
		return classify(err, "count ledger rows of %s", t.Resource)
	}
	if rows < planned {
		return stagingLost(t, "the server has restarted after a crash and emptied the unlogged table "+d.staging().String())
	}
	return nil
}

// makeReady makes tables in one transaction. Staging of a plan that was never
// frozen holds nothing and may have other columns: it is made anew.
func (s *Session) makeReady(ctx context.Context, c *conn, t *engine.Target, d *detail) ([]string, error) {
	var ran []string
	run := func(ch change) error {
		var done bool
		if err := c.QueryRow(ctx, "SELECT "+ch.Done).Scan(&done); err != nil {
			return classify(err, "prepare %s", t.Name)
		}
		if done {
			return nil
		}
		if _, err := c.Exec(ctx, ch.SQL); err != nil {
			if code(err) == codeNoRights {
				return engine.Permanentf("let the owner or an administrator run it: "+ch.SQL, "prepare %s: %w", t.Name, err)
			}
			return classify(err, "prepare %s: %s", t.Name, ch.SQL)
		}
		ran = append(ran, ch.SQL)
		return nil
	}
	err := inTx(ctx, c, ddlLock, func() error {
		if _, err := c.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", lockKey("prepare", d.Schema, d.Table)); err != nil {
			return classify(err, "prepare %s", t.Name)
		}
		for _, p := range d.staged() {
			if _, err := c.Exec(ctx, "DROP TABLE IF EXISTS "+p.sql()); err != nil {
				return classify(err, "drop unused staging of %s", t.Name)
			}
		}
		for _, changes := range [][]change{d.Before, d.Alter, makeTables(t, d)} {
			for _, ch := range changes {
				if err := run(ch); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return ran, err
}
