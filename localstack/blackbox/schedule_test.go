package blackbox

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"
)

// runs of a pipeline, the newest first.
func (p *pipe) runs() []document {
	p.t.Helper()
	return p.must(http.MethodGet, "/v1/runs?limit=100&pipeline="+url.QueryEscape(p.name), nil).items()
}

// instant is when a schedule at(…) of EventBridge fires.
func instant(t *testing.T, expression string) time.Time {
	t.Helper()
	text := strings.TrimSuffix(strings.TrimPrefix(expression, "at("), ")")
	at, err := time.Parse("2006-01-02T15:04:05", text)
	require.NoError(t, err, expression)
	return at
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	c := admin(t)
	p := c.pipe(500, settings{})
	s := c.must(http.MethodPost, "/v1/schedules", map[string]any{"name": name(t), "pipeline": p.name, "cron": "* * * * *"})
	id := s.text("id")

	// One schedule in EventBridge, at the next instant.
	require.Eventually(t, func() bool { return findSchedule(t, id) != nil }, time.Minute, 500*time.Millisecond)
	first := findSchedule(t, id)
	require.Equal(t, enabled, first.State)
	at := instant(t, aws.ToString(first.ScheduleExpression))

	// It fires compile, a run follows, and the chain goes on.
	require.Eventually(t, func() bool { return len(p.runs()) >= 2 }, 4*time.Minute, time.Second, "two occurrences")
	next := findSchedule(t, id)
	require.NotNil(t, next)
	require.True(t, instant(t, aws.ToString(next.ScheduleExpression)).After(at))
	for _, r := range p.runs() {
		require.Equal(t, "schedule", r.text("trigger"))
		p.wait(r.text("id"), 2*time.Minute, "completed")
	}

	// Paused: nothing is left that could fire.
	c.must(http.MethodPost, "/v1/schedules/"+id+"/pause", nil)
	require.Eventually(t, func() bool {
		left := findSchedule(t, id)
		return left == nil || left.State != enabled
	}, time.Minute, 500*time.Millisecond)

	// The same occurrence again, late and twice, is no other run.
	before := len(p.runs())
	c.must(http.MethodPost, "/v1/schedules/"+id+"/resume", nil)
	require.Eventually(t, func() bool {
		again := findSchedule(t, id)
		return again != nil && again.State == enabled
	}, time.Minute, 500*time.Millisecond)
	again := findSchedule(t, id)
	for range 3 {
		tell(t, "/schedules/"+aws.ToString(again.GroupName)+"/"+aws.ToString(again.Name)+"/fire?at="+at.UTC().Format(time.RFC3339))
	}
	c.must(http.MethodPost, "/v1/schedules/"+id+"/pause", nil)
	occurrences := map[string]int{}
	for _, r := range p.runs() {
		occurrences[r.text("occurrence")]++
	}
	require.LessOrEqual(t, len(p.runs()), before+1, "at most the next minute's own")
	for occurrence, n := range occurrences {
		require.Equal(t, 1, n, occurrence)
	}
	p.equal(1)
}
