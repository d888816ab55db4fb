package connections

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/secrets"
	"github.com/tranship-io/tranship/engine"
)

// Role says which end of a pipeline a connection can be.
type Role string

// The roles.
const (
	Source Role = "source"
	Sink   Role = "sink"
)

// Connection is the configuration of one source or sink.
type Connection struct {
	ID uuid.UUID `json:"id"`
	// Name is unique in the organization while the connection is not deleted.
	Name      string `json:"name"`
	Role      Role   `json:"role"`
	Connector string `json:"connector"`
	// Config is the connector's configuration without its secret fields.
	Config json.RawMessage `json:"config"`
	// Secrets has the secret fields by their path in the configuration, such as
	// "url" and "ssh.password".
	Secrets map[string]Secret `json:"secrets"`
	// Version grows with every change; each is kept.
	Version   int64     `json:"version"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// OwnSecret is the name of a connection's own secret for a path.
func OwnSecret(connection uuid.UUID, path string) string { return connection.String() + "." + path }

// Secret is a secret field of a connection.
type Secret struct {
	Ref secrets.Ref `json:"ref"`
	// Variable is the name of the environment variable by which a pipeline file
	// refers to the secret; exports write it as ${NAME}.
	Variable string `json:"variable"`
}

// Version is a connection as it was.
type Version struct {
	Version   int64             `json:"version"`
	Name      string            `json:"name"`
	Config    json.RawMessage   `json:"config"`
	Secrets   map[string]Secret `json:"secrets"`
	CreatedAt time.Time         `json:"created_at"`
	CreatedBy string            `json:"created_by"`
}

// Draft is what a caller wants a connection to be.
type Draft struct {
	Name      string
	Role      Role
	Connector string
	Config    json.RawMessage
	// Secrets are references by path.
	Secrets map[string]secrets.Ref
	// Values are secrets by path that are to be stored with the provider local, as
	// the connection's own: they end with it.
	Values map[string]string
	// Variables name environment variables by path; without one a name is made.
	Variables map[string]string
}

// Filter chooses connections; empty fields choose all.
type Filter struct {
	Role      Role
	Connector string
	Name      string
}

// Change is one write of a connection, with the values of its own secrets.
type Change struct {
	Connection Connection
	// Own are secrets to store first, in the place of older values of their names.
	Own []secrets.Sealed
}

// Catalog knows the connectors.
type Catalog interface {
	SourceSpecs() []engine.Spec
	SinkSpecs() []engine.Spec
}

// Store keeps connections. Its writes are one transaction each, with their audit
// entry.
type Store interface {
	// CreateConnection stores a new connection as version 1. *control.ConflictError
	// ("name_taken") if a live one has its name; *control.InvalidError if a local
	// secret that it refers to is not there.
	CreateConnection(ctx context.Context, a control.Actor, c Change) (Connection, error)
	// UpdateConnection replaces a connection whose version is still the given one;
	// else *control.StaleVersionError.
	UpdateConnection(ctx context.Context, a control.Actor, version int64, c Change) (Connection, error)
	// DeleteConnection ends a connection and its own secrets; its row stays.
	// *control.ConflictError ("in_use") while a pipeline's current version has it.
	DeleteConnection(ctx context.Context, a control.Actor, id uuid.UUID, version int64) error
	// Connection finds a live connection by id or name; *control.NotFoundError.
	Connection(ctx context.Context, organization uuid.UUID, ref string) (Connection, error)
	// Connections lists live connections by their name.
	Connections(ctx context.Context, organization uuid.UUID, f Filter, p control.Page) (control.List[Connection], error)
	// ConnectionVersions lists a connection's versions, the newest first.
	ConnectionVersions(ctx context.Context, organization, id uuid.UUID, p control.Page) (control.List[Version], error)
}
