package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/goccy/go-yaml"
)

// Marshal writes a document as YAML, in the order of the documentation. It
// refuses a document in which references were replaced from the environment,
// because secrets could be in it (invariant 10): parse it without Env instead.
func Marshal(d *Document) ([]byte, error) {
	if d.replaced {
		return nil, errors.New("write pipeline document: its references are replaced from the environment")
	}
	text, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("write pipeline document: %w", err)
	}
	var ordered any
	if err := yaml.UnmarshalWithOptions(text, &ordered, yaml.UseOrderedMap()); err != nil {
		return nil, fmt.Errorf("write pipeline document: %w", err)
	}
	var out bytes.Buffer
	if err := yaml.NewEncoder(&out, yaml.IndentSequence(true)).Encode(ordered); err != nil {
		return nil, fmt.Errorf("write pipeline document: %w", err)
	}
	return out.Bytes(), nil
}
