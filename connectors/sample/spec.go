package sample

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/tranship-io/tranship/engine"
)

// Name is the connector's name in pipeline files.
const Name = "sample"

const (
	defaultRows   = 1000
	defaultSplits = 1
	maxRowBytes   = 512 << 20
)

// Config is the connector's configuration.
type Config struct {
	// Seed chooses the values; 0 is a seed like any other.
	Seed uint64 `json:"seed,omitempty" jsonschema:"description=Chooses the values"`
	// Rows is the number of rows of each resource; nil means 1000.
	Rows *int64 `json:"rows,omitempty" jsonschema:"minimum=0,default=1000,description=Rows of each resource"`
	// Splits is how many splits a resource is planned in; 0 means 1.
	Splits int `json:"splits,omitempty" jsonschema:"minimum=0,default=1,description=Splits of each resource"`
	// RowBytes is the length of the column note in characters; 0 means 20 to 60
	// by chance.
	RowBytes int `json:"row_bytes,omitempty" jsonschema:"minimum=0,description=Length of the column note; default 20 to 60 by chance"`
	// Specials mixes in values that not every sink can hold: infinite dates and
	// timestamps, NaN, arrays of two dimensions and with other lower bounds.
	Specials bool `json:"specials,omitempty" jsonschema:"description=Mix in infinities and NaN and arrays of several dimensions"`
}

// Source is the sample source.
type Source struct{}

var _ engine.Source = (*Source)(nil)

// NewSource makes the source.
func NewSource() *Source { return &Source{} }

// Spec implements engine.Source.
func (*Source) Spec() engine.Spec {
	return engine.Spec{
		Name:          Name,
		Title:         "Sample data",
		Summary:       "Deterministic rows of all types by seed, for trying out, tests and measurements.",
		Config:        &Config{},
		Reads:         []engine.ReadMode{engine.ReadFull, engine.ReadIncremental},
		Consistencies: []engine.Consistency{engine.ConsistencyChunked},
		Notes: []string{
			"sample.orders looks like a table of a shop; sample.kinds has a column of every logical type.",
			"Incremental reads go by id or updated_at, which grow together; raise rows to add some.",
		},
	}
}

// Open implements engine.Source.
func (*Source) Open(_ context.Context, cfg engine.Config, _ engine.OpenOptions) (engine.SourceSession, error) {
	var c Config
	dec := json.NewDecoder(bytes.NewReader(cfg))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return nil, engine.Permanentf("", "read the sample source's configuration: %w", err)
	}
	if c.Rows == nil {
		n := int64(defaultRows)
		c.Rows = &n
	}
	if c.Splits == 0 {
		c.Splits = defaultSplits
	}
	if *c.Rows < 0 || c.Splits < 0 || c.RowBytes < 0 || c.RowBytes > maxRowBytes {
		return nil, engine.Permanentf("use numbers from 0, and at most 512 MiB a row", "the sample source can't make %d rows of %d bytes in %d splits", *c.Rows, c.RowBytes, c.Splits)
	}
	return &session{cfg: c}, nil
}
