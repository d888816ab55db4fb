package pipelines

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/connections"
)

// Pipeline is a pipeline with its current version.
type Pipeline struct {
	ID uuid.UUID `json:"id"`
	// Name is unique in the organization while the pipeline is not deleted.
	Name        string `json:"name"`
	Description string `json:"description"`
	// Paused pipelines begin no runs.
	Paused bool `json:"paused"`
	// Version is that of this object: it grows with every change, pauses included.
	Version int64 `json:"version"`
	// Current is the newest version of the graph.
	Current   Version   `json:"current"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Version is an immutable version of a pipeline.
type Version struct {
	// Number counts a pipeline's versions from 1.
	Number int64 `json:"number"`
	// Hash identifies what the version means: that of its route's document (see
	// pipeline.Document.Hash), or of several routes' together.
	Hash      string    `json:"hash"`
	Graph     Graph     `json:"graph"`
	Routes    []Route   `json:"routes"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
}

// Route is a pair of a source and a sink of a version; each run executes one.
type Route struct {
	// Key is "<source node>-><sink node>".
	Key  string `json:"key"`
	From string `json:"from"`
	To   string `json:"to"`
	// Name is what the engine and destinations remember the route by: it is the
	// route's for as long as the pipeline lives, whatever its versions are.
	Name string `json:"name"`
	// Hash is that of the route's document when the version was made.
	Hash string `json:"hash"`
}

// Draft is what a caller wants a pipeline to be.
type Draft struct {
	Name        string
	Description string
	Graph       Graph
}

// Change is one write of a pipeline.
type Change struct {
	ID          uuid.UUID
	Name        string
	Description string
	Graph       Graph
	Hash        string
	// Routes have no names yet: the store gives each the one that it had, or else
	// the first of its Names that no other route of the organization has.
	Routes []Wanted
	// Uses are the connections of the graph's nodes.
	Uses []uuid.UUID
}

// Wanted is a route that wants a name.
type Wanted struct {
	Route
	Names []string
}

// Filter chooses pipelines; empty fields choose all.
type Filter struct {
	Name string
	// Connection: those whose current version uses it.
	Connection uuid.UUID
}

// Applied is a pipeline file as it is stored: everything in one transaction.
type Applied struct {
	// Connections are made, or updated where Version is not 0; Secrets only store
	// values of a connection's own secrets that is left as it is.
	Connections []ConnectionChange
	// Pipeline is made if Version is 0, updated if it is not, and nil if nothing of
	// it changes.
	Pipeline *Change
	Version  int64
}

// ConnectionChange is one connection of a file.
type ConnectionChange struct {
	connections.Change
	// Version is what must stand; 0: nothing.
	Version int64
	// SecretsOnly leaves the connection as it is and stores its secrets.
	SecretsOnly bool
}

// Store keeps pipelines. Its writes are one transaction each, with their audit
// entry.
type Store interface {
	// CreatePipeline stores a new pipeline with its first version.
	// *control.ConflictError ("name_taken") if a live one has its name;
	// *control.InvalidError if a connection is not there any more.
	CreatePipeline(ctx context.Context, a control.Actor, c Change) (Pipeline, error)
	// UpdatePipeline stores a changed pipeline whose version is still the given one,
	// else *control.StaleVersionError; another graph makes the next version.
	UpdatePipeline(ctx context.Context, a control.Actor, version int64, c Change) (Pipeline, error)
	// Apply stores a file's connections and pipeline.
	Apply(ctx context.Context, a control.Actor, x Applied) error
	// SetPaused pauses a pipeline or ends its pause; it is no error if it is so.
	SetPaused(ctx context.Context, a control.Actor, id uuid.UUID, paused bool) (Pipeline, error)
	// DeletePipeline ends a pipeline and its routes' names; its rows stay. Version 0
	// means whatever it is. *control.ConflictError ("in_use") while a run is open.
	DeletePipeline(ctx context.Context, a control.Actor, id uuid.UUID, version int64) error
	// Pipeline finds a live pipeline by id or name; *control.NotFoundError.
	Pipeline(ctx context.Context, organization uuid.UUID, ref string) (Pipeline, error)
	// Pipelines lists live pipelines by name.
	Pipelines(ctx context.Context, organization uuid.UUID, f Filter, p control.Page) (control.List[Pipeline], error)
	// PipelineVersion returns one version; *control.NotFoundError.
	PipelineVersion(ctx context.Context, organization, id uuid.UUID, number int64) (Version, error)
	// PipelineVersions lists versions, the newest first.
	PipelineVersions(ctx context.Context, organization, id uuid.UUID, p control.Page) (control.List[Version], error)
}

// Connections is what pipelines need to know of connections.
type Connections interface {
	// Connection finds a live connection by id or name; *control.NotFoundError.
	Connection(ctx context.Context, organization uuid.UUID, ref string) (connections.Connection, error)
}
