// Package operations keeps effects outside of the database honest (invariant 12).
// An effect (a schedule of the platform, a started task) is recorded as an
// intent before it is tried and concluded afterwards; in between, and whenever an
// answer is lost, its state is unknown, which is a state like the others: it is
// settled by reading the target back, never by guessing.
//
// A process may die at any point. Before the claim the operation is pending and
// another one does it. After the claim it is unknown, and whoever looks next
// (the caller again, or the sweep once the claim's time is over) reads back
// first: what is there is concluded, what is not is done, and what cannot be told
// is asked again later, a bounded number of times.
package operations

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// State is where an operation stands.
type State string

// The states. Pending: it surely was not done yet. Unknown: an attempt began and
// nobody knows how it ended; with a zero NextAt it was given up as that.
const (
	Pending   State = "pending"
	Unknown   State = "unknown"
	Succeeded State = "succeeded"
	Failed    State = "failed"
)

// Intent is an effect that is to be.
type Intent struct {
	Organization uuid.UUID
	// Kind chooses the [Effect].
	Kind string
	// Key makes repeated intents of a kind one operation.
	Key string
	// Target is what it is done to; see [Runner.Settle].
	Target string
	// Request is what is asked for. A key that is used again with another request
	// is refused.
	Request json.RawMessage
}

// Hash is what requests are compared by.
func (i Intent) Hash() []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s%s", len(i.Target), i.Target, i.Request))
	return sum[:]
}

// Operation is a recorded intent and what became of it.
type Operation struct {
	ID uuid.UUID
	Intent
	State State
	// Attempts counts looks: those that did something and those that read back.
	Attempts int
	// NextAt is when somebody looks next; zero: concluded.
	NextAt time.Time
	// Outcome is what Do or ReadBack answered, Error why it failed or is not known.
	Outcome                json.RawMessage
	Error                  string
	CreatedAt, ConcludedAt time.Time
}

// Open tells whether somebody still has to look.
func (o Operation) Open() bool { return !o.NextAt.IsZero() }

func (o Operation) String() string {
	return fmt.Sprintf("%s operation %s on %s", o.Kind, o.ID, o.Target)
}

// Ref names an operation across organizations.
type Ref struct{ Organization, ID uuid.UUID }

// Effect does the operations of one kind.
type Effect interface {
	// Do has the effect. *RefusedError: it did not happen and never will.
	// *LaterError: it did not happen, and may later. Any other error: nobody knows.
	// It is only called when the effect is surely not there, but the world may have
	// moved on since the intent was recorded.
	Do(ctx context.Context, o Operation) (outcome json.RawMessage, err error)
	// ReadBack looks whether the effect is there. An error means that it cannot be
	// told now.
	ReadBack(ctx context.Context, o Operation) (done bool, outcome json.RawMessage, err error)
}

// RefusedError tells that the target refused for good.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RefusedError) Unwrap() error { return e.Err }

// LaterError tells that the effect surely did not happen now: throttled, or out
// of capacity.
type LaterError struct {
	// After is the least wait; 0 leaves it to the runner.
	After time.Duration
	Err   error
}

func (e *LaterError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *LaterError) Unwrap() error { return e.Err }

// Conclusion is how a look ended.
type Conclusion struct {
	State   State
	Outcome json.RawMessage
	Error   string
	// Over: nobody looks again. Else somebody does after Wait.
	Over bool
	Wait time.Duration
}

// Store keeps operations. Times are the store's own clock's (P22).
type Store interface {
	// RecordOperation stores an intent, due at once, unless its key is known in its
	// kind: then it returns what is known, or *control.ConflictError
	// "operation_key_reused" if the request is another one.
	RecordOperation(ctx context.Context, i Intent) (Operation, error)
	// ClaimOperation takes an operation that is due for the time of a look, and
	// returns it with the state that it had; false: it is not due.
	ClaimOperation(ctx context.Context, r Ref, lease time.Duration) (Operation, bool, error)
	// ConcludeOperation stores how the look that Claim returned ended; false:
	// another one has begun since, which counts.
	ConcludeOperation(ctx context.Context, o Operation, c Conclusion) (Operation, bool, error)
	// OpenOperations returns the open operations of a kind on a target, oldest first.
	OpenOperations(ctx context.Context, organization uuid.UUID, kind, target string) ([]Ref, error)
	// DueOperations returns open operations of some kinds that are due.
	DueOperations(ctx context.Context, kinds []string, limit int) ([]Ref, error)
	// NextOperation returns the time until the next of those is due; false: none.
	NextOperation(ctx context.Context, kinds []string) (time.Duration, bool, error)
}
