package schedules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// expression computes the instants of a schedule expression of EventBridge Scheduler:
// at(…), rate(…) or cron(…).
type expression interface {
	// next is the first instant after t, or the zero time if there is none.
	next(t time.Time) time.Time
}

// parse reads an expression. A rate's instants are counted from created, at and cron
// are in the zone.
func parse(text string, zone *time.Location, created time.Time) (expression, error) {
	kind, rest, ok := strings.Cut(text, "(")
	body, closed := strings.CutSuffix(rest, ")")
	if !ok || !closed {
		return nil, fmt.Errorf("schedule expression %q: want at(…), rate(…) or cron(…)", text)
	}
	var e expression
	var err error
	switch kind {
	case "at":
		var t time.Time
		t, err = time.ParseInLocation("2006-01-02T15:04:05", body, zone)
		e = once(t)
	case "rate":
		e, err = parseRate(body, created)
	case "cron":
		e, err = parseCron(body, zone)
	default:
		err = fmt.Errorf("unknown kind %q", kind)
	}
	if err != nil {
		return nil, fmt.Errorf("schedule expression %q: %w", text, err)
	}
	return e, nil
}

// once is at(…).
type once time.Time

func (o once) next(t time.Time) time.Time {
	if time.Time(o).After(t) {
		return time.Time(o)
	}
	return time.Time{}
}

// rate is a grid of equal steps that begins at the schedule's creation.
type rate struct {
	from time.Time
	step time.Duration
}

func parseRate(body string, created time.Time) (expression, error) {
	number, unit, _ := strings.Cut(body, " ")
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 {
		return nil, fmt.Errorf("the value %q is not a positive number", number)
	}
	units := map[string]time.Duration{"minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour}
	step, ok := units[strings.TrimSuffix(unit, "s")]
	if !ok {
		return nil, fmt.Errorf("the unit %q is not minutes, hours or days", unit)
	}
	return rate{from: created, step: time.Duration(n) * step}, nil
}

func (r rate) next(t time.Time) time.Time {
	if t.Before(r.from) {
		return r.from
	}
	return t.Add(r.step - t.Sub(r.from)%r.step)
}

// cron is the six-field dialect: minute, hour, day of month, month, day of week,
// year. Lists, ranges and steps are read; L, W and # are not, and are refused.
type cron struct {
	zone                                   *time.Location
	minutes, hours, days, months, weekdays []int
	years                                  []int
	anyDay, anyWeekday                     bool
}

func parseCron(body string, zone *time.Location) (expression, error) {
	fields := strings.Fields(body)
	if len(fields) != 6 {
		return nil, fmt.Errorf("cron has %d fields, not six", len(fields))
	}
	c := &cron{zone: zone, anyDay: fields[2] == "?" || fields[2] == "*", anyWeekday: fields[4] == "?" || fields[4] == "*"}
	if (fields[2] == "?") == (fields[4] == "?") {
		return nil, fmt.Errorf("exactly one of day of month and day of week must be ?")
	}
	for i, f := range []struct {
		to       *[]int
		from, up int
		names    []string
	}{
		{&c.minutes, 0, 59, nil},
		{&c.hours, 0, 23, nil},
		{&c.days, 1, 31, nil},
		{&c.months, 1, 12, strings.Fields("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC")},
		{&c.weekdays, 1, 7, strings.Fields("SUN MON TUE WED THU FRI SAT")},
		{&c.years, 1970, 2199, nil},
	} {
		values, err := cronField(fields[i], f.from, f.up, f.names)
		if err != nil {
			return nil, err
		}
		*f.to = values
	}
	return c, nil
}

// cronField lists the values of one field.
func cronField(field string, from, up int, names []string) ([]int, error) {
	number := func(text string) (int, error) {
		if i := slices.Index(names, strings.ToUpper(text)); i >= 0 {
			return from + i, nil
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < from || n > up {
			return 0, fmt.Errorf("%q is not between %d and %d", text, from, up)
		}
		return n, nil
	}
	var values []int
	for part := range strings.SplitSeq(field, ",") {
		span, stepText, stepped := strings.Cut(part, "/")
		step := 1
		if stepped {
			var err error
			if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
				return nil, fmt.Errorf("%q is no step", stepText)
			}
		}
		low, high := from, up
		if span != "*" && span != "?" {
			first, last, ranged := strings.Cut(span, "-")
			var err error
			if low, err = number(first); err != nil {
				return nil, err
			}
			switch {
			case ranged:
				if high, err = number(last); err != nil {
					return nil, err
				}
			case !stepped:
				high = low
			}
		}
		for v := low; v <= high; v += step {
			values = append(values, v)
		}
	}
	return values, nil
}

// next looks at days first, so that a yearly schedule costs hundreds of steps and
// not hundreds of thousands.
func (c *cron) next(t time.Time) time.Time {
	local := t.In(c.zone)
	day := time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, c.zone)
	for range 366 * 10 {
		if c.onDay(day) {
			for _, hour := range c.hours {
				for _, minute := range c.minutes {
					at := time.Date(day.Year(), day.Month(), day.Day(), hour, minute, 0, 0, c.zone)
					// A local time that doesn't exist is moved by time.Date; Scheduler skips it.
					if at.Hour() == hour && at.Minute() == minute && at.After(t) {
						return at
					}
				}
			}
		}
		day = time.Date(day.Year(), day.Month(), day.Day()+1, 0, 0, 0, 0, c.zone)
	}
	return time.Time{}
}

func (c *cron) onDay(day time.Time) bool {
	return slices.Contains(c.years, day.Year()) && slices.Contains(c.months, int(day.Month())) &&
		(c.anyDay || slices.Contains(c.days, day.Day())) &&
		(c.anyWeekday || slices.Contains(c.weekdays, int(day.Weekday())+1))
}
