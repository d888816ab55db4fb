package events

import "time"

// The types of facts. Times are UTC, durations milliseconds, sizes bytes.
const (
	TypeRunRequested       Type = "run.requested"
	TypeRunStarted         Type = "run.started"
	TypeRunCompleted       Type = "run.completed"
	TypeRunFailed          Type = "run.failed"
	TypeRunPaused          Type = "run.paused"
	TypeRunCanceled        Type = "run.canceled"
	TypeRunScheduled       Type = "run.scheduled"
	TypeRunAsked           Type = "run.asked"
	TypeRunResumed         Type = "run.resumed"
	TypeAttemptStarted     Type = "attempt.started"
	TypeAttemptHandedOver  Type = "attempt.handed_over"
	TypeAttemptFailed      Type = "attempt.failed"
	TypeAttemptInterrupted Type = "attempt.interrupted"
	TypeAttemptUsed        Type = "attempt.used"
	TypeResourcePlanned    Type = "resource.planned"
	TypeResourceStarted    Type = "resource.started"
	TypeResourceCompleted  Type = "resource.completed"
	TypeResourceFailed     Type = "resource.failed"
	TypeResourceReset      Type = "resource.reset"
	TypeSplitPlanned       Type = "split.planned"
	TypeSplitClaimed       Type = "split.claimed"
	TypeSplitFinished      Type = "split.finished"
	TypeEpochCommitted     Type = "epoch.committed"
	TypeCheckpointSaved    Type = "checkpoint.saved"
	TypeLedgerReconciled   Type = "ledger.reconciled"
	TypeStreamLag          Type = "stream.lag"
	TypeStreamReplanned    Type = "stream.replanned"
	TypePublishBegun       Type = "publish.begun"
	TypePublishDone        Type = "publish.done"
	TypeSchemaChanged      Type = "schema.changed"
	TypeRowsSetAside       Type = "rows.set_aside"
	TypeRateLimited        Type = "rate.limited"
	TypeRetry              Type = "retry.scheduled"
	TypeReceiptIssued      Type = "receipt.issued"
	TypeOccurrenceSkipped  Type = "occurrence.skipped"
)

// RunRequested: a run was accepted.
type RunRequested struct {
	Pipeline string `json:"pipeline"`
	// PipelineVersion is the content hash of the pipeline document.
	PipelineVersion string `json:"pipeline_version"`
	Route           string `json:"route"`
	Ordinal         int64  `json:"ordinal"`
}

// RunStarted: the first attempt of a run began to work.
type RunStarted struct {
	Slots int `json:"slots"`
}

// RunCompleted: every resource is published and the run's sums agree.
type RunCompleted struct {
	RowsRead    int64 `json:"rows_read"`
	RowsWritten int64 `json:"rows_written"`
	Millis      int64 `json:"millis"`
}

// RunFailed: the run ended without completing.
type RunFailed struct {
	// Class is "retryable", "permanent" or "bug".
	Class string `json:"class"`
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
	// Resumable is true when a later attempt can go on from what is applied.
	Resumable bool `json:"resumable"`
}

// RunPaused: work stopped at safe positions on request.
type RunPaused struct {
	Reason string `json:"reason"`
}

// RunCanceled: the run was ended on request, and no session of it is left.
type RunCanceled struct {
	Reason string `json:"reason"`
}

// RunScheduled: a run was accepted that may begin later.
type RunScheduled struct {
	NotBefore time.Time `json:"not_before"`
}

// RunAsked: somebody wants the run to stop; its workers are told.
type RunAsked struct {
	// For is "pause" or "cancel", or "run" for a pause that is taken back.
	For string `json:"for"`
	By  string `json:"by"`
}

// OccurrenceSkipped: an occurrence of a schedule was skipped because of this run.
type OccurrenceSkipped struct {
	ScheduleID string    `json:"schedule_id"`
	Schedule   string    `json:"schedule"`
	Instant    time.Time `json:"instant"`
	// Reason is as in the occurrence: overlap, paused_run or queue_full; overlap or
	// paused_run of an occurrence whose other routes were started, too.
	Reason string `json:"reason"`
}

// RunResumed: a paused or failed run goes on from its checkpoints.
type RunResumed struct {
	By string `json:"by"`
}

// AttemptStarted: a worker began its life in a slot.
type AttemptStarted struct {
	Attempt    int    `json:"attempt"`
	Slot       int    `json:"slot"`
	Generation int64  `json:"generation"`
	Holder     string `json:"holder"`
	// MemoryBytes is the attempt's memory budget.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
}

// AttemptHandedOver: a worker ended its life at safe positions.
type AttemptHandedOver struct {
	Slot       int   `json:"slot"`
	Generation int64 `json:"generation"`
	// Reason is "done", "deadline", "bytes", "rows", "stop" or "error".
	Reason string `json:"reason"`
}

// AttemptFailed: an attempt ended with an error, and another one follows.
type AttemptFailed struct {
	Class string `json:"class"`
	Error string `json:"error"`
	// Failures counts the run's failed attempts so far.
	Failures  int       `json:"failures"`
	NotBefore time.Time `json:"not_before"`
}

// AttemptInterrupted: a worker was lost with its lease; its splits are returned.
// It is no failed attempt.
type AttemptInterrupted struct {
	Slot       int    `json:"slot"`
	Generation int64  `json:"generation"`
	Holder     string `json:"holder"`
	// Reason is "lease expired".
	Reason string `json:"reason"`
	// InARow counts interruptions since the run's checkpoint last moved (P24).
	InARow int `json:"in_a_row"`
}

// AttemptUsed: what a worker's life used of the machine, told at its end. One that
// was lost does not tell.
type AttemptUsed struct {
	Slot       int   `json:"slot"`
	Generation int64 `json:"generation"`
	// CPUMillis is the CPU time that its process took meanwhile, for whatever it did.
	CPUMillis int64 `json:"cpu_millis"`
	// PeakBytes is the greatest resident memory that its process had so far.
	PeakBytes int64 `json:"peak_bytes"`
}

// ResourcePlanned: a resource's plan is frozen.
type ResourcePlanned struct {
	Resource    string   `json:"resource"`
	Target      string   `json:"target"`
	Read        string   `json:"read"`
	Write       string   `json:"write"`
	Consistency string   `json:"consistency"`
	Splits      int      `json:"splits"`
	Rows        int64    `json:"estimated_rows"`
	Bytes       int64    `json:"estimated_bytes"`
	Coverage    string   `json:"coverage,omitempty"`
	Warnings    []string `json:"warnings,omitempty"`
}

// ResourceStarted: the first split of a resource was claimed.
type ResourceStarted struct {
	Resource string `json:"resource"`
}

// ResourceCompleted: the resource is published.
type ResourceCompleted struct {
	Resource string `json:"resource"`
	Counts
}

// ResourceFailed: the resource can't go on.
type ResourceFailed struct {
	Resource string `json:"resource"`
	Error    string `json:"error"`
}

// ResourceReset: what was loaded of a resource is thrown away and read anew.
type ResourceReset struct {
	Resource string `json:"resource"`
	Reason   string `json:"reason"`
}

// SplitPlanned: one split of a frozen plan.
type SplitPlanned struct {
	Resource string `json:"resource"`
	Split    string `json:"split"`
	Rows     int64  `json:"estimated_rows"`
	Bytes    int64  `json:"estimated_bytes"`
}

// SplitClaimed: a slot owns the split under a new claim.
type SplitClaimed struct {
	Resource string `json:"resource"`
	Split    string `json:"split"`
	Slot     int    `json:"slot"`
	Claim    int64  `json:"claim"`
}

// SplitFinished: every row of the split is applied.
type SplitFinished struct {
	Resource string `json:"resource"`
	Split    string `json:"split"`
	Claim    int64  `json:"claim"`
	Counts
}

// Counts are the sums of invariant 7: Read = Applied + Superseded + Skipped + SetAside.
type Counts struct {
	Read       int64 `json:"rows_read"`
	Applied    int64 `json:"rows_applied"`
	Superseded int64 `json:"rows_superseded"`
	Skipped    int64 `json:"rows_skipped"`
	SetAside   int64 `json:"rows_set_aside"`
	Bytes      int64 `json:"bytes"`
}

// EpochCommitted: one destination transaction (or staged artifact set) is durable.
type EpochCommitted struct {
	Resource string `json:"resource"`
	Split    string `json:"split"`
	Claim    int64  `json:"claim"`
	Epoch    int64  `json:"epoch"`
	Counts
	// Digest is the source side's content digest of the epoch's rows.
	Digest string `json:"digest"`
	// SourceCRC and SinkCRC are CRC32C sums over the epoch's batches at the
	// source's edge and at the sink's write boundary; they are equal.
	SourceCRC uint32 `json:"source_crc"`
	SinkCRC   uint32 `json:"sink_crc"`
}

// CheckpointSaved: the position up to which a split is applied is stored.
type CheckpointSaved struct {
	Resource string `json:"resource"`
	Split    string `json:"split"`
	Claim    int64  `json:"claim"`
	Epoch    int64  `json:"epoch"`
}

// LedgerReconciled: State and the destination's ledger differed, and the ledger decided (P3).
type LedgerReconciled struct {
	Resource string `json:"resource"`
	Split    string `json:"split"`
	// Action is "adopted" (ledger ahead), "rewound" (checkpoint ahead),
	// "raised" (claim or ordinal behind: State was restored) or "route adopted".
	Action          string `json:"action"`
	LedgerEpoch     int64  `json:"ledger_epoch"`
	CheckpointEpoch int64  `json:"checkpoint_epoch"`
}

// StreamLag: how far the change stream is behind its source.
type StreamLag struct {
	// LagBytes of the source's log are not applied yet; LagMillis is the age of what
	// is applied, -1 if it is not known; RetainedBytes is the log that the source
	// keeps for the stream.
	LagBytes      int64 `json:"lag_bytes"`
	LagMillis     int64 `json:"lag_millis"`
	RetainedBytes int64 `json:"retained_bytes"`
}

// StreamReplanned: the change stream could not go on under its plan; the next run is
// planned anew.
type StreamReplanned struct {
	Reason string `json:"reason"`
	// Resync tells that all members are read again.
	Resync bool `json:"resync"`
}

// PublishBegun: the resource's rows are about to become visible.
type PublishBegun struct {
	Resource  string `json:"resource"`
	Technique string `json:"technique"`
}

// PublishDone: the resource's rows are visible.
type PublishDone struct {
	Resource string `json:"resource"`
	Rows     int64  `json:"rows"`
	Verified bool   `json:"verified"`
}

// SchemaChanged: a statement changed the destination's structure.
type SchemaChanged struct {
	Resource  string `json:"resource"`
	Statement string `json:"statement"`
}

// RowsSetAside: rows did not fit and went to the place that the user named.
type RowsSetAside struct {
	Resource string `json:"resource"`
	Column   string `json:"column"`
	Rows     int64  `json:"rows"`
	Reason   string `json:"reason"`
	Place    string `json:"place"`
}

// RateLimited: the source asked for slower reading.
type RateLimited struct {
	Resource string `json:"resource"`
	Millis   int64  `json:"millis"`
}

// Retry: something failed that may succeed later.
type Retry struct {
	Resource  string    `json:"resource,omitempty"`
	Split     string    `json:"split,omitempty"`
	Error     string    `json:"error"`
	Try       int       `json:"try"`
	NotBefore time.Time `json:"not_before"`
}

// ReceiptIssued: the run's receipt, whole.
type ReceiptIssued struct {
	SHA256 string `json:"sha256"`
}

// FactType implementations; each payload's version is bumped when a field
// changes its meaning or disappears.

func (RunRequested) FactType() (Type, int)       { return TypeRunRequested, 1 }
func (RunStarted) FactType() (Type, int)         { return TypeRunStarted, 1 }
func (RunCompleted) FactType() (Type, int)       { return TypeRunCompleted, 1 }
func (RunFailed) FactType() (Type, int)          { return TypeRunFailed, 1 }
func (RunPaused) FactType() (Type, int)          { return TypeRunPaused, 1 }
func (RunCanceled) FactType() (Type, int)        { return TypeRunCanceled, 1 }
func (RunScheduled) FactType() (Type, int)       { return TypeRunScheduled, 1 }
func (OccurrenceSkipped) FactType() (Type, int)  { return TypeOccurrenceSkipped, 1 }
func (RunAsked) FactType() (Type, int)           { return TypeRunAsked, 1 }
func (RunResumed) FactType() (Type, int)         { return TypeRunResumed, 1 }
func (AttemptFailed) FactType() (Type, int)      { return TypeAttemptFailed, 1 }
func (AttemptInterrupted) FactType() (Type, int) { return TypeAttemptInterrupted, 1 }
func (AttemptStarted) FactType() (Type, int)     { return TypeAttemptStarted, 1 }
func (AttemptHandedOver) FactType() (Type, int)  { return TypeAttemptHandedOver, 1 }
func (AttemptUsed) FactType() (Type, int)        { return TypeAttemptUsed, 1 }
func (ResourcePlanned) FactType() (Type, int)    { return TypeResourcePlanned, 1 }
func (ResourceStarted) FactType() (Type, int)    { return TypeResourceStarted, 1 }
func (ResourceCompleted) FactType() (Type, int)  { return TypeResourceCompleted, 1 }
func (ResourceFailed) FactType() (Type, int)     { return TypeResourceFailed, 1 }
func (ResourceReset) FactType() (Type, int)      { return TypeResourceReset, 1 }
func (SplitPlanned) FactType() (Type, int)       { return TypeSplitPlanned, 1 }
func (SplitClaimed) FactType() (Type, int)       { return TypeSplitClaimed, 1 }
func (SplitFinished) FactType() (Type, int)      { return TypeSplitFinished, 1 }
func (EpochCommitted) FactType() (Type, int)     { return TypeEpochCommitted, 1 }
func (CheckpointSaved) FactType() (Type, int)    { return TypeCheckpointSaved, 1 }
func (LedgerReconciled) FactType() (Type, int)   { return TypeLedgerReconciled, 1 }
func (StreamLag) FactType() (Type, int)          { return TypeStreamLag, 1 }
func (StreamReplanned) FactType() (Type, int)    { return TypeStreamReplanned, 1 }
func (PublishBegun) FactType() (Type, int)       { return TypePublishBegun, 1 }
func (PublishDone) FactType() (Type, int)        { return TypePublishDone, 1 }
func (SchemaChanged) FactType() (Type, int)      { return TypeSchemaChanged, 1 }
func (RowsSetAside) FactType() (Type, int)       { return TypeRowsSetAside, 1 }
func (RateLimited) FactType() (Type, int)        { return TypeRateLimited, 1 }
func (Retry) FactType() (Type, int)              { return TypeRetry, 1 }
func (ReceiptIssued) FactType() (Type, int)      { return TypeReceiptIssued, 1 }

var registry = map[Type]func() Payload{
	TypeRunRequested:       func() Payload { return new(RunRequested) },
	TypeRunStarted:         func() Payload { return new(RunStarted) },
	TypeRunCompleted:       func() Payload { return new(RunCompleted) },
	TypeRunFailed:          func() Payload { return new(RunFailed) },
	TypeRunPaused:          func() Payload { return new(RunPaused) },
	TypeRunCanceled:        func() Payload { return new(RunCanceled) },
	TypeRunScheduled:       func() Payload { return new(RunScheduled) },
	TypeOccurrenceSkipped:  func() Payload { return new(OccurrenceSkipped) },
	TypeRunAsked:           func() Payload { return new(RunAsked) },
	TypeRunResumed:         func() Payload { return new(RunResumed) },
	TypeAttemptFailed:      func() Payload { return new(AttemptFailed) },
	TypeAttemptInterrupted: func() Payload { return new(AttemptInterrupted) },
	TypeAttemptStarted:     func() Payload { return new(AttemptStarted) },
	TypeAttemptHandedOver:  func() Payload { return new(AttemptHandedOver) },
	TypeAttemptUsed:        func() Payload { return new(AttemptUsed) },
	TypeResourcePlanned:    func() Payload { return new(ResourcePlanned) },
	TypeResourceStarted:    func() Payload { return new(ResourceStarted) },
	TypeResourceCompleted:  func() Payload { return new(ResourceCompleted) },
	TypeResourceFailed:     func() Payload { return new(ResourceFailed) },
	TypeResourceReset:      func() Payload { return new(ResourceReset) },
	TypeSplitPlanned:       func() Payload { return new(SplitPlanned) },
	TypeSplitClaimed:       func() Payload { return new(SplitClaimed) },
	TypeSplitFinished:      func() Payload { return new(SplitFinished) },
	TypeEpochCommitted:     func() Payload { return new(EpochCommitted) },
	TypeCheckpointSaved:    func() Payload { return new(CheckpointSaved) },
	TypeLedgerReconciled:   func() Payload { return new(LedgerReconciled) },
	TypeStreamLag:          func() Payload { return new(StreamLag) },
	TypeStreamReplanned:    func() Payload { return new(StreamReplanned) },
	TypePublishBegun:       func() Payload { return new(PublishBegun) },
	TypePublishDone:        func() Payload { return new(PublishDone) },
	TypeSchemaChanged:      func() Payload { return new(SchemaChanged) },
	TypeRowsSetAside:       func() Payload { return new(RowsSetAside) },
	TypeRateLimited:        func() Payload { return new(RateLimited) },
	TypeRetry:              func() Payload { return new(Retry) },
	TypeReceiptIssued:      func() Payload { return new(ReceiptIssued) },
}
