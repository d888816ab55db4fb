// Package api holds the one description of the HTTP API. Package api/server
// serves it; package api/client is the client generated from it.
package api

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/goccy/go-yaml"
)

//go:embed openapi.yaml
var source []byte

// Document returns the OpenAPI document as JSON.
var Document = sync.OnceValues(func() (json.RawMessage, error) {
	out, err := yaml.YAMLToJSON(source)
	if err != nil {
		return nil, fmt.Errorf("read the API's document: %w", err)
	}
	return out, nil
})
