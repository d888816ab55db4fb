package pgsink

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

// planner makes one target.
type planner struct {
	s       *Session
	c       *conn
	types   typeReader
	req     *engine.TargetRequest
	options ResourceOptions
	schema  *schema.Schema
	wire    bool
	exists  *table
	d       *detail
	t       *engine.Target
}

// Plan implements engine.SinkSession.
func (s *Session) Plan(ctx context.Context, req engine.TargetRequest) (*engine.Target, error) {
	var t *engine.Target
	err := s.with(ctx, "", func(c *conn) error {
		p := &planner{s: s, c: c, types: typeReader{s, c}, req: &req, schema: &req.Plan.Resource.Schema}
		if err := p.plan(ctx); err != nil {
			return err
		}
		t = p.t
		return nil
	})
	return t, err
}

func (p *planner) plan(ctx context.Context) error {
	resource := p.req.Plan.Resource.Name
	if err := p.checkRequest(resource); err != nil {
		return err
	}
	target, err := placeFor(p.req, p.s.options.Schema)
	if err != nil {
		return err
	}
	names, err := columnNames(resource, p.schema, p.options.Columns)
	if err != nil {
		return err
	}
	if p.exists, err = p.s.readTable(ctx, p.c, target); err != nil {
		return err
	}
	p.wire = slices.Contains(p.req.Plan.Wire, engine.WirePostgresCopy)
	p.d = &detail{Schema: target.Schema, Table: target.Table, Exists: p.exists != nil}
	p.t = &engine.Target{
		Route: p.req.Route, RunID: p.req.RunID, Ordinal: p.req.Ordinal, Generation: p.req.Generation,
		Resource: resource, Schema: *p.schema, Name: target.String(), Read: p.req.Read, Write: p.req.Write,
		Verify: p.req.Verify, Policies: p.req.Policies, SchemaRule: p.req.Schema, Lineage: p.req.Lineage,
		Options: p.req.Options,
	}
	if p.wire {
		p.t.Wire = engine.WirePostgresCopy
	}
	if err := p.checkKind(); err != nil {
		return err
	}
	if err := p.needSchema(ctx); err != nil {
		return err
	}
	for i, f := range p.schema.Fields {
		if err := p.column(ctx, names[i], f); err != nil {
			return err
		}
	}
	for _, k := range p.schema.Key {
		p.d.Key = append(p.d.Key, p.d.bySource(k).Name)
	}
	if err := p.others(); err != nil {
		return err
	}
	if err := p.generated(ctx); err != nil {
		return err
	}
	if err := p.mode(ctx); err != nil {
		return err
	}
	p.lineage()
	if err := p.setAside(); err != nil {
		return err
	}
	return p.finish()
}

func (p *planner) checkRequest(resource string) error {
	if err := p.schema.Validate(); err != nil {
		return engine.Bugf("plan target of %s: %w", resource, err)
	}
	if len(p.req.Options) > 0 {
		dec := json.NewDecoder(strings.NewReader(string(p.req.Options)))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&p.options); err != nil {
			return engine.Permanentf("correct the resource's sink options", "read sink options of %s: %w", resource, err)
		}
	}
	if !knownStaging(p.options.Staging) {
		return engine.Permanentf("write auto, logged or unlogged", "sink option staging of %s is %q", resource, p.options.Staging)
	}
	switch p.req.Write {
	case engine.WriteReplace, engine.WriteAppend:
		if p.req.Read == engine.ReadCDC {
			return engine.Permanentf("use write: merge", "the postgres sink can't write the changes of %s in mode %s", resource, p.req.Write)
		}
	case engine.WriteUpsert, engine.WriteDelete, engine.WriteMerge:
		if (p.req.Write == engine.WriteMerge) != (p.req.Read == engine.ReadCDC) {
			return engine.Permanentf("use read: cdc with write: merge", "%s: changes are merged, and nothing else is (read %s, write %s)", resource, p.req.Read, p.req.Write)
		}
		if len(p.schema.Key) == 0 {
			return engine.Permanentf("name its key columns in the pipeline: key: [id]", "%s of %s needs a key and the resource has none", p.req.Write, resource)
		}
	default:
		return engine.Permanentf("use replace, append, upsert, delete or merge", "the postgres sink can't write in mode %s (%s)", p.req.Write, resource)
	}
	return nil
}

// checkKind refuses what rows can't be written into.
func (p *planner) checkKind() error {
	if p.exists == nil {
		if p.req.Write == engine.WriteDelete {
			return engine.Permanentf("create it, or correct the target's name", "delete from %s: the table does not exist", p.t.Name)
		}
		return nil
	}
	switch p.exists.Kind {
	case "r", "p":
		p.d.Partitioned = p.exists.Kind == "p"
		return nil
	case "v":
		return engine.Permanentf("name another target, or drop the view", "target %s is a view", p.t.Name)
	case "f":
		return engine.Permanentf("name a table of this database", "target %s is a foreign table", p.t.Name)
	}
	return engine.Permanentf("name another target", "target %s is no table (relkind %s)", p.t.Name, p.exists.Kind)
}

// needSchema plans the target's schema, without asking for rights that are not
// needed: a schema that exists is used as it is.
func (p *planner) needSchema(ctx context.Context) error {
	var there, create bool
	err := p.c.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1),
		has_database_privilege(current_database(), 'CREATE')`, p.d.Schema).Scan(&there, &create)
	if err != nil {
		return classify(err, "look up schema %q", p.d.Schema)
	}
	if there {
		return nil
	}
	sql := "CREATE SCHEMA " + ident(p.d.Schema)
	if !create {
		return engine.Permanentf(fmt.Sprintf("let the administrator run: %s AUTHORIZATION CURRENT_USER, or name a schema that exists in the sink's schema", sql),
			"target %s: schema %q does not exist and the role may not create it", p.t.Name, p.d.Schema)
	}
	p.d.Before = append(p.d.Before, change{SQL: sql,
		Done: "EXISTS (SELECT FROM pg_namespace WHERE nspname = " + literal(p.d.Schema) + ")"})
	return nil
}

// column plans one column.
func (p *planner) column(ctx context.Context, name string, f schema.Field) error {
	policy := p.req.Policies.For(f.Name)
	w, err := p.types.wantedType(ctx, p.t.Resource, p.d.Schema, f, policy)
	if err != nil {
		return err
	}
	if w.warning != "" {
		p.t.Warnings = append(p.t.Warnings, w.warning)
	}
	c := column{Source: f.Name, Name: name, Value: w.sqlType, Target: w.sqlType, Identity: f.Identity,
		NotNull: !f.Nullable, Comment: f.Comment, Policy: policy}
	if err := p.loadForm(ctx, f, &c); err != nil {
		return err
	}
	var have *tableColumn
	if p.exists != nil {
		have = p.exists.column(name)
	}
	switch {
	case p.exists == nil:
		if f.Generated {
			c.Expression = f.Default
		}
	case have == nil:
		c.NotNull, c.Identity = false, ""
		if err := p.addColumn(&c); err != nil {
			return err
		}
	default:
		if err := p.meet(have, &c); err != nil {
			return err
		}
	}
	if create := (change{SQL: w.create, Done: "to_regtype(" + literal(strings.TrimSuffix(w.SQL, "[]")) + ") IS NOT NULL"}); w.create != "" &&
		c.Target.SQL == w.SQL && !slices.Contains(p.d.Before, create) {
		p.d.Before = append(p.d.Before, create)
	}
	keyed := p.req.Write == engine.WriteUpsert || p.req.Write == engine.WriteDelete || p.req.Write == engine.WriteMerge
	c.NeedValue = f.Nullable && (c.NotNull && !c.Generated || keyed && slices.Contains(p.schema.Key, f.Name))
	p.d.Columns = append(p.d.Columns, c)
	return nil
}

// loadForm decides how the column's values arrive: in their own binary form
// where both sides mean the same by it (P14), else as text.
func (p *planner) loadForm(ctx context.Context, f schema.Field, c *column) error {
	if p.wire {
		src, ok := pgcopy.FieldType(f)
		safe := false
		if ok {
			safe, _ = pgcopy.WireSafe(src, c.Value.Info)
		}
		c.Text, c.Opaque = !safe, !safe
		return nil
	}
	switch f.Type.Kind {
	case schema.Unknown:
		c.Text, c.Opaque = true, true
		return nil
	case schema.String, schema.Enum, schema.JSON:
	default:
		if c.Value.SQL == "text" {
			back, err := p.types.naturalType(ctx, f.Type)
			if err != nil {
				return err
			}
			c.Back = &back
		}
	}
	if v := below(c.Value.Info); v.Elem != nil && (v.OID == 0 || v.OID >= firstUserOID) {
		// P14: the binary form holds the element type's number in its own database.
		c.Text = true
		return nil
	}
	_, err := pgcopy.NewEncoder([]schema.Field{f}, []pgcopy.EncodeColumn{{Name: c.Name, Type: c.Value.Info}})
	c.Text = err != nil
	return nil
}

// meet makes the planned column and the one that exists fit each other.
func (p *planner) meet(have *tableColumn, c *column) error {
	c.Generated = have.Generated != ""
	c.Identity = map[string]string{"a": "always", "d": "by default"}[have.Identity]
	c.NotNull = have.NotNull
	c.Target = have.Type
	to := relate(c.Value.Info, have.Type.Info)
	switch to.relation {
	case same:
		if below(c.Value.Info).Typtype != 'e' {
			c.Target.SQL = c.Value.SQL
		}
		return nil
	case widens:
		return nil
	case refused, checked:
	}
	if wider := relate(have.Type.Info, c.Value.Info); wider.relation == widens && !c.Generated && p.req.Schema != engine.SchemaFreeze {
		p.d.Alter = append(p.d.Alter, change{SQL: alterType(p.d.place(), c.Name, c.Value.SQL),
			Done: p.columnIs(c.Name, "format_type(atttypid, atttypmod) = "+literal(c.Value.Info.Name))})
		c.Target = c.Value
		return nil
	}
	if to.relation == checked {
		c.Test, c.Clamp, c.Reason = to.Test, to.Clamp, to.Reason
		return nil
	}
	return engine.Permanentf("run it if that is meant, or rename the column in the pipeline: "+alterType(p.d.place(), c.Name, c.Value.SQL)+
		" USING "+ident(c.Name)+"::"+c.Value.SQL,
		"column %q of %s is %s and the source's is %s: no conversion keeps every value", c.Name, p.t.Name, have.Type.SQL, c.Value.SQL)
}

func alterType(table place, name, typ string) string {
	return "ALTER TABLE " + table.sql() + " ALTER COLUMN " + ident(name) + " TYPE " + typ
}

// addColumn plans a column that the target lacks.
func (p *planner) addColumn(c *column) error {
	sql := "ALTER TABLE " + p.d.place().sql() + " ADD COLUMN " + ident(c.Name) + " " + c.Target.SQL
	if p.req.Schema == engine.SchemaFreeze {
		return engine.Permanentf("run it, exclude the column, or let the schema policy be evolve: "+sql,
			"target %s has no column %q and its schema is frozen", p.t.Name, c.Name)
	}
	p.d.Alter = append(p.d.Alter, change{SQL: sql, Done: p.columnIs(c.Name, "true")})
	return nil
}

// columnIs is the SQL that tells whether the target has a column that is so.
func (p *planner) columnIs(name, so string) string {
	return "EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass(" + literal(p.d.place().sql()) +
		") AND NOT attisdropped AND attname = " + literal(name) + " AND " + so + ")"
}

// others looks at columns of the target that the source does not have.
func (p *planner) others() error {
	if p.exists == nil || p.req.Write == engine.WriteDelete {
		return nil
	}
	for _, have := range p.exists.Columns {
		if p.d.byName(have.Name) == nil && have.NotNull && !have.Default && have.Identity == "" && have.Generated == "" {
			return engine.Permanentf(fmt.Sprintf("run: ALTER TABLE %s ALTER COLUMN %s DROP NOT NULL, or give it a default", p.d.place().sql(), ident(have.Name)),
				"column %q of %s takes no NULL, has no default, and the source has no such column", have.Name, p.t.Name)
		}
	}
	return nil
}

// generated tries the generation expressions of a table to be made, in a
// transaction that is rolled back: a function of the source may be missing here.
func (p *planner) generated(ctx context.Context) error {
	if p.exists != nil || !slices.ContainsFunc(p.d.Columns, func(c column) bool { return c.Expression != "" }) {
		return nil
	}
	renamed := slices.ContainsFunc(p.d.Columns, func(c column) bool { return c.Name != c.Source })
	trial := func() error {
		defer rollback(ctx, p.c)
		if err := begin(ctx, p.c, 0); err != nil {
			return err
		}
		for _, change := range p.d.Before {
			if _, err := p.c.Exec(ctx, change.SQL); err != nil {
				return err
			}
		}
		_, err := p.c.Exec(ctx, "CREATE TEMP TABLE _tranship_trial ("+p.d.definitions()+")")
		return err
	}
	var err error
	if !renamed {
		if err = trial(); err == nil {
			for i := range p.d.Columns {
				p.d.Columns[i].Generated = p.d.Columns[i].Expression != ""
			}
			return nil
		}
		if code(err) == "" {
			return classify(err, "try the generated columns of %s", p.t.Name)
		}
	}
	for i := range p.d.Columns {
		if c := &p.d.Columns[i]; c.Expression != "" {
			c.Expression = ""
			p.t.Warnings = append(p.t.Warnings, fmt.Sprintf("%s column %q is generated at the source and becomes an ordinary column here", p.t.Resource, c.Source))
		}
	}
	return nil
}

// finish writes the target's public part.
func (p *planner) finish() error {
	for i := range p.d.Columns {
		c := &p.d.Columns[i]
		p.t.Columns = append(p.t.Columns, engine.TargetColumn{Source: c.Source, Name: c.Name, Type: c.Target.SQL, AsText: p.wire && c.Text})
	}
	p.d.Transport = p.needsTransport()
	p.t.Statements = append(p.t.Statements, statements(p.d.Before)...)
	p.t.Statements = append(p.t.Statements, statements(p.d.Alter)...)
	p.t.Statements = append(p.t.Statements, statements(makeTables(p.t, p.d))...)
	p.t.Statements = append(p.t.Statements, publishStatements(p.t, p.d)...)
	raw, err := json.Marshal(p.d) //nolint:musttag // types of columns are stored under their field names, as the golden file has them
	if err != nil {
		return engine.Bugf("write the plan of %s: %w", p.t.Resource, err)
	}
	p.t.Detail = raw
	return nil
}

// needsTransport tells whether rows need the temporary table: to be merged,
// compared with what is there, tested, converted, or given lineage on a live table.
func (p *planner) needsTransport() bool {
	if p.req.Write == engine.WriteUpsert || p.req.Write == engine.WriteDelete || p.t.Window != nil {
		return true
	}
	if p.d.Staging == "" && (p.t.Lineage || p.req.Verify == engine.VerifyDigest) {
		return true
	}
	return slices.ContainsFunc(p.d.Columns, func(c column) bool {
		return c.Text && c.Target.SQL != "text" || c.test("x") != "" ||
			!c.Generated && relate(c.Value.Info, c.Target.Info).relation != same
	})
}
