package connections

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/secrets"
)

// Service is the connections of all organizations.
type Service struct {
	Store   Store
	Catalog Catalog
	// Keyring seals values given with a draft.
	Keyring secrets.Keyring
	// Providers are the names of the providers that references may have.
	Providers []string
}

// Create makes a connection.
func (s *Service) Create(ctx context.Context, a control.Actor, d Draft) (Connection, error) {
	if err := control.Authorize(a, control.WriteConnections); err != nil {
		return Connection{}, err
	}
	c, err := s.Prepare(ctx, a, d, nil)
	if err != nil {
		return Connection{}, err
	}
	return s.Store.CreateConnection(ctx, a, c)
}

// Update replaces a connection whose version is still the given one. Secret fields
// that the draft does not mention are ended.
func (s *Service) Update(ctx context.Context, a control.Actor, ref string, version int64, d Draft) (Connection, error) {
	if err := control.Authorize(a, control.WriteConnections); err != nil {
		return Connection{}, err
	}
	have, err := s.Store.Connection(ctx, a.Organization, ref)
	if err != nil {
		return Connection{}, err
	}
	if version != 0 && have.Version != version {
		return Connection{}, &control.StaleVersionError{Kind: "connection", Ref: have.Name, Given: version, Current: have.Version}
	}
	c, err := s.Prepare(ctx, a, d, &have)
	if err != nil {
		return Connection{}, err
	}
	return s.Store.UpdateConnection(ctx, a, version, c)
}

// Prepare checks a draft and makes the change that stores it; have is the
// connection as it is, nil for a new one.
func (s *Service) Prepare(ctx context.Context, a control.Actor, d Draft, have *Connection) (Change, error) {
	if p := Check(s.Catalog, s.Providers, d, have); len(p) > 0 {
		return Change{}, &control.InvalidError{Problems: p}
	}
	var out Change
	tree, err := readTree(d.Config)
	if err != nil {
		return out, err
	}
	config, err := json.Marshal(tree)
	if err != nil {
		return out, fmt.Errorf("write configuration: %w", err)
	}
	out.Connection = Connection{Name: d.Name, Role: d.Role, Connector: d.Connector, Config: config, Secrets: map[string]Secret{}}
	if have != nil {
		out.Connection.ID = have.ID
	} else if out.Connection.ID, err = uuid.NewV7(); err != nil {
		return out, fmt.Errorf("make id: %w", err)
	}
	add := func(path string, ref secrets.Ref) {
		variable := d.Variables[path]
		if variable == "" && have != nil {
			variable = have.Secrets[path].Variable
		}
		if variable == "" {
			variable = variableOf(d.Name, path)
		}
		out.Connection.Secrets[path] = Secret{Ref: ref, Variable: variable}
	}
	for path, ref := range d.Secrets {
		add(path, ref)
	}
	for _, path := range slices.Sorted(maps.Keys(d.Values)) {
		sealed, err := secrets.Seal(ctx, s.Keyring, a.Organization, OwnSecret(out.Connection.ID, path), d.Values[path])
		if err != nil {
			return out, err
		}
		out.Own = append(out.Own, sealed)
		add(path, sealed.Ref())
	}
	return out, nil
}

// Delete ends a connection; version 0 means whatever it is.
func (s *Service) Delete(ctx context.Context, a control.Actor, ref string, version int64) error {
	if err := control.Authorize(a, control.WriteConnections); err != nil {
		return err
	}
	have, err := s.Store.Connection(ctx, a.Organization, ref)
	if err != nil {
		return err
	}
	return s.Store.DeleteConnection(ctx, a, have.ID, version)
}

// Get returns a connection by id or name.
func (s *Service) Get(ctx context.Context, a control.Actor, ref string) (Connection, error) {
	if err := control.Authorize(a, control.ReadConnections); err != nil {
		return Connection{}, err
	}
	return s.Store.Connection(ctx, a.Organization, ref)
}

// List returns connections by name.
func (s *Service) List(ctx context.Context, a control.Actor, f Filter, p control.Page) (control.List[Connection], error) {
	if err := control.Authorize(a, control.ReadConnections); err != nil {
		return control.List[Connection]{}, err
	}
	return s.Store.Connections(ctx, a.Organization, f, p)
}

// Versions returns a connection's versions, the newest first.
func (s *Service) Versions(ctx context.Context, a control.Actor, ref string, p control.Page) (control.List[Version], error) {
	if err := control.Authorize(a, control.ReadConnections); err != nil {
		return control.List[Version]{}, err
	}
	c, err := s.Store.Connection(ctx, a.Organization, ref)
	if err != nil {
		return control.List[Version]{}, err
	}
	return s.Store.ConnectionVersions(ctx, a.Organization, c.ID, p)
}
