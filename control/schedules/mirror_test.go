package schedules_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/schedules"
	"github.com/tranship-io/tranship/control/schedules/schedulestest"
)

func TestMemoryPlatform(t *testing.T) {
	schedulestest.TestPlatform(t, &schedulestest.Memory{})
}

// What the platform is given, one instant after the other, is what the evaluator
// says, over years of zones that change their clocks: it is given UTC, which no
// zone's rules touch.
func TestChainEqualsEvaluator(t *testing.T) {
	for _, c := range []struct {
		line, zone string
		every      time.Duration
		years      int
	}{
		{line: "30 2 * * *", zone: "America/New_York", years: 20},
		{line: "30 1 * * *", zone: "Europe/Berlin", years: 20},
		{line: "15 2 * * *", zone: "Australia/Lord_Howe", years: 20},
		{line: "0 0 * * *", zone: "Africa/Cairo", years: 15},
		{line: "0 0 * * *", zone: "America/Santiago", years: 15},
		{line: "40 * * * *", zone: "Antarctica/Troll", years: 1},
		{line: "0 9 1 * 1", zone: "Asia/Tehran", years: 30},
		{line: "@monthly", zone: "Pacific/Apia", years: 30},
		{every: 7 * time.Hour, years: 5},
	} {
		t.Run(c.line+c.zone+c.every.String(), func(t *testing.T) {
			t.Parallel()
			begin := time.Date(2009, 11, 1, 0, 0, 0, 0, time.UTC)
			timing := schedules.Timing{Cron: c.line, Zone: c.zone, Every: c.every}
			if c.every != 0 {
				timing.Anchor = begin
			}
			calendar, err := timing.Compile("")
			require.NoError(t, err)
			first, ok := calendar.Next(begin)
			require.True(t, ok)
			s := schedules.Schedule{ID: uuid.Must(uuid.NewV7()), Timing: timing, Overlap: schedules.Skip, CatchUp: schedules.CatchUpOne,
				State: schedules.Active, NextInstant: first, NextAt: first}
			want := begin
			for s.NextInstant.Before(begin.AddDate(c.years, 0, 0)) {
				want, ok = calendar.Next(want)
				require.True(t, ok)
				// It comes up to a minute late, as the platform's precision is.
				step, err := schedules.Advance(s, s.NextAt.Add(time.Duration(want.Unix()%25)*time.Second))
				require.NoError(t, err)
				require.Len(t, step.Occurrences, 1)
				require.Equal(t, want, step.Occurrences[0].Instant)
				require.Zero(t, step.Occurrences[0].Missed)
				s.NextInstant, s.NextAt = step.NextInstant, step.NextAt
			}
		})
	}
}
