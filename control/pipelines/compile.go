package pipelines

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/pipeline"
)

// Lookup finds the value of a reference ${NAME}.
type Lookup func(name string) (string, bool)

// Ends are the two ends of a route's document.
type Ends struct {
	Source, Sink connections.End
}

// Text writes the document of a pair of nodes: what the command line would run
// from a file, as JSON, with ${NAME} in the place of each secret.
func (g *Graph) Text(name string, p Pair, ends Ends) ([]byte, error) {
	resources := make([]pipeline.Resource, len(p.Edges))
	for i, n := range p.Edges {
		resources[i] = g.Edges[n].entry()
	}
	b := &docWriter{}
	b.put("version", pipeline.FormatVersion, false)
	b.put("name", name, true)
	b.put("source", pipeline.Endpoint{Connector: ends.Source.Connector, Config: ends.Source.Config}, false)
	b.put("sink", pipeline.Endpoint{Connector: ends.Sink.Connector, Config: ends.Sink.Config}, false)
	b.put("defaults", g.Defaults, true)
	b.put("resources", resources, true)
	b.put("settings", g.Settings, true)
	b.put("service", g.Service, true)
	b.WriteByte('}')
	return b.Bytes(), b.err
}

// docWriter writes a document's keys.
type docWriter struct {
	bytes.Buffer
	err error
}

// put adds a key unless its value says nothing; literal values hold no references.
func (b *docWriter) put(key string, value any, literal bool) {
	if b.err != nil || reflect.ValueOf(value).IsZero() {
		return
	}
	text, err := json.Marshal(value)
	if err == nil && literal {
		text, err = pipeline.EscapeReferences(text)
	}
	if err != nil {
		b.err = fmt.Errorf("write the key %s of a route's document: %w", key, err)
		return
	}
	if b.Len() == 0 {
		b.WriteByte('{')
	} else {
		b.WriteByte(',')
	}
	b.WriteString(`"` + key + `":`)
	b.Write(text)
}

// Document reads the document of a pair of nodes. The look-ups give the secrets of
// its ends; nil leaves references in place, for a check or a hash. Its problems
// are those of a document: [Graph.Place] finds where they are in the graph.
func (g *Graph) Document(c connections.Catalog, name string, p Pair, ends Ends, source, sink Lookup) (*pipeline.Document, error) {
	text, err := g.Text(name, p, ends)
	if err != nil {
		return nil, err
	}
	return pipeline.ParseJSON(text, pipeline.Options{
		Env: func(string) (string, bool) { return "", false },
		EndEnv: func(end string) func(string) (string, bool) {
			if end == "source" {
				return source
			}
			return sink
		},
		Sources: c.SourceSpecs(), Sinks: c.SinkSpecs(),
	})
}

// hashOf is the hash of a version with these routes.
func hashOf(routes []Wanted) string {
	if len(routes) == 1 {
		return routes[0].Hash
	}
	var all strings.Builder
	for _, r := range routes {
		all.WriteString(r.Key + " " + r.Hash + "\n")
	}
	sum := sha256.Sum256([]byte(all.String()))
	return hex.EncodeToString(sum[:])
}
