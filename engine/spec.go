package engine

import (
	"encoding/json"
	"time"
)

// Spec describes one end of a connector: what it is called, how it is
// configured, what it can do. A spec advertises only what the conformance suite
// of engine/enginetest proves.
type Spec struct {
	// Name is the connector's name in pipeline files, such as "postgres".
	Name string
	// Title and Summary are for documentation.
	Title   string
	Summary string
	// Config is a pointer to a zero configuration struct; its fields' tags
	// (json, jsonschema) generate JSON Schema, documentation and validation.
	// Fields tagged `secret:"true"` never appear in any output.
	Config any
	// Reads are the read modes of a source, Writes the write modes of a sink.
	Reads  []ReadMode
	Writes []WriteMode
	// Consistencies are those a source offers for full reads.
	Consistencies []Consistency
	// Delivery is a sink's guarantee: "effectively-once" or "at-least-once".
	Delivery string
	// Wire are the wire formats that the end speaks.
	Wire []WireFormat
	// Notes are limits and peculiarities, a sentence each, for documentation.
	Notes []string
}

// Config is a connector's configuration as the pipeline document has it, after
// environment references are replaced; connectors decode it into their own type.
type Config json.RawMessage

// OpenOptions is what every session gets from its caller.
type OpenOptions struct {
	// RunID and Pipeline name the session towards the server (application_name).
	RunID    string
	Pipeline string
	// GiveUp bounds how long connecting is tried; 0 means 60 s.
	GiveUp time.Duration
	// Slots is how many reads or epochs may be in progress at once; 0 means 1.
	Slots int
	// WorkDir is a folder for temporary files; empty means the system's.
	WorkDir string
}
