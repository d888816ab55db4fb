package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/control/secrets"
	"github.com/tranship-io/tranship/store/internal/db"
)

var _ connections.Store = (*DB)(nil)

// kindConnection is the kind of connections in errors, audit log and idempotency.
const kindConnection = "connection"

// The lists that cursors belong to.
const (
	listConnections        = "connections"
	listConnectionVersions = "connection versions"
)

// CreateConnection implements [connections.Store].
func (d *DB) CreateConnection(ctx context.Context, a control.Actor, c connections.Change) (out connections.Connection, err error) {
	err = d.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		id, first, err := once(ctx, tx, kindConnection, c.Connection.ID)
		if err != nil {
			return err
		}
		if first {
			out, err = createConnection(ctx, tx, a, c)
			return err
		}
		out, err = connectionByID(ctx, tx, id)
		return err
	})
	return out, err
}

func createConnection(ctx context.Context, tx Tx, a control.Actor, c connections.Change) (connections.Connection, error) {
	fields, err := json.Marshal(c.Connection.Secrets)
	if err != nil {
		return connections.Connection{}, fmt.Errorf("write connection: %w", err)
	}
	row, err := tx.Q().InsertConnection(ctx, db.InsertConnectionParams{
		Organization: tx.Organization(), ID: c.Connection.ID, Name: c.Connection.Name, Role: string(c.Connection.Role),
		Connector: c.Connection.Connector, Config: c.Connection.Config, Secrets: fields,
	})
	if err != nil {
		return connections.Connection{}, nameTaken(err, "connections_name", kindConnection, c.Connection.Name)
	}
	return wroteConnection(ctx, tx, a, "connection.create", nil, row, c)
}

// UpdateConnection implements [connections.Store].
func (d *DB) UpdateConnection(ctx context.Context, a control.Actor, version int64, c connections.Change) (out connections.Connection, err error) {
	err = d.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		out, err = updateConnection(ctx, tx, a, version, c)
		return err
	})
	return out, err
}

func updateConnection(ctx context.Context, tx Tx, a control.Actor, version int64, c connections.Change) (connections.Connection, error) {
	before, err := lockConnection(ctx, tx, c.Connection.ID, version)
	if err != nil {
		return connections.Connection{}, err
	}
	fields, err := json.Marshal(c.Connection.Secrets)
	if err != nil {
		return connections.Connection{}, fmt.Errorf("write connection: %w", err)
	}
	row, err := tx.Q().UpdateConnection(ctx, db.UpdateConnectionParams{
		Organization: tx.Organization(), ID: before.ID, Version: before.Version,
		Name: c.Connection.Name, Config: c.Connection.Config, Secrets: fields,
	})
	if err != nil {
		return connections.Connection{}, nameTaken(err, "connections_name", kindConnection, c.Connection.Name)
	}
	return wroteConnection(ctx, tx, a, "connection.update", &before, row, c)
}

// lockConnection locks a live connection whose version is the given one; 0: any.
func lockConnection(ctx context.Context, tx Tx, id uuid.UUID, version int64) (connections.Connection, error) {
	row, err := tx.Q().LockConnection(ctx, db.LockConnectionParams{Organization: tx.Organization(), ID: id})
	if err != nil {
		return connections.Connection{}, notFound(err, kindConnection, id.String())
	}
	if version != 0 && row.Version != version {
		return connections.Connection{}, &control.StaleVersionError{Kind: kindConnection, Ref: row.Name, Given: version, Current: row.Version}
	}
	return connection(row)
}

// wroteConnection writes all that goes with a connection's row.
func wroteConnection(ctx context.Context, tx Tx, a control.Actor, action string, before *connections.Connection, row db.Connection, c connections.Change) (connections.Connection, error) {
	out, err := connection(row)
	if err != nil {
		return out, err
	}
	q, organization := tx.Q(), tx.Organization()
	if err := putOwnSecrets(ctx, tx, out.ID, c.Own); err != nil {
		return out, err
	}
	err = q.InsertConnectionVersion(ctx, db.InsertConnectionVersionParams{Organization: organization, Connection: out.ID,
		Version: row.Version, Name: row.Name, Config: row.Config, Secrets: row.Secrets, CreatedBy: a.Name})
	if err == nil {
		err = q.DeleteConnectionSecrets(ctx, db.DeleteConnectionSecretsParams{Organization: organization, Connection: out.ID})
	}
	if err != nil {
		return out, fmt.Errorf("write connection %q: %w", out.Name, err)
	}
	for _, path := range slices.Sorted(maps.Keys(out.Secrets)) {
		ref := out.Secrets[path].Ref
		if ref.Provider() != secrets.ProviderLocal {
			continue
		}
		err := q.InsertConnectionSecret(ctx, db.InsertConnectionSecretParams{Organization: organization, Connection: out.ID, Path: path, Secret: ref.Name()})
		switch {
		case violates(err, "connection_secrets_secret"):
			return out, control.Invalid("secrets."+path, "store it first", "there is no secret %q", ref.Name())
		case err != nil:
			return out, fmt.Errorf("write secrets of connection %q: %w", out.Name, err)
		}
	}
	if err := q.DeleteOwnSecrets(ctx, db.DeleteOwnSecretsParams{Organization: organization, Owner: &out.ID}); err != nil {
		return out, fmt.Errorf("delete secrets of connection %q: %w", out.Name, err)
	}
	e := control.AuditEntry{Actor: a, Action: action, Kind: kindConnection, Object: out.ID}
	if err := describe(&e, before, &out); err != nil {
		return out, err
	}
	return out, audit(ctx, tx, e)
}

func putOwnSecrets(ctx context.Context, tx Tx, connection uuid.UUID, own []secrets.Sealed) error {
	for _, s := range own {
		err := tx.Q().PutOwnSecret(ctx, db.PutOwnSecretParams{Organization: tx.Organization(), Name: s.Name, ID: s.ID, Owner: &connection,
			Key: s.Key, DataKey: s.DataKey, Value: s.Value})
		if err != nil {
			return fmt.Errorf("store secret %q: %w", s.Name, err)
		}
	}
	return nil
}

// DeleteConnection implements [connections.Store]. The connection is locked before
// its users are looked for; a version that takes it up holds it, or waits and then
// finds it gone.
func (d *DB) DeleteConnection(ctx context.Context, a control.Actor, id uuid.UUID, version int64) error {
	return d.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		before, err := lockConnection(ctx, tx, id, version)
		if err != nil {
			return err
		}
		q := tx.Q()
		users, err := q.ConnectionUsers(ctx, db.ConnectionUsersParams{Organization: tx.Organization(), Connection: id})
		if err != nil {
			return fmt.Errorf("find pipelines of connection %q: %w", before.Name, err)
		}
		if len(users) > 0 {
			return &control.ConflictError{Code: "in_use", Message: fmt.Sprintf("the connection %q is in use by %s", before.Name, strings.Join(users, ", ")),
				Hint: "give these pipelines another connection, or delete them"}
		}
		err = q.DeleteConnection(ctx, db.DeleteConnectionParams{Organization: tx.Organization(), ID: id})
		if err == nil {
			err = q.DeleteConnectionSecrets(ctx, db.DeleteConnectionSecretsParams{Organization: tx.Organization(), Connection: id})
		}
		if err == nil {
			err = q.DeleteOwnSecrets(ctx, db.DeleteOwnSecretsParams{Organization: tx.Organization(), Owner: &id})
		}
		if err != nil {
			return fmt.Errorf("delete connection %q: %w", before.Name, err)
		}
		e := control.AuditEntry{Actor: a, Action: "connection.delete", Kind: kindConnection, Object: id}
		if err := describe(&e, &before, nil); err != nil {
			return err
		}
		return audit(ctx, tx, e)
	})
}

// Connection implements [connections.Store].
func (d *DB) Connection(ctx context.Context, organization uuid.UUID, ref string) (out connections.Connection, err error) {
	err = d.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		if id, bad := uuid.Parse(ref); bad == nil {
			out, err = connectionByID(ctx, tx, id)
			return err
		}
		row, err := tx.Q().GetConnectionByName(ctx, db.GetConnectionByNameParams{Organization: organization, Name: text(ref)})
		if err != nil {
			return notFound(err, kindConnection, ref)
		}
		out, err = connection(row)
		return err
	})
	return out, err
}

func connectionByID(ctx context.Context, tx Tx, id uuid.UUID) (connections.Connection, error) {
	row, err := tx.Q().GetConnection(ctx, db.GetConnectionParams{Organization: tx.Organization(), ID: id})
	if err != nil {
		return connections.Connection{}, notFound(err, kindConnection, id.String())
	}
	return connection(row)
}

// Connections implements [connections.Store].
func (d *DB) Connections(ctx context.Context, organization uuid.UUID, f connections.Filter, p control.Page) (out control.List[connections.Connection], err error) {
	after, err := textCursor(listConnections, p)
	if err != nil {
		return out, err
	}
	err = d.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().ListConnections(ctx, db.ListConnectionsParams{Organization: organization, After: after,
			Role: string(f.Role), Connector: text(f.Connector), Name: text(f.Name), Lim: int32(p.Size() + 1)})
		if err != nil {
			return fmt.Errorf("list connections: %w", err)
		}
		items, err := each(rows, connection)
		out = control.PageOf(listConnections, p, items, func(c connections.Connection) any { return c.Name })
		return err
	})
	return out, err
}

// ConnectionVersions implements [connections.Store].
func (d *DB) ConnectionVersions(ctx context.Context, organization, id uuid.UUID, p control.Page) (out control.List[connections.Version], err error) {
	before, err := numberCursor(listConnectionVersions, p, math.MaxInt64)
	if err != nil {
		return out, err
	}
	err = d.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().ListConnectionVersions(ctx, db.ListConnectionVersionsParams{Organization: organization, Connection: id, Before: before, Lim: int32(p.Size() + 1)})
		if err != nil {
			return fmt.Errorf("list versions of connection %s: %w", id, err)
		}
		items, err := each(rows, func(r db.ConnectionVersion) (connections.Version, error) {
			v := connections.Version{Version: r.Version, Name: r.Name, Config: r.Config, CreatedAt: r.CreatedAt, CreatedBy: r.CreatedBy}
			err := json.Unmarshal(r.Secrets, &v.Secrets)
			return v, err
		})
		out = control.PageOf(listConnectionVersions, p, items, func(v connections.Version) any { return v.Version })
		return err
	})
	return out, err
}

func connection(r db.Connection) (connections.Connection, error) {
	c := connections.Connection{ID: r.ID, Name: r.Name, Role: connections.Role(r.Role), Connector: r.Connector, Config: r.Config,
		Version: r.Version, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt}
	if err := json.Unmarshal(r.Secrets, &c.Secrets); err != nil {
		return c, fmt.Errorf("read connection %s: %w", r.ID, err)
	}
	return c, nil
}

// each converts rows.
func each[From, To any](rows []From, convert func(From) (To, error)) ([]To, error) {
	out := make([]To, len(rows))
	for i, r := range rows {
		var err error
		if out[i], err = convert(r); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// describe puts an object before and after a change into an audit entry; nil where
// there is none.
func describe[T any](e *control.AuditEntry, before, after *T) error {
	for _, x := range []struct {
		value *T
		into  *json.RawMessage
	}{{before, &e.Before}, {after, &e.After}} {
		if x.value == nil {
			continue
		}
		text, err := json.Marshal(x.value)
		if err != nil {
			return fmt.Errorf("describe %s: %w", e.Action, err)
		}
		*x.into = text
	}
	return nil
}

// notFound makes the error of a query without rows what callers tell apart.
func notFound(err error, kind, ref string) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return &control.NotFoundError{Kind: kind, Ref: ref}
	}
	return fmt.Errorf("read %s %q: %w", kind, ref, err)
}

// violates tells whether an error is the violation of a named constraint or index.
func violates(err error, constraint string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.ConstraintName == constraint
}

// nameTaken makes the violation of a unique name what callers tell apart.
func nameTaken(err error, index, kind, name string) error {
	if violates(err, index) {
		return &control.ConflictError{Code: "name_taken", Message: fmt.Sprintf("there is a %s %q already", kind, name), Hint: "choose another name, or change the one that is there"}
	}
	return fmt.Errorf("write %s %q: %w", kind, name, err)
}
