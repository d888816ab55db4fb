package schedules

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	_ "time/tzdata" // The zones of the build, on machines without their own.

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control"
)

// Bounds of a timing.
const (
	MinInterval = time.Minute
	MaxInterval = 366 * 24 * time.Hour
	MaxJitter   = 24 * time.Hour
)

// Timing says when a schedule fires: exactly one of Cron, Every and At is set.
type Timing struct {
	// Cron has five fields (minute, hour, day of month, month, day of week) or is
	// a descriptor such as @daily.
	Cron string
	// Zone is the IANA time zone of Cron; empty: UTC.
	Zone string
	// Every is an interval of whole seconds of elapsed time, counted from Anchor.
	Every time.Duration
	// Anchor is the first instant of an interval; zero: when the schedule is made.
	Anchor time.Time
	// At is the one instant of a schedule that fires once.
	At time.Time
	// Jitter delays each occurrence by a part of this window that depends on
	// schedule and occurrence only; 0: none.
	Jitter time.Duration
}

// Calendar knows a timing's instants.
type Calendar interface {
	// Next returns the first instant after the given one, in UTC; false: there is none.
	Next(after time.Time) (time.Time, bool)
}

// hintedError is a problem of a timing with what to do about it.
type hintedError struct{ message, hint string }

func (e *hintedError) Error() string { return e.message }

// Compile checks a timing and returns its calendar. Problems are a
// [*control.InvalidError] with paths below the given one.
func (t Timing) Compile(path string) (Calendar, error) {
	var problems []control.Problem
	add := func(field string, err error) {
		p := control.Problem{Path: field, Message: err.Error()}
		if path != "" {
			p.Path = path + "." + field
		}
		var hinted *hintedError
		if errors.As(err, &hinted) {
			p.Hint = hinted.hint
		}
		problems = append(problems, p)
	}
	var c Calendar
	switch {
	case kinds(t) != 1:
		add("cron", &hintedError{"a schedule has exactly one of cron, every and at", "remove the others"})
	case t.Cron != "":
		zone, err := loadZone(t.Zone)
		if err != nil {
			add("time_zone", err)
			break
		}
		parsed, err := parseCron(t.Cron, zone)
		if err != nil {
			add("cron", err)
			break
		}
		c = parsed
	case t.Every != 0:
		switch {
		case t.Every < MinInterval || t.Every > MaxInterval:
			add("every", fmt.Errorf("an interval is between %s and %s", MinInterval, MaxInterval))
		case t.Every%time.Second != 0:
			add("every", errors.New("an interval is a whole number of seconds"))
		}
		c = interval{every: t.Every, anchor: t.Anchor.UTC()}
	default:
		c = once{t.At.UTC()}
	}
	if t.Cron == "" && t.Zone != "" {
		add("time_zone", &hintedError{"only a cron line has a time zone", "remove it"})
	}
	if t.Jitter < 0 || t.Jitter > MaxJitter {
		add("jitter", fmt.Errorf("a jitter window is between 0 and %s", MaxJitter))
	}
	if problems != nil {
		return nil, &control.InvalidError{Problems: problems}
	}
	return c, nil
}

func kinds(t Timing) int {
	n := 0
	for _, set := range []bool{t.Cron != "", t.Every != 0, !t.At.IsZero()} {
		if set {
			n++
		}
	}
	return n
}

func loadZone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	// "Local" would mean another thing on every machine.
	if zone, err := time.LoadLocation(name); err == nil && name != "Local" {
		return zone, nil
	}
	return nil, &hintedError{fmt.Sprintf("there is no time zone %q", name), "use a name of the IANA database, such as Europe/Berlin"}
}

// interval fires every so much elapsed time.
type interval struct {
	every  time.Duration
	anchor time.Time
}

func (i interval) Next(after time.Time) (time.Time, bool) {
	if after.Before(i.anchor) {
		return i.anchor, true
	}
	last := after.Sub(i.anchor).Truncate(i.every)
	return i.anchor.Add(last + i.every), true
}

// once fires at one instant.
type once struct{ at time.Time }

func (o once) Next(after time.Time) (time.Time, bool) {
	return o.at, after.Before(o.at)
}

// NextInstants returns the next n instants after the given one, fewer if there are no more.
func NextInstants(c Calendar, after time.Time, n int) []time.Time {
	out := make([]time.Time, 0, n)
	for len(out) < n {
		t, ok := c.Next(after)
		if !ok {
			break
		}
		out = append(out, t)
		after = t
	}
	return out
}

// fireAt is when the occurrence is started: the instant, and its part of the
// jitter window. The part is shorter than the time to the following instant, so
// that occurrences never overtake one another.
func fireAt(schedule uuid.UUID, c Calendar, instant time.Time, window time.Duration) time.Time {
	if next, ok := c.Next(instant); ok {
		window = min(window, next.Sub(instant))
	}
	if window < time.Millisecond {
		return instant
	}
	var seed [24]byte
	copy(seed[:], schedule[:])
	binary.BigEndian.PutUint64(seed[16:], uint64(instant.UnixNano()))
	sum := sha256.Sum256(seed[:])
	part := binary.BigEndian.Uint64(sum[:8]) % uint64(window.Milliseconds())
	return instant.Add(time.Duration(part) * time.Millisecond)
}
