package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/store/internal/db"
)

var _ dispatch.TaskStore = (*DB)(nil)

// startExpiry is how long a container may take from its start to the acceptance of
// its offer. Before that the admission's expiry counts, so that a lost command is
// sent again within 3 minutes (invariant 13).
const (
	startExpiry = 5 * time.Minute
	taskExpiry  = 2 * time.Minute
)

// place chooses where an admitted attempt runs.
func place(ctx context.Context, tx Tx, c *dispatch.Command, a dispatch.Admission) error {
	demand := dispatch.Demand{Cancel: c.Cancel}
	if a.Platform.Fargate {
		row, err := tx.Q().DemandOf(ctx, db.DemandOfParams{Organization: c.Organization, Run: c.Run})
		if err != nil {
			return fmt.Errorf("read what %s needs: %w", c, err)
		}
		var policy runs.Policy
		if err := json.Unmarshal(row.Policy, &policy); err != nil {
			return fmt.Errorf("decode the policy of run %s: %w", c.Run, err)
		}
		demand.Compute, demand.Memory, demand.Attempts = policy.Compute, policy.Memory, int(row.Attempts)
		demand.Age, demand.LastBytes, demand.LastTime = span(row.Age), row.LastBytes, span(row.LastSeconds)
	}
	c.Compute = a.Platform.Choose(demand)
	if c.Compute != dispatch.Fargate {
		return nil
	}
	expiry := a.TaskExpiry
	if expiry == 0 {
		expiry = taskExpiry
	}
	err := tx.Q().OfferOn(ctx, db.OfferOnParams{Organization: c.Organization, Run: c.Run, Slot: int32(c.Slot), Number: c.Sent, Compute: c.Compute, Expiry: expiry.Seconds()})
	if err != nil {
		return fmt.Errorf("offer %s to a container: %w", c, err)
	}
	return nil
}

func span(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// OfferStands implements [dispatch.TaskStore].
func (d *DB) OfferStands(ctx context.Context, c dispatch.Command) (stands bool, err error) {
	err = d.Tx(ctx, c.Organization, func(ctx context.Context, tx Tx) error {
		stands, err = tx.Q().OfferStands(ctx, db.OfferStandsParams{Run: c.Run, Slot: int32(c.Slot), Number: c.Sent})
		return err
	})
	return stands, err
}

// TaskStarted implements [dispatch.TaskStore].
func (d *DB) TaskStarted(ctx context.Context, t dispatch.Task) error {
	return d.Tx(ctx, t.Organization, func(ctx context.Context, tx Tx) error {
		if err := tx.Q().InsertTask(ctx, db.InsertTaskParams{Run: t.Run, Slot: int32(t.Slot), Number: t.Sent, ID: t.ID}); err != nil {
			return fmt.Errorf("remember the container of %s: %w", t.Command, err)
		}
		err := tx.Q().OfferOn(ctx, db.OfferOnParams{Organization: t.Organization, Run: t.Run, Slot: int32(t.Slot), Number: t.Sent,
			Compute: dispatch.Fargate, Expiry: startExpiry.Seconds()})
		if err != nil {
			return fmt.Errorf("wait for the container of %s: %w", t.Command, err)
		}
		return arm(ctx, tx)
	})
}

// TaskEnded implements [dispatch.TaskStore].
func (d *DB) TaskEnded(ctx context.Context, e dispatch.TaskEnd, decide func(*runs.Run) runs.Change) error {
	return d.Tx(ctx, e.Organization, func(ctx context.Context, tx Tx) error {
		if _, err := lockRun(ctx, tx, e.Run); err != nil {
			return err
		}
		q := tx.Q()
		n, err := q.EndTask(ctx, db.EndTaskParams{Run: e.Run, Slot: int32(e.Slot), Number: e.Sent, ID: e.ID, Version: e.Version, Reason: text(e.Reason)})
		if err != nil || n == 0 {
			return err
		}
		n, err = q.TakeOffer(ctx, db.TakeOfferParams{Run: e.Run, Slot: int32(e.Slot), Number: e.Sent})
		if err != nil || n == 0 {
			return err
		}
		run, err := loadRun(ctx, tx, e.Run)
		if err != nil {
			return err
		}
		c := decide(&run)
		if _, err := apply(ctx, tx, control.System(e.Organization), &run, "", c); err != nil {
			return err
		}
		return armFor(ctx, tx, c)
	})
}

// LiveTasks implements [dispatch.TaskStore].
func (d *DB) LiveTasks(ctx context.Context, age time.Duration, limit int) (out []dispatch.LiveTask, err error) {
	err = d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		rows, err := tx.Q().LiveTasks(ctx, db.LiveTasksParams{Age: age.Seconds(), Most: int32(limit)})
		out = nil
		for _, r := range rows {
			c := dispatch.Command{Organization: r.Organization, Run: r.Run, Slot: int(r.Slot), Sent: r.Number, Compute: dispatch.Fargate}
			out = append(out, dispatch.LiveTask{Task: dispatch.Task{Command: c, ID: r.ID}, Wanted: r.Wanted})
		}
		return err
	})
	return out, err
}

// TaskLooked implements [dispatch.TaskStore].
func (d *DB) TaskLooked(ctx context.Context, t dispatch.Task) error {
	return d.Maintain(ctx, func(ctx context.Context, tx Tx) error {
		return tx.Q().TaskLooked(ctx, db.TaskLookedParams{Organization: t.Organization, Run: t.Run, Slot: int32(t.Slot), Number: t.Sent})
	})
}
