package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/access"
	"github.com/tranship-io/tranship/store/internal/db"
)

// Access keeps organizations, members, service accounts and keys. Changes of who is
// an admin take the organization's access lock first, then the row.
type Access struct{ db *DB }

var _ access.Store = (*Access)(nil)

// Access returns the store of access.
func (d *DB) Access() *Access { return &Access{d} }

const organizationKind = "organization"

func organizationOf(o db.Organization) access.Organization {
	return access.Organization{ID: o.ID, Key: o.Key, Name: o.Name, CreatedAt: o.CreatedAt}
}

// found turns "no rows" into a *control.NotFoundError.
func found(err error, kind, ref string) error {
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return &control.NotFoundError{Kind: kind, Ref: ref}
	case err != nil:
		return fmt.Errorf("read %s: %w", kind, err)
	}
	return nil
}

// GetOrganization implements access.Organizations.
func (s *Access) GetOrganization(ctx context.Context, id uuid.UUID) (out access.Organization, err error) {
	err = s.db.Tx(ctx, id, func(ctx context.Context, tx Tx) error {
		o, err := tx.Q().GetOrganization(ctx, id)
		out = organizationOf(o)
		return found(err, organizationKind, id.String())
	})
	return out, err
}

// FindOrganization implements access.Organizations.
func (s *Access) FindOrganization(ctx context.Context, key string) (out access.Organization, err error) {
	err = s.db.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		o, err := tx.Q().FindOrganization(ctx, key)
		out = organizationOf(o)
		return found(err, organizationKind, key)
	})
	return out, err
}

// ListOrganizations implements access.Organizations.
func (s *Access) ListOrganizations(ctx context.Context, limit int) (out []access.Organization, err error) {
	err = s.db.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		all, err := tx.Q().ListOrganizations(ctx, int32(min(limit, control.MaxPage)))
		out = out[:0]
		for _, o := range all {
			out = append(out, organizationOf(o))
		}
		return err
	})
	return out, err
}

// Bootstrap implements access.Organizations. A transaction of maintenance holds the
// lock and sees all organizations, while one of the new organization makes it.
func (s *Access) Bootstrap(ctx context.Context, o access.Organization, a access.Account, k access.Key, ready func() error) (made bool, err error) {
	err = s.db.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		if err := tx.Q().LockBootstrap(ctx); err != nil {
			return fmt.Errorf("wait for another process's bootstrap: %w", err)
		}
		exists, err := tx.Q().AnyOrganization(ctx)
		if err != nil {
			return fmt.Errorf("look for organizations: %w", err)
		}
		if made = !exists; exists {
			return nil
		}
		if err := ready(); err != nil {
			return err
		}
		return s.db.Tx(ctx, o.ID, func(ctx context.Context, tx Tx) error { return firstOrganization(ctx, tx, o, a, k) })
	})
	return made && err == nil, err
}

func firstOrganization(ctx context.Context, tx Tx, o access.Organization, a access.Account, k access.Key) error {
	actor := control.System(o.ID)
	if err := tx.Q().InsertOrganization(ctx, db.InsertOrganizationParams{ID: o.ID, Key: o.Key, Name: o.Name}); err != nil {
		return fmt.Errorf("make organization %q: %w", o.Key, err)
	}
	if err := record(ctx, tx, actor, "organization.create", o.ID, nil, o); err != nil {
		return err
	}
	if _, err := insertAccount(ctx, tx, actor, a); err != nil {
		return err
	}
	_, err := insertKey(ctx, tx, actor, "key.create", k)
	return err
}

// record writes an audit entry with an object before and after.
func record(ctx context.Context, tx Tx, a control.Actor, action string, id uuid.UUID, before, after any) error {
	e := control.AuditEntry{Actor: a, Action: action, Kind: kindOf(action), Object: id}
	for _, side := range []struct {
		value any
		into  *json.RawMessage
	}{{before, &e.Before}, {after, &e.After}} {
		if side.value == nil {
			continue
		}
		text, err := json.Marshal(side.value)
		if err != nil {
			return fmt.Errorf("write audit entry %s: %w", action, err)
		}
		*side.into = text
	}
	return audit(ctx, tx, e)
}

// kindOf is the kind of an action: what stands before its last dot.
func kindOf(action string) string {
	for i := len(action) - 1; i >= 0; i-- {
		if action[i] == '.' {
			return action[:i]
		}
	}
	return action
}

// Confirm implements access.Organizations: an empty transaction checks the caller.
func (s *Access) Confirm(ctx context.Context, organization uuid.UUID) error {
	return s.db.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		_, err := tx.Exec(ctx, "select 1")
		return err
	})
}

// lastAdmin refuses a change after which nobody could administer any more. It runs
// after the change, under the access lock.
func lastAdmin(ctx context.Context, tx Tx) error {
	n, err := tx.Q().CountAdmins(ctx, tx.Organization())
	if err != nil {
		return fmt.Errorf("count admins: %w", err)
	}
	if n == 0 {
		return &control.ConflictError{Code: "last_admin", Message: "this is the organization's last admin", Hint: "make another one first"}
	}
	return nil
}

// checkVersion refuses a version that does not stand any more; 0 means any.
func checkVersion(kind string, id uuid.UUID, given, current int64) error {
	if given == 0 || given == current {
		return nil
	}
	return &control.StaleVersionError{Kind: kind, Ref: id.String(), Given: given, Current: current}
}

// taken turns a unique violation into a conflict.
func taken(err error, what string) error {
	if code(err) == "23505" {
		return &control.ConflictError{Code: "already_exists", Message: what + " exists already"}
	}
	return err
}

// afterID is the id that a list of ids goes on behind.
func afterID(kind string, p control.Page) (uuid.UUID, error) {
	var id uuid.UUID
	_, err := control.DecodeCursor(kind, p.After, &id)
	return id, err
}

// sizeOf is how many rows a query for a page asks for: one more, to see whether
// something follows.
func sizeOf(p control.Page) int32 { return int32(p.Size() + 1) }

func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// some is nil, which is stored as NULL, for an empty text.
func some(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

func someTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
