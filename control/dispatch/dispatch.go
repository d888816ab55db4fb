// Package dispatch brings attempts to workers. An attempt that is due waits as an
// offer in the store. The dispatcher admits offers within each organization's
// bound, marks them as sent until an expiry, and sends a command for each; a
// worker accepts the offer that its command names, and keeps it until it has the
// slot's lease. A command that is lost, late or repeated does no harm: its offer
// is sent again once it has expired, and an offer is accepted once (P23).
package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
)

// Command asks a worker for one attempt of a run: "attempt.requested".
type Command struct {
	Organization uuid.UUID `json:"organization"`
	Run          uuid.UUID `json:"run"`
	Slot         int       `json:"slot"`
	// Sent counts how often the run's attempts were offered; a command with an
	// older number than the offer's is void.
	Sent int64 `json:"sent"`
	// Cancel is true when the run is being canceled: the attempt only ends what
	// is left of it, and needs no worker's place.
	Cancel bool `json:"cancel,omitempty"`
	// Compute is where the attempt runs: Lambda or Fargate; empty: in a process.
	Compute string `json:"compute,omitempty"`
}

func (c Command) String() string {
	return fmt.Sprintf("attempt of run %s in slot %d", c.Run, c.Slot)
}

// CommandQueue carries commands to workers. Send may lose or repeat a command.
type CommandQueue interface {
	Send(ctx context.Context, c Command) error
}

// Compute says how many attempts can be taken now; a queue that buffers says a
// constant.
type Compute interface {
	Free() int
}

// Admission bounds what runs at once.
type Admission struct {
	// PerOrganization is the greatest number of slots of an organization that run
	// at once; a run that wants more than that runs alone.
	PerOrganization int
	// Expiry is how long a sent command may take to be accepted.
	Expiry time.Duration
	// TaskExpiry is that of a command for which a container has to be started first,
	// until it is; 0 means 2 min.
	TaskExpiry time.Duration
	// Platform is what attempts can run on.
	Platform Platform
}

// Store keeps offers.
type Store interface {
	// Admit marks up to n due offers as sent and returns their commands: those of
	// organizations that run least first, then the oldest. Offers of runs that are
	// being canceled are admitted besides, whatever n is.
	Admit(ctx context.Context, n int, a Admission) ([]Command, error)
}

// Offers is what a worker does with an offer.
type Offers interface {
	// Accept gives the offer to the holder; false: there is nothing to do for it.
	Accept(ctx context.Context, c Command, holder string, ttl time.Duration) (bool, error)
	// Keep extends an accepted offer until the worker has its lease, and answers
	// what the run's owner wants. *engine.StaleError if it is the holder's no more.
	Keep(ctx context.Context, c Command, holder string, ttl time.Duration) (engine.Desired, error)
}

// Dispatcher sends what is due.
type Dispatcher struct {
	Store     Store
	Queue     CommandQueue
	Compute   Compute
	Admission Admission
}

// Dispatch admits and sends until nothing is due or no place is free, and returns
// how many commands it sent. What could not be sent is sent again later.
func (d *Dispatcher) Dispatch(ctx context.Context) (int, error) {
	sent := 0
	for {
		free := d.Compute.Free()
		commands, err := d.Store.Admit(ctx, free, d.Admission)
		if err != nil {
			return sent, fmt.Errorf("admit attempts: %w", err)
		}
		for _, c := range commands {
			if err := d.Queue.Send(ctx, c); err != nil {
				return sent, fmt.Errorf("send %s: %w", c, err)
			}
			sent++
		}
		if len(commands) < max(free, 1) {
			return sent, nil
		}
	}
}
