package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/tranship-io/tranship/api/internal/rest"
	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/pipeline"
)

// ListConnectors lists what can be a source or a sink.
func (o *operations) ListConnectors(context.Context, rest.ListConnectorsRequestObject) (rest.ListConnectorsResponseObject, error) {
	all, err := o.connectors()
	if err != nil {
		return nil, err
	}
	return rest.ListConnectors200JSONResponse{Items: all}, nil
}

// GetConnector answers with one of them.
func (o *operations) GetConnector(_ context.Context, r rest.GetConnectorRequestObject) (rest.GetConnectorResponseObject, error) {
	all, err := o.connectors()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(c rest.Connector) bool { return c.Name == r.Name })
	if i < 0 {
		return nil, &control.NotFoundError{Kind: "connector", Ref: r.Name}
	}
	return rest.GetConnector200JSONResponse(all[i]), nil
}

// connectors joins the specs of sources and sinks by name.
func (o *operations) connectors() ([]rest.Connector, error) {
	byName := map[string]*rest.Connector{}
	add := func(s engine.Spec) (*rest.Connector, *rest.ConnectorEnd, error) {
		c := byName[s.Name]
		if c == nil {
			c = &rest.Connector{Name: s.Name, Title: s.Title, Summary: s.Summary}
			byName[s.Name] = c
		} else if c.Summary != s.Summary {
			c.Summary += " " + s.Summary
		}
		end, err := endOf(s)
		return c, end, err
	}
	for _, s := range o.Connectors.SourceSpecs() {
		c, end, err := add(s)
		if err != nil {
			return nil, err
		}
		c.Source = end
	}
	for _, s := range o.Connectors.SinkSpecs() {
		c, end, err := add(s)
		if err != nil {
			return nil, err
		}
		c.Sink = end
	}
	out := make([]rest.Connector, 0, len(byName))
	for _, c := range byName {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b rest.Connector) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func endOf(s engine.Spec) (*rest.ConnectorEnd, error) {
	fields := notNil(pipeline.SecretFields(s))
	schema := pipeline.ConfigSchema(s)
	for _, path := range fields {
		at := schema
		for _, key := range strings.Split(path, ".") {
			if at = property(at, key); at == nil {
				break
			}
		}
		if at != nil {
			at.WriteOnly = true
		}
	}
	text, err := json.Marshal(schema)
	if err != nil {
		return nil, fmt.Errorf("describe connector %s: %w", s.Name, err)
	}
	return &rest.ConnectorEnd{
		ConfigSchema: text, SecretFields: fields, Delivery: s.Delivery, Notes: s.Notes,
		ReadModes: texts(s.Reads), WriteModes: texts(s.Writes), Consistencies: texts(s.Consistencies), WireFormats: texts(s.Wire),
	}, nil
}

func property(s *jsonschema.Schema, key string) *jsonschema.Schema {
	if s.Properties == nil {
		return nil
	}
	p, _ := s.Properties.Get(key)
	return p
}

func texts[T ~string](list []T) []string {
	return each(list, func(x T) string { return string(x) })
}
