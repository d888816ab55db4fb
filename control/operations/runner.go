package operations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
)

const (
	// lease is how long a look may take before another one begins.
	lease = 30 * time.Second
	// firstWait doubles with each look up to maxWait; after maxAttempts an
	// operation is given up: about half an hour.
	firstWait   = 5 * time.Second
	maxWait     = 5 * time.Minute
	maxAttempts = 12
	batch       = 100
)

// Runner does operations. It is a task of the sweep, which is armed while an
// operation is open (P23).
type Runner struct {
	Store Store
	// Effects are the kinds that this process can do; it leaves others alone.
	Effects map[string]Effect
	Clock   control.Clock
	Log     *slog.Logger
}

// Name names the task.
func (r *Runner) Name() string { return "operations" }

// Perform records an intent and does it, unless that happened before or is
// happening elsewhere, and returns the operation as it then stands. The error is
// about the record alone: how the effect went is in the operation.
func (r *Runner) Perform(ctx context.Context, i Intent) (Operation, error) {
	o, err := r.Store.RecordOperation(ctx, i)
	if err != nil || !o.Open() {
		return o, err
	}
	looked, ok, err := r.look(ctx, Ref{i.Organization, o.ID})
	if err != nil || !ok {
		return o, err
	}
	return looked, nil
}

// Settle looks at the open operations on a target that are due.
func (r *Runner) Settle(ctx context.Context, organization uuid.UUID, kind, target string) error {
	refs, err := r.Store.OpenOperations(ctx, organization, kind, target)
	if err != nil {
		return fmt.Errorf("find operations on %s: %w", target, err)
	}
	return r.lookAll(ctx, refs)
}

// Run implements the sweep's task: it looks at what is due.
func (r *Runner) Run(ctx context.Context) (time.Time, error) {
	kinds := slices.Sorted(maps.Keys(r.Effects))
	for {
		refs, err := r.Store.DueOperations(ctx, kinds, batch)
		if err != nil {
			return time.Time{}, fmt.Errorf("find operations: %w", err)
		}
		if err := r.lookAll(ctx, refs); err != nil {
			return time.Time{}, err
		}
		if len(refs) < batch {
			break
		}
	}
	wait, open, err := r.Store.NextOperation(ctx, kinds)
	if err != nil || !open {
		return time.Time{}, err
	}
	return r.Clock.Now().Add(wait), nil
}

func (r *Runner) lookAll(ctx context.Context, refs []Ref) error {
	var errs []error
	for _, ref := range refs {
		if _, _, err := r.look(ctx, ref); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// look claims an operation, does or reads back what it is about, and concludes it.
func (r *Runner) look(ctx context.Context, ref Ref) (Operation, bool, error) {
	o, ok, err := r.Store.ClaimOperation(ctx, ref, lease)
	if err != nil || !ok {
		return o, false, err
	}
	bounded, cancel := context.WithTimeout(ctx, lease*2/3)
	c := r.attempt(bounded, o)
	cancel()
	if c.State == Failed || c.State == Unknown {
		r.Log.WarnContext(ctx, "an operation did not succeed", "organization", o.Organization, "kind", o.Kind, "target", o.Target,
			"state", c.State, "attempt", o.Attempts, "given_up", c.Over, "error", c.Error)
	}
	// A process that is stopped still says what it knows.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	concluded, ok, err := r.Store.ConcludeOperation(end, o, c)
	if err != nil {
		return o, false, fmt.Errorf("conclude %s: %w", o, err)
	}
	return concluded, ok, nil
}

// attempt does what the state asks for.
func (r *Runner) attempt(ctx context.Context, o Operation) Conclusion {
	effect, known := r.Effects[o.Kind]
	if !known {
		return Conclusion{State: o.State, Error: fmt.Sprintf("this process cannot do %q", o.Kind), Wait: maxWait}
	}
	if o.State == Unknown {
		done, outcome, err := effect.ReadBack(ctx, o)
		switch {
		case err != nil:
			return later(o, Unknown, 0, err)
		case done:
			return Conclusion{State: Succeeded, Outcome: outcome, Over: true}
		}
	}
	outcome, err := effect.Do(ctx, o)
	var refused *RefusedError
	var notNow *LaterError
	switch {
	case err == nil:
		return Conclusion{State: Succeeded, Outcome: outcome, Over: true}
	case errors.As(err, &refused):
		return Conclusion{State: Failed, Error: err.Error(), Over: true}
	case errors.As(err, &notNow):
		return later(o, Pending, notNow.After, err)
	}
	return later(o, Unknown, 0, err)
}

// later asks for another look, unless there were too many.
func later(o Operation, s State, after time.Duration, err error) Conclusion {
	c := Conclusion{State: s, Error: err.Error(), Wait: max(wait(o.Attempts), after)}
	if o.Attempts >= maxAttempts {
		c.Over = true
		if s == Pending {
			c.State = Failed
		}
	}
	return c
}

// wait is the pause after the n-th look.
func wait(n int) time.Duration {
	return min(firstWait<<min(max(n-1, 0), 20), maxWait)
}
