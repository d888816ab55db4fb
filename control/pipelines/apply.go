package pipelines

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/control/secrets"
	"github.com/tranship-io/tranship/pipeline"
)

// File is a pipeline file to apply.
type File struct {
	// Text is the YAML (or JSON) that tranship run takes.
	Text []byte
	// Variables are the values of the references in it.
	Variables map[string]string
	// DryRun only tells what would change.
	DryRun bool
}

// AppliedChange is what became of one thing of a file.
type AppliedChange struct {
	// Kind is connection, secret or pipeline.
	Kind string
	Name string
	// Action is created, updated or unchanged.
	Action string
	ID     uuid.UUID
}

// The actions.
const (
	Created   = "created"
	Updated   = "updated"
	Unchanged = "unchanged"
)

// Apply makes a pipeline, and the connections <pipeline>-source and
// <pipeline>-sink, of a file, or brings them up to it. Values of secret fields
// become the connections' own secrets; variables that the file uses elsewhere are
// put into what is stored. Everything is stored, or nothing.
func (s *Service) Apply(ctx context.Context, a control.Actor, f File) (*Pipeline, []AppliedChange, error) {
	for _, p := range []control.Permission{control.WritePipelines, control.WriteConnections} {
		if err := control.Authorize(a, p); err != nil {
			return nil, nil, err
		}
	}
	doc, err := s.read(f)
	if err != nil {
		return nil, nil, err
	}
	m := applying{Service: s, a: a, doc: doc}
	have, err := s.Store.Pipeline(ctx, a.Organization, doc.Name)
	var missing *control.NotFoundError
	switch {
	case err == nil:
		m.have = &have
	case !errors.As(err, &missing):
		return nil, nil, err
	}
	if err := m.compare(ctx); err != nil {
		return nil, nil, err
	}
	if f.DryRun {
		return m.have, m.changes, nil
	}
	if len(m.out.Connections) > 0 || m.out.Pipeline != nil {
		if err := s.Store.Apply(ctx, a, m.out); err != nil {
			return nil, nil, err
		}
	}
	now, err := s.Store.Pipeline(ctx, a.Organization, m.id.String())
	if err != nil {
		return nil, nil, err
	}
	return &now, m.changes, nil
}

// read parses the file; secrets in places where they would be shown are problems.
func (s *Service) read(f File) (*pipeline.Document, error) {
	opt := pipeline.Options{Sources: s.Catalog.SourceSpecs(), Sinks: s.Catalog.SinkSpecs()}
	raw, err := pipeline.Parse(f.Text, opt)
	if err == nil {
		err = s.exposed(raw)
	}
	if err != nil {
		return nil, invalid(err)
	}
	opt.Env = func(name string) (string, bool) { v, ok := f.Variables[name]; return v, ok }
	doc, err := pipeline.Parse(f.Text, opt)
	return doc, invalid(err)
}

// invalid makes a document's problems a request's.
func invalid(err error) error {
	var bad *pipeline.Error
	if !errors.As(err, &bad) {
		return err
	}
	out := &control.InvalidError{}
	for _, p := range bad.Problems {
		message, hint := p.Message, p.Hint
		if p.Line > 0 {
			message = fmt.Sprintf("line %d: %s", p.Line, message)
		}
		out.Problems = append(out.Problems, control.Problem{Path: p.Path, Message: message, Hint: hint})
	}
	return out
}

// exposed finds references to secrets in fields that are no secrets.
func (s *Service) exposed(raw *pipeline.Document) error {
	var out []control.Problem
	look := func(path string, value any) error {
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		for _, name := range pipeline.References(string(text)) {
			if pipeline.SecretVariable(name) {
				out = append(out, control.Problem{Path: path, Message: fmt.Sprintf("the variable %s is named like a secret, and its value would be shown here", name),
					Hint: "give secrets in the connector's secret fields only, or name the variable otherwise"})
			}
		}
		return nil
	}
	for _, end := range []struct {
		path string
		role connections.Role
		at   pipeline.Endpoint
	}{{"source", connections.Source, raw.Source}, {"sink", connections.Sink, raw.Sink}} {
		plain, _, err := s.split(end.role, end.at.Connector, end.at.Config, end.at.Config)
		if err != nil {
			return err
		}
		if err := look(end.path, plain); err != nil {
			return err
		}
	}
	for path, value := range map[string]any{"name": raw.Name, "defaults": raw.Defaults, "resources": raw.Resources, "settings": raw.Settings} {
		if err := look(path, value); err != nil {
			return err
		}
	}
	if len(out) > 0 {
		slices.SortFunc(out, func(a, b control.Problem) int { return strings.Compare(a.Path, b.Path) })
		return &control.InvalidError{Problems: out}
	}
	return nil
}

// secretField is a secret of an end as a file has it.
type secretField struct {
	value string
	// variable is the reference's name if the value is nothing but one.
	variable string
}

// split takes the secret fields out of an end's configuration.
func (s *Service) split(role connections.Role, connector string, raw, resolved json.RawMessage) (json.RawMessage, map[string]secretField, error) {
	spec, ok := connections.Spec(s.Catalog, role, connector)
	if !ok {
		return nil, nil, control.Invalid(string(role), "", "there is no %s connector %q", role, connector)
	}
	written, _, err := connections.TakeTexts(raw, pipeline.SecretFields(spec))
	if err != nil {
		return nil, nil, err
	}
	values, plain, err := connections.TakeTexts(resolved, pipeline.SecretFields(spec))
	if err != nil {
		return nil, nil, err
	}
	out := map[string]secretField{}
	for path, v := range values {
		f := secretField{value: v}
		if names := pipeline.References(written[path]); len(names) == 1 && written[path] == "${"+names[0]+"}" {
			f.variable = names[0]
		}
		out[path] = f
	}
	return plain, out, nil
}

// applying is one file on its way into the store.
type applying struct {
	*Service
	a    control.Actor
	doc  *pipeline.Document
	have *Pipeline

	id      uuid.UUID
	out     Applied
	changes []AppliedChange
}

// compare finds out what has to change.
func (m *applying) compare(ctx context.Context) error {
	pending := map[string]connections.Connection{}
	g := Graph{Defaults: m.doc.Defaults, Settings: m.doc.Settings, Service: m.doc.Service}
	for _, end := range []struct {
		role connections.Role
		at   pipeline.Endpoint
	}{{connections.Source, m.doc.Source}, {connections.Sink, m.doc.Sink}} {
		n, err := m.end(ctx, end.role, end.at, pending)
		if err != nil {
			return err
		}
		g.Nodes = append(g.Nodes, n)
	}
	for _, r := range m.doc.Resources {
		g.Edges = append(g.Edges, edgeOf(g.Nodes[0].ID, g.Nodes[1].ID, r))
	}
	d := Draft{Name: m.doc.Name, Graph: g}
	if m.have != nil {
		d.Description = m.have.Description
	}
	k, err := m.check(ctx, m.a.Organization, d, pending)
	if err != nil {
		return err
	}
	action := Created
	if m.have != nil {
		m.id, action = m.have.ID, Updated
	} else if m.id, err = uuid.NewV7(); err != nil {
		return fmt.Errorf("make id: %w", err)
	}
	c, err := k.change(m.id)
	if err != nil {
		return err
	}
	same := false
	if m.have != nil {
		if same, err = c.Graph.Equal(m.have.Current.Graph); err != nil {
			return err
		}
	}
	if same {
		action = Unchanged
	} else {
		m.out.Pipeline = &c
		if m.have != nil {
			m.out.Version = m.have.Version
		}
	}
	m.changes = append(m.changes, AppliedChange{Kind: "pipeline", Name: m.doc.Name, Action: action, ID: m.id})
	return nil
}

// end brings the connection of one end up to the file and returns its node.
func (m *applying) end(ctx context.Context, role connections.Role, at pipeline.Endpoint, pending map[string]connections.Connection) (Node, error) {
	plain, fields, err := m.split(role, at.Connector, at.Config, json.RawMessage(at.Resolved()))
	if err != nil {
		return Node{}, err
	}
	n := Node{ID: string(role), Role: role}
	if old := m.only(role); old != nil {
		n.ID = old.ID
		c, same, err := m.sameEnd(ctx, *old, at.Connector, plain, fields)
		if err != nil {
			return n, err
		}
		if same {
			// Whatever the connection is called and whoever shares it: it says what
			// the file says.
			m.changes = append(m.changes, AppliedChange{Kind: "connection", Name: c.Name, Action: Unchanged, ID: c.ID})
			return *old, nil
		}
	}
	name := m.doc.Name
	if longest := 63 - len(role) - 1; len(name) > longest {
		name = name[:longest]
	}
	name += "-" + string(role)
	n.Connection = name
	d := connections.Draft{Name: name, Role: role, Connector: at.Connector, Config: plain, Values: map[string]string{}, Variables: map[string]string{}}
	for path, f := range fields {
		d.Values[path], d.Variables[path] = f.value, f.variable
	}
	have, err := m.Connections.Connection(ctx, m.a.Organization, name)
	var missing *control.NotFoundError
	switch {
	case errors.As(err, &missing):
		return n, m.add(ctx, d, nil, pending)
	case err != nil:
		return n, err
	case have.Role != role || have.Connector != at.Connector:
		return n, &control.ConflictError{Code: "name_taken", Message: fmt.Sprintf("there is a connection %q already, of the %s %s", name, have.Connector, have.Role),
			Hint: "rename the pipeline, or delete the connection"}
	}
	return n, m.add(ctx, d, &have, pending)
}

// only is the existing pipeline's only node of a role, or nil.
func (m *applying) only(role connections.Role) *Node {
	var out *Node
	if m.have == nil || len(m.have.Current.Graph.Nodes) != 2 {
		return nil
	}
	for i := range m.have.Current.Graph.Nodes {
		if n := &m.have.Current.Graph.Nodes[i]; n.Role == role {
			out = n
		}
	}
	return out
}

// sameEnd tells whether a node's connection says what the file says.
func (m *applying) sameEnd(ctx context.Context, n Node, connector string, plain json.RawMessage, fields map[string]secretField) (connections.Connection, bool, error) {
	c, err := m.Connections.Connection(ctx, m.a.Organization, n.Connection)
	var missing *control.NotFoundError
	if errors.As(err, &missing) {
		return c, false, nil
	}
	if err != nil || c.Connector != connector || len(c.Secrets) != len(fields) {
		return c, false, err
	}
	config, err := c.Overlaid(n.Overlay)
	if err != nil || !sameJSON(config, plain) {
		return c, false, err
	}
	same, err := m.sameSecrets(ctx, c, fields)
	return c, same, err
}

func (m *applying) sameSecrets(ctx context.Context, c connections.Connection, fields map[string]secretField) (bool, error) {
	for path, f := range fields {
		have, ok := c.Secrets[path]
		if !ok || f.variable != "" && f.variable != have.Variable {
			return false, nil
		}
		value, err := m.Secrets.Resolve(ctx, m.a.Organization, have.Ref)
		var unresolved *secrets.UnresolvedError
		if errors.As(err, &unresolved) {
			return false, nil
		}
		if err != nil || value != f.value {
			return false, err
		}
	}
	return true, nil
}

// add writes the connection anew.
func (m *applying) add(ctx context.Context, d connections.Draft, have *connections.Connection, pending map[string]connections.Connection) error {
	c, err := m.Drafts.Prepare(ctx, m.a, d, have)
	if err != nil {
		return under(string(d.Role), err)
	}
	action := Created
	x := ConnectionChange{Change: c}
	if have != nil {
		action = Updated
		x.Version = have.Version
		x.SecretsOnly = sameJSON(have.Config, c.Connection.Config) && maps.Equal(have.Secrets, c.Connection.Secrets)
	}
	m.out.Connections = append(m.out.Connections, x)
	pending[d.Name] = c.Connection
	m.changes = append(m.changes, AppliedChange{Kind: "connection", Name: d.Name, Action: action, ID: c.Connection.ID})
	return nil
}

// under puts the problems of a connection where the file has it.
func under(end string, err error) error {
	var bad *control.InvalidError
	if !errors.As(err, &bad) {
		return err
	}
	out := &control.InvalidError{}
	for _, p := range bad.Problems {
		path := strings.TrimPrefix(strings.TrimPrefix(p.Path, "config"), "secrets")
		p.Path = strings.TrimSuffix(end+"."+strings.TrimPrefix(path, "."), ".")
		out.Problems = append(out.Problems, p)
	}
	return out
}

// sameJSON compares by content.
func sameJSON(a, b json.RawMessage) bool {
	x, errX := canonical(a)
	y, errY := canonical(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

func canonical(text json.RawMessage) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return []byte("{}"), nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}
