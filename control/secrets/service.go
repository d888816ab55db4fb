package secrets

import (
	"context"
	"regexp"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
)

// Secret is what is told of a secret of the provider local.
type Secret struct {
	Name string `json:"name"`
	// Version grows with every value.
	Version   int64     `json:"version"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// AnyVersion in the place of a version means whatever stands, or nothing.
const AnyVersion int64 = -1

// Store keeps sealed secrets. Its writes for actors are one transaction each, with
// their audit entry, in which no value is.
type Store interface {
	// PutSecret stores a value; version is what must stand: 0 nothing, [AnyVersion]
	// anything. *control.StaleVersionError otherwise.
	PutSecret(ctx context.Context, a control.Actor, s Sealed, version int64) (Secret, error)
	// DeleteSecret forgets a secret; *control.ConflictError ("in_use") while
	// something refers to it.
	DeleteSecret(ctx context.Context, a control.Actor, name string, version int64) error
	// Secret returns what is told of one; *control.NotFoundError.
	Secret(ctx context.Context, organization uuid.UUID, name string) (Secret, error)
	// Secrets lists them by name.
	Secrets(ctx context.Context, organization uuid.UUID, p control.Page) (control.List[Secret], error)
	// SealedSecret returns one as stored; *control.NotFoundError.
	SealedSecret(ctx context.Context, organization uuid.UUID, name string) (Sealed, error)
	// SecretsNotUnder returns up to limit secrets of all organizations that are not
	// wrapped by the named master key.
	SecretsNotUnder(ctx context.Context, key string, limit int) ([]Sealed, error)
	// RewrapSecret stores another wrapping of a value that still has key before.
	RewrapSecret(ctx context.Context, s Sealed, before string) error
}

// Service is the secrets of the provider local, as their owners see them: values
// go in and never come out.
type Service struct {
	Store   Store
	Keyring Keyring
}

// NamePattern is the form of names of secrets.
var NamePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,191}$`)

// MaxValue is the greatest size of a secret in bytes: enough for keys and
// certificates.
const MaxValue = 64 << 10

// Put stores a value under a name; version as [Store.PutSecret] has it.
func (s *Service) Put(ctx context.Context, a control.Actor, name, value string, version int64) (Secret, error) {
	if err := control.Authorize(a, control.WriteConnections); err != nil {
		return Secret{}, err
	}
	if !NamePattern.MatchString(name) {
		return Secret{}, control.Invalid("name", "use up to 192 letters, digits, dots, dashes and underscores, and begin with a letter or digit", "this is not a name of a secret")
	}
	if value == "" || len(value) > MaxValue {
		return Secret{}, control.Invalid("value", "", "a secret has 1 to %d bytes", MaxValue)
	}
	sealed, err := Seal(ctx, s.Keyring, a.Organization, name, value)
	if err != nil {
		return Secret{}, err
	}
	return s.Store.PutSecret(ctx, a, sealed, version)
}

// Delete forgets a secret to which nothing refers.
func (s *Service) Delete(ctx context.Context, a control.Actor, name string, version int64) error {
	if err := control.Authorize(a, control.WriteConnections); err != nil {
		return err
	}
	return s.Store.DeleteSecret(ctx, a, name, version)
}

// Get returns what is told of a secret.
func (s *Service) Get(ctx context.Context, a control.Actor, name string) (Secret, error) {
	if err := control.Authorize(a, control.ReadConnections); err != nil {
		return Secret{}, err
	}
	return s.Store.Secret(ctx, a.Organization, name)
}

// List returns secrets by name.
func (s *Service) List(ctx context.Context, a control.Actor, p control.Page) (control.List[Secret], error) {
	if err := control.Authorize(a, control.ReadConnections); err != nil {
		return control.List[Secret]{}, err
	}
	return s.Store.Secrets(ctx, a.Organization, p)
}
