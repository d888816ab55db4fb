package schedules

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

const (
	// maxCron is the greatest length of a cron line in bytes.
	maxCron = 256
	// horizon is how far ahead an instant is sought. Weekdays and dates repeat
	// after 28 years, and once 40 across a century that is no leap year.
	horizon = 40 * 366 * 24 * time.Hour
	// starBit marks a field that was written as * or ?; the other bits are values.
	starBit = 1 << 63
	// allHours are the bits of hours 0 to 23.
	allHours = 1<<24 - 1
)

// cronCalendar is a parsed cron line in a zone.
type cronCalendar struct {
	minute, hour, dom, month, dow uint64
	zone                          *time.Location
	// everyHour: the hour does not narrow the schedule, so the second pass of a
	// repeated hour fires too.
	everyHour bool
}

// parseCron parses five fields or a descriptor such as @daily.
func parseCron(line string, zone *time.Location) (*cronCalendar, error) {
	line = strings.TrimSpace(line)
	switch upper := strings.ToUpper(line); {
	case line == "":
		return nil, errors.New("the cron line is empty")
	case len(line) > maxCron:
		return nil, fmt.Errorf("the cron line is longer than %d bytes", maxCron)
	case strings.Contains(upper, "TZ="):
		return nil, &hintedError{"the cron line names a time zone", "put the zone into time_zone"}
	case strings.HasPrefix(upper, "@EVERY"):
		return nil, &hintedError{"@every is not a time of day", "use an interval instead of a cron line"}
	case line[0] != '@' && len(strings.Fields(line)) == 6:
		return nil, &hintedError{"the cron line has six fields", "seconds are not supported: use five fields, minute hour day-of-month month day-of-week"}
	}
	parser := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)
	parsed, err := parser.Parse(line)
	if err != nil {
		return nil, &hintedError{err.Error(), "the fields are minute (0-59), hour (0-23), day of month (1-31), month (1-12 or JAN-DEC), day of week (0-6 or SUN-SAT)"}
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("%q is not a cron line", line)
	}
	c := &cronCalendar{
		minute: spec.Minute, hour: spec.Hour, dom: spec.Dom, month: spec.Month, dow: spec.Dow,
		zone: zone, everyHour: spec.Hour&allHours == allHours,
	}
	if _, ok := c.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); !ok {
		return nil, &hintedError{fmt.Sprintf("%q never fires: there is no such date", line), "check the day of month against the month"}
	}
	return c, nil
}

// Next implements [Calendar]. It walks the stretches of time in which the zone's
// offset is constant; inside one, wall-clock time and instants differ by a
// constant, so both can be searched in the wall clock's terms.
func (c *cronCalendar) Next(after time.Time) (time.Time, bool) {
	after = after.UTC()
	limit := after.Add(horizon)
	at := after
	for at.Before(limit) {
		s := c.stretchAt(at)
		end := s.end
		if end.IsZero() || end.After(limit) {
			end = limit
		}
		best, found := c.regular(s, after, end)
		if moved, ok := c.moved(s, after, end); ok && (!found || moved.Before(best)) {
			best, found = moved, true
		}
		if found {
			return best, true
		}
		at = end
	}
	return time.Time{}, false
}

// stretch is a time of constant offset.
type stretch struct {
	// start and end bound it; zero: there is no bound.
	start, end time.Time
	// offset and before are its offset and that of the time before it.
	offset, before time.Duration
}

func (c *cronCalendar) stretchAt(t time.Time) stretch {
	local := t.In(c.zone)
	start, end := local.ZoneBounds()
	s := stretch{offset: offsetOf(local)}
	s.before = s.offset
	if !start.IsZero() {
		s.start = start.UTC()
		s.before = offsetOf(start.Add(-time.Nanosecond))
	}
	if !end.IsZero() {
		s.end = end.UTC()
	}
	return s
}

func offsetOf(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// regular finds the first match whose local time exists.
func (c *cronCalendar) regular(s stretch, after, end time.Time) (time.Time, bool) {
	from := after
	if !s.start.IsZero() && from.Before(s.start) {
		from = s.start.Add(-time.Nanosecond)
	}
	wall := from.Add(s.offset)
	if s.before > s.offset && !c.everyHour {
		// The clock went back: these local times were there already, an hour ago.
		if first := s.start.Add(s.before - time.Nanosecond); wall.Before(first) {
			wall = first
		}
	}
	w, ok := c.nextWall(wall, end.Add(s.offset))
	return w.Add(-s.offset), ok
}

// moved finds the first match in the gap with which the stretch begins. Read with
// the offset before the gap it lies as long after the gap's end as it lay after
// its begin.
func (c *cronCalendar) moved(s stretch, after, end time.Time) (time.Time, bool) {
	if s.before >= s.offset {
		return time.Time{}, false
	}
	from := s.start.Add(-time.Nanosecond)
	if after.After(from) {
		from = after
	}
	w, ok := c.nextWall(from.Add(s.before), s.start.Add(s.offset))
	at := w.Add(-s.before)
	return at, ok && at.Before(end)
}

// nextWall finds the first matching wall-clock minute after one and before the
// other. Wall-clock times are written as if they were UTC.
func (c *cronCalendar) nextWall(after, before time.Time) (time.Time, bool) {
	t := after.Truncate(time.Minute).Add(time.Minute)
	for t.Before(before) {
		year, month, day := t.Date()
		hour, minute, _ := t.Clock()
		if c.month>>uint(month)&1 == 0 {
			t = time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
			continue
		}
		if !c.dayMatches(t) {
			t = time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
			continue
		}
		if c.hour>>uint(hour)&1 == 0 {
			t = time.Date(year, month, day, hour+1, 0, 0, 0, time.UTC)
			continue
		}
		if rest := c.minute &^ starBit >> uint(minute); rest != 0 {
			t = t.Add(time.Duration(bits.TrailingZeros64(rest)) * time.Minute)
			return t, t.Before(before)
		}
		t = time.Date(year, month, day, hour+1, 0, 0, 0, time.UTC)
	}
	return time.Time{}, false
}

// dayMatches is cron's rule: with both day fields narrowed, either suffices.
func (c *cronCalendar) dayMatches(t time.Time) bool {
	dom := c.dom>>uint(t.Day())&1 == 1
	dow := c.dow>>uint(t.Weekday())&1 == 1
	if c.dom&starBit != 0 || c.dow&starBit != 0 {
		return dom && dow
	}
	return dom || dow
}
