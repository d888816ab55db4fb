// Command genapi writes the Go code of the API from api/openapi.yaml: types and
// server interfaces into api/internal/rest, types and client into api/client.
// It is part of make generate.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
)

const document = "api/openapi.yaml"

// output is one generated file.
type output struct {
	file string
	// config is oapi-codegen's, as YAML.
	config string
	// keep says which responses of an operation stay. Answers other than success
	// are the same for every operation: the server makes them in one place, and
	// the client reads them as the default.
	keep func(code string) bool
	// client: headers of responses stay (the server sets them in one place), and
	// parameters that are not given are left out.
	client bool
}

var outputs = []output{
	{
		file: "api/internal/rest/rest.gen.go",
		config: `
package: rest
generate: {models: true, std-http-server: true, strict-server: true}
compatibility: {always-prefix-enum-values: true}
output-options: {prefer-skip-optional-pointer: true, prefer-skip-optional-pointer-with-omitzero: true, skip-prune: true}
`,
		keep: func(code string) bool { return strings.HasPrefix(code, "2") },
	},
	{
		file: "api/client/client.gen.go",
		config: `
package: client
generate: {models: true, client: true}
compatibility: {always-prefix-enum-values: true}
output-options: {prefer-skip-optional-pointer: true, prefer-skip-optional-pointer-with-omitzero: true, skip-prune: true}
`,
		keep:   func(code string) bool { return strings.HasPrefix(code, "2") || code == "default" },
		client: true,
	},
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "genapi:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	for _, o := range outputs {
		if err := o.write(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", o.file, err)
		}
	}
	return nil
}

func (o output) write(ctx context.Context, text []byte) error {
	var doc map[string]any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return err
	}
	if err := trim(doc, o.keep, o.client); err != nil {
		return err
	}
	pointers(doc, o.client)
	dir, err := os.MkdirTemp("", "genapi-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	trimmed, err := yaml.Marshal(doc)
	if err != nil {
		return err
	}
	spec, config := filepath.Join(dir, "openapi.yaml"), filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(spec, trimmed, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(config, []byte(o.config), 0o600); err != nil {
		return err
	}
	var out, failed bytes.Buffer
	cmd := exec.CommandContext(ctx, ".tools/bin/oapi-codegen", "-config", config, spec)
	cmd.Stdout, cmd.Stderr = &out, &failed
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("oapi-codegen (make tools builds it): %w: %s", err, failed.String())
	}
	if err := os.MkdirAll(filepath.Dir(o.file), 0o750); err != nil {
		return err
	}
	return os.WriteFile(o.file, out.Bytes(), 0o644)
}

// trim drops what a generated file has no use for.
func trim(doc map[string]any, keep func(string) bool, client bool) error {
	paths, ok := doc["paths"].(map[string]any)
	if !ok {
		return errors.New("the document has no paths")
	}
	for _, item := range paths {
		operations, _ := item.(map[string]any)
		for _, op := range operations {
			o, _ := op.(map[string]any)
			responses, _ := o["responses"].(map[string]any)
			for code, r := range responses {
				if !keep(code) {
					delete(responses, code)
				} else if response, ok := r.(map[string]any); ok && !client {
					delete(response, "headers")
				}
			}
		}
	}
	return nil
}

// pointers makes the generator use pointers where nothing and the zero value
// differ: values that may be null, and a client's parameters.
func pointers(v any, client bool) {
	const extension = "x-go-type-skip-optional-pointer"
	switch x := v.(type) {
	case map[string]any:
		if x["nullable"] == true {
			x[extension] = false
		}
		if schema, ok := x["schema"].(map[string]any); ok && client && x["in"] != nil {
			schema[extension] = false
		}
		for _, inner := range x {
			pointers(inner, client)
		}
	case []any:
		for _, inner := range x {
			pointers(inner, client)
		}
	}
}
