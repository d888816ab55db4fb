package schedules

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNext(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC)
	for _, c := range []struct {
		expression, zone, after string
		want                    []string
	}{
		{"at(2026-03-01T13:00:00)", "UTC", "2026-03-01T12:00:00Z", []string{"2026-03-01T13:00:00Z", ""}},
		{"at(2026-07-01T13:00:00)", "Europe/Berlin", "2026-03-01T12:00:00Z", []string{"2026-07-01T11:00:00Z", ""}},
		{"rate(1 minute)", "UTC", "2026-03-01T12:00:00Z", []string{"2026-03-01T12:00:30Z", "2026-03-01T12:01:30Z"}},
		{"rate(2 hours)", "UTC", "2026-03-01T12:00:30Z", []string{"2026-03-01T14:00:30Z", "2026-03-01T16:00:30Z"}},
		{"cron(*/20 * * * ? *)", "UTC", "2026-03-01T12:20:00Z", []string{"2026-03-01T12:40:00Z", "2026-03-01T13:00:00Z"}},
		{"cron(0 8 ? * MON-FRI *)", "UTC", "2026-03-06T09:00:00Z", []string{"2026-03-09T08:00:00Z", "2026-03-10T08:00:00Z"}},
		{"cron(30 2 * * ? *)", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-30T00:30:00Z"}}, // the 29th has no 02:30
		{"cron(0 0 29 2 ? *)", "UTC", "2026-03-01T00:00:00Z", []string{"2028-02-29T00:00:00Z"}},
		{"cron(0 0 1 1 ? 2027)", "UTC", "2026-03-01T00:00:00Z", []string{"2027-01-01T00:00:00Z", ""}},
	} {
		zone, err := time.LoadLocation(c.zone)
		require.NoError(t, err)
		e, err := parse(c.expression, zone, created)
		require.NoError(t, err, c.expression)
		at, err := time.Parse(time.RFC3339, c.after)
		require.NoError(t, err)
		for _, want := range c.want {
			at = e.next(at)
			got := ""
			if !at.IsZero() {
				got = at.UTC().Format(time.RFC3339)
			}
			require.Equal(t, want, got, c.expression)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "at(tomorrow)", "rate(0 minutes)", "rate(5 fortnights)", "cron(* * * * *)", "cron(0 0 * * * *)",
		"cron(0 0 L * ? *)", "cron(61 0 * * ? *)", "cron(0/0 0 * * ? *)", "every(1 minute)", "rate(1 minute",
	} {
		_, err := parse(text, time.UTC, time.Time{})
		require.Error(t, err, text)
	}
}
