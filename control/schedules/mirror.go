package schedules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control/operations"
)

// KindMoved is the kind of the operations that bring a platform's copy of a
// schedule up to date.
const KindMoved = "schedule"

// Wake is the next firing of a schedule, as a platform is to hold it.
type Wake struct {
	Ref
	// Revision grows whenever At changes.
	Revision int64
	// At is when it fires; zero: it does not, and the platform holds nothing.
	At time.Time
}

// Wakes is the truth about next firings.
type Wakes interface {
	// Wake returns a schedule's; of one that is deleted or unknown it has no time.
	Wake(ctx context.Context, r Ref) (Wake, error)
	// Wakes returns those that have a time, after one, by organization and schedule.
	Wakes(ctx context.Context, after Ref, limit int) ([]Wake, error)
}

// Platform keeps one copy of each schedule's next firing, by the schedule's id, and
// fires it once. Errors are those of [operations.Effect].
type Platform interface {
	// Set makes or replaces the copy.
	Set(ctx context.Context, w Wake) error
	// Remove removes it; it is no error if there is none.
	Remove(ctx context.Context, schedule uuid.UUID) error
	// Held returns the copy; false: there is none. A copy that cannot be understood
	// has revision 0.
	Held(ctx context.Context, schedule uuid.UUID) (Wake, bool, error)
	// All returns the ids of all copies.
	All(ctx context.Context) ([]uuid.UUID, error)
}

// movedRequest is the request of a KindMoved operation.
type movedRequest struct {
	Revision int64 `json:"revision"`
	// Repair is when a repair found the copy wrong; zero: the schedule changed.
	Repair time.Time `json:"repair,omitzero"`
}

// Moved is the intent to bring a platform's copy to a revision.
func Moved(r Ref, revision int64) operations.Intent {
	return moved(r, fmt.Sprintf("%s/%d", r.Schedule, revision), movedRequest{Revision: revision})
}

func moved(r Ref, key string, req movedRequest) operations.Intent {
	body, err := json.Marshal(req)
	if err != nil {
		panic(err) // a number and a time
	}
	return operations.Intent{Organization: r.Organization, Kind: KindMoved, Key: key, Target: r.Schedule.String(), Request: body}
}

// Mirror keeps a platform's copies equal to the truth. It is the effect of
// KindMoved operations, whatever revision they were recorded for: what is applied
// is always what is wanted now.
type Mirror struct {
	Wakes    Wakes
	Platform Platform
	// Runner performs the operations, of which this is the effect.
	Runner *operations.Runner
	Now    func() time.Time
}

var (
	_ Scheduler         = (*Mirror)(nil)
	_ operations.Effect = (*Mirror)(nil)
)

// Moved implements [Scheduler]: it does what the store recorded with the change.
// What fails is done by the sweep.
func (m *Mirror) Moved(ctx context.Context, r Ref) error {
	return m.Runner.Settle(ctx, r.Organization, KindMoved, r.Schedule.String())
}

// maxRounds bounds how often a schedule may change while it is being applied.
const maxRounds = 5

var errKeepsChanging = errors.New("the schedule keeps changing")

// Do implements [operations.Effect]. It reads the truth again after it was applied:
// of two processes that apply different revisions at once, the one that is later
// than it should be sees that, and applies the newer one.
func (m *Mirror) Do(ctx context.Context, o operations.Operation) (json.RawMessage, error) {
	r, err := refOf(o)
	if err != nil {
		return nil, &operations.RefusedError{Err: err}
	}
	want, err := m.Wakes.Wake(ctx, r)
	if err != nil {
		return nil, err
	}
	for range maxRounds {
		if want.At.IsZero() {
			err = m.Platform.Remove(ctx, r.Schedule)
		} else {
			err = m.Platform.Set(ctx, want)
		}
		if err != nil {
			return nil, err
		}
		applied := want.Revision
		if want, err = m.Wakes.Wake(ctx, r); err != nil {
			return nil, err
		}
		if want.Revision == applied {
			return outcome(want)
		}
	}
	return nil, errKeepsChanging
}

// ReadBack implements [operations.Effect].
func (m *Mirror) ReadBack(ctx context.Context, o operations.Operation) (bool, json.RawMessage, error) {
	r, err := refOf(o)
	if err != nil {
		return false, nil, err
	}
	want, err := m.Wakes.Wake(ctx, r)
	if err != nil {
		return false, nil, err
	}
	held, there, err := m.Platform.Held(ctx, r.Schedule)
	if err != nil || !m.serves(held, there, want) {
		return false, nil, err
	}
	out, err := outcome(want)
	return err == nil, out, err
}

func outcome(w Wake) (json.RawMessage, error) {
	return json.Marshal(struct {
		Revision int64     `json:"revision"`
		At       time.Time `json:"at,omitzero"`
	}{w.Revision, w.At})
}

func refOf(o operations.Operation) (Ref, error) {
	id, err := uuid.Parse(o.Target)
	if err != nil {
		return Ref{}, fmt.Errorf("operation %s: %q is no schedule: %w", o.ID, o.Target, err)
	}
	return Ref{o.Organization, id}, nil
}

// slack is how much later than wanted a copy may be: platforms round, and take no
// time in the past.
const slack = 2 * time.Minute

// serves tells whether what a platform holds fires what is wanted. What is overdue
// is not served any more, however equal the copy is: it has fired.
func (m *Mirror) serves(held Wake, there bool, want Wake) bool {
	if want.At.IsZero() {
		return !there
	}
	return there && held.Ref == want.Ref && held.Revision == want.Revision && !held.At.Before(want.At) &&
		held.At.After(m.Now()) && held.At.Before(latest(want.At, m.Now()).Add(slack))
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Repaired counts what a repair mended.
type Repaired struct {
	// Checked are schedules that should be held; Missing were not, Stale were held
	// wrong, Orphans were held and should not be.
	Checked, Missing, Stale, Orphans int
}

// Repair compares all that should be held with what really is, and mends what
// differs. Schedules that are overdue must have been fired before.
func (m *Mirror) Repair(ctx context.Context) (Repaired, error) {
	var done Repaired
	ids, err := m.Platform.All(ctx)
	if err != nil {
		return done, fmt.Errorf("list the schedules of the platform: %w", err)
	}
	held := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		held[id] = true
	}
	var errs []error
	var after Ref
	for {
		page, err := m.Wakes.Wakes(ctx, after, batch)
		if err != nil {
			return done, errors.Join(append(errs, fmt.Errorf("list schedules: %w", err))...)
		}
		for _, w := range page {
			after = w.Ref
			done.Checked++
			there := held[w.Schedule]
			delete(held, w.Schedule)
			errs = append(errs, m.mend(ctx, w, there, &done))
		}
		if len(page) < batch {
			break
		}
	}
	for id := range held {
		errs = append(errs, m.removeOrphan(ctx, id, &done))
	}
	return done, errors.Join(errs...)
}

// mend looks at one schedule that should be held.
func (m *Mirror) mend(ctx context.Context, w Wake, there bool, done *Repaired) error {
	var copied Wake
	if there {
		var err error
		if copied, there, err = m.Platform.Held(ctx, w.Schedule); err != nil {
			return fmt.Errorf("read schedule %s back: %w", w.Schedule, err)
		}
	}
	if m.serves(copied, there, w) {
		return nil
	}
	if there {
		done.Stale++
	} else {
		done.Missing++
	}
	return m.repair(ctx, w.Ref, w.Revision)
}

// repair applies the truth as an operation of its own: those of the schedule's
// changes may have succeeded long ago.
func (m *Mirror) repair(ctx context.Context, r Ref, revision int64) error {
	at := m.Now().UTC().Truncate(time.Second)
	_, err := m.Runner.Perform(ctx, moved(r, fmt.Sprintf("%s/%d/repair/%d", r.Schedule, revision, at.Unix()), movedRequest{revision, at}))
	return err
}

// removeOrphan removes a copy that nothing wants.
func (m *Mirror) removeOrphan(ctx context.Context, id uuid.UUID, done *Repaired) error {
	copied, there, err := m.Platform.Held(ctx, id)
	if err != nil || !there {
		return err
	}
	if copied.Organization == uuid.Nil {
		// It was not made by us as it is: there is no truth to compare it with.
		done.Orphans++
		return m.Platform.Remove(ctx, id)
	}
	want, err := m.Wakes.Wake(ctx, copied.Ref)
	if err != nil || m.serves(copied, true, want) {
		return err // it was made after the list of schedules was read
	}
	done.Orphans++
	return m.repair(ctx, copied.Ref, want.Revision)
}
