package schedulegroup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An expression is never earlier than what it stands for, and not in the past.
func TestExpression(t *testing.T) {
	now := time.Date(2026, 3, 8, 7, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		at   time.Time
		want string
	}{
		{now.Add(time.Hour), "at(2026-03-08T08:00:00)"},
		{now.Add(time.Hour + time.Nanosecond), "at(2026-03-08T08:00:01)"},
		{now.Add(time.Hour).In(time.FixedZone("", -5*3600)), "at(2026-03-08T08:00:00)"},
		{now.Add(-time.Hour), "at(2026-03-08T07:00:05)"},
		{now.Add(time.Second), "at(2026-03-08T07:00:05)"},
	} {
		require.Equal(t, c.want, expressionOf(c.at, now))
		parsed, err := time.Parse(layout, c.want)
		require.NoError(t, err)
		require.False(t, parsed.Before(c.at))
	}
}
