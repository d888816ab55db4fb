package schedules

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/tranship-io/tranship/control"
)

// Compiler turns what a platform fires into occurrences and runs, and moves the
// platform's copy on. It may be told of the same firing any number of times, in
// any order, and may die anywhere in between (invariant 4): what is due is decided
// by the schedule's row, not by the message.
type Compiler struct {
	Firing *Firing
	Mirror *Mirror
	Clock  control.Clock
	Log    *slog.Logger
}

// Fire fires one schedule; f is the copy that the platform fired.
func (c *Compiler) Fire(ctx context.Context, f Wake) error {
	want, err := c.Mirror.Wakes.Wake(ctx, f.Ref)
	if err != nil {
		return err
	}
	now := c.Clock.Now()
	if want.Revision == f.Revision && f.At.After(now) && f.At.Sub(now) < grace {
		// Our clock runs behind the one that fired, which is right about being due.
		now = f.At
	}
	if want.Revision != f.Revision {
		c.Log.InfoContext(ctx, "a firing of an earlier revision", "organization", f.Organization, "schedule", f.Schedule,
			"revision", f.Revision, "current", want.Revision)
	}
	// Also after an error: the occurrence is committed, and the next one must come.
	return errors.Join(c.Firing.Fire(ctx, f.Ref, now), c.settle(ctx, f.Ref))
}

func (c *Compiler) settle(ctx context.Context, r Ref) error {
	if err := c.Mirror.Moved(ctx, r); err != nil {
		return fmt.Errorf("move schedule %s on: %w", r.Schedule, err)
	}
	return nil
}

// Repair fires what nobody fired, does the operations that nobody did, and makes
// the platform hold what it should.
func (c *Compiler) Repair(ctx context.Context) (Repaired, error) {
	fired := c.Firing.Run(ctx, c.Clock.Now())
	_, settled := c.Mirror.Runner.Run(ctx)
	done, err := c.Mirror.Repair(ctx)
	return done, errors.Join(fired, settled, err)
}
