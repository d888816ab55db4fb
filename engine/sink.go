package engine

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

// Sink is one system that rows are written to.
type Sink interface {
	Spec() Spec
	// Open checks the configuration and makes a session.
	Open(ctx context.Context, cfg Config, opt OpenOptions) (SinkSession, error)
}

// SinkSession is a live connection to a sink. Its methods may be called
// concurrently for different splits; each Apply uses a connection of its own.
//
// Order of calls in a run: Plan (no effect), Prepare (once an attempt and
// resource), then for a [Fencer] BeginRun and Freeze; then for every claimed
// split Claim, Apply …; then Publish once every split of the resource is done.
// Any call may be repeated after a crash, by another process, with the same
// arguments, and then has the same outcome (invariant 4).
type SinkSession interface {
	// Identity is a stable name of the destination without secrets; it is part of the
	// route's identity.
	Identity() string
	// Plan says how the resource would be written, and changes nothing. Problems
	// that forbid the run are permanent errors with the statement that would help.
	Plan(ctx context.Context, req TargetRequest) (*Target, error)
	// Prepare makes target, staging and ledger tables ready. It is idempotent,
	// destroys nothing of the target, and returns the statements that it ran.
	Prepare(ctx context.Context, t *Target) (*Prepared, error)
	// Apply writes one epoch: all of it or nothing. It pulls the epoch's batches
	// until io.EOF; if Next fails, or the context ends, it rolls back and returns
	// that error. A transactional sink follows P2: data first, then the fence and
	// the ledger's compare-and-swap on (claim, epoch − 1) in the same transaction;
	// an overtaken number gives *StaleError and leaves nothing. A lost answer to
	// the commit gives ErrCommitUnknown. A sink that only becomes visible at
	// publish returns Artifacts, which the engine registers with the checkpoint.
	Apply(ctx context.Context, e *Epoch) (*Receipt, error)
	// Publish makes a resource's rows visible and stores the cursor (P7, P8, P11).
	// It looks first whether this run's publish already happened, and then
	// returns that receipt again.
	Publish(ctx context.Context, p *Publication) (*Receipt, error)
	// Abort drops what an unpublished run left: staging, artifacts, its frozen plan
	// and ledger rows. Rows that it appended stay. It is idempotent.
	Abort(ctx context.Context, t *Target) error
	Close(ctx context.Context) error
}

// Route is one source→sink pair of a pipeline.
type Route struct {
	// Installation is the UUID that the State store made for itself, or adopted (P1).
	Installation string `json:"installation"`
	Pipeline     string `json:"pipeline"`
	// Source and Sink are the sessions' identities.
	Source string `json:"source"`
	Sink   string `json:"sink"`
}

// TargetRequest asks a sink how it would write a resource.
type TargetRequest struct {
	Route   Route
	RunID   string
	Ordinal int64
	// Generation goes into the Target.
	Generation int
	// Plan is the source's plan: schema, key, wire formats, consistency.
	Plan  *SourcePlan
	Read  ReadMode
	Write WriteMode
	// Target overrides the target's name; empty derives it from the resource's.
	Target   string
	Verify   Verify
	Policies Policies
	Schema   SchemaPolicy
	// Lineage adds _tranship_run_id and _tranship_loaded_at.
	Lineage bool
	// Others are the resource names of the whole run, so that two of them can't
	// be mapped to one target.
	Others []string
	// Options are the resource's sink options of the pipeline document.
	Options json.RawMessage
}

// Target is where one resource of one run goes; it is frozen with the plan.
type Target struct {
	Route   Route  `json:"route"`
	RunID   string `json:"run_id"`
	Ordinal int64  `json:"ordinal"`
	// Generation counts the resource's plans in the run, from 0: a reset loads
	// into new staging, so staging is named by run and generation.
	Generation int           `json:"generation"`
	Resource   string        `json:"resource"`
	Schema     schema.Schema `json:"schema"`
	// Name is the target as the sink writes it, for messages.
	Name  string    `json:"name"`
	Read  ReadMode  `json:"read"`
	Write WriteMode `json:"write"`
	// Columns maps the schema's fields, in order, to target columns.
	Columns []TargetColumn `json:"columns"`
	// Wire is the wire format chosen; empty means Arrow records.
	Wire WireFormat `json:"wire,omitempty"`
	// Staged is true when rows become visible only at Publish.
	Staged bool `json:"staged"`
	// Technique says in words how rows become visible ("swap by rename", …).
	Technique string `json:"technique"`
	// Statements are the DDL statements that Prepare and Publish would run.
	Statements []string     `json:"statements,omitempty"`
	Warnings   []string     `json:"warnings,omitempty"`
	Verify     Verify       `json:"verify"`
	Policies   Policies     `json:"policies,omitzero"`
	SchemaRule SchemaPolicy `json:"schema_policy,omitempty"`
	Lineage    bool         `json:"lineage,omitempty"`
	Window     *Window      `json:"window,omitempty"`
	// EpochBytes is the size of an epoch that suits the sink; 0: engine's default.
	EpochBytes int64 `json:"epoch_bytes,omitempty"`
	// BatchBytes is the size of a batch that suits the sink; 0: engine's default.
	BatchBytes int64 `json:"batch_bytes,omitempty"`
	// RememberWindow is true when the sink can't find out itself what of the
	// window it has, so that source and State must remember it.
	RememberWindow bool `json:"remember_window,omitempty"`
	// Options and Detail are the sink's own.
	Options json.RawMessage `json:"options,omitempty"`
	Detail  json.RawMessage `json:"detail,omitempty"`
}

// TargetColumn is the place of one source column.
type TargetColumn struct {
	Source string `json:"source"`
	Name   string `json:"name"`
	// Type is the target's own type, as the sink writes it.
	Type string `json:"type"`
	// AsText is true when, within a wire format, the source hands the column
	// over in its system's text form and the sink parses it there: for types
	// whose encoding holds numbers of one database (P14).
	AsText bool `json:"as_text,omitempty"`
}

// Prepared tells what Prepare did.
type Prepared struct {
	Statements []string
}

// Epoch is what one destination transaction applies.
type Epoch struct {
	// Targets are the prepared targets by resource name; a table split has one.
	Targets map[string]*Target
	// Stream, for the split of a change stream, is the target whose fence and ledger
	// row the epoch moves (see [ChangeSink]); Targets are then the members'.
	Stream *Target
	Split  string
	// Claim and Number are the fence: the ledger must hold (Claim, Number − 1).
	Claim  int64
	Number int64
	// Next returns the next batch, which stays the engine's: it is valid until
	// the following call. It returns io.EOF at the epoch's end.
	Next func(ctx context.Context) (*Batch, error)
	// End is valid after Next has returned io.EOF.
	End func() EpochEnd
}

// EpochEnd is where an epoch stopped and what it held.
type EpochEnd struct {
	Position Position
	// Done is true when the split ends with this epoch.
	Done    bool
	Rows    int64
	Bytes   int64
	Skipped int64
	// Members are the parts of a change stream's epoch by resource: Read (skipped rows
	// included), Skipped, Bytes, Digest and Policies of their Totals.
	Members map[string]Totals
	// Policies are those of the batches: they count parts of Skipped.
	Policies []PolicyCount
	Digest   integrity.Digest
	// CRC is the CRC32C chained over the batches' CRCs as computed at the
	// source's edge: the sink chains its own and the engine compares.
	CRC uint32
}

// Receipt is what a sink proves.
type Receipt struct {
	// Rows that reached the destination, were superseded by a later row of the
	// same key in the same epoch, skipped by the sink (the window), set aside (P6):
	// together [EpochEnd.Rows]. What the source skipped is not the sink's to count.
	Applied    int64
	Superseded int64
	Skipped    int64
	SetAside   int64
	Bytes      int64
	// Members are Applied, Superseded, Skipped, SetAside and Policies by resource,
	// for a change stream; they add up to the receipt's.
	Members map[string]Totals
	// CRC is chained over the batches at the write boundary.
	CRC uint32
	// ReadBack is the digest read back from the destination, with Verified true
	// when it was compared (P9). So that it can be compared with the source's, a
	// sink adds for each row that is not there as it was read (superseded, skipped,
	// set aside, changed by a value policy) that row's digest as it was read.
	ReadBack integrity.Digest
	Verified bool
	// Policies counts applied value policies.
	Policies []PolicyCount
	// SetAsideRows are rows for the file that the policy names; the engine writes
	// them before the checkpoint. Rows set aside into a table are not among them.
	SetAsideRows []SetAsideRow
	// Artifacts are staged pieces of a sink that is not transactional.
	Artifacts []Artifact
	// AlreadyDone is true when Publish found itself done before; Published are
	// then, where the sink kept them, the Totals of the publication that was done:
	// a State that was set back may have others by now.
	AlreadyDone bool
	Published   *Totals
	// Statements are DDL statements that ran.
	Statements []string
}

// PolicyCount counts applications of a value policy.
type PolicyCount struct {
	Column string `json:"column"`
	Policy Policy `json:"policy"`
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
}

// SetAsideRow is a row that did not fit.
type SetAsideRow struct {
	Column string `json:"column"`
	// Key is the row's key as "id=3"; empty for a keyless resource.
	Key    string `json:"key,omitempty"`
	Reason string `json:"reason"`
	// Values are the row's original values by source column, as a JSON object.
	Values json.RawMessage `json:"values"`
}

// Artifact is a staged piece: an object or file not yet published.
type Artifact struct {
	Name   string           `json:"name"`
	Split  string           `json:"split"`
	Epoch  int64            `json:"epoch"`
	Claim  int64            `json:"claim"`
	Rows   int64            `json:"rows"`
	Bytes  int64            `json:"bytes"`
	Digest integrity.Digest `json:"digest"`
	// Checksum is the transport's checksum of the encoded bytes.
	Checksum string `json:"checksum,omitempty"`
}

// Publication asks a sink to make a resource visible.
type Publication struct {
	Target *Target
	// Split and Claim are the publish split's: it is fenced like any other (P8).
	Split string
	Claim int64
	// Splits are the read splits that must be done in the ledger.
	Splits []string
	// Totals are the sums over the resource's splits.
	Totals Totals
	// Stream, for a member of a change stream whose rows were read by this run, is how
	// far the stream must be applied: ErrLedgerBehind if the ledger has less.
	Stream *StreamPoint
	// Artifacts are all registered artifacts of the run, in no order.
	Artifacts []Artifact
	// From is the plan's (see [ResourcePlan]). A sink without fence compares an
	// incremental plan's with the stored cursor (ErrPlanVoid).
	From json.RawMessage
	// Cursor is stored beside the fence, in the publish's transaction.
	Cursor json.RawMessage
	// Seen goes with the cursor when the sink has no ledger.
	Seen []RowID
	// ActivityAt is the run's start, for lineage and manifests.
	ActivityAt time.Time
}

// StreamPoint is an epoch of a run's change stream.
type StreamPoint struct {
	Target *Target
	Split  string
	Epoch  int64
}

// Totals are sums over splits, from ledger or State.
type Totals struct {
	Read       int64            `json:"rows_read"`
	Applied    int64            `json:"rows_applied"`
	Superseded int64            `json:"rows_superseded"`
	Skipped    int64            `json:"rows_skipped"`
	SetAside   int64            `json:"rows_set_aside"`
	Bytes      int64            `json:"bytes"`
	Digest     integrity.Digest `json:"digest"`
	// ReadBack is the sum of read-back digests, if the run verifies.
	ReadBack integrity.Digest `json:"read_back,omitzero"`
	Policies []PolicyCount    `json:"policies,omitempty"`
	// Members are the parts of a change stream's sums by resource.
	Members map[string]Totals `json:"members,omitempty"`
}

// Add adds another sum.
func (t *Totals) Add(o Totals) {
	t.Read += o.Read
	t.Applied += o.Applied
	t.Superseded += o.Superseded
	t.Skipped += o.Skipped
	t.SetAside += o.SetAside
	t.Bytes += o.Bytes
	t.Digest.Add(o.Digest)
	t.ReadBack.Add(o.ReadBack)
	t.AddPolicies(o.Policies)
	t.addMembers(o.Members, (*Totals).Add)
}

// addMembers adds or takes away the parts by resource; maps are never shared
// between sums.
func (t *Totals) addMembers(parts map[string]Totals, add func(*Totals, Totals)) {
	if len(parts) == 0 {
		return
	}
	members := make(map[string]Totals, len(t.Members)+len(parts))
	maps.Copy(members, t.Members)
	for name, part := range parts {
		m := members[name]
		m.Policies = slices.Clone(m.Policies)
		add(&m, part)
		members[name] = m
	}
	t.Members = members
}

// Sub takes a sum away that was added before.
func (t *Totals) Sub(o Totals) {
	t.Read -= o.Read
	t.Applied -= o.Applied
	t.Superseded -= o.Superseded
	t.Skipped -= o.Skipped
	t.SetAside -= o.SetAside
	t.Bytes -= o.Bytes
	t.Digest.Sub(o.Digest)
	t.ReadBack.Sub(o.ReadBack)
	less := make([]PolicyCount, len(o.Policies))
	for i, p := range o.Policies {
		p.Count = -p.Count
		less[i] = p
	}
	t.AddPolicies(less)
	t.addMembers(o.Members, (*Totals).Sub)
}

// AddPolicies adds counts of value policies by column, policy and reason.
func (t *Totals) AddPolicies(counts []PolicyCount) {
next:
	for _, c := range counts {
		for i := range t.Policies {
			p := &t.Policies[i]
			if p.Column == c.Column && p.Policy == c.Policy && p.Reason == c.Reason {
				p.Count += c.Count
				continue next
			}
		}
		t.Policies = append(t.Policies, c)
	}
}

// PublishSplit is the id of a resource's publish split.
func PublishSplit(resource string) string { return resource + "#publish" }

// Optional capabilities of sink sessions.

// Fencer is a transactional sink: it keeps fence and ledger beside the data.
type Fencer interface {
	// BeginRun raises the ordinal in the fence row of each target, alone in a
	// transaction (P1, P2), making the row if needed; it waits for epochs of
	// older runs, terminating their sessions if they hold on (P5). It drops the
	// staging of superseded runs of the same route. An ordinal found at or above
	// ours gives *StaleError, unless it is this very run. A run that it would
	// supersede while rows that it appended stand gives ErrUnfinished.
	BeginRun(ctx context.Context, targets []*Target) error
	// Freeze writes a ledger row for each split of the plan and one for the
	// publish split (PublishSplit(resource)), and the plan itself so that another
	// State can adopt it. Rows of the run and resource that are not in the plan
	// (an earlier generation's, or of a plan that was never saved) are deleted;
	// rows that are there stay as they are, so it is idempotent. An incremental
	// plan whose From is not the cursor beside the fence gives ErrPlanVoid. Another plan than the
	// frozen one, of the same or an earlier generation, gives *StaleError
	// ("generation") once a split was claimed: its caller lost the run.
	//
	// A member of a change stream that has read splits loses its cursor with the
	// freeze: from now on its changes are kept apart until it is published, so that a
	// run that supersedes this one must not take the rows that are there as current.
	// Plans of changes are compared with the cursor only when they are frozen first.
	Freeze(ctx context.Context, t *Target, plan *ResourcePlan) error
	// Claim raises the split's claim in the ledger, alone in a transaction, then
	// reads the row. A claim found at or above ours by another owner gives *StaleError.
	// Claiming again with the same number by the same owner returns the row. The
	// caller compares the row's descriptor with its own plan's: until the first
	// claim, a process that had lost the run could freeze another plan.
	Claim(ctx context.Context, t *Target, split string, claim int64) (*LedgerEntry, error)
}

// LedgerEntry is the destination's word on how far a split is applied (P3).
type LedgerEntry struct {
	Split string `json:"split"`
	// Descriptor is the split's in the frozen plan; nil for a publish split.
	Descriptor json.RawMessage `json:"descriptor,omitempty"`
	Claim      int64           `json:"claim"`
	Epoch      int64           `json:"epoch"`
	Position   Position        `json:"position"`
	Done       bool            `json:"done"`
	Totals     Totals          `json:"totals"`
}

// Adopter lets a State that does not remember a route find it at the destination (P1).
type Adopter interface {
	// Adopt returns what the destination knows of routes with this pipeline,
	// source and sink, whatever their installation.
	Adopt(ctx context.Context, r Route) ([]Adoption, error)
}

// Adoption is a route as the destination knows it.
type Adoption struct {
	Installation string
	RunID        string
	Ordinal      int64
	Resources    []AdoptedResource
}

// AdoptedResource is a resource of an adopted route.
type AdoptedResource struct {
	Resource string
	// Cursor is what the last published run stored.
	Cursor json.RawMessage
	Seen   []RowID
	// RunID and Ordinal are the resource's last run; Published says whether it
	// was published. Plan and Ledger are its frozen plan and progress.
	RunID     string
	Ordinal   int64
	Published bool
	Plan      *ResourcePlan
	Ledger    []LedgerEntry
}
