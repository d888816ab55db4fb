package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/access"
	"github.com/tranship-io/tranship/store/internal/db"
)

const (
	accountKind = "service_account"
	apiKeyKind  = "key"
)

func accountOf(a db.ServiceAccount) access.Account {
	return access.Account{
		ID: a.ID, Name: a.Name, Description: a.Description, Role: control.Role(a.Role),
		Version: a.Version, CreatedAt: a.CreatedAt, UpdatedAt: a.UpdatedAt,
	}
}

func keyOf(k db.ApiKey) access.Key {
	out := access.Key{
		ID: k.ID, Account: k.ServiceAccount, Name: k.Name, Prefix: k.Prefix, Role: control.Role(k.Role), Scopes: k.Scopes, Hash: k.Hash,
		CreatedAt: k.CreatedAt, ExpiresAt: timeOf(k.ExpiresAt), RevokedAt: timeOf(k.RevokedAt),
	}
	if k.RotatedTo != nil {
		out.RotatedTo = *k.RotatedTo
	}
	return out
}

// ListAccounts implements access.Accounts.
func (s *Access) ListAccounts(ctx context.Context, organization uuid.UUID, p control.Page) (out control.List[access.Account], err error) {
	after, err := afterID(accountKind, p)
	if err != nil {
		return out, err
	}
	err = s.db.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().ListServiceAccounts(ctx, db.ListServiceAccountsParams{Organization: organization, After: after, Size: sizeOf(p)})
		if err != nil {
			return fmt.Errorf("list service accounts: %w", err)
		}
		out = control.PageOf(accountKind, p, mapped(rows, accountOf), func(a access.Account) any { return a.ID })
		return nil
	})
	return out, err
}

// GetAccount implements access.Accounts.
func (s *Access) GetAccount(ctx context.Context, organization, id uuid.UUID) (out access.Account, err error) {
	err = s.db.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		a, err := tx.Q().GetServiceAccount(ctx, db.GetServiceAccountParams{Organization: organization, ID: id})
		out = accountOf(a)
		return found(err, accountKind, id.String())
	})
	return out, err
}

// CreateAccount implements access.Accounts.
func (s *Access) CreateAccount(ctx context.Context, a control.Actor, x access.Account) (out access.Account, err error) {
	x.ID, err = uuid.NewV7()
	if err != nil {
		return out, fmt.Errorf("make a service account's id: %w", err)
	}
	err = s.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		id, first, err := once(ctx, tx, accountKind, x.ID)
		if err != nil {
			return err
		}
		if !first {
			old, err := tx.Q().GetServiceAccount(ctx, db.GetServiceAccountParams{Organization: a.Organization, ID: id})
			out = accountOf(old)
			return found(err, accountKind, id.String())
		}
		out, err = insertAccount(ctx, tx, a, x)
		return err
	})
	return out, err
}

func insertAccount(ctx context.Context, tx Tx, a control.Actor, x access.Account) (access.Account, error) {
	row, err := tx.Q().InsertServiceAccount(ctx, db.InsertServiceAccountParams{
		Organization: tx.Organization(), ID: x.ID, Name: x.Name, Description: x.Description, Role: string(x.Role),
	})
	if err != nil {
		return access.Account{}, taken(err, "a service account of this name")
	}
	out := accountOf(row)
	return out, record(ctx, tx, a, "service_account.create", out.ID, nil, out)
}

// UpdateAccount implements access.Accounts.
func (s *Access) UpdateAccount(ctx context.Context, a control.Actor, x access.Account, version int64) (out access.Account, err error) {
	err = s.changeAccount(ctx, a, x.ID, version, func(ctx context.Context, tx Tx, before access.Account) error {
		row, err := tx.Q().UpdateServiceAccount(ctx, db.UpdateServiceAccountParams{
			Organization: a.Organization, ID: x.ID, Name: x.Name, Description: x.Description, Role: string(x.Role),
		})
		if err != nil {
			return taken(err, "a service account of this name")
		}
		out = accountOf(row)
		return record(ctx, tx, a, "service_account.update", x.ID, before, out)
	})
	return out, err
}

// DeleteAccount implements access.Accounts.
func (s *Access) DeleteAccount(ctx context.Context, a control.Actor, id uuid.UUID, version int64) error {
	return s.changeAccount(ctx, a, id, version, func(ctx context.Context, tx Tx, before access.Account) error {
		if err := tx.Q().DeleteServiceAccount(ctx, db.DeleteServiceAccountParams{Organization: a.Organization, ID: id}); err != nil {
			return fmt.Errorf("delete service account: %w", err)
		}
		if err := tx.Q().RevokeKeysOfAccount(ctx, db.RevokeKeysOfAccountParams{Organization: a.Organization, ServiceAccount: id}); err != nil {
			return fmt.Errorf("revoke keys: %w", err)
		}
		return record(ctx, tx, a, "service_account.delete", id, before, nil)
	})
}

func (s *Access) changeAccount(ctx context.Context, a control.Actor, id uuid.UUID, version int64, change func(ctx context.Context, tx Tx, before access.Account) error) error {
	return s.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		if err := tx.Q().LockAccess(ctx, a.Organization); err != nil {
			return fmt.Errorf("lock access: %w", err)
		}
		row, err := tx.Q().GetServiceAccountForUpdate(ctx, db.GetServiceAccountForUpdateParams{Organization: a.Organization, ID: id})
		if err := found(err, accountKind, id.String()); err != nil {
			return err
		}
		if err := checkVersion(accountKind, id, version, row.Version); err != nil {
			return err
		}
		if err := change(ctx, tx, accountOf(row)); err != nil {
			return err
		}
		return lastAdmin(ctx, tx)
	})
}

// ListKeys implements access.Keys.
func (s *Access) ListKeys(ctx context.Context, organization, account uuid.UUID, p control.Page) (out control.List[access.Key], err error) {
	after, err := afterID(apiKeyKind, p)
	if err != nil {
		return out, err
	}
	err = s.db.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		var rows []db.ApiKey
		var err error
		if account == uuid.Nil {
			rows, err = tx.Q().ListKeys(ctx, db.ListKeysParams{Organization: organization, After: after, Size: sizeOf(p)})
		} else {
			rows, err = tx.Q().ListKeysOfAccount(ctx, db.ListKeysOfAccountParams{Organization: organization, ServiceAccount: account, After: after, Size: sizeOf(p)})
		}
		if err != nil {
			return fmt.Errorf("list keys: %w", err)
		}
		out = control.PageOf(apiKeyKind, p, mapped(rows, keyOf), func(k access.Key) any { return k.ID })
		return nil
	})
	return out, err
}

// GetKey implements access.Keys.
func (s *Access) GetKey(ctx context.Context, organization, id uuid.UUID) (out access.Key, err error) {
	err = s.db.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		k, err := tx.Q().GetKey(ctx, db.GetKeyParams{Organization: organization, ID: id})
		out = keyOf(k)
		return found(err, apiKeyKind, id.String())
	})
	return out, err
}

// CreateKey implements access.Keys.
func (s *Access) CreateKey(ctx context.Context, a control.Actor, k access.Key) (out access.Key, err error) {
	err = s.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		if err := onceKey(ctx, tx, k.ID); err != nil {
			return err
		}
		row, err := tx.Q().GetServiceAccountForUpdate(ctx, db.GetServiceAccountForUpdateParams{Organization: a.Organization, ID: k.Account})
		if err := found(err, accountKind, k.Account.String()); err != nil {
			return err
		}
		if account := accountOf(row); !account.Role.Covers(k.Role) {
			return &control.ConflictError{Code: "role_too_great", State: string(account.Role), Message: "the service account does not have this role", Hint: "give it the role first"}
		}
		out, err = insertKey(ctx, tx, a, "key.create", k)
		return err
	})
	return out, err
}

// onceKey refuses to repeat a request that made a key: its text is known to nobody.
func onceKey(ctx context.Context, tx Tx, id uuid.UUID) error {
	old, first, err := once(ctx, tx, apiKeyKind, id)
	if err != nil || first {
		return err
	}
	return &control.ConflictError{
		Code: "key_shown_once", Message: "the first request with this idempotency key made the API key " + old.String() + ", whose text is shown once",
		Hint: "revoke it and create another with a new idempotency key, if its text is lost",
	}
}

func insertKey(ctx context.Context, tx Tx, a control.Actor, action string, k access.Key) (access.Key, error) {
	scopes := k.Scopes
	if scopes == nil {
		scopes = []string{}
	}
	row, err := tx.Q().InsertKey(ctx, db.InsertKeyParams{
		Organization: tx.Organization(), ID: k.ID, ServiceAccount: k.Account, Name: k.Name, Prefix: k.Prefix, Hash: k.Hash,
		Role: string(k.Role), Scopes: scopes, ExpiresAt: someTime(k.ExpiresAt),
	})
	if err != nil {
		return access.Key{}, fmt.Errorf("store key: %w", err)
	}
	out := keyOf(row)
	return out, record(ctx, tx, a, action, out.ID, nil, out)
}

// RotateKey implements access.Keys.
func (s *Access) RotateKey(ctx context.Context, a control.Actor, old uuid.UUID, k access.Key, overlap time.Duration) (out access.Key, err error) {
	err = s.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		if err := onceKey(ctx, tx, k.ID); err != nil {
			return err
		}
		row, err := tx.Q().GetKeyForUpdate(ctx, db.GetKeyForUpdateParams{Organization: a.Organization, ID: old})
		if err := found(err, apiKeyKind, old.String()); err != nil {
			return err
		}
		switch before := keyOf(row); {
		case !before.RevokedAt.IsZero():
			return &control.ConflictError{Code: "key_ended", State: "revoked", Message: "the key is revoked", Hint: "create another"}
		case before.RotatedTo != uuid.Nil:
			return &control.ConflictError{Code: "key_ended", State: "rotated", Message: "the key is rotated already, to " + before.RotatedTo.String(), Hint: "rotate that one"}
		}
		if out, err = insertKey(ctx, tx, a, "key.rotate", k); err != nil {
			return err
		}
		err = tx.Q().EndKey(ctx, db.EndKeyParams{Organization: a.Organization, ID: old, RotatedTo: &k.ID, Overlap: overlap.Seconds()})
		if err != nil {
			return fmt.Errorf("end rotated key: %w", err)
		}
		return nil
	})
	return out, err
}

// RevokeKey implements access.Keys.
func (s *Access) RevokeKey(ctx context.Context, a control.Actor, id uuid.UUID) (out access.Key, err error) {
	err = s.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		row, err := tx.Q().GetKeyForUpdate(ctx, db.GetKeyForUpdateParams{Organization: a.Organization, ID: id})
		if err := found(err, apiKeyKind, id.String()); err != nil {
			return err
		}
		if row.RevokedAt != nil {
			out = keyOf(row)
			return nil
		}
		before := keyOf(row)
		row, err = tx.Q().RevokeKey(ctx, db.RevokeKeyParams{Organization: a.Organization, ID: id})
		if err != nil {
			return fmt.Errorf("revoke key: %w", err)
		}
		out = keyOf(row)
		return record(ctx, tx, a, "key.revoke", id, before, out)
	})
	return out, err
}

// ListAudit implements access.Organizations.
func (s *Access) ListAudit(ctx context.Context, organization uuid.UUID, f access.AuditFilter, p control.Page) (out control.List[access.AuditItem], err error) {
	const kind = "audit"
	before := uuid.Max
	if _, err := control.DecodeCursor(kind, p.After, &before); err != nil {
		return out, err
	}
	err = s.db.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		args := db.ListAuditParams{
			Organization: organization, Before: before, Size: sizeOf(p),
			Actor: optional(f.Actor), Action: some(f.Action), Kind: some(f.Kind), Since: someTime(f.From), Until: someTime(f.To),
		}
		var rows []db.AuditLog
		var err error
		if f.Object == uuid.Nil {
			rows, err = tx.Q().ListAudit(ctx, args)
		} else {
			rows, err = tx.Q().ListAuditOfObject(ctx, db.ListAuditOfObjectParams{
				Organization: args.Organization, Object: &f.Object, Before: args.Before, Size: args.Size,
				Actor: args.Actor, Action: args.Action, Kind: args.Kind, Since: args.Since, Until: args.Until,
			})
		}
		if err != nil {
			return fmt.Errorf("list changes: %w", err)
		}
		out = control.PageOf(kind, p, mapped(rows, auditItemOf), func(i access.AuditItem) any { return i.ID })
		return nil
	})
	return out, err
}

func auditItemOf(r db.AuditLog) access.AuditItem {
	id := func(u *uuid.UUID) uuid.UUID {
		if u == nil {
			return uuid.Nil
		}
		return *u
	}
	return access.AuditItem{
		ID: r.ID, ActorID: id(r.ActorID), ActorKey: id(r.ActorKey), Object: id(r.Object), At: r.At,
		ActorKind: control.ActorKind(r.ActorKind), ActorName: r.ActorName, RequestID: r.RequestID,
		Action: r.Action, Kind: r.Kind, Before: r.Before, After: r.After,
	}
}
