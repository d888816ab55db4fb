package engine

import (
	"time"

	"github.com/tranship-io/tranship/engine/integrity"
)

// ReceiptVersion is the version of the receipt's JSON form; it changes when a
// field changes its meaning or disappears.
const ReceiptVersion = 1

// RunReceipt is what a run proves. Its JSON Schema is docs/schema/receipt.schema.json.
type RunReceipt struct {
	ReceiptVersion int    `json:"receipt_version" jsonschema:"description=Version of this document's form."`
	RunID          string `json:"run_id" jsonschema:"description=UUID of the run."`
	Pipeline       string `json:"pipeline"`
	Version        string `json:"version" jsonschema:"description=Content hash of the pipeline document."`
	// State is completed, failed, paused or canceled.
	State RunState `json:"state"`
	// Resumable tells whether a plain run goes on where this one ended.
	Resumable bool              `json:"resumable"`
	Error     string            `json:"error,omitempty"`
	Source    string            `json:"source" jsonschema_description:"Identity of the source, without secrets."`
	Sink      string            `json:"sink" jsonschema_description:"Identity of the destination, without secrets."`
	Resources []ResourceReceipt `json:"resources"`
	StartedAt time.Time         `json:"started_at"`
	EndedAt   time.Time         `json:"ended_at"`
	Attempts  int               `json:"attempts"`
	// Seconds is the wall time of this process's work on the run, CPUSeconds its
	// user and system time, PeakMemoryBytes its largest resident set (0: unknown).
	Seconds         float64 `json:"seconds"`
	CPUSeconds      float64 `json:"cpu_seconds"`
	PeakMemoryBytes int64   `json:"peak_memory_bytes"`
}

// ResourceReceipt is what a run proves of one resource. rows_read = rows_written
// + rows_superseded + rows_skipped + rows_set_aside (invariant 7, P6).
type ResourceReceipt struct {
	Resource    string      `json:"resource"`
	Target      string      `json:"target"`
	Read        ReadMode    `json:"read"`
	Write       WriteMode   `json:"write"`
	Consistency Consistency `json:"consistency,omitempty"`
	// State is "published", "incomplete" or "failed".
	State          string `json:"state"`
	Error          string `json:"error,omitempty"`
	RowsRead       int64  `json:"rows_read"`
	RowsWritten    int64  `json:"rows_written"`
	RowsSuperseded int64  `json:"rows_superseded"`
	RowsSkipped    int64  `json:"rows_skipped"`
	RowsSetAside   int64  `json:"rows_set_aside"`
	// Bytes is the size of the rows in flight.
	Bytes int64 `json:"bytes"`
	// SourceDigest is the content digest of the rows read; DestinationDigest that
	// of the rows read back from the destination, null unless read back.
	SourceDigest      integrity.Digest  `json:"source_digest"`
	DestinationDigest *integrity.Digest `json:"destination_digest"`
	// Verified is "digest" or "counts" once the resource is published, else "".
	Verified string        `json:"verified"`
	Policies []PolicyCount `json:"policies"`
	Splits   int           `json:"splits"`
	// SplitsDone counts read splits that are applied whole.
	SplitsDone int `json:"splits_done"`
	// Attempts is the greatest number of times that one of the splits was claimed.
	Attempts int64 `json:"attempts"`
	// Coverage says in words what the read covers.
	Coverage string   `json:"coverage,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// Technique is how the rows became visible.
	Technique string `json:"technique,omitempty"`
}
