package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/control/sweep"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/store/internal/db"
)

var (
	_ runs.Store      = (*DB)(nil)
	_ dispatch.Store  = (*DB)(nil)
	_ dispatch.Offers = (*DB)(nil)
	_ sweep.Store     = (*DB)(nil)
)

// InsertRuns implements [runs.Store].
func (d *DB) InsertRuns(ctx context.Context, a control.Actor, drafts []runs.Draft, allowBusy bool) (runs.Started, error) {
	var made runs.Started
	err := d.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		made = runs.Started{}
		if len(drafts) > 0 {
			if err := holdPipeline(ctx, tx, drafts[0].Compiled.ID); err != nil {
				return err
			}
		}
		for _, draft := range drafts {
			r, busy, err := insertRun(ctx, tx, a, draft)
			if err != nil {
				return err
			}
			if busy != nil {
				made.Busy = append(made.Busy, *busy)
				continue
			}
			made.Runs = append(made.Runs, r)
		}
		if len(made.Busy) > 0 && !allowBusy {
			return runs.Overlap(drafts[0].Compiled.Name, made.Busy...)
		}
		return arm(ctx, tx)
	})
	if err != nil {
		return runs.Started{}, err
	}
	return made, nil
}

// insertRun stores a run, lets the route's latest one go on, or tells which run
// has the route (P21).
func insertRun(ctx context.Context, tx Tx, a control.Actor, d runs.Draft) (made runs.Run, busy *runs.Busy, err error) {
	q := tx.Q()
	// The record says which run the request made or resumed for this route.
	kind := "run " + d.Route.Key
	id := d.ID
	var latest *runs.Run
	last, err := q.LatestRun(ctx, db.LatestRunParams{Pipeline: &d.Compiled.ID, RouteKey: d.Route.Key})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
	case err != nil:
		return runs.Run{}, nil, fmt.Errorf("find the latest run of pipeline %q: %w", d.Compiled.Name, err)
	default:
		r, err := lockRun(ctx, tx, last)
		if err != nil {
			return runs.Run{}, nil, err
		}
		latest = &r
	}
	resume, change, err := runs.Intake(latest, d)
	if err != nil {
		return runs.Run{}, nil, err
	}
	if resume {
		id = latest.ID
	}
	other, err := q.RunInTheWay(ctx, db.RunInTheWayParams{Pipeline: &d.Compiled.ID, RouteKey: d.Route.Key})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
	case err != nil:
		return made, nil, fmt.Errorf("look for another run of pipeline %q: %w", d.Compiled.Name, err)
	default:
		known, err := recorded(ctx, tx, kind)
		if err != nil {
			return made, nil, err
		}
		if !known {
			// A request that is refused leaves its key unused.
			return made, &runs.Busy{Route: d.Route.Key, Run: other.ID, State: engine.RunState(other.State)}, nil
		}
	}
	existing, first, err := once(ctx, tx, kind, id)
	if err != nil {
		return runs.Run{}, nil, err
	}
	if !first {
		made, err = loadRun(ctx, tx, existing)
		return made, nil, err
	}
	if resume {
		made, err = apply(ctx, tx, a, latest, "run.resume", change)
		return made, nil, err
	}
	trigger, options, policy, err := documents(d.Trigger, d.Options, d.Policy)
	if err != nil {
		return runs.Run{}, nil, err
	}
	slots := d.Policy.Slots
	if slots <= 0 {
		slots = 2
	}
	err = q.InsertRun(ctx, db.InsertRunParams{
		ID: id, Pipeline: &d.Compiled.ID, Title: d.Compiled.Name, PipelineName: d.Route.Name, PipelineNumber: d.Number, Version: d.Route.Hash, RouteKey: d.Route.Key,
		State: string(change.State), Trigger: trigger, Options: options, Policy: policy, Slots: int32(slots),
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == uniqueViolation {
		// Somebody was faster since we looked.
		return runs.Run{}, nil, runs.Overlap(d.Compiled.Name)
	}
	if err != nil {
		return runs.Run{}, nil, fmt.Errorf("insert run %s: %w", id, err)
	}
	r, err := loadRun(ctx, tx, id)
	if err != nil {
		return r, nil, err
	}
	made, err = apply(ctx, tx, a, &r, "run.start", change)
	return made, nil, err
}

// recorded tells whether the context's idempotency key made something of a kind.
func recorded(ctx context.Context, tx Tx, kind string) (bool, error) {
	i, ok := control.IdempotencyOf(ctx)
	if !ok {
		return false, nil
	}
	used, err := tx.Q().GetIdempotency(ctx, db.GetIdempotencyParams{Organization: tx.Organization(), Key: i.Key})
	if err != nil {
		return false, fmt.Errorf("read idempotency key: %w", err)
	}
	return slices.ContainsFunc(used, func(u db.GetIdempotencyRow) bool { return u.Kind == kind }), nil
}

func documents(trigger runs.Trigger, options runs.Options, policy runs.Policy) (t, o, p json.RawMessage, err error) {
	for _, x := range []struct {
		from any
		to   *json.RawMessage
	}{{trigger, &t}, {options, &o}, {policy, &p}} {
		if *x.to, err = json.Marshal(x.from); err != nil {
			return nil, nil, nil, fmt.Errorf("encode run: %w", err)
		}
	}
	return t, o, p, nil
}

// ChangeRun implements [runs.Store].
func (d *DB) ChangeRun(ctx context.Context, a control.Actor, id uuid.UUID, action string, decide func(*runs.Run) (runs.Change, error)) (runs.Run, error) {
	var changed runs.Run
	err := d.Tx(ctx, a.Organization, func(ctx context.Context, tx Tx) error {
		r, err := lockRun(ctx, tx, id)
		if err != nil {
			return err
		}
		c, err := decide(&r)
		if err != nil {
			return err
		}
		if changed, err = apply(ctx, tx, a, &r, action, c); err != nil {
			return err
		}
		return armFor(ctx, tx, c)
	})
	return changed, err
}

// lockRun locks a run and then reads it, so that what it says of slots and offers
// is what was committed while the lock was waited for.
func lockRun(ctx context.Context, tx Tx, id uuid.UUID) (runs.Run, error) {
	if _, err := tx.Q().LockControlRun(ctx, id); err != nil {
		if errors.Is(err, pgx.ErrNoRows) {
			return runs.Run{}, noRun(id)
		}
		return runs.Run{}, fmt.Errorf("lock run %s: %w", id, err)
	}
	return loadRun(ctx, tx, id)
}

func noRun(id uuid.UUID) error { return &control.NotFoundError{Kind: "run", Ref: id.String()} }

func loadRun(ctx context.Context, tx Tx, id uuid.UUID) (runs.Run, error) {
	row, err := tx.Q().ControlRun(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return runs.Run{}, noRun(id)
	}
	if err != nil {
		return runs.Run{}, fmt.Errorf("read run %s: %w", id, err)
	}
	r, err := controlRun(db.ListControlRunsRow{
		Organization: row.Organization, ID: row.ID, Pipeline: row.Pipeline, PipelineName: row.PipelineName, Version: row.Version, RouteKey: row.RouteKey,
		State: row.State, Resumable: row.Resumable, Desired: row.Desired, Error: row.Error, ErrorClass: row.ErrorClass, CreatedAt: row.CreatedAt,
		StartedAt: row.StartedAt, EndedAt: row.EndedAt, ProgressedAt: row.ProgressedAt, Attempts: row.Attempts, Interruptions: row.Interruptions,
		Receipt: row.Receipt, LastFact: row.LastFact, Trigger: row.Trigger, Options: row.Options, PipelineNumber: row.PipelineNumber, Title: row.Title,
		Hint: row.Hint, Failures: row.Failures, Policy: row.Policy, Slots: row.Slots, Now: row.Now,
	})
	r.Busy, r.Offered, r.Overtaken = row.Busy, row.Offered, row.Overtaken
	return r, err
}

func controlRun(row db.ListControlRunsRow) (runs.Run, error) {
	r := runs.Run{
		ID: row.ID, Title: row.Title, Name: row.PipelineName, Number: row.PipelineNumber, Hash: row.Version, Route: row.RouteKey,
		State: engine.RunState(row.State), Desired: engine.Desired(row.Desired), Resumable: row.Resumable,
		Error: row.Error, Class: engine.Class(row.ErrorClass), Hint: row.Hint,
		Attempts: int(row.Attempts), Failures: int(row.Failures), Interruptions: int(row.Interruptions),
		LastFact: row.LastFact, Receipt: row.Receipt, CreatedAt: row.CreatedAt, Now: row.Now,
		StartedAt: moment(row.StartedAt), ProgressAt: moment(row.ProgressedAt), EndedAt: moment(row.EndedAt),
	}
	if row.Pipeline != nil {
		r.Pipeline = *row.Pipeline
	}
	for _, x := range []struct {
		from json.RawMessage
		to   any
	}{{row.Trigger, &r.Trigger}, {row.Options, &r.Options}, {row.Policy, &r.Policy}} {
		if err := json.Unmarshal(x.from, x.to); err != nil {
			return r, fmt.Errorf("decode run %s: %w", row.ID, err)
		}
	}
	return r, nil
}

// apply applies a change to a run that the transaction has locked, with its
// facts, offer and audit entry, and returns the run as it is then.
func apply(ctx context.Context, tx Tx, a control.Actor, r *runs.Run, action string, c runs.Change) (runs.Run, error) {
	if c.Nothing {
		return *r, nil
	}
	q := tx.Q()
	if c.State != r.State && !runs.Follows(r.State, c.State) {
		return *r, engine.Bugf("run %s: %s cannot follow %s", r.ID, c.State, r.State)
	}
	n, err := q.ApplyChange(ctx, db.ApplyChangeParams{
		ID: r.ID, Was: string(r.State), State: string(c.State), Desired: string(c.Desired), Resumable: c.Resumable,
		Error: c.Error, ErrorClass: string(c.Class), Hint: c.Hint, Failures: int32(c.Failures), Interruptions: int32(c.Interruptions),
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == uniqueViolation {
		return *r, runs.Overlap(r.Title)
	}
	if err != nil {
		return *r, fmt.Errorf("change run %s: %w", r.ID, err)
	}
	if n != 1 {
		return *r, engine.Bugf("run %s is not %s any more though it is locked", r.ID, r.State)
	}
	for _, p := range c.Facts {
		if err := tx.AddFact(ctx, r.ID, p); err != nil {
			return *r, err
		}
	}
	if c.Withdraw {
		err = q.WithdrawOffers(ctx, r.ID)
	}
	if err == nil && c.Offer {
		err = q.OfferAttempt(ctx, db.OfferAttemptParams{Run: r.ID, NotBefore: optionalTime(c.OfferAt)})
		tx.Hint(Hint{Kind: HintIntake})
	}
	if err != nil {
		return *r, fmt.Errorf("offer the next attempt of run %s: %w", r.ID, err)
	}
	if c.Desired != r.Desired || !runs.Active(c.State) {
		tx.Hint(Hint{Kind: HintDesired, Organization: tx.Organization(), Object: r.ID})
	}
	tx.Hint(Hint{Kind: HintFacts, Organization: tx.Organization(), Object: r.ID})
	after, err := loadRun(ctx, tx, r.ID)
	if err != nil {
		return *r, err
	}
	if a.Kind != control.ActorSystem {
		if err := auditRun(ctx, tx, a, action, r, &after); err != nil {
			return *r, err
		}
	}
	return after, nil
}

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func auditRun(ctx context.Context, tx Tx, a control.Actor, action string, before, after *runs.Run) error {
	view := func(r *runs.Run) (json.RawMessage, error) {
		b, err := json.Marshal(map[string]any{"pipeline": r.Title, "state": r.State, "desired": r.Desired, "options": r.Options, "trigger": r.Trigger})
		if err != nil {
			return nil, fmt.Errorf("encode run %s: %w", r.ID, err)
		}
		return b, nil
	}
	e := control.AuditEntry{Actor: a, Action: action, Kind: "run", Object: after.ID}
	var err error
	if e.After, err = view(after); err != nil {
		return err
	}
	if action != "run.start" {
		if e.Before, err = view(before); err != nil {
			return err
		}
	}
	return audit(ctx, tx, e)
}

// arm arms the sweep; the last call of a transaction that makes work (P23).
func arm(ctx context.Context, tx Tx) error {
	first, err := tx.Q().Arm(ctx)
	if err != nil {
		return fmt.Errorf("arm the sweep: %w", err)
	}
	if first {
		return tx.db.switchOn(ctx)
	}
	return nil
}

func armFor(ctx context.Context, tx Tx, c runs.Change) error {
	if c.Nothing || !c.Offer && len(c.Facts) == 0 {
		return nil
	}
	return arm(ctx, tx)
}
