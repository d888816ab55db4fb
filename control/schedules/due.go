package schedules

import (
	"errors"
	"time"
)

const (
	// grace is how late an occurrence may be and still count as on time, unless
	// half the way to the next instant is shorter.
	grace = 5 * time.Minute
	// maxMissed bounds the counting of missed instants: a year of minutes.
	maxMissed = 366 * 24 * 60
)

// errNoInstant tells that a schedule is due although it has no next instant.
var errNoInstant = errors.New("the schedule has no next instant")

// Step is what a schedule does when it is due: the occurrences that come into
// being, oldest first, and where it then stands.
type Step struct {
	Occurrences []Occurrence
	State       State
	// NextInstant and NextAt are zero for a schedule that has no more.
	NextInstant, NextAt time.Time
}

// Advance computes a due schedule's step at the time now. It depends on nothing
// else, so whoever repeats it computes the same.
func Advance(s Schedule, now time.Time) (Step, error) {
	c, err := s.Timing.Compile("")
	if err != nil {
		return Step{}, err
	}
	if s.NextInstant.IsZero() {
		return Step{}, errNoInstant
	}
	due := dueInstants(s, c, now)
	step := Step{State: s.State}
	next, more := c.Next(due.after)
	if more {
		step.NextInstant, step.NextAt = next, fireAt(s.ID, c, next, s.Timing.Jitter)
	} else {
		step.State = Finished
	}
	if due.count == 0 {
		// A clock that runs behind the one that armed this.
		step.NextInstant, step.NextAt = s.NextInstant, fireAt(s.ID, c, s.NextInstant, s.Timing.Jitter)
		step.State = s.State
		return step, nil
	}
	newest := due.kept[len(due.kept)-1]
	allowed := grace
	if more {
		allowed = min(allowed, next.Sub(newest)/2)
	}
	onTime := now.Sub(fireAt(s.ID, c, newest, s.Timing.Jitter)) <= allowed
	step.Occurrences = s.choose(due, onTime, now)
	return step, nil
}

// dueSet holds the instants that are due, of which only the newest are kept.
type dueSet struct {
	kept  []time.Time
	count int
	// after is the last instant counted.
	after time.Time
}

func dueInstants(s Schedule, c Calendar, now time.Time) dueSet {
	keep := 1
	if s.CatchUp == CatchUpAll {
		keep = s.CatchUpLimit + 1
	}
	d := dueSet{after: s.NextInstant}
	for at, ok := s.NextInstant, true; ok && !fireAt(s.ID, c, at, s.Timing.Jitter).After(now); at, ok = c.Next(at) {
		d.count++
		d.after = at
		if len(d.kept) == keep {
			copy(d.kept, d.kept[1:])
			d.kept[keep-1] = at
		} else {
			d.kept = append(d.kept, at)
		}
		if d.count == maxMissed {
			// Older than all that could matter: go on from now.
			if next, ok := c.Next(now); ok && next.After(at) {
				d.after = now
			}
			break
		}
	}
	return d
}

// choose applies the catch-up policy.
func (s Schedule) choose(d dueSet, onTime bool, now time.Time) []Occurrence {
	newest := d.kept[len(d.kept)-1]
	fire := func(at time.Time, missed int) Occurrence {
		return Occurrence{Schedule: s.ID, Instant: at, State: OccurrenceDue, Missed: missed, DueAt: now}
	}
	skip := func(at time.Time, missed int) Occurrence {
		return Occurrence{Schedule: s.ID, Instant: at, State: OccurrenceSkipped, Reason: ReasonMissed, Missed: missed, ConcludedAt: now}
	}
	switch {
	case d.count == 1 && onTime:
		return []Occurrence{fire(newest, 0)}
	case s.CatchUp == CatchUpOne:
		return []Occurrence{fire(newest, d.count-1)}
	case s.CatchUp == CatchUpAll:
		kept := d.kept
		if !onTime && len(kept) > s.CatchUpLimit {
			kept = kept[1:]
		}
		var out []Occurrence
		for _, at := range kept {
			o := fire(at, 0)
			o.CatchingUp = len(kept) > 1
			out = append(out, o)
		}
		if dropped := d.count - len(kept); dropped > 0 {
			// The oldest one that is fired also tells of those that are not.
			out[0].Missed = dropped
		}
		return out
	case onTime:
		// The missed ones are told by the one that fires.
		return []Occurrence{fire(newest, d.count-1)}
	default:
		return []Occurrence{skip(newest, d.count-1)}
	}
}
