package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/access"
	"github.com/tranship-io/tranship/store/internal/db"
)

const memberKind = "member"

func memberOf(m db.Member) access.Member {
	return access.Member{
		ID: m.ID, Name: m.Name, Email: textOf(m.Email), Issuer: textOf(m.Issuer), Subject: textOf(m.Subject), Role: control.Role(m.Role),
		Version: m.Version, CreatedAt: m.CreatedAt, UpdatedAt: m.UpdatedAt, LastSeenAt: timeOf(m.LastSeenAt),
	}
}

// ListMembers implements access.Members.
func (s *Access) ListMembers(ctx context.Context, organization uuid.UUID, p control.Page) (out control.List[access.Member], err error) {
	after, err := afterID(memberKind, p)
	if err != nil {
		return out, err
	}
	err = s.db.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().ListMembers(ctx, db.ListMembersParams{Organization: organization, After: after, Size: sizeOf(p)})
		if err != nil {
			return fmt.Errorf("list members: %w", err)
		}
		out = control.PageOf(memberKind, p, mapped(rows, memberOf), func(m access.Member) any { return m.ID })
		return nil
	})
	return out, err
}

// mapped applies a function to each row.
func mapped[A, B any](rows []A, f func(A) B) []B {
	out := make([]B, len(rows))
	for i, r := range rows {
		out[i] = f(r)
	}
	return out
}

// GetMember implements access.Members.
func (s *Access) GetMember(ctx context.Context, organization, id uuid.UUID) (out access.Member, err error) {
	err = s.db.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		m, err := tx.Q().GetMember(ctx, db.GetMemberParams{Organization: organization, ID: id})
		out = memberOf(m)
		return found(err, memberKind, id.String())
	})
	return out, err
}

// CreateMember implements access.Members.
func (s *Access) CreateMember(ctx context.Context, a control.Actor, m access.Member) (out access.Member, err error) {
	m.ID, err = uuid.NewV7()
	if err != nil {
		return out, fmt.Errorf("make a member's id: %w", err)
	}
	err = s.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		id, first, err := once(ctx, tx, memberKind, m.ID)
		if err != nil {
			return err
		}
		if !first {
			old, err := tx.Q().GetMember(ctx, db.GetMemberParams{Organization: a.Organization, ID: id})
			out = memberOf(old)
			return found(err, memberKind, id.String())
		}
		out, err = insertMember(ctx, tx, a, m)
		return err
	})
	return out, err
}

func insertMember(ctx context.Context, tx Tx, a control.Actor, m access.Member) (access.Member, error) {
	row, err := tx.Q().InsertMember(ctx, db.InsertMemberParams{
		Organization: tx.Organization(), ID: m.ID, Name: m.Name, Email: some(m.Email), Issuer: some(m.Issuer), Subject: some(m.Subject), Role: string(m.Role),
	})
	if err != nil {
		return access.Member{}, taken(err, "a member with this identity or address")
	}
	out := memberOf(row)
	return out, record(ctx, tx, a, "member.create", out.ID, nil, out)
}

// UpdateMember implements access.Members.
func (s *Access) UpdateMember(ctx context.Context, a control.Actor, m access.Member, version int64) (out access.Member, err error) {
	err = s.changeMember(ctx, a, m.ID, version, func(ctx context.Context, tx Tx, before access.Member) error {
		row, err := tx.Q().UpdateMember(ctx, db.UpdateMemberParams{Organization: a.Organization, ID: m.ID, Name: m.Name, Role: string(m.Role)})
		if err != nil {
			return fmt.Errorf("update member: %w", err)
		}
		out = memberOf(row)
		return record(ctx, tx, a, "member.update", m.ID, before, out)
	})
	return out, err
}

// DeleteMember implements access.Members.
func (s *Access) DeleteMember(ctx context.Context, a control.Actor, id uuid.UUID, version int64) error {
	return s.changeMember(ctx, a, id, version, func(ctx context.Context, tx Tx, before access.Member) error {
		if err := tx.Q().DeleteMember(ctx, db.DeleteMemberParams{Organization: a.Organization, ID: id}); err != nil {
			return fmt.Errorf("delete member: %w", err)
		}
		return record(ctx, tx, a, "member.delete", id, before, nil)
	})
}

func (s *Access) changeMember(ctx context.Context, a control.Actor, id uuid.UUID, version int64, change func(ctx context.Context, tx Tx, before access.Member) error) error {
	return s.db.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		if err := tx.Q().LockAccess(ctx, a.Organization); err != nil {
			return fmt.Errorf("lock access: %w", err)
		}
		row, err := tx.Q().GetMemberForUpdate(ctx, db.GetMemberForUpdateParams{Organization: a.Organization, ID: id})
		if err := found(err, memberKind, id.String()); err != nil {
			return err
		}
		if err := checkVersion(memberKind, id, version, row.Version); err != nil {
			return err
		}
		if err := change(ctx, tx, memberOf(row)); err != nil {
			return err
		}
		return lastAdmin(ctx, tx)
	})
}

// SignIn implements access.Members.
func (s *Access) SignIn(ctx context.Context, organization uuid.UUID, who access.Identity) (out access.Member, err error) {
	fresh, err := uuid.NewV7()
	if err != nil {
		return out, fmt.Errorf("make a member's id: %w", err)
	}
	system := control.System(organization)
	err = s.db.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		if err := tx.Q().LockAccess(ctx, organization); err != nil {
			return fmt.Errorf("lock access: %w", err)
		}
		row, err := tx.Q().FindMemberForUpdate(ctx, db.FindMemberForUpdateParams{
			Organization: organization, Issuer: some(who.Issuer), Subject: some(who.Subject), Email: who.Email,
		})
		if errors.Is(err, pgx.ErrNoRows) && who.Role != "" {
			out, err = insertMember(ctx, tx, system, access.Member{ID: fresh, Name: who.Name, Email: who.Email, Issuer: who.Issuer, Subject: who.Subject, Role: who.Role})
			return err
		}
		if err := found(err, memberKind, ""); err != nil {
			return err
		}
		before := memberOf(row)
		role := before.Role
		if who.Role != "" {
			role = who.Role
		}
		row, err = tx.Q().SeeMember(ctx, db.SeeMemberParams{Organization: organization, ID: before.ID, Issuer: some(who.Issuer), Subject: some(who.Subject), Role: string(role)})
		if err != nil {
			return fmt.Errorf("note sign-in: %w", err)
		}
		if out = memberOf(row); out.Version == before.Version {
			return nil
		}
		return record(ctx, tx, system, "member.sign_in", out.ID, before, out)
	})
	return out, err
}
