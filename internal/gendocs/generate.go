package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/pipeline"
)

//go:embed pipeline.md
var pipelineText string

// marker is replaced by the generated part of docs/pipeline.md.
const marker = "<!-- reference -->"

// generate returns every generated file by its path from the root.
func generate(root string, c *catalog.Catalog) (map[string][]byte, error) {
	schema, err := pipeline.JSONSchema(c.SourceSpecs(), c.SinkSpecs())
	if err != nil {
		return nil, err
	}
	receipt, err := receiptSchema(root)
	if err != nil {
		return nil, err
	}
	head, tail, ok := strings.Cut(pipelineText, marker)
	if !ok {
		return nil, fmt.Errorf("internal/gendocs/pipeline.md has no %s", marker)
	}
	files := map[string][]byte{
		"docs/schema/pipeline.schema.json": schema,
		"docs/schema/receipt.schema.json":  receipt,
		"docs/pipeline.md":                 []byte(head + reference() + tail),
	}
	for name, text := range connectorDocs(c) {
		files["docs/connectors/"+name+".md"] = []byte(text)
	}
	return files, nil
}

// receiptSchema describes the receipt; the descriptions are the comments of its type.
func receiptSchema(root string) ([]byte, error) {
	r := &jsonschema.Reflector{
		Mapper: func(t reflect.Type) *jsonschema.Schema {
			if t == reflect.TypeFor[integrity.Digest]() {
				return &jsonschema.Schema{Type: "string", Pattern: "^xxh3-128-sum:[0-9a-f]{32}$"}
			}
			return nil
		},
	}
	s := r.Reflect(&engine.RunReceipt{})
	s.ID = "https://tranship.io/schema/receipt.schema.json"
	s.Title = "Tranship receipt"
	if d := s.Definitions["ResourceReceipt"]; d != nil {
		p, ok := d.Properties.Get("destination_digest")
		if !ok {
			return nil, fmt.Errorf("the receipt has no destination_digest")
		}
		digest := &jsonschema.Schema{Type: "string", Pattern: p.Pattern}
		p.Type, p.Pattern, p.AnyOf = "", "", []*jsonschema.Schema{digest, {Type: "null"}}
	}
	comments, err := fieldComments(filepath.Join(root, "engine"))
	if err != nil {
		return nil, err
	}
	for name, d := range s.Definitions {
		for p := d.Properties.Oldest(); p != nil; p = p.Next() {
			if text := comments[name+"."+p.Key]; text != "" {
				p.Value.Description = text
			}
		}
	}
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("describe the receipt: %w", err)
	}
	return append(out, '\n'), nil
}

// reference writes a table of keys for each part of the pipeline document.
func reference() string {
	r := &jsonschema.Reflector{RequiredFromJSONSchemaTags: true}
	defs := r.Reflect(&pipeline.Document{}).Definitions
	var b strings.Builder
	for _, part := range []struct{ def, title string }{
		{"Document", "The document"},
		{"Resource", "`resources[]`"},
		{"Columns", "`resources[].columns`"},
		{"Policies", "`policies`"},
		{"Defaults", "`defaults`"},
		{"Settings", "`settings`"},
		{"Retry", "`settings.retry`"},
		{"Service", "`service`"},
		{"Retries", "`service.retries`"},
	} {
		fmt.Fprintf(&b, "### %s\n\n", part.title)
		keyTable(&b, defs[part.def], "", nil)
		b.WriteByte('\n')
	}
	return strings.TrimSuffix(b.String(), "\n")
}
