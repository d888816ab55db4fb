package connections

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control/secrets"
	"github.com/tranship-io/tranship/pipeline"
)

// End is a connection as one end of a pipeline document.
type End struct {
	Connector string
	// Config is the configuration as a document has it: overlaid, ${NAME} in the
	// place of each secret field, everything else literal.
	Config json.RawMessage
	// Refs are the secrets by NAME.
	Refs map[string]secrets.Ref
}

// End puts a pipeline's overlay over the connection. The overlay is a JSON object
// that has no secret fields; null in it takes a key away.
func (c Connection) End(overlay json.RawMessage) (End, error) {
	tree, err := readTree(c.Config)
	if err != nil {
		return End{}, fmt.Errorf("read configuration of connection %q: %w", c.Name, err)
	}
	over, err := readTree(overlay)
	if err != nil {
		return End{}, fmt.Errorf("read overlay of connection %q: %w", c.Name, err)
	}
	merge(tree, over)
	e := End{Connector: c.Connector, Refs: map[string]secrets.Ref{}}
	fields := map[string]string{}
	for _, path := range slices.Sorted(maps.Keys(c.Secrets)) {
		s := c.Secrets[path]
		name := s.Variable
		for n := 2; e.Refs[name] != "" && e.Refs[name] != s.Ref; n++ {
			name = fmt.Sprintf("%s_%d", s.Variable, n)
		}
		e.Refs[name] = s.Ref
		fields[path] = "${" + name + "}"
	}
	if e.Config, err = assemble(tree, fields); err != nil {
		return End{}, fmt.Errorf("write configuration of connection %q: %w", c.Name, err)
	}
	return e, nil
}

// Resolver resolves references to secrets.
type Resolver interface {
	Resolve(ctx context.Context, organization uuid.UUID, ref secrets.Ref) (string, error)
}

// Lookup resolves the end's secrets and returns them as the look-up of its names.
func (e End) Lookup(ctx context.Context, organization uuid.UUID, r Resolver) (func(string) (string, bool), error) {
	values := map[string]string{}
	for name, ref := range e.Refs {
		v, err := r.Resolve(ctx, organization, ref)
		if err != nil {
			return nil, err
		}
		values[name] = v
	}
	return func(name string) (string, bool) { v, ok := values[name]; return v, ok }, nil
}

// CheckOverlay returns what is wrong with an overlay of the connection: it must
// not have secret fields or passwords. Whether the result is a configuration of
// the connector is for the document's check to say.
func (c Connection) CheckOverlay(cat Catalog, overlay json.RawMessage) []pipeline.Problem {
	tree, err := readTree(overlay)
	if err != nil {
		return []pipeline.Problem{{Message: err.Error()}}
	}
	var out []pipeline.Problem
	spec, _ := Spec(cat, c.Role, c.Connector)
	for _, f := range pipeline.SecretFields(spec) {
		if _, is := lookUp(tree, f); is {
			out = append(out, pipeline.Problem{Path: f, Message: "this field is a secret and belongs to the connection", Hint: "change the connection, or use another one"})
		}
	}
	for path, text := range texts(tree, "") {
		if len(pipeline.PasswordsIn(text)) > 0 {
			out = append(out, pipeline.Problem{Path: path, Message: "the value holds a password and would be shown", Hint: "secrets belong to the connection"})
		}
	}
	return out
}

var notVariable = regexp.MustCompile(`[^A-Z0-9]+`)

// variableOf makes the name of an environment variable for a secret field.
func variableOf(connection, path string) string {
	name := notVariable.ReplaceAllString(strings.ToUpper(connection+"_"+path), "_")
	if name[0] >= '0' && name[0] <= '9' {
		name = "_" + name
	}
	return name
}

// Overlaid is the configuration with a pipeline's overlay put over it.
func (c Connection) Overlaid(overlay json.RawMessage) (json.RawMessage, error) {
	tree, err := readTree(c.Config)
	if err != nil {
		return nil, fmt.Errorf("read configuration of connection %q: %w", c.Name, err)
	}
	over, err := readTree(overlay)
	if err != nil {
		return nil, fmt.Errorf("read overlay of connection %q: %w", c.Name, err)
	}
	merge(tree, over)
	out, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("write configuration of connection %q: %w", c.Name, err)
	}
	return out, nil
}

// TakeTexts takes the texts at these paths out of a configuration and returns
// them with the rest.
func TakeTexts(config json.RawMessage, paths []string) (taken map[string]string, rest json.RawMessage, err error) {
	tree, err := readTree(config)
	if err != nil {
		return nil, nil, err
	}
	taken = map[string]string{}
	for _, path := range paths {
		v, ok := lookUp(tree, path)
		if !ok {
			continue
		}
		switch v := v.(type) {
		case nil, map[string]any, []any:
		default:
			taken[path] = fmt.Sprint(v)
		}
		drop(tree, path)
	}
	if rest, err = json.Marshal(tree); err != nil {
		return nil, nil, fmt.Errorf("write configuration: %w", err)
	}
	return taken, rest, nil
}
