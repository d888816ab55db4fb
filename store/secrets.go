package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/secrets"
	"github.com/tranship-io/tranship/store/internal/db"
)

var _ secrets.Store = (*DB)(nil)

const (
	kindSecret  = "secret"
	listSecrets = "secrets"
)

// PutSecret implements [secrets.Store].
func (d *DB) PutSecret(ctx context.Context, a control.Actor, s secrets.Sealed, version int64) (out secrets.Secret, err error) {
	err = d.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		q := tx.Q()
		row, err := q.InsertSecret(ctx, db.InsertSecretParams{Organization: tx.Organization(), Name: s.Name, ID: s.ID, Key: s.Key, DataKey: s.DataKey, Value: s.Value})
		if err == nil {
			if version > 0 {
				return &control.NotFoundError{Kind: kindSecret, Ref: s.Name}
			}
			out = secret(row)
			return auditSecret(ctx, tx, a, "secret.create", nil, &out)
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("store secret %q: %w", s.Name, err)
		}
		before, err := q.LockSecret(ctx, db.LockSecretParams{Organization: tx.Organization(), Name: s.Name})
		if err != nil {
			return notFound(err, kindSecret, s.Name)
		}
		if version != secrets.AnyVersion && version != before.Version {
			return &control.StaleVersionError{Kind: kindSecret, Ref: s.Name, Given: version, Current: before.Version}
		}
		row, err = q.UpdateSecret(ctx, db.UpdateSecretParams{Organization: tx.Organization(), Name: s.Name, Version: before.Version, ID: s.ID, Key: s.Key, DataKey: s.DataKey, Value: s.Value})
		if err != nil {
			return fmt.Errorf("store secret %q: %w", s.Name, err)
		}
		was := secret(before)
		out = secret(row)
		return auditSecret(ctx, tx, a, "secret.update", &was, &out)
	})
	return out, err
}

func auditSecret(ctx context.Context, tx Tx, a control.Actor, action string, before, after *secrets.Secret) error {
	e := control.AuditEntry{Actor: a, Action: action, Kind: kindSecret}
	if err := describe(&e, before, after); err != nil {
		return err
	}
	return audit(ctx, tx, e)
}

// DeleteSecret implements [secrets.Store].
func (d *DB) DeleteSecret(ctx context.Context, a control.Actor, name string, version int64) error {
	return d.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		q := tx.Q()
		row, err := q.LockSecret(ctx, db.LockSecretParams{Organization: tx.Organization(), Name: text(name)})
		if err != nil {
			return notFound(err, kindSecret, name)
		}
		if version != secrets.AnyVersion && version != row.Version {
			return &control.StaleVersionError{Kind: kindSecret, Ref: name, Given: version, Current: row.Version}
		}
		users, err := q.SecretUsers(ctx, db.SecretUsersParams{Organization: tx.Organization(), Secret: name})
		if err != nil {
			return fmt.Errorf("find connections of secret %q: %w", name, err)
		}
		if len(users) > 0 {
			return secretInUse(name, users)
		}
		err = q.DeleteSecret(ctx, db.DeleteSecretParams{Organization: tx.Organization(), Name: name})
		if code(err) == foreignKeyViolation {
			return secretInUse(name, nil)
		}
		if err != nil {
			return fmt.Errorf("delete secret %q: %w", name, err)
		}
		was := secret(row)
		return auditSecret(ctx, tx, a, "secret.delete", &was, nil)
	})
}

const foreignKeyViolation = "23503"

func secretInUse(name string, users []string) error {
	by := "something"
	if len(users) > 0 {
		by = "the connections " + strings.Join(users, ", ")
	}
	return &control.ConflictError{Code: "in_use", Message: fmt.Sprintf("the secret %q is in use by %s", name, by), Hint: "give these another secret first"}
}

// Secret implements [secrets.Store].
func (d *DB) Secret(ctx context.Context, organization uuid.UUID, name string) (secrets.Secret, error) {
	row, err := d.secretRow(ctx, organization, name)
	return secret(row), err
}

// SealedSecret implements [secrets.Store].
func (d *DB) SealedSecret(ctx context.Context, organization uuid.UUID, name string) (secrets.Sealed, error) {
	row, err := d.secretRow(ctx, organization, name)
	return sealed(row), err
}

func (d *DB) secretRow(ctx context.Context, organization uuid.UUID, name string) (row db.Secret, err error) {
	err = d.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		row, err = tx.Q().GetSecret(ctx, db.GetSecretParams{Organization: organization, Name: text(name)})
		if err != nil {
			return notFound(err, kindSecret, name)
		}
		return nil
	})
	return row, err
}

// Secrets implements [secrets.Store].
func (d *DB) Secrets(ctx context.Context, organization uuid.UUID, p control.Page) (out control.List[secrets.Secret], err error) {
	after, err := textCursor(listSecrets, p)
	if err != nil {
		return out, err
	}
	err = d.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().ListSecrets(ctx, db.ListSecretsParams{Organization: organization, After: after, Lim: int32(p.Size() + 1)})
		if err != nil {
			return fmt.Errorf("list secrets: %w", err)
		}
		items, err := each(rows, func(r db.Secret) (secrets.Secret, error) { return secret(r), nil })
		out = control.PageOf(listSecrets, p, items, func(s secrets.Secret) any { return s.Name })
		return err
	})
	return out, err
}

// SecretsNotUnder implements [secrets.Store].
func (d *DB) SecretsNotUnder(ctx context.Context, key string, limit int) (out []secrets.Sealed, err error) {
	err = d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().SecretsNotUnder(ctx, db.SecretsNotUnderParams{Key: key, Lim: int32(limit)})
		if err != nil {
			return fmt.Errorf("find secrets: %w", err)
		}
		out = nil
		for _, r := range rows {
			out = append(out, sealed(r))
		}
		return nil
	})
	return out, err
}

// RewrapSecret implements [secrets.Store].
func (d *DB) RewrapSecret(ctx context.Context, s secrets.Sealed, before string) error {
	return d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		return tx.Q().RewrapSecret(ctx, db.RewrapSecretParams{Key: s.Key, DataKey: s.DataKey, Organization: s.Organization, Name: s.Name, ID: s.ID, BeforeKey: before})
	})
}

func secret(r db.Secret) secrets.Secret {
	return secrets.Secret{Name: r.Name, Version: r.Version, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt}
}

func sealed(r db.Secret) secrets.Sealed {
	return secrets.Sealed{Organization: r.Organization, Name: r.Name, ID: r.ID, Key: r.Key, DataKey: r.DataKey, Value: r.Value}
}
