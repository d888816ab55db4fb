package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/control/sweep"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/store/internal/db"
)

// Admit implements [dispatch.Store].
func (d *DB) Admit(ctx context.Context, n int, a dispatch.Admission) ([]dispatch.Command, error) {
	var commands []dispatch.Command
	err := d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		q := tx.Q()
		// One at a time: each counts what the one before has sent.
		if err := q.OneAdmitter(ctx); err != nil {
			return fmt.Errorf("lock admission: %w", err)
		}
		rows, err := q.AdmitOffers(ctx, db.AdmitOffersParams{Expiry: a.Expiry.Seconds(), PerOrganization: int64(a.PerOrganization), Most: int64(n)})
		if err != nil {
			return fmt.Errorf("send offers: %w", err)
		}
		commands = make([]dispatch.Command, len(rows))
		for i, r := range rows {
			commands[i] = dispatch.Command{Organization: r.Organization, Run: r.Run, Slot: int(r.Slot), Sent: r.Number, Cancel: r.Cancel}
			if err := place(ctx, tx, &commands[i], a); err != nil {
				return err
			}
		}
		return nil
	})
	return commands, err
}

// Accept implements [dispatch.Offers].
func (d *DB) Accept(ctx context.Context, c dispatch.Command, holder string, ttl time.Duration) (bool, error) {
	var n int64
	err := d.Tx(ctx, c.Organization, func(ctx context.Context, tx Tx) error {
		var err error
		n, err = tx.Q().AcceptOffer(ctx, db.AcceptOfferParams{Holder: holder, Ttl: ttl.Seconds(), Run: c.Run, Slot: int32(c.Slot), Number: c.Sent})
		if err != nil {
			return fmt.Errorf("accept %s: %w", c, err)
		}
		return nil
	})
	return n == 1, err
}

// Keep implements [dispatch.Offers].
func (d *DB) Keep(ctx context.Context, c dispatch.Command, holder string, ttl time.Duration) (engine.Desired, error) {
	var desired string
	err := d.Tx(ctx, c.Organization, func(ctx context.Context, tx Tx) error {
		var err error
		desired, err = tx.Q().KeepOffer(ctx, db.KeepOfferParams{Ttl: ttl.Seconds(), Run: c.Run, Slot: int32(c.Slot), Number: c.Sent, Holder: holder})
		if errors.Is(err, pgx.ErrNoRows) {
			return &engine.StaleError{What: "offer", Subject: c.String(), Ours: c.Sent}
		}
		if err != nil {
			return fmt.Errorf("keep %s: %w", c, err)
		}
		return nil
	})
	return engine.Desired(desired), err
}

// GiveUp takes an accepted offer from its holder, who will not begin with it. It
// is no error if the offer is the holder's no more.
func (d *DB) GiveUp(ctx context.Context, c dispatch.Command, holder string) error {
	return d.Tx(ctx, c.Organization, func(ctx context.Context, tx Tx) error {
		_, err := tx.Q().GiveUpOffer(ctx, db.GiveUpOfferParams{Run: c.Run, Slot: int32(c.Slot), Number: c.Sent, Holder: holder})
		if err != nil {
			return fmt.Errorf("give up %s: %w", c, err)
		}
		return nil
	})
}

// Look implements [sweep.Store].
func (d *DB) Look(ctx context.Context, limit int) (sweep.Found, error) {
	var f sweep.Found
	err := d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		f = sweep.Found{}
		q := tx.Q()
		if _, err := q.ReturnOffers(ctx); err != nil {
			return fmt.Errorf("return offers: %w", err)
		}
		rows, err := q.FindObligations(ctx, int64(limit))
		if err != nil {
			return fmt.Errorf("find obligations: %w", err)
		}
		for _, r := range rows {
			ref := sweep.Ref{Organization: r.Organization, Run: r.Run}
			switch r.Kind {
			case "lost":
				f.Lost = append(f.Lost, ref)
			case "idle":
				f.Idle = append(f.Idle, ref)
			case "due":
				f.Due = append(f.Due, ref)
			}
		}
		n, err := q.NextObligation(ctx)
		if err != nil {
			return fmt.Errorf("find the next obligation: %w", err)
		}
		f.Now = n.Now
		if n.Next.Unix() > 0 {
			f.Next = n.Next
		}
		return nil
	})
	return f, err
}

// TakeOver implements [sweep.Store].
func (d *DB) TakeOver(ctx context.Context, r sweep.Ref, decide func(*runs.Run, []runs.Lost) runs.Change) error {
	return d.Tx(ctx, r.Organization, func(ctx context.Context, tx Tx) error {
		q := tx.Q()
		if _, err := q.LockControlRun(ctx, r.Run); err != nil {
			return fmt.Errorf("lock run %s: %w", r.Run, err)
		}
		rows, err := q.TakeOverSlots(ctx, r.Run)
		if err != nil {
			return fmt.Errorf("take over slots of run %s: %w", r.Run, err)
		}
		if len(rows) == 0 {
			return nil
		}
		lost := make([]runs.Lost, len(rows))
		for i, s := range rows {
			lost[i] = runs.Lost{Slot: int(s.Slot), Generation: s.Generation, Holder: s.Holder}
		}
		run, err := loadRun(ctx, tx, r.Run)
		if err != nil {
			return err
		}
		c := decide(&run, lost)
		if _, err := apply(ctx, tx, control.System(r.Organization), &run, "", c); err != nil {
			return err
		}
		return armFor(ctx, tx, c)
	})
}

// Settle implements [sweep.Store].
func (d *DB) Settle(ctx context.Context, r sweep.Ref, decide func(*runs.Run) runs.Change) error {
	_, err := d.ChangeRun(ctx, control.System(r.Organization), r.Run, "", func(run *runs.Run) (runs.Change, error) { return decide(run), nil })
	return err
}

// Disarm implements [sweep.Store]. The switch is turned off in a second
// transaction, and only while the sweep is still disarmed.
func (d *DB) Disarm(ctx context.Context) (disarmed bool, err error) {
	err = d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		disarmed, err = tx.Q().Disarm(ctx)
		return err
	})
	if err == nil && disarmed {
		disarmed, err = d.switchOff(ctx)
	}
	return disarmed, err
}
