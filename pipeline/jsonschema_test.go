package pipeline_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/goccy/go-yaml"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/pipeline"
)

// The schema and the parser agree on the documents of testdata as far as a
// schema can tell.
func TestJSONSchema(t *testing.T) {
	t.Parallel()
	sources, sinks := specs()
	text, err := pipeline.JSONSchema(sources, sinks)
	require.NoError(t, err)
	again, err := pipeline.JSONSchema(sources, sinks)
	require.NoError(t, err)
	assert.Equal(t, string(text), string(again))
	golden(t, "testdata/schema.golden.json", string(text))

	c := validator.NewCompiler()
	doc, err := validator.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	require.NoError(t, c.AddResource(pipeline.SchemaID, doc))
	schema, err := c.Compile(pipeline.SchemaID)
	require.NoError(t, err)

	validate := func(file string) error {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		converted, err := yaml.YAMLToJSON(raw)
		if err != nil {
			return err
		}
		value, err := validator.UnmarshalJSON(bytes.NewReader(converted))
		if err != nil {
			return err
		}
		return schema.Validate(value)
	}
	good, err := filepath.Glob("testdata/good/*.yaml")
	require.NoError(t, err)
	for _, f := range good {
		assert.NoError(t, validate(f), f)
	}
	for _, f := range []string{"unknown_keys", "values", "missing", "modes"} {
		assert.Error(t, validate("testdata/bad/"+f+".yaml"), f)
	}
}

func TestSchemaNamesEveryKeyWithADescription(t *testing.T) {
	t.Parallel()
	text, err := pipeline.JSONSchema(nil, nil)
	require.NoError(t, err)
	var s struct {
		Defs map[string]struct {
			Properties map[string]struct {
				Description string `json:"description"`
			} `json:"properties"`
		} `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal(text, &s))
	for _, def := range []string{"Document", "Defaults", "Resource", "Columns", "Policies", "Settings", "Retry"} {
		require.NotEmpty(t, s.Defs[def].Properties, def)
		for key, p := range s.Defs[def].Properties {
			assert.NotEmpty(t, p.Description, "%s.%s", def, key)
		}
	}
}
