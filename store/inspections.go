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
	"github.com/tranship-io/tranship/control/inspections"
	"github.com/tranship-io/tranship/store/internal/db"
)

var _ inspections.Store = (*DB)(nil)

const (
	kindInspection  = "inspection"
	listInspections = "inspections"
)

// CreateInspection implements [inspections.Store].
func (d *DB) CreateInspection(ctx context.Context, a control.Actor, i inspections.Inspection, keep time.Duration) (out inspections.Inspection, err error) {
	err = d.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		id, first, err := once(ctx, tx, kindInspection, i.ID)
		if err != nil {
			return err
		}
		if !first {
			out, err = inspectionByID(ctx, tx, id)
			return err
		}
		p := db.InsertInspectionParams{Organization: tx.Organization(), ID: i.ID, Kind: string(i.Kind), Connection: optional(i.Connection), Pipeline: optional(i.Pipeline),
			Resource: text(i.Resource), Pattern: text(i.Pattern), Overlay: document(i.Overlay), Keep: keep.Seconds()}
		if i.Pipeline != uuid.Nil {
			p.Number = &i.Number
		}
		row, err := tx.Q().InsertInspection(ctx, p)
		if err != nil {
			return fmt.Errorf("store inspection: %w", err)
		}
		out = inspection(row)
		e := control.AuditEntry{Actor: a, Action: "inspection.start", Kind: kindInspection, Object: i.ID}
		if err := describe(&e, nil, &out); err != nil {
			return err
		}
		if err := audit(ctx, tx, e); err != nil {
			return err
		}
		// Somebody waits: a sweep that is armed already looks at once.
		tx.Hint(Hint{Kind: HintIntake, Organization: tx.Organization(), Object: i.ID})
		return arm(ctx, tx)
	})
	return out, err
}

// Inspection implements [inspections.Store].
func (d *DB) Inspection(ctx context.Context, organization, id uuid.UUID) (out inspections.Inspection, err error) {
	err = d.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		out, err = inspectionByID(ctx, tx, id)
		return err
	})
	return out, err
}

func inspectionByID(ctx context.Context, tx Tx, id uuid.UUID) (inspections.Inspection, error) {
	row, err := tx.Q().GetInspection(ctx, db.GetInspectionParams{Organization: tx.Organization(), ID: id})
	if err != nil {
		return inspections.Inspection{}, notFound(err, kindInspection, id.String())
	}
	return inspection(row), nil
}

// Inspections implements [inspections.Store].
func (d *DB) Inspections(ctx context.Context, organization uuid.UUID, f inspections.Filter, p control.Page) (out control.List[inspections.Inspection], err error) {
	before := uuid.Max
	if _, err := control.DecodeCursor(listInspections, p.After, &before); err != nil {
		return out, err
	}
	err = d.Tx(ctx, organization, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().ListInspections(ctx, db.ListInspectionsParams{Organization: organization, Before: before,
			Connection: f.Connection, Kind: string(f.Kind), State: string(f.State), Lim: int32(p.Size() + 1)})
		if err != nil {
			return fmt.Errorf("list inspections: %w", err)
		}
		items, err := each(rows, func(r db.Inspection) (inspections.Inspection, error) { return inspection(r), nil })
		out = control.PageOf(listInspections, p, items, func(i inspections.Inspection) any { return i.ID })
		return err
	})
	return out, err
}

// ClaimInspection implements [inspections.Store].
func (d *DB) ClaimInspection(ctx context.Context, lease time.Duration) (*inspections.Claimed, error) {
	return d.claimInspection(ctx, func(ctx context.Context, q *db.Queries, claim uuid.UUID) (db.Inspection, error) {
		return q.ClaimInspection(ctx, db.ClaimInspectionParams{Claim: claim, Lease: lease.Seconds()})
	})
}

// ClaimInspectionOf implements [inspections.Store].
func (d *DB) ClaimInspectionOf(ctx context.Context, organization, id uuid.UUID, lease time.Duration) (*inspections.Claimed, error) {
	return d.claimInspection(ctx, func(ctx context.Context, q *db.Queries, claim uuid.UUID) (db.Inspection, error) {
		return q.ClaimInspectionOf(ctx, db.ClaimInspectionOfParams{Organization: organization, ID: id, Claim: claim, Lease: lease.Seconds()})
	})
}

func (d *DB) claimInspection(ctx context.Context, take func(ctx context.Context, q *db.Queries, claim uuid.UUID) (db.Inspection, error)) (out *inspections.Claimed, err error) {
	claim, err := uuid.NewRandom()
	if err != nil {
		return nil, fmt.Errorf("claim an inspection: %w", err)
	}
	err = d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		out = nil
		row, err := take(ctx, tx.Q(), claim)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("claim an inspection: %w", err)
		}
		out = &inspections.Claimed{Inspection: inspection(row), Organization: row.Organization, Claim: claim}
		return nil
	})
	return out, err
}

// RequestedInspections implements [inspections.Store].
func (d *DB) RequestedInspections(ctx context.Context, age time.Duration, limit int) (out []inspections.Ref, err error) {
	err = d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().RequestedInspections(ctx, db.RequestedInspectionsParams{Age: age.Seconds(), Most: int32(limit)})
		out = nil
		for _, r := range rows {
			out = append(out, inspections.Ref{Organization: r.Organization, ID: r.ID})
		}
		return err
	})
	return out, err
}

// RenewInspection implements [inspections.Store].
func (d *DB) RenewInspection(ctx context.Context, c inspections.Claimed, lease time.Duration) (mine bool, err error) {
	err = d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		n, err := tx.Q().RenewInspection(ctx, db.RenewInspectionParams{Organization: c.Organization, ID: c.ID, Claim: c.Claim, Lease: lease.Seconds()})
		mine = n == 1
		return err
	})
	return mine, err
}

// FinishInspection implements [inspections.Store].
func (d *DB) FinishInspection(ctx context.Context, c inspections.Claimed, o inspections.Outcome) error {
	state := inspections.Succeeded
	if o.Error != "" {
		state = inspections.Failed
	}
	return d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		_, err := tx.Q().FinishInspection(ctx, db.FinishInspectionParams{Organization: c.Organization, ID: c.ID, Claim: c.Claim,
			State: string(state), Result: document(o.Result), Error: text(o.Error), Hint: text(o.Hint)})
		return err
	})
}

// SweepInspections implements [inspections.Store].
func (d *DB) SweepInspections(ctx context.Context) (next time.Duration, err error) {
	err = d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		q := tx.Q()
		err := q.FailLostInspections(ctx, db.FailLostInspectionsParams{Error: "the process that looked was lost", Hint: "ask again"})
		if err == nil {
			err = q.DeleteExpiredInspections(ctx)
		}
		if err != nil {
			return err
		}
		seconds, err := q.NextInspectionLease(ctx)
		next = time.Duration(seconds * float64(time.Second))
		return err
	})
	return next, err
}

func inspection(r db.Inspection) inspections.Inspection {
	i := inspections.Inspection{ID: r.ID, Kind: inspections.Kind(r.Kind), State: inspections.State(r.State), Resource: r.Resource, Pattern: r.Pattern,
		Overlay: json.RawMessage(r.Overlay), Result: json.RawMessage(r.Result), Error: r.Error, Hint: r.Hint, CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt}
	if r.Connection != nil {
		i.Connection = *r.Connection
	}
	if r.Pipeline != nil {
		i.Pipeline, i.Number = *r.Pipeline, *r.Number
	}
	if r.StartedAt != nil {
		i.StartedAt = *r.StartedAt
	}
	if r.EndedAt != nil {
		i.EndedAt = *r.EndedAt
	}
	return i
}
