// Package plane is the control plane as the functions share it: what makes work,
// brings it to workers, and tells of it.
//
// The processes of tranship serve listen for hints. Here the hints of committed
// transactions stay in the process, and [Plane.After] does what they ask for before
// the handler answers; what that misses, the sweep does (P25).
package plane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/control/operations"
	"github.com/tranship-io/tranship/control/projection"
	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/control/schedules"
	"github.com/tranship-io/tranship/internal/awsadapter/queue"
	"github.com/tranship-io/tranship/internal/awsadapter/sweepswitch"
	"github.com/tranship-io/tranship/internal/compose/cloud"
	"github.com/tranship-io/tranship/internal/compose/cloud/database"
	"github.com/tranship-io/tranship/internal/compose/intake"
	"github.com/tranship-io/tranship/store"
)

// Plane is the control plane in one function.
type Plane struct {
	*cloud.Function
	DB         *database.Database
	Lease      time.Duration
	Runs       *runs.Service
	Firing     *schedules.Firing
	Dispatcher *dispatch.Dispatcher
	Facts      *projection.Forwarder
	// Deliveries passes on what is to be told; nil in functions without their queue.
	Deliveries *notify.Forwarder
	// Platform is what attempts can run on.
	Platform dispatch.Platform
	// Operations are the effects that this function can do.
	Operations *operations.Runner

	mu    sync.Mutex
	hints map[store.Hint]bool
	// woken tells a follower of new hints.
	woken chan struct{}
}

const (
	// maxWait bounds a wait for facts: a function that waits is billed.
	maxWait = 5 * time.Second
	// admitted is how many commands one admission sends: a queue holds any number.
	admitted = buffer(100)
)

// buffer is a queue that takes that many at once.
type buffer int

// Free implements [dispatch.Compute].
func (b buffer) Free() int { return int(b) }

// Open reads the environment of a function that makes work or does it.
func Open(ctx context.Context, f *cloud.Function, connections int32) (*Plane, error) {
	p := &Plane{Function: f, hints: map[store.Hint]bool{}, woken: make(chan struct{}, 1)}
	facts := f.Env.Need("TRANSHIP_FACTS_QUEUE")
	group, name := f.Env.Need("TRANSHIP_SCHEDULE_GROUP"), f.Env.Need("TRANSHIP_SWEEP_SCHEDULE")
	running := f.Env.Int("TRANSHIP_MAX_RUNNING", 64)
	p.Lease = f.Env.Duration("TRANSHIP_LEASE", time.Minute)
	var err error
	if p.DB, err = database.Open(ctx, f, database.Options{Connections: connections, Switch: sweepswitch.New(f.AWS, group, name), Hints: p.hint}); err != nil {
		return nil, err
	}
	p.Platform = p.platform()
	p.Runs = &runs.Service{Store: p.DB, Pipelines: intake.Compiler{Store: p.DB, Platform: p.Platform}, Waiter: waiter{}, Clock: control.SystemClock{}, MaxWait: maxWait}
	p.Firing = &schedules.Firing{Ledger: p.DB.Schedules(), Intake: intake.Schedules{Runs: p.Runs}, Log: f.Log}
	p.Dispatcher = &dispatch.Dispatcher{
		Store: p.DB, Queue: p.commands(p.Platform.Fargate), Compute: admitted,
		Admission: dispatch.Admission{PerOrganization: running, Expiry: p.Lease, Platform: p.Platform},
	}
	p.Operations = &operations.Runner{Store: p.DB, Effects: map[string]operations.Effect{}, Clock: control.SystemClock{}, Log: f.Log}
	p.Facts = &projection.Forwarder{Facts: p.DB.Projection(), Queue: queue.Facts{Queue: queue.New(f.AWS, facts)}}
	if url := f.Env.Get("TRANSHIP_DELIVERIES_QUEUE", ""); url != "" {
		p.Deliveries = &notify.Forwarder{Ledger: p.DB.Notifications(), Queue: queue.Deliveries{Queue: queue.New(f.AWS, url)}, Clock: control.SystemClock{}}
	}
	return p, nil
}

// hint notes the hint of a committed transaction.
func (p *Plane) hint(h store.Hint) {
	p.mu.Lock()
	p.hints[h] = true
	p.mu.Unlock()
	p.Wake()
}

// Wake lets a follower look at the facts of its run.
func (p *Plane) Wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// take returns the hints that came since it was called last.
func (p *Plane) take() map[store.Hint]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.hints
	p.hints = map[store.Hint]bool{}
	return out
}

// afterTime bounds what is done before an answer: it is short of every function's
// timeout, and what is left is the sweep's.
const afterTime = 10 * time.Second

// After does what the hints of this invocation ask for. An error tells that the
// sweep has to do it.
func (p *Plane) After(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), afterTime)
	defer cancel()
	var errs []error
	dispatching, telling := false, false
	told := map[uuid.UUID]bool{}
	for h := range p.take() {
		switch h.Kind {
		case store.HintIntake:
			dispatching = true
		case store.HintFacts:
			if !told[h.Object] {
				told[h.Object] = true
				errs = append(errs, p.Facts.Forward(ctx, projection.RunRef{Organization: h.Organization, Run: h.Object}))
			}
		case store.HintDelivery:
			telling = p.Deliveries != nil
		case store.HintArmed, store.HintDesired, store.HintSchedule:
		}
	}
	if dispatching {
		errs = append(errs, p.Dispatch(ctx))
	}
	if telling {
		_, err := p.Deliveries.Run(ctx)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Dispatch sends commands for the attempts that are due.
func (p *Plane) Dispatch(ctx context.Context) error {
	if _, err := p.Dispatcher.Dispatch(ctx); err != nil {
		return fmt.Errorf("dispatch attempts: %w", err)
	}
	return nil
}

// rest is how long a follower lets facts gather.
const rest = 500 * time.Millisecond

// Follow sends facts of a run while it is worked on, until the returned function is
// called, which waits for that.
func (p *Plane) Follow(ctx context.Context, r projection.RunRef) (end func()) {
	stop := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			select {
			case <-p.woken:
			case <-stop:
				return
			}
			// What is being sent when the attempt ends is sent to its end, lest it be sent
			// twice.
			if err := p.Facts.Forward(ctx, r); err != nil {
				// The end of the attempt, or the sweep, sends them.
				p.Log.WarnContext(ctx, "send facts", "run", r.Run, "error", err)
			}
			select {
			case <-time.After(rest):
			case <-stop:
				return
			}
		}
	})
	return func() {
		close(stop)
		wait.Wait()
	}
}

// waiter looks again after a while: nothing tells a function of new facts.
type waiter struct{}

// WaitFacts implements [runs.Waiter].
func (waiter) WaitFacts(ctx context.Context, _ uuid.UUID, until time.Time) {
	next := time.Now().Add(rest)
	if until.Before(next) {
		next = until
	}
	_ = (control.SystemClock{}).Sleep(ctx, next)
}
