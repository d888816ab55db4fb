package catalog_test

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/engine"
)

// Every spec says what documentation and validation need, under a name of its own.
func TestSpecs(t *testing.T) {
	t.Parallel()
	c := catalog.New(io.Discard)
	for end, specs := range map[string][]engine.Spec{"source": c.SourceSpecs(), "sink": c.SinkSpecs()} {
		require.NotEmpty(t, specs)
		seen := map[string]bool{}
		for _, s := range specs {
			assert.False(t, seen[s.Name], "%s %s is there twice", end, s.Name)
			seen[s.Name] = true
			assert.NotEmpty(t, s.Title, s.Name)
			assert.NotEmpty(t, s.Summary, s.Name)
			assert.NotNil(t, s.Config, s.Name)
			if end == "source" {
				assert.NotEmpty(t, s.Reads, s.Name)
				assert.NotEmpty(t, s.Consistencies, s.Name)
				_, ok := c.Source(s.Name)
				assert.True(t, ok)
			} else {
				assert.NotEmpty(t, s.Writes, s.Name)
				assert.Contains(t, []string{"effectively-once", "at-least-once"}, s.Delivery, s.Name)
				_, ok := c.Sink(s.Name)
				assert.True(t, ok)
			}
		}
	}
	_, ok := c.Source("nothing")
	assert.False(t, ok)
	_, ok = c.Sink("nothing")
	assert.False(t, ok)
}
