package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/schedules"
	"github.com/tranship-io/tranship/internal/cloudtest"
	"github.com/tranship-io/tranship/internal/compose/cloud/plane"
)

func TestMain(m *testing.M) { cloudtest.Main(m) }

func newCompile(t *testing.T, i *cloudtest.Installation) *handler {
	t.Helper()
	f := i.Function("compile")
	p, err := plane.Open(t.Context(), f, 1)
	require.NoError(t, err)
	t.Cleanup(p.DB.Close)
	h := newHandler(p)
	require.NoError(t, f.Env.Err())
	return h
}

// held is what Scheduler would give to the function, at its time.
func held(t *testing.T, i *cloudtest.Installation, id uuid.UUID) (e event, expression string) {
	t.Helper()
	s, err := scheduler.NewFromConfig(i.AWS).GetSchedule(t.Context(), &scheduler.GetScheduleInput{
		GroupName: aws.String(i.Env["TRANSHIP_SCHEDULE_GROUP"]), Name: aws.String(id.String())})
	require.NoError(t, err)
	expression = aws.ToString(s.ScheduleExpression)
	require.Equal(t, "UTC", aws.ToString(s.ScheduleExpressionTimezone))
	at, err := time.Parse("at(2006-01-02T15:04:05)", expression)
	require.NoError(t, err)
	input := strings.ReplaceAll(aws.ToString(s.Target.Input), "<aws.scheduler.scheduled-time>", at.Format(time.RFC3339))
	require.NoError(t, json.Unmarshal([]byte(input), &e))
	require.Equal(t, at.Format(time.RFC3339), e.At)
	return e, expression
}

// TestChain: a firing starts the pipeline's run and moves the schedule on; the same
// one again does nothing; what is broken is mended by the daily repair.
func TestChain(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	i := cloudtest.New(t)
	actor, _ := i.Organization()
	i.Pipeline(actor, "shop", 10)
	h := newCompile(t, i)
	service := &schedules.Service{Store: h.plane.DB.Schedules(), Scheduler: h.compiler.Mirror, Clock: control.SystemClock{}}
	pipeline, err := service.PipelineID(ctx, actor, "shop")
	require.NoError(t, err)
	s, err := service.Create(ctx, actor, schedules.Draft{Pipeline: pipeline, Timing: schedules.Timing{Cron: "* * * * *"}})
	require.NoError(t, err)
	first, expression := held(t, i, s.ID)
	require.Equal(t, s.NextAt.Format("at(2006-01-02T15:04:05)"), expression)

	for range 3 {
		_, err := h.handle(i.Invocation(time.Minute), first)
		require.NoError(t, err)
	}
	var runs int
	i.Query(i.URL, `SELECT count(*) FROM tranship.runs WHERE trigger ->> 'kind' = 'schedule'`, &runs)
	require.Equal(t, 1, runs, "the same occurrence gives one run")
	require.True(t, i.Sweeping())
	var c dispatch.Command
	commands := i.Receive("TRANSHIP_ATTEMPTS_QUEUE")
	require.Len(t, commands.Records, 1)
	require.NoError(t, json.Unmarshal([]byte(commands.Records[0].Body), &c))
	require.Equal(t, dispatch.Lambda, c.Compute)
	second, moved := held(t, i, s.ID)
	require.Greater(t, moved, expression)
	require.Greater(t, second.Revision, first.Revision)

	name, group := s.ID.String(), i.Env["TRANSHIP_SCHEDULE_GROUP"]
	client := scheduler.NewFromConfig(i.AWS)
	_, err = client.DeleteSchedule(ctx, &scheduler.DeleteScheduleInput{GroupName: &group, Name: &name})
	require.NoError(t, err)
	out, err := h.handle(i.Invocation(time.Minute), event{Repair: true})
	require.NoError(t, err)
	require.Equal(t, &schedules.Repaired{Checked: 1, Missing: 1}, out.Repaired)
	again, _ := held(t, i, s.ID)
	require.GreaterOrEqual(t, again.Revision, second.Revision)

	require.NoError(t, service.Delete(ctx, actor, s.ID, 0))
	_, err = client.GetSchedule(ctx, &scheduler.GetScheduleInput{GroupName: &group, Name: &name})
	require.Error(t, err)
	_, err = h.handle(i.Invocation(time.Minute), again)
	require.NoError(t, err, "a firing of a schedule that is gone")
	_, err = h.handle(i.Invocation(time.Minute), event{})
	require.ErrorContains(t, err, "names no schedule")
}
