package pipeline

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tranship-io/tranship/engine"
)

// FormatVersion is the version of the document format that this build reads.
const FormatVersion = 1

// Document is one pipeline.
type Document struct {
	// Format is the format's version, the key "version".
	Format    int        `json:"version" jsonschema:"required,enum=1" jsonschema_description:"Version of the file format: 1."`
	Name      string     `json:"name" jsonschema:"required" jsonschema_description:"Name of the pipeline. With the identities of source and sink it is what runs, cursors and the destination's ledger are remembered by: renaming a pipeline starts a new history."`
	Source    Endpoint   `json:"source" jsonschema:"required" jsonschema_description:"Where rows are read: the key connector and that connector's own keys."`
	Sink      Endpoint   `json:"sink" jsonschema:"required" jsonschema_description:"Where rows are written: the key connector and that connector's own keys."`
	Defaults  Defaults   `json:"defaults,omitzero" jsonschema_description:"What holds for every resource that does not say otherwise."`
	Resources []Resource `json:"resources" jsonschema:"required" jsonschema_description:"What is replicated, one entry a resource or pattern."`
	Settings  Settings   `json:"settings,omitzero" jsonschema_description:"How the pipeline runs."`
	Service   Service    `json:"service,omitzero" jsonschema_description:"How tranship serve executes the pipeline's runs; tranship run takes no notice of it."`

	hash    string
	secrets []string
	// replaced is true once a reference was replaced from the environment.
	replaced bool
}

// Hash identifies what the document means: a SHA-256 over its content before
// references are replaced, so that no secret is in it, without comments,
// formatting and order of keys, and without the settings that only say how fast
// and within which bounds it runs (slots, memory, attempt_time, split_size,
// epoch_size, retry, connect_timeout) or how a service executes it. An unfinished run goes on only under the same hash.
func (d *Document) Hash() string { return d.hash }

// Secrets are texts that must not appear in any output: values of fields that
// connectors declare secret, passwords within connection strings, and values of
// environment variables that are named like secrets.
func (d *Document) Secrets() []string { return d.secrets }

// Endpoint is a source or a sink.
type Endpoint struct {
	Connector string
	// Config is the connector's configuration as written, references in place.
	Config json.RawMessage

	resolved engine.Config
}

// Resolved is the configuration with references replaced; it holds secrets.
func (e Endpoint) Resolved() engine.Config {
	if e.resolved != nil {
		return e.resolved
	}
	return engine.Config(e.Config)
}

// MarshalJSON writes connector and configuration side by side, as the document does.
func (e Endpoint) MarshalJSON() ([]byte, error) {
	name, err := json.Marshal(e.Connector)
	if err != nil {
		return nil, fmt.Errorf("encode connector name: %w", err)
	}
	out := append([]byte(`{"connector":`), name...)
	if len(e.Config) > 2 {
		out = append(append(out, ','), e.Config[1:]...)
		return out, nil
	}
	return append(out, '}'), nil
}

// Defaults hold for every resource that does not say otherwise.
type Defaults struct {
	Read     engine.ReadMode  `json:"read,omitempty" jsonschema:"enum=full,enum=incremental,enum=cdc,default=full" jsonschema_description:"Read mode of resources: full, incremental or cdc."`
	Write    engine.WriteMode `json:"write,omitempty" jsonschema:"enum=replace,enum=append,enum=upsert,enum=delete,enum=merge" jsonschema_description:"Write mode of resources. Without it a full read replaces; an incremental read upserts where the sink can, and appends elsewhere; changes are merged."`
	Lookback Duration         `json:"lookback,omitzero" jsonschema_description:"Lookback of incremental resources."`
	Policies *Policies        `json:"policies,omitempty" jsonschema_description:"Value policies of resources that have none of their own."`
	SetAside string           `json:"set_aside,omitempty" jsonschema_description:"Place of rows set aside."`
}

// Resource is one entry of the list: a resource by name, or a pattern.
type Resource struct {
	Name     string           `json:"name,omitempty" jsonschema_description:"Name of the resource, such as public.orders; with * or ? it is a pattern, such as public.*, that stands for every resource it matches. A part that holds a dot is quoted: \"s.t\".\"a.b\"."`
	Pattern  string           `json:"pattern,omitempty" jsonschema_description:"The same as a name with * or ?."`
	Exclude  []string         `json:"exclude,omitempty" jsonschema_description:"Names or patterns that the pattern does not stand for."`
	Views    bool             `json:"views,omitempty" jsonschema:"default=false" jsonschema_description:"Whether the pattern also stands for views; a view by its name needs no leave."`
	Read     engine.ReadMode  `json:"read,omitempty" jsonschema:"enum=full,enum=incremental,enum=cdc" jsonschema_description:"full reads all rows in every run; incremental reads those that are new or changed by the cursor column; cdc reads all rows once and from then on every change from the source's log."`
	Write    engine.WriteMode `json:"write,omitempty" jsonschema:"enum=replace,enum=append,enum=upsert,enum=delete,enum=merge" jsonschema_description:"replace swaps the whole content at the end of the run; append adds rows; upsert adds or overwrites by key; delete removes by key; merge keeps the table as the source's is by applying its changes by key. Changes (read: cdc) are merged, or appended as a log of changes."`
	Initial  engine.Initial   `json:"initial,omitempty" jsonschema:"enum=aligned,enum=none,default=aligned" jsonschema_description:"What changes (read: cdc) begin with: aligned reads all rows once, while the changes are followed; none begins with the changes from now on and leaves rows that exist as they are at the destination."`
	Cursor   string           `json:"cursor,omitempty" jsonschema_description:"Column that grows with every change; needed by incremental reads. tranship inspect ranks the candidates."`
	Lookback Duration         `json:"lookback,omitzero" jsonschema_description:"How far before the last run's mark the next run reads again, for rows that become visible late beyond what the source can see by itself."`
	Key      []string         `json:"key,omitempty" jsonschema_description:"Columns that identify a row. Without it the source's own key is used."`
	Columns  *Columns         `json:"columns,omitempty" jsonschema_description:"Which columns are replicated; all without it."`
	Where    string           `json:"where,omitempty" jsonschema_description:"Filter in the source's own language: for PostgreSQL an SQL condition."`
	Target   string           `json:"target,omitempty" jsonschema_description:"Name at the destination; without it the sink derives one from the resource's name."`
	Policies *Policies        `json:"policies,omitempty" jsonschema_description:"What happens to values that do not fit; without it the run fails and names the value."`
	SetAside string           `json:"set_aside,omitempty" jsonschema_description:"Where rows set aside go: table:<schema>.<name> at the destination, or file:<path> for a JSONL file."`
	Options  json.RawMessage  `json:"options,omitempty" jsonschema:"type=object" jsonschema_description:"The sink's own options for this resource."`
}

// Ref returns the entry's name or pattern.
func (r Resource) Ref() string {
	if r.Name != "" {
		return r.Name
	}
	return r.Pattern
}

// IsPattern tells whether the entry stands for what it matches.
func (r Resource) IsPattern() bool { return r.Pattern != "" || hasWildcard(r.Name) }

// Columns choose columns.
type Columns struct {
	Include []string `json:"include,omitempty" jsonschema_description:"Only these columns, in the source's order."`
	Exclude []string `json:"exclude,omitempty" jsonschema_description:"All columns but these."`
}

// Policies say what happens to values that do not fit (invariant 6).
type Policies struct {
	Default engine.Policy            `json:"default,omitempty" jsonschema:"enum=fail,enum=null,enum=clamp,enum=text,enum=set_aside,default=fail" jsonschema_description:"Policy of columns that are not listed: fail stops the run and names the value; null writes NULL; clamp writes the nearest value that fits; text stores the column as text; set_aside keeps the row out and writes it to set_aside. Each application is counted in the receipt."`
	Columns map[string]engine.Policy `json:"columns,omitempty" jsonschema:"enum=fail,enum=null,enum=clamp,enum=text,enum=set_aside" jsonschema_description:"Policy by column."`
}

// Settings say how a pipeline runs. The zero value of each field means its default.
type Settings struct {
	Slots          int                 `json:"slots,omitempty" jsonschema:"minimum=1,maximum=256,default=2" jsonschema_description:"How many pieces are read and written at once; each takes a connection to the source and one to the sink."`
	Memory         Size                `json:"memory,omitempty" jsonschema_description:"Bound of the memory of the process: rows in flight share one budget within it, and reading waits when it is full. Default 256MiB, at least 32MiB."`
	Consistency    engine.Consistency  `json:"consistency,omitempty" jsonschema:"enum=snapshot,enum=chunked" jsonschema_description:"snapshot reads everything of a resource in one snapshot of the source, which must be held open as long as the read lasts; chunked reads ranges of a key that does not change, each in a transaction of its own. Without it the source chooses: chunked where there is a key, snapshot elsewhere."`
	Verify         engine.Verify       `json:"verify,omitempty" jsonschema:"enum=counts,enum=digest,default=counts" jsonschema_description:"counts compares checksums in flight, row counts and the destination's ledger; digest also reads the destination back and compares its content. A mismatch fails the run."`
	AttemptTime    Duration            `json:"attempt_time,omitzero" jsonschema_description:"Longest life of one attempt; at its end the run stops at a safe position, and the next attempt goes on. Without it attempts have no bound."`
	ConnectTimeout Duration            `json:"connect_timeout,omitzero" jsonschema_description:"How long connecting is tried before the run gives up. Default 60s."`
	SplitSize      Size                `json:"split_size,omitempty" jsonschema_description:"Wished size of a piece that is read at a time by one slot. Without it the source chooses."`
	EpochSize      Size                `json:"epoch_size,omitempty" jsonschema_description:"Size of the rows that one destination transaction applies, up to the next safe position. Without it the sink chooses."`
	SchemaPolicy   engine.SchemaPolicy `json:"schema_policy,omitempty" jsonschema:"enum=evolve,enum=freeze,default=evolve" jsonschema_description:"evolve adds columns and widens types at the destination, and refuses the rest with the statement that would do it; freeze refuses every change of a table that exists."`
	Lineage        bool                `json:"lineage,omitempty" jsonschema:"default=false" jsonschema_description:"Whether rows carry _tranship_run_id and _tranship_loaded_at."`
	Changes        Changes             `json:"changes,omitzero" jsonschema_description:"How changes are followed (read: cdc)."`
	Retry          Retry               `json:"retry,omitzero" jsonschema_description:"What happens after an error that may pass: a lost connection, a deadlock, throttling."`
}

// Changes say how change streams are followed.
type Changes struct {
	OnLost engine.OnLost `json:"on_lost,omitempty" jsonschema:"enum=fail,enum=resync,default=fail" jsonschema_description:"What happens when the source has no changes any more from where the stream stands, because its slot was dropped or invalidated: fail ends the run and says what was lost; resync reads all its resources again."`
}

// Retry bounds how long something that may pass is tried again. Waits grow from
// a quarter of a second to ten seconds, with jitter.
type Retry struct {
	Attempts int      `json:"attempts,omitempty" jsonschema:"minimum=1,maximum=1000,default=4" jsonschema_description:"How often in a row the same step is tried at least before the run fails; it can be resumed then."`
	GiveUp   Duration `json:"give_up,omitzero" jsonschema_description:"How long the same step is tried at least, without any progress, before the run fails. Default 60s."`
}

// Service says how the control plane executes runs. The zero value of each field
// means its default.
type Service struct {
	Compute         string   `json:"compute,omitempty" jsonschema:"enum=auto,enum=process,enum=lambda,enum=fargate,default=auto" jsonschema_description:"Where attempts run: process is the process of tranship serve; lambda and fargate are for an installation on AWS; auto chooses by size, age and memory."`
	Retries         Retries  `json:"retries,omitzero" jsonschema_description:"What happens after a failed attempt of a run. An interruption, such as a lost worker, is no failed attempt."`
	TimeLimit       Duration `json:"time_limit,omitzero" jsonschema_description:"How long a run may take, all attempts and waits together, before it fails; it can be resumed then. Without it there is no limit."`
	NoProgressLimit Duration `json:"no_progress_limit,omitzero" jsonschema_description:"How long a run may go without storing any progress before it fails; it can be resumed then. Without it there is no limit."`
	ExpectedEvery   Duration `json:"expected_every,omitzero" jsonschema_description:"How old the last success may grow before the pipeline counts as stale. Without it there is no expectation."`
}

// Retries bound the attempts of a run that fail with an error that may pass.
type Retries struct {
	Attempts   int      `json:"attempts,omitempty" jsonschema:"minimum=1,maximum=100,default=3" jsonschema_description:"How many attempts of a run may fail before the run does; it can be resumed then."`
	Backoff    Duration `json:"backoff,omitzero" jsonschema_description:"Wait after the first failed attempt; it doubles with each further one, with jitter. Default 10s."`
	MaxBackoff Duration `json:"max_backoff,omitzero" jsonschema_description:"Longest wait between attempts. Default 10m."`
}

// EnginePolicies merges a resource's policies with the defaults.
func (d *Document) EnginePolicies(r Resource) engine.Policies {
	p := r.Policies
	if p == nil {
		p = d.Defaults.Policies
	}
	var out engine.Policies
	if p != nil {
		out.Default, out.Columns = p.Default, p.Columns
	}
	out.SetAside = r.SetAside
	if out.SetAside == "" {
		out.SetAside = d.Defaults.SetAside
	}
	return out
}

// ReadsChanges tells whether any resource is read as changes.
func (d *Document) ReadsChanges() bool {
	return slices.ContainsFunc(d.Resources, func(r Resource) bool {
		read, _ := d.Modes(r, nil)
		return read == engine.ReadCDC
	})
}
