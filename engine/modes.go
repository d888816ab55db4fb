package engine

// ReadMode says which rows of a resource a run reads.
type ReadMode string

// The read modes.
const (
	ReadFull        ReadMode = "full"
	ReadIncremental ReadMode = "incremental"
	ReadCDC         ReadMode = "cdc"
)

// WriteMode says what a run does with the rows at the destination.
type WriteMode string

// The write modes.
const (
	WriteReplace WriteMode = "replace"
	WriteAppend  WriteMode = "append"
	WriteUpsert  WriteMode = "upsert"
	WriteDelete  WriteMode = "delete"
	WriteMerge   WriteMode = "merge"
)

// Verify says how far a run proves that the content arrived.
type Verify string

// The levels of verification.
const (
	// VerifyCounts compares checksums in flight, row counts and ledger (default).
	VerifyCounts Verify = "counts"
	// VerifyDigest also reads the destination back and compares content digests (P9).
	VerifyDigest Verify = "digest"
)

// Consistency says what the rows of one read have in common.
type Consistency string

// The consistencies (P12).
const (
	// ConsistencySnapshot reads everything in one exported snapshot.
	ConsistencySnapshot Consistency = "snapshot"
	// ConsistencyChunked reads ranges of an immutable key, each in its own transaction.
	ConsistencyChunked Consistency = "chunked"
	// ConsistencyAligned reads pieces that a change stream brings together (P16, P17):
	// exact as of a position once the resource is published.
	ConsistencyAligned Consistency = "aligned"
)

// Policy says what happens to a value that does not fit (invariant 6).
type Policy string

// The value policies.
const (
	// PolicyFail fails the run, naming resource, column, key and value (default).
	PolicyFail Policy = "fail"
	// PolicyNull writes NULL instead, and counts it.
	PolicyNull Policy = "null"
	// PolicyClamp writes the nearest value that fits, and counts it.
	PolicyClamp Policy = "clamp"
	// PolicyText stores the column as text.
	PolicyText Policy = "text"
	// PolicySetAside keeps the row out of the destination and writes it, with
	// the reason, to the place that the user named.
	PolicySetAside Policy = "set_aside"
	// PolicySkip counts rows that a rule of the read leaves out, such as a NULL
	// cursor. No document chooses it.
	PolicySkip Policy = "skip"
)

// SchemaPolicy says what may be done to a destination's structure.
type SchemaPolicy string

// The schema policies.
const (
	// SchemaEvolve adds columns and widens types; the rest is refused with the
	// statement that would do it (default).
	SchemaEvolve SchemaPolicy = "evolve"
	// SchemaFreeze refuses every change.
	SchemaFreeze SchemaPolicy = "freeze"
)

// Policies are the value policies of one resource.
type Policies struct {
	// Default applies to columns that Columns does not name; empty means fail.
	Default Policy `json:"default,omitempty"`
	// Columns has a policy by source column name.
	Columns map[string]Policy `json:"columns,omitempty"`
	// SetAside names where rows set aside go: "table:<schema>.<name>" in the
	// destination, or "file:<path>" for a JSONL file.
	SetAside string `json:"set_aside,omitempty"`
}

// For returns the policy of a column.
func (p Policies) For(column string) Policy {
	if v, ok := p.Columns[column]; ok {
		return v
	}
	if p.Default == "" {
		return PolicyFail
	}
	return p.Default
}
