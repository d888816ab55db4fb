package pipeline

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/tranship-io/tranship/engine"
)

// SchemaID is the identifier of the document's JSON Schema.
const SchemaID = "https://tranship.io/schema/pipeline.schema.json"

// referenceSchema admits ${NAME} where a number or truth value is wanted.
const referenceSchema = `^\$\{[A-Za-z_][A-Za-z0-9_]*\}$`

// JSONSchema describes the document, with each connector's configuration as an
// alternative of source and sink. The result is the same for the same specs.
func JSONSchema(sources, sinks []engine.Spec) ([]byte, error) {
	r := reflector()
	s := r.Reflect(&Document{})
	s.ID = SchemaID
	s.Title = "Tranship pipeline"
	s.Description = "One pipeline: which source is replicated into which sink, resource by resource."
	root := s.Definitions["Document"]
	if root == nil {
		return nil, fmt.Errorf("describe the pipeline document: it has no definition")
	}
	s.Definitions["Source"] = endpointSchema("source", sources)
	s.Definitions["Sink"] = endpointSchema("sink", sinks)
	for key, ref := range map[string]string{"source": "Source", "sink": "Sink"} {
		p, _ := root.Properties.Get(key)
		root.Properties.Set(key, &jsonschema.Schema{Ref: "#/$defs/" + ref, Description: p.Description})
	}
	delete(s.Definitions, "Endpoint")
	// The library puts no enumeration on the values of a mapping.
	if p := s.Definitions["Policies"]; p != nil {
		one, _ := p.Properties.Get("default")
		byColumn, _ := p.Properties.Get("columns")
		byColumn.AdditionalProperties = &jsonschema.Schema{Type: "string", Enum: one.Enum}
	}
	for _, d := range s.Definitions {
		admitReferences(d)
	}
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("describe the pipeline document: %w", err)
	}
	return append(out, '\n'), nil
}

func reflector() *jsonschema.Reflector {
	return &jsonschema.Reflector{RequiredFromJSONSchemaTags: true}
}

// ConfigSchema describes a connector's configuration.
func ConfigSchema(spec engine.Spec) *jsonschema.Schema {
	r := reflector()
	r.DoNotReference = true
	r.Anonymous = true
	s := r.Reflect(spec.Config)
	s.Version = ""
	return s
}

func endpointSchema(what string, specs []engine.Spec) *jsonschema.Schema {
	out := &jsonschema.Schema{Type: "object", Required: []string{"connector"}}
	specs = slices.Clone(specs)
	slices.SortFunc(specs, func(a, b engine.Spec) int { return strings.Compare(a.Name, b.Name) })
	for _, spec := range specs {
		alternative := &jsonschema.Schema{Type: "object", Properties: jsonschema.NewProperties()}
		if t := reflect.TypeOf(spec.Config); t != nil {
			alternative = ConfigSchema(spec)
		}
		alternative.Title = spec.Title
		alternative.Description = spec.Summary
		properties := jsonschema.NewProperties()
		properties.Set("connector", &jsonschema.Schema{Const: spec.Name, Description: "The " + what + " connector."})
		if alternative.Properties != nil {
			for p := alternative.Properties.Oldest(); p != nil; p = p.Next() {
				properties.Set(p.Key, p.Value)
			}
		}
		alternative.Properties = properties
		alternative.Required = append([]string{"connector"}, alternative.Required...)
		alternative.AdditionalProperties = jsonschema.FalseSchema
		out.OneOf = append(out.OneOf, alternative)
	}
	return out
}

// admitReferences lets ${NAME} stand for numbers and truth values, and a plain
// number for a size, as the parser does.
func admitReferences(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.Properties != nil {
		for p := s.Properties.Oldest(); p != nil; p = p.Next() {
			admitReferences(p.Value)
		}
	}
	admitReferences(s.Items)
	if s.AdditionalProperties != jsonschema.FalseSchema {
		admitReferences(s.AdditionalProperties)
	}
	for _, o := range s.OneOf {
		admitReferences(o)
	}
	switch {
	case s.Type == "integer" || s.Type == "boolean" || s.Type == "number":
		plain := *s
		plain.Description, plain.Default = "", nil
		*s = jsonschema.Schema{Description: s.Description, Default: s.Default,
			AnyOf: []*jsonschema.Schema{&plain, {Type: "string", Pattern: referenceSchema}}}
	case s.Type == "string" && len(s.Enum) > 0:
		plain := *s
		plain.Description, plain.Default = "", nil
		*s = jsonschema.Schema{Description: s.Description, Default: s.Default,
			AnyOf: []*jsonschema.Schema{&plain, {Type: "string", Pattern: `\$\{`}}}
	}
}

// JSONSchema describes a size: text such as 256MiB, or a number of bytes.
func (Size) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
		{Type: "string", Pattern: `^([0-9]+(\.[0-9]+)?\s*[a-zA-Z]*|.*\$\{.*)$`}, {Type: "integer", Minimum: "0"}}}
}

// JSONSchema describes a duration: text such as 5m.
func (Duration) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: `^([0-9]+d)?([0-9.]+(ns|us|µs|ms|s|m|h))*$|\$\{`}
}
