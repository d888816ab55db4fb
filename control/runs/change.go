package runs

import (
	"fmt"
	"time"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

// transitions lists the states that may follow each. Partial is failed and
// resumable, from where a run goes on like a paused one.
var transitions = map[engine.RunState][]engine.RunState{
	engine.StateScheduled: {engine.StateRequested, engine.StateCanceled, engine.StateFailed},
	engine.StateRequested: {engine.StateRunning, engine.StatePaused, engine.StateCanceled, engine.StateFailed},
	engine.StateRunning:   {engine.StateCompleted, engine.StateFailed, engine.StateCanceled, engine.StatePaused},
	engine.StatePaused:    {engine.StateRunning, engine.StateRequested, engine.StateCanceled, engine.StateFailed},
	engine.StateFailed:    {engine.StateRunning, engine.StateRequested, engine.StateCanceled},
}

// Follows tells whether a state may follow another one; a state never follows
// itself.
func Follows(from, to engine.RunState) bool {
	for _, s := range transitions[from] {
		if s == to {
			return true
		}
	}
	return false
}

// Change is what a decision does to a run, in one transaction.
type Change struct {
	// Nothing: the run stays exactly as it is.
	Nothing bool
	// State and Desired are the new ones.
	State   engine.RunState
	Desired engine.Desired
	// Resumable, Error, Class and Hint belong to StateFailed.
	Resumable bool
	Error     string
	Class     engine.Class
	Hint      string
	// Failures and Interruptions replace the run's.
	Failures, Interruptions int
	// Offer offers the next attempt at OfferAt (zero: now); Withdraw takes an
	// offer back that waits. Neither: offers stay.
	Offer, Withdraw bool
	OfferAt         time.Time
	Facts           []events.Payload
}

// keep is the change that changes nothing yet.
func (r *Run) keep() Change {
	return Change{State: r.State, Desired: r.Desired, Resumable: r.Resumable, Error: r.Error, Class: r.Class, Hint: r.Hint, Failures: r.Failures, Interruptions: r.Interruptions}
}

func nothing(r *Run) Change {
	c := r.keep()
	c.Nothing = true
	return c
}

// end moves the run to a state in which nobody works on it.
func (r *Run) end(state engine.RunState, fact events.Payload) Change {
	c := r.keep()
	c.State, c.Desired, c.Resumable, c.Error, c.Class, c.Hint = state, engine.DesiredRun, false, "", "", ""
	c.Withdraw, c.Facts = true, []events.Payload{fact}
	return c
}

func (r *Run) fail(class engine.Class, resumable bool, text, hint string) Change {
	c := r.end(engine.StateFailed, events.RunFailed{Class: string(class), Error: text, Hint: hint, Resumable: resumable})
	c.Error, c.Class, c.Hint, c.Resumable = text, class, hint, resumable
	return c
}

// goOn lets the next attempt be offered.
func (r *Run) goOn(at time.Time) Change {
	c := r.keep()
	c.Desired, c.Offer, c.OfferAt = engine.DesiredRun, true, at
	return c
}

// illegal is the answer to what a run's state does not allow.
func (r *Run) illegal(verb, hint string) error {
	state := string(r.State)
	if r.State == engine.StateFailed && r.Resumable {
		state += " (resumable)"
	}
	return &control.ConflictError{Code: "run_state", State: string(r.State), Message: fmt.Sprintf("run %s is %s and cannot be %s", r.ID, state, verb), Hint: hint}
}

// Cancel decides what cancel does. A run that nobody works on is canceled at
// once; else its workers are told, and write the state when their sessions are
// closed (P22). Asking twice changes nothing.
func Cancel(r *Run, by string) (Change, error) {
	switch {
	case r.State == engine.StateCanceled, r.Open() && r.State != engine.StatePaused && r.Desired == engine.DesiredCancel:
		return nothing(r), nil
	case r.State == engine.StateCompleted, r.State == engine.StateFailed && !r.Resumable:
		return Change{}, r.illegal("canceled", "")
	case r.Busy:
		c := r.keep()
		c.Desired, c.Facts = engine.DesiredCancel, []events.Payload{events.RunAsked{For: string(engine.DesiredCancel), By: by}}
		return c, nil
	case r.State == engine.StateRunning && r.Interruptions > 0:
		// A lost worker may have left sessions: one more attempt ends them (P5).
		c := r.goOn(time.Time{})
		c.Desired, c.Facts = engine.DesiredCancel, []events.Payload{events.RunAsked{For: string(engine.DesiredCancel), By: by}}
		return c, nil
	}
	return r.end(engine.StateCanceled, events.RunCanceled{Reason: "asked for by " + by}), nil
}

// Pause decides what pause does. Asking twice changes nothing.
func Pause(r *Run, by string) (Change, error) {
	switch {
	case r.State == engine.StatePaused:
		return nothing(r), nil
	case r.State != engine.StateRunning && r.State != engine.StateRequested, r.Desired == engine.DesiredCancel:
		return Change{}, r.illegal("paused", "")
	case r.Busy && r.Desired == engine.DesiredPause:
		return nothing(r), nil
	case r.Busy:
		c := r.keep()
		c.Desired, c.Facts = engine.DesiredPause, []events.Payload{events.RunAsked{For: string(engine.DesiredPause), By: by}}
		return c, nil
	}
	return r.end(engine.StatePaused, events.RunPaused{Reason: "asked for by " + by}), nil
}

// Resume decides what resume does with a paused or partial run; a pause that was
// only asked for is taken back. A run that goes on anyhow stays as it is.
func Resume(r *Run, by string) (Change, error) {
	switch {
	case r.Desired == engine.DesiredCancel && r.Open():
		return Change{}, r.illegal("resumed", "it is being canceled")
	case r.Open() && r.State != engine.StatePaused && r.Desired == engine.DesiredPause:
		c := r.keep()
		c.Desired, c.Facts = engine.DesiredRun, []events.Payload{events.RunAsked{For: string(engine.DesiredRun), By: by}}
		return c, nil
	case r.Open() && r.State != engine.StatePaused:
		return nothing(r), nil
	case r.State != engine.StatePaused && !(r.State == engine.StateFailed && r.Resumable):
		return Change{}, r.illegal("resumed", "start a new run")
	case r.Overtaken:
		return Change{}, &control.ConflictError{Code: "run_overtaken", State: string(r.State),
			Message: fmt.Sprintf("run %s cannot go on: a later run of its route exists", r.ID), Hint: "start a new run"}
	}
	c := r.goOn(time.Time{})
	c.State = engine.StateRunning
	if r.Attempts == 0 {
		// It never began, so that it begins as any other.
		c.State = engine.StateRequested
	}
	c.Resumable, c.Error, c.Class, c.Hint, c.Failures, c.Interruptions = false, "", "", "", 0, 0
	c.Facts = []events.Payload{events.RunResumed{By: by}}
	return c, nil
}

// Due decides about a scheduled run whose time has come.
func Due(r *Run) Change {
	if r.State != engine.StateScheduled {
		return nothing(r)
	}
	c := r.goOn(time.Time{})
	c.State, c.Facts = engine.StateRequested, []events.Payload{requested(r)}
	return c
}

func requested(r *Run) events.Payload {
	return events.RunRequested{Pipeline: r.Title, PipelineVersion: r.Hash, Route: r.Route}
}

// Failure is how an attempt failed.
type Failure struct {
	Class engine.Class
	Error string
	Hint  string
	// Resumable tells that a later attempt can go on from a checkpoint.
	Resumable bool
}

// Failed decides what a failed attempt means: another one after a wait, or the
// run's end. random is in [0, 1).
func Failed(r *Run, f Failure, random float64) Change {
	if r.State != engine.StateRunning && r.State != engine.StateRequested {
		return nothing(r)
	}
	if r.Desired == engine.DesiredCancel {
		return r.end(engine.StateCanceled, events.RunCanceled{Reason: "asked for; the attempt had failed: " + f.Error})
	}
	failures := r.Failures + 1
	if r.Desired == engine.DesiredRun && r.Policy.Retry.again(failures, f.Class) && r.Limit() == "" {
		at := r.Now.Add(r.Policy.Retry.backoff(failures, random))
		c := r.goOn(at)
		c.Failures = failures
		c.Facts = []events.Payload{events.AttemptFailed{Class: string(f.Class), Error: f.Error, Failures: failures, NotBefore: at.UTC()}}
		return c
	}
	c := r.fail(f.Class, f.Resumable, f.Error, f.Hint)
	c.Failures = failures
	return c
}

// Lost is a slot whose worker was lost with its lease.
type Lost struct {
	Slot       int
	Generation int64
	Holder     string
}

// Interrupted decides what lost workers mean: another attempt, which is no failed
// one, unless it was the third in a row without progress (P24).
func Interrupted(r *Run, lost []Lost) Change {
	if r.State != engine.StateRunning {
		return nothing(r)
	}
	const reason = "lease expired"
	n := r.Interruptions
	var facts []events.Payload
	for _, l := range lost {
		if l.Slot == 0 {
			n++
		}
		facts = append(facts, events.AttemptInterrupted{Slot: l.Slot, Generation: l.Generation, Holder: l.Holder, Reason: reason, InARow: n})
	}
	var c Change
	switch {
	case r.Busy:
		// The first slot lives and goes on with the others' splits.
		c = r.keep()
	case n >= MaxInterruptions && r.Desired != engine.DesiredCancel:
		c = r.fail(engine.Retryable, true,
			fmt.Sprintf("the last %d attempts were lost without progress: the worker of the last one, %s, stopped renewing its lease", n, lost[0].Holder),
			"look at that worker's log and memory; then resume the run")
	default:
		c = Idle(r)
	}
	c.Nothing, c.Interruptions = false, n
	c.Facts = append(facts, c.Facts...)
	return c
}

// NeverBegan decides about a run whose worker ended before it had its lease: that
// is an interruption too (P24), unless the platform is to blame.
func NeverBegan(r *Run, slot int, holder, why string, counts bool) Change {
	if r.Busy || r.State != engine.StateRequested && r.State != engine.StateRunning {
		return nothing(r)
	}
	if !counts {
		return Idle(r)
	}
	n := r.Interruptions + 1
	reason := "the worker ended before its attempt began: " + why
	fact := events.AttemptInterrupted{Slot: slot, Holder: holder, Reason: reason, InARow: n}
	c := Idle(r)
	if n >= MaxInterruptions && r.Desired != engine.DesiredCancel {
		c = r.fail(engine.Retryable, true, fmt.Sprintf("the last %d attempts were lost without progress: %s", n, reason),
			"look at the worker's log and at the platform's limits; then resume the run")
	}
	c.Nothing, c.Interruptions = false, n
	c.Facts = append([]events.Payload{fact}, c.Facts...)
	return c
}

// Idle decides what happens with an open run that nobody works on and that
// nobody was offered: after a hand-over, a lost worker, or a crash in between.
func Idle(r *Run) Change {
	if r.State == engine.StatePaused && r.Desired == engine.DesiredCancel && !r.Busy {
		// The worker paused before it heard that more was wanted.
		return r.end(engine.StateCanceled, events.RunCanceled{Reason: "asked for while it was being paused"})
	}
	if r.Busy || r.Offered || r.State != engine.StateRequested && r.State != engine.StateRunning {
		return nothing(r)
	}
	switch r.Desired {
	case engine.DesiredPause:
		return r.end(engine.StatePaused, events.RunPaused{Reason: "asked for while no worker had it"})
	case engine.DesiredCancel:
		if r.Attempts == 0 {
			return r.end(engine.StateCanceled, events.RunCanceled{Reason: "asked for before the first attempt"})
		}
		// One more attempt ends what a lost worker left at both ends (P5, P22).
		c := r.goOn(time.Time{})
		c.Desired = engine.DesiredCancel
		return c
	}
	if why := r.Limit(); why != "" {
		return r.fail(engine.Permanent, true, why, "raise the pipeline's limit, or look at what the run waits for; then resume it")
	}
	return r.goOn(time.Time{})
}

// EndCancel decides about a run that is being canceled and of which no session
// can be left that we could reach.
func EndCancel(r *Run) Change {
	if r.Busy || !r.Open() || r.Desired != engine.DesiredCancel {
		return nothing(r)
	}
	return r.end(engine.StateCanceled, events.RunCanceled{Reason: "asked for; its ends could not be reached"})
}
