package schedules

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
)

func calendar(t testing.TB, line, zone string) Calendar {
	t.Helper()
	c, err := Timing{Cron: line, Zone: zone}.Compile("")
	require.NoError(t, err)
	return c
}

// between returns the instants in [from, to).
func between(c Calendar, from, to time.Time) []string {
	var out []string
	for at, ok := c.Next(from.Add(-time.Nanosecond)); ok && at.Before(to); at, ok = c.Next(at) {
		out = append(out, at.Format(time.RFC3339))
	}
	return out
}

func utc(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return t
}

// Case 26: a local time that does not exist, or exists twice.
func TestDaylightSavingCases(t *testing.T) {
	for _, c := range []struct {
		line, zone, from, to string
		want                 []string
	}{
		{"30 2 * * *", "America/New_York", "2026-03-07T05:00:00Z", "2026-03-10T04:00:00Z",
			[]string{"2026-03-07T07:30:00Z", "2026-03-08T07:30:00Z", "2026-03-09T06:30:00Z"}},
		{"30 1 * * *", "America/New_York", "2026-10-31T04:00:00Z", "2026-11-03T05:00:00Z",
			[]string{"2026-10-31T05:30:00Z", "2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"}},
		{"0 0 * * *", "Africa/Cairo", "2026-04-22T00:00:00Z", "2026-04-25T00:00:00Z",
			[]string{"2026-04-22T22:00:00Z", "2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z"}},
		// Minutes keep their distance in the gap: 02:00 to 02:50 become 03:00 to 03:50.
		{"*/25 2 * * *", "America/New_York", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z",
			[]string{"2026-03-08T07:00:00Z", "2026-03-08T07:25:00Z", "2026-03-08T07:50:00Z"}},
		// A gap of half an hour.
		{"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", "2026-10-05T00:00:00Z",
			[]string{"2026-10-03T15:45:00Z", "2026-10-04T15:15:00Z"}},
		// A whole day that never was: its occurrence falls together with the next day's.
		{"0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", "2012-01-01T00:00:00Z",
			[]string{"2011-12-29T22:00:00Z", "2011-12-30T22:00:00Z", "2011-12-31T22:00:00Z"}},
	} {
		t.Run(c.line+" "+c.zone, func(t *testing.T) {
			require.Equal(t, c.want, between(calendar(t, c.line, c.zone), utc(c.from), utc(c.to)))
		})
	}
}

// A job of every half hour runs 48 times in every 24 hours, whatever the clock does.
func TestHalfHoursFollowElapsedTime(t *testing.T) {
	for _, line := range []string{"*/30 * * * *", "0,30 0-23 * * *"} {
		c := calendar(t, line, "America/New_York")
		for _, day := range []string{"2026-03-08T00:00:00Z", "2026-03-08T05:00:00Z", "2026-11-01T00:00:00Z", "2026-11-01T05:00:00Z"} {
			got := between(c, utc(day), utc(day).Add(24*time.Hour))
			require.Len(t, got, 48, "%s %s", line, day)
			for i, at := range got {
				require.True(t, utc(at).Equal(utc(day).Add(time.Duration(i)*30*time.Minute)))
			}
		}
	}
}

// Over years and zones: one occurrence for each local day, at the given time or,
// where that is missing, in the hour after the gap.
func TestOncePerLocalDay(t *testing.T) {
	for _, zone := range []string{
		"America/New_York", "Europe/London", "Europe/Dublin", "Africa/Cairo", "Africa/Casablanca", "Asia/Beirut", "Asia/Gaza",
		"America/Santiago", "America/Havana", "Australia/Lord_Howe", "Pacific/Chatham", "Asia/Tehran", "America/Asuncion",
		"America/Nuuk", "Antarctica/Troll", "America/Sao_Paulo", "UTC",
	} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			loc, err := time.LoadLocation(zone)
			require.NoError(t, err)
			for _, clock := range []string{"0 0", "30 0", "30 1", "0 2", "30 2", "15 3"} {
				var minute, hour int
				_, err := fmt.Sscanf(clock, "%d %d", &minute, &hour)
				require.NoError(t, err)
				c := calendar(t, clock+" * * *", zone)
				at := time.Date(2015, 1, 1, 12, 0, 0, 0, loc)
				for day := time.Date(2015, 1, 2, 0, 0, 0, 0, time.UTC); day.Year() < 2037; day = day.AddDate(0, 0, 1) {
					next, ok := c.Next(at)
					require.True(t, ok)
					local := next.In(loc)
					require.Equal(t, day.Format(time.DateOnly), local.Format(time.DateOnly), "%s in %s: after %s", clock, zone, at)
					late := time.Duration(local.Hour()-hour)*time.Hour + time.Duration(local.Minute()-minute)*time.Minute
					if late != 0 {
						start, _ := next.In(loc).ZoneBounds()
						require.Less(t, next.Sub(start), 3*time.Hour, "only a gap moves a time: %s in %s at %s", clock, zone, local)
						require.Positive(t, late)
						require.LessOrEqual(t, late, 2*time.Hour)
					}
					at = next
				}
			}
		})
	}
}

// TestAgainstMinutes compares with a calendar that looks at every minute.
func TestAgainstMinutes(t *testing.T) {
	rng := rand.New(rand.NewPCG(26, 1))
	field := func(lo, hi int) string {
		switch rng.IntN(5) {
		case 0:
			return "*"
		case 1:
			return fmt.Sprintf("*/%d", 1+rng.IntN(hi-lo))
		case 2:
			a := lo + rng.IntN(hi-lo)
			return fmt.Sprintf("%d-%d", a, a+rng.IntN(hi-a+1))
		case 3:
			return fmt.Sprintf("%d,%d", lo+rng.IntN(hi-lo+1), lo+rng.IntN(hi-lo+1))
		}
		return fmt.Sprint(lo + rng.IntN(hi-lo+1))
	}
	windows := []struct{ zone, from string }{
		{"America/New_York", "2026-03-07T00:00:00Z"},
		{"America/New_York", "2026-10-31T00:00:00Z"},
		{"Europe/Berlin", "2030-03-30T00:00:00Z"},
		{"Europe/Berlin", "2030-10-26T00:00:00Z"},
		{"Africa/Cairo", "2026-04-23T00:00:00Z"},
		{"Australia/Lord_Howe", "2026-04-04T00:00:00Z"},
		{"Australia/Lord_Howe", "2026-10-03T00:00:00Z"},
		{"Antarctica/Troll", "2026-03-28T00:00:00Z"},
		{"Antarctica/Troll", "2026-10-24T00:00:00Z"},
		{"Asia/Kathmandu", "1985-12-30T00:00:00Z"},
		{"Pacific/Apia", "2011-12-29T00:00:00Z"},
		{"Africa/Monrovia", "1972-01-06T00:00:00Z"},
	}
	for range 150 {
		w := windows[rng.IntN(len(windows))]
		line := strings.Join([]string{field(0, 59), field(0, 23), "*", "*", "*"}, " ")
		c := calendar(t, line, w.zone)
		from := utc(w.from)
		to := from.Add(72 * time.Hour)
		require.Equal(t, minuteByMinute(t, c, from, to), between(c, from, to), "%s in %s", line, w.zone)
	}
}

// minuteByMinute walks the zone's local minutes in steps of real time that every offset divides.
func minuteByMinute(t *testing.T, cal Calendar, from, to time.Time) []string {
	t.Helper()
	const step = 30 * time.Second
	c, ok := cal.(*cronCalendar)
	require.True(t, ok)
	matches := func(wall time.Time) bool {
		return c.minute>>wall.Minute()&1 == 1 && c.hour>>wall.Hour()&1 == 1
	}
	wallOf := func(at time.Time) time.Time {
		l := at.In(c.zone)
		return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), l.Second(), 0, time.UTC)
	}
	instants := map[time.Time]bool{}
	seen := map[time.Time]bool{}
	last := wallOf(from.Add(-48 * time.Hour))
	for at := from.Add(-48*time.Hour + step); at.Before(to); at = at.Add(step) {
		wall := wallOf(at)
		// Local times between the last step's and this one's are missing.
		for missing := last.Add(step); missing.Before(wall); missing = missing.Add(step) {
			if missing.Second() == 0 && matches(missing) {
				instants[at.Add(missing.Sub(last)-step)] = true
			}
		}
		if wall.Second() == 0 && matches(wall) && (!seen[wall] || c.everyHour) {
			instants[at] = true
		}
		seen[wall] = true
		last = wall
	}
	var out []string
	for at := from; at.Before(to); at = at.Add(step) {
		if instants[at] {
			out = append(out, at.Format(time.RFC3339))
		}
	}
	return out
}

func TestCronDates(t *testing.T) {
	for _, c := range []struct{ line, after, want string }{
		{"0 0 29 2 *", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"0 0 13 * FRI", "2026-11-01T00:00:00Z", "2026-11-06T00:00:00Z"}, // either day field
		{"0 0 */2 * 1", "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"},  // a step narrows too
		{"0 0 * * 1", "2026-11-02T00:00:00Z", "2026-11-09T00:00:00Z"},
		{"@monthly", "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"},
		{"@daily", "2026-12-31T12:00:00Z", "2027-01-01T00:00:00Z"},
		{"59 23 31 12 ?", "2026-12-31T23:59:00Z", "2027-12-31T23:59:00Z"},
		{"5 4 * jan-feb sun", "2026-03-01T00:00:00Z", "2027-01-03T04:05:00Z"},
	} {
		next, ok := calendar(t, c.line, "").Next(utc(c.after))
		require.True(t, ok)
		require.Equal(t, c.want, next.Format(time.RFC3339), c.line)
	}
}

func TestRefusedTimings(t *testing.T) {
	for name, c := range map[string]struct {
		timing Timing
		path   string
		hint   string
	}{
		"nothing":         {Timing{}, "cron", "remove the others"},
		"two kinds":       {Timing{Cron: "@daily", Every: time.Hour}, "cron", "remove the others"},
		"seconds":         {Timing{Cron: "0 0 2 * * *"}, "cron", "seconds are not supported"},
		"four fields":     {Timing{Cron: "0 2 * *"}, "cron", "the fields are"},
		"a zone inside":   {Timing{Cron: "CRON_TZ=Europe/Berlin 0 2 * * *"}, "cron", "time_zone"},
		"only a zone":     {Timing{Cron: "TZ="}, "cron", "time_zone"},
		"every":           {Timing{Cron: "@every 1h"}, "cron", "interval"},
		"reboot":          {Timing{Cron: "@reboot"}, "cron", ""},
		"sunday as 7":     {Timing{Cron: "0 0 * * 7"}, "cron", "0-6"},
		"no such date":    {Timing{Cron: "0 0 30 2 *"}, "cron", "day of month"},
		"no such zone":    {Timing{Cron: "0 0 * * *", Zone: "Mars/Olympus"}, "time_zone", "IANA"},
		"the machine's":   {Timing{Cron: "0 0 * * *", Zone: "Local"}, "time_zone", "IANA"},
		"a path":          {Timing{Cron: "0 0 * * *", Zone: "../../etc/passwd"}, "time_zone", "IANA"},
		"too often":       {Timing{Every: time.Second}, "every", ""},
		"parts of a s":    {Timing{Every: time.Minute + time.Millisecond}, "every", ""},
		"negative":        {Timing{Every: -time.Hour}, "every", ""},
		"interval's zone": {Timing{Every: time.Hour, Zone: "UTC"}, "time_zone", "remove"},
		"wide jitter":     {Timing{Every: time.Hour, Jitter: 25 * time.Hour}, "jitter", ""},
		"long":            {Timing{Cron: strings.Repeat("0", 300)}, "cron", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.timing.Compile("timing")
			var invalid *control.InvalidError
			require.ErrorAs(t, err, &invalid)
			require.Equal(t, "timing."+c.path, invalid.Problems[0].Path)
			require.Contains(t, invalid.Problems[0].Hint, c.hint)
		})
	}
}

func TestIntervalAndOnce(t *testing.T) {
	c, err := Timing{Every: 90 * time.Minute, Anchor: utc("2026-03-08T00:00:00Z")}.Compile("")
	require.NoError(t, err)
	require.Equal(t, []time.Time{utc("2026-03-08T00:00:00Z"), utc("2026-03-08T01:30:00Z")}, NextInstants(c, utc("2020-01-01T00:00:00Z"), 2))
	require.Equal(t, []time.Time{utc("2026-03-08T03:00:00Z")}, NextInstants(c, utc("2026-03-08T01:30:00Z"), 1))
	c, err = Timing{At: utc("2026-03-08T00:00:00Z")}.Compile("")
	require.NoError(t, err)
	require.Equal(t, []time.Time{utc("2026-03-08T00:00:00Z")}, NextInstants(c, utc("2020-01-01T00:00:00Z"), 2))
	require.Empty(t, NextInstants(c, utc("2026-03-08T00:00:00Z"), 2))
}

// FuzzCron: whatever the line, it is refused or it fires at growing instants that
// match its fields.
func FuzzCron(f *testing.F) {
	for _, seed := range []string{"30 2 * * *", "*/15 0-22/2 1,15 JAN-MAR MON", "@hourly", "TZ=UTC * * * * *", "@every 1h", "0 0 30 2 *", "* * * * ?", "0-59/7 * 31 * 5", "1,2,,3 * * * *"} {
		f.Add(seed, "America/New_York", int64(1772928000))
	}
	f.Add("*/30 * * * *", "Australia/Lord_Howe", int64(1775318400))
	f.Fuzz(func(t *testing.T, line, zone string, at int64) {
		cal, err := Timing{Cron: line, Zone: zone}.Compile("")
		if err != nil {
			return
		}
		c, ok := cal.(*cronCalendar)
		if !ok {
			t.Skip("not a cron line")
		}
		after := time.Unix(at%(1<<33), 0)
		for range 50 {
			next, ok := c.Next(after)
			if !ok {
				t.Fatalf("%q in %q has no instant after %s", line, zone, after)
			}
			if !next.After(after) {
				t.Fatalf("%q in %q: %s is not after %s", line, zone, next, after)
			}
			after = next
		}
	})
}
