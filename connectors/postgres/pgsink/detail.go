package pgsink

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/engine"
)

// detail is the sink's own part of a target; it is frozen with the plan.
type detail struct {
	Schema string `json:"schema"`
	Table  string `json:"table"`
	// Exists tells whether the target was there when the plan was made.
	Exists bool `json:"exists"`
	// Partitioned is true for a partitioned target.
	Partitioned bool     `json:"partitioned,omitempty"`
	Columns     []column `json:"columns"`
	// Key are the target names of the key columns.
	Key []string `json:"key,omitempty"`
	// Staging is the table, in the target's schema, that a staged target loads
	// into; Unlogged tells how.
	Staging  string `json:"staging,omitempty"`
	Unlogged bool   `json:"unlogged,omitempty"`
	// Delta is the table, beside staging, of changes to rows that are being read.
	Delta string `json:"delta,omitempty"`
	// Technique is how publish was expected to work; it looks again.
	Technique technique `json:"technique,omitempty"`
	// Transport is true when rows go through a temporary table.
	Transport bool `json:"transport,omitempty"`
	// Before are changes that Prepare makes before it makes tables, Alter those of
	// a target that exists.
	Before []change `json:"before,omitempty"`
	Alter  []change `json:"alter,omitempty"`
	// SetAside is the table for rows set aside; nil: they go back to the engine.
	SetAside *place `json:"set_aside,omitempty"`
	// Cursor is the target column of the window's cursor, UpTo its bound.
	Cursor string `json:"cursor,omitempty"`
	UpTo   string `json:"up_to,omitempty"`
	// Index is true when a new append target gets an index for its window.
	Index bool `json:"index,omitempty"`
}

// change is a statement and the SQL expression that tells whether it is done
// already: Prepare may run many times (invariant 4).
type change struct {
	SQL  string `json:"sql"`
	Done string `json:"done"`
}

func statements(changes []change) []string {
	sql := make([]string, len(changes))
	for i, c := range changes {
		sql[i] = c.SQL
	}
	return sql
}

// column is the way of one source column.
type column struct {
	Source string `json:"source"`
	Name   string `json:"name"`
	// Value is the type that holds the source's values, Target the column's.
	Value  sqlType `json:"value"`
	Target sqlType `json:"target"`
	// Text is true when the value arrives as text and the server parses it.
	Text bool `json:"text,omitempty"`
	// Opaque is true when the value's digest is that of its text.
	Opaque bool `json:"opaque,omitempty"`
	// Back is the type that a value stored as text is compared in; nil: as it is.
	Back *sqlType `json:"back,omitempty"`
	// Generated is true when the target computes the column: it is never written,
	// only compared.
	Generated bool `json:"generated,omitempty"`
	// Expression is the generation expression of a column that is made.
	Expression string `json:"expression,omitempty"`
	Identity   string `json:"identity,omitempty"`
	NotNull    bool   `json:"not_null,omitempty"`
	// NeedValue is true when a NULL of the source can't be stored.
	NeedValue bool   `json:"need_value,omitempty"`
	Comment   string `json:"comment,omitempty"`
	// Fit tells which values pass unchanged; empty Test: all.
	Test   string        `json:"test,omitempty"`
	Clamp  string        `json:"clamp,omitempty"`
	Reason string        `json:"reason,omitempty"`
	Policy engine.Policy `json:"policy,omitempty"`
}

func (d *detail) place() place   { return place{d.Schema, d.Table} }
func (d *detail) staging() place { return place{d.Schema, d.Staging} }

// staged are the tables that hold what is not visible yet.
func (d *detail) staged() []place {
	var list []place
	if d.Staging != "" {
		list = append(list, d.staging())
	}
	if d.Delta != "" {
		list = append(list, d.delta())
	}
	return list
}

// destination is the table that epochs write to.
func (d *detail) destination() place {
	if d.Staging != "" {
		return d.staging()
	}
	return d.place()
}

// load is the type that the column is loaded in.
func (c *column) load() sqlType {
	if c.Text {
		return textType()
	}
	return c.Value
}

// value is the SQL that gives the value, in its own type, of a loaded column x.
func (c *column) value(x string) string {
	if c.Text && c.Value.SQL != "text" {
		return "(" + x + ")::" + c.Value.SQL
	}
	return x
}

// stored is the SQL that gives what is stored, of a loaded column x.
func (c *column) stored(x string) string {
	if c.Target.SQL == c.Value.SQL {
		return c.value(x)
	}
	return "(" + c.value(x) + ")" + c.viaText() + "::" + c.Target.SQL
}

// viaText is the detour of a cast between two enums, which have none of their own.
func (c *column) viaText() string {
	if below(c.Target.Info).Typtype == 'e' || below(c.Value.Info).Typtype == 'e' {
		return "::text"
	}
	return ""
}

// test is the SQL that is true where a loaded column x passes unchanged; "": always.
func (c *column) test(x string) string {
	var t string
	if c.Test != "" {
		t = fmt.Sprintf("(%s IS NULL OR COALESCE(%s, false))", x, fmt.Sprintf(c.Test, "("+c.value(x)+")"))
	}
	if c.NeedValue {
		if t != "" {
			t = " AND " + t
		}
		t = x + " IS NOT NULL" + t
	}
	return t
}

// readBack is the SQL that gives the value again, of a column x of the target,
// and the type it comes in: the route's, so that both sides are compared in the
// same one (P9).
func (c *column) readBack(x string) (string, pgcopy.TypeInfo) {
	if c.Target.SQL != c.Value.SQL {
		x = "(" + x + ")" + c.viaText() + "::" + c.Value.SQL
	}
	return c.compared(x)
}

func (c *column) compared(x string) (string, pgcopy.TypeInfo) {
	switch {
	case c.Opaque:
		return "(" + x + ")::text", textType().Info
	case c.Back != nil:
		return "(" + x + ")::" + c.Back.SQL, c.Back.Info
	}
	return x, c.Value.Info
}

// loaded is the SQL and type of a column of the temporary table for digests.
func (c *column) loaded(x string) (string, pgcopy.TypeInfo) {
	return c.compared(c.value(x))
}

// written are the names of the columns that are written to the destination.
func (d *detail) written() []string {
	var names []string
	for i := range d.Columns {
		if !d.Columns[i].Generated {
			names = append(names, d.Columns[i].Name)
		}
	}
	return names
}

// updated are the columns that an UPDATE writes: not the key, and not what only
// the server may write.
func (d *detail) updated() []string {
	var names []string
	for _, n := range d.written() {
		if !slices.Contains(d.Key, n) && d.byName(n).Identity != "always" {
			names = append(names, n)
		}
	}
	return names
}

// bySource finds a column by its source name.
func (d *detail) bySource(name string) *column {
	i := slices.IndexFunc(d.Columns, func(c column) bool { return c.Source == name })
	if i < 0 {
		return nil
	}
	return &d.Columns[i]
}

// byName finds a column by its target name.
func (d *detail) byName(name string) *column {
	i := slices.IndexFunc(d.Columns, func(c column) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &d.Columns[i]
}

// detailOf decodes a target's detail once.
func (s *Session) detailOf(t *engine.Target) (*detail, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := s.details[t]; ok {
		return d, nil
	}
	d := new(detail)
	if err := json.Unmarshal(t.Detail, d); err != nil { //nolint:musttag // as written by the planner
		return nil, engine.Bugf("read the plan of %s: %w", t.Resource, err)
	}
	s.details[t] = d
	return d, nil
}
