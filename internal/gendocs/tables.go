package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/pipeline"
)

// keyTable writes a table of a schema's keys; objects within it get rows of
// their own with dotted names. secrets are dotted names of secret keys.
func keyTable(b *strings.Builder, s *jsonschema.Schema, prefix string, secrets []string) {
	if prefix == "" {
		b.WriteString("| key | value | default | meaning |\n|---|---|---|---|\n")
	}
	if s == nil || s.Properties == nil {
		return
	}
	for p := s.Properties.Oldest(); p != nil; p = p.Next() {
		name := prefix + p.Key
		meaning := sentence(p.Value.Description)
		if slices.Contains(s.Required, p.Key) {
			meaning = "**Required.** " + meaning
		}
		if slices.Contains(secrets, name) {
			meaning = strings.TrimSpace(meaning + " Never shown.")
		}
		def := ""
		if p.Value.Default != nil {
			def = fmt.Sprintf("`%v`", p.Value.Default)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", name, valueText(p.Value), def, cell(meaning))
		if p.Value.Type == "object" && p.Value.Properties != nil && p.Value.Properties.Len() > 0 {
			keyTable(b, p.Value, name+".", secrets)
		}
	}
}

// sentence ends a description with a full stop.
func sentence(s string) string {
	if s == "" || strings.HasSuffix(s, ".") {
		return s
	}
	return s + "."
}

func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "<", "&lt;").Replace(s)
}

// valueText says in a few words what a key takes.
func valueText(s *jsonschema.Schema) string {
	if len(s.Enum) > 0 {
		var values []string
		for _, v := range s.Enum {
			values = append(values, fmt.Sprintf("`%v`", v))
		}
		return strings.Join(values, ", ")
	}
	switch s.Ref {
	case "":
	case "#/$defs/Size":
		return "size"
	case "#/$defs/Duration":
		return "duration"
	default:
		return "mapping"
	}
	switch s.Type {
	case "array":
		return "list"
	case "object":
		return "mapping"
	case "boolean":
		return "`true`, `false`"
	case "integer":
		return "whole number"
	case "string":
		return "text"
	case "":
		if len(s.AnyOf)+len(s.OneOf) > 0 {
			return "number or text"
		}
		return ""
	}
	return s.Type
}

// connectorDocs writes a page for each connector, by name.
func connectorDocs(c *catalog.Catalog) map[string]string {
	pages := map[string]*strings.Builder{}
	page := func(s engine.Spec) *strings.Builder {
		b := pages[s.Name]
		if b == nil {
			b = &strings.Builder{}
			pages[s.Name] = b
			fmt.Fprintf(b, "# %s\n\n<!-- Written by make generate from the connector's spec. -->\n", s.Title)
		}
		return b
	}
	for _, s := range c.SourceSpecs() {
		b := page(s)
		fmt.Fprintf(b, "\n## As a source\n\n%s\n\n```yaml\nsource: %s\n```\n\n", sentence(s.Summary), example(s, "SOURCE"))
		fmt.Fprintf(b, "- Read modes: %s\n", list(s.Reads))
		if len(s.Consistencies) > 0 {
			fmt.Fprintf(b, "- Consistency of full reads: %s\n", list(s.Consistencies))
		}
		rest(b, s)
	}
	for _, s := range c.SinkSpecs() {
		b := page(s)
		fmt.Fprintf(b, "\n## As a sink\n\n%s\n\n```yaml\nsink: %s\n```\n\n", sentence(s.Summary), example(s, "SINK"))
		fmt.Fprintf(b, "- Write modes: %s\n", list(s.Writes))
		if s.Delivery != "" {
			fmt.Fprintf(b, "- Delivery: %s\n", s.Delivery)
		}
		rest(b, s)
	}
	out := map[string]string{}
	for name, b := range pages {
		out[name] = b.String()
	}
	return out
}

func rest(b *strings.Builder, s engine.Spec) {
	if len(s.Wire) > 0 {
		fmt.Fprintf(b, "- Wire formats: %s\n", list(s.Wire))
	}
	schema := pipeline.ConfigSchema(s)
	if schema.Properties != nil && schema.Properties.Len() > 0 {
		b.WriteString("\n### Keys\n\n")
		keyTable(b, schema, "", secretKeys(reflect.TypeOf(s.Config), ""))
	}
	if len(s.Notes) > 0 {
		b.WriteString("\n### Good to know\n\n")
		for _, n := range s.Notes {
			fmt.Fprintf(b, "- %s\n", sentence(n))
		}
	}
}

// secretKeys returns the dotted names of keys tagged secret.
func secretKeys(t reflect.Type, prefix string) []string {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	var out []string
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "" || name == "-" {
			continue
		}
		if f.Tag.Get("secret") == "true" {
			out = append(out, prefix+name)
		}
		out = append(out, secretKeys(f.Type, prefix+name+".")...)
	}
	return out
}

// example is the least that the connector needs.
func example(s engine.Spec, end string) string {
	out := "{connector: " + s.Name
	schema := pipeline.ConfigSchema(s)
	if schema.Properties != nil {
		for _, key := range []string{"url", "path"} {
			if _, ok := schema.Properties.Get(key); !ok {
				continue
			}
			value := `"${` + end + "_" + strings.ToUpper(key) + `}"`
			if key == "path" {
				value = "./out"
			}
			out += ", " + key + ": " + value
		}
	}
	return out + "}"
}

func list[T ~string](values []T) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = "`" + string(v) + "`"
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}
