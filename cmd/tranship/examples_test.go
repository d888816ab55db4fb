package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/pipeline"
)

// The examples, and the pipelines that the documents show, are valid.
func TestExamples(t *testing.T) {
	t.Parallel()
	c := catalog.New(io.Discard)
	opt := pipeline.Options{Sources: c.SourceSpecs(), Sinks: c.SinkSpecs()}
	examples, err := filepath.Glob("../../examples/*.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(examples), 3)
	for _, path := range examples {
		_, err := pipeline.ReadFile(path, opt)
		assert.NoError(t, err, path)
	}
	block := regexp.MustCompile("(?s)```yaml\n(version: 1.*?)```")
	text, err := os.ReadFile("../../docs/pipeline.md")
	require.NoError(t, err)
	shown := block.FindAllSubmatch(text, -1)
	require.NotEmpty(t, shown)
	for _, m := range shown {
		_, err := pipeline.Parse(m[1], opt)
		assert.NoError(t, err, string(m[1]))
	}
}
