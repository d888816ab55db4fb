package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
)

const root = "../.."

func TestGenerateIsDeterministic(t *testing.T) {
	t.Parallel()
	first, err := generate(root, catalog.New(io.Discard))
	require.NoError(t, err)
	second, err := generate(root, catalog.New(io.Discard))
	require.NoError(t, err)
	assert.Equal(t, first, second)
	assert.Contains(t, string(first["docs/pipeline.md"]), "| `lookback` | duration |")
	assert.Contains(t, string(first["docs/pipeline.md"]), "`settings.retry`")
	for _, s := range append(catalog.New(io.Discard).SourceSpecs(), catalog.New(io.Discard).SinkSpecs()...) {
		assert.Contains(t, string(first["docs/connectors/"+s.Name+".md"]), s.Title)
	}
}

// A receipt as the engine writes it passes the published schema, and one with a
// field missing does not.
func TestReceiptSchema(t *testing.T) {
	t.Parallel()
	text, err := receiptSchema(root)
	require.NoError(t, err)
	doc, err := validator.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	c := validator.NewCompiler()
	require.NoError(t, c.AddResource("receipt.json", doc))
	schema, err := c.Compile("receipt.json")
	require.NoError(t, err)

	validate := func(v any) error {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		x, err := validator.UnmarshalJSON(bytes.NewReader(b))
		require.NoError(t, err)
		return schema.Validate(x)
	}
	receipt := engine.RunReceipt{
		RunID: "0190a", State: engine.StateCompleted, StartedAt: time.Now(), EndedAt: time.Now(),
		Resources: []engine.ResourceReceipt{
			{Resource: "a", Policies: []engine.PolicyCount{}},
			{Resource: "b", DestinationDigest: &integrity.Digest{Hi: 1, Lo: 2}, Policies: []engine.PolicyCount{{Column: "c", Policy: engine.PolicyClamp, Count: 3}}},
		},
	}
	require.NoError(t, validate(receipt))
	assert.Error(t, validate(map[string]any{"run_id": "x"}))
	assert.Contains(t, string(text), `"description": "Seconds is the wall time`)
}

var (
	filePath = regexp.MustCompile("`([a-z0-9_/]+\\.go)`")
	roomPath = regexp.MustCompile("`((?:engine|store|connectors|internal|cmd)/[a-z0-9_/]+)`")
	link     = regexp.MustCompile(`\]\(([^)#:]+)\)`)
)

// The files and rooms that the architecture names are there.
func TestArchitectureNamesWhatExists(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	require.NoError(t, err)
	names := append(filePath.FindAllStringSubmatch(string(text), -1), roomPath.FindAllStringSubmatch(string(text), -1)...)
	require.Greater(t, len(names), 30)
	for _, m := range names {
		_, err := os.Stat(filepath.Join(root, m[1]))
		assert.NoError(t, err)
	}
}

// Relative links of the documents lead somewhere.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages := []string{filepath.Join(root, "README.md")}
	for _, pattern := range []string{"docs/*.md", "docs/connectors/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		pages = append(pages, found...)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			_, err := os.Stat(filepath.Join(filepath.Dir(page), m[1]))
			assert.NoError(t, err, "%s links to %s", page, m[1])
		}
	}
}
