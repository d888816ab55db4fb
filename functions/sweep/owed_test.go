package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/control/schedules"
	"github.com/tranship-io/tranship/internal/awsadapter/kmskeys"
	"github.com/tranship-io/tranship/internal/cloudtest"
)

// sweeping is the function with what a test looks at.
type sweeping struct {
	*cloudtest.Installation
	t     *testing.T
	actor control.Actor
	h     *handler
}

func newSweeping(t *testing.T, changes ...string) *sweeping {
	t.Helper()
	s := &sweeping{Installation: cloudtest.New(t), t: t}
	s.actor, _ = s.Organization()
	f := s.Function("sweep", changes...)
	h, err := wire(t.Context(), f)
	require.NoError(t, err)
	require.NoError(t, f.Env.Err())
	t.Cleanup(h.plane.DB.Close)
	s.h = h
	return s
}

func (s *sweeping) round(event string) {
	s.t.Helper()
	out, err := s.h.handle(s.Invocation(time.Minute), json.RawMessage(event))
	require.NoError(s.t, err)
	require.NotNil(s.t, out.BatchItemFailures)
}

// expression is when a schedule of the group fires; empty: there is none.
func (s *sweeping) expression(name string) string {
	s.t.Helper()
	is, err := scheduler.NewFromConfig(s.AWS).GetSchedule(s.t.Context(), &scheduler.GetScheduleInput{
		GroupName: aws.String(s.Env["TRANSHIP_SCHEDULE_GROUP"]), Name: &name})
	if err != nil {
		return ""
	}
	return aws.ToString(is.ScheduleExpression)
}

// TestAlarm: what falls due later lets the sweep rest, with its alarm set; what is
// due is done, and passed on.
func TestAlarm(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newSweeping(t)
	s.Pipeline(s.actor, "shop", 10)
	s.round(`{"sweep":true}`)
	require.False(t, s.Sweeping())
	alarm := s.Env["TRANSHIP_NAME"] + "-alarm"
	require.Empty(t, s.expression(alarm), "nothing falls due")

	service := &notify.Service{Store: s.h.plane.DB.Notifications(), Vault: s.h.plane.DB, Keyring: kmskeys.New(s.AWS, s.Env["TRANSHIP_KMS_KEY"]), Clock: control.SystemClock{}}
	_, err := service.Create(ctx, s.actor, notify.Draft{Name: "stale", Events: []string{notify.PipelineStale}, StaleAfter: 2 * time.Hour, Channel: notify.Webhook, URL: "https://example.org/x"})
	require.NoError(t, err)
	require.True(t, s.Sweeping(), "a rule that watches turns the sweep on")
	s.round(`{"sweep":true}`)
	require.False(t, s.Sweeping())
	set := s.expression(alarm)
	at, err := time.Parse("at(2006-01-02T15:04:05)", set)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(2*time.Hour), at, 10*time.Minute, "when the pipeline that never succeeded is stale")

	// The pipeline is stale, as time would have it: the alarm wakes the sweep.
	s.Exec(s.URL, `UPDATE tranship.notification_rules SET watch_at = now()`)
	s.Exec(s.URL, `UPDATE tranship.pipelines SET created_at = now() - interval '3 hours'`)
	s.Exec(s.URL, `UPDATE tranship.arming SET alarm_at = now()`)
	s.round(`{"sweep":true}`)
	require.Len(t, s.Receive("TRANSHIP_DELIVERIES_QUEUE").Records, 1)
	require.True(t, s.Sweeping(), "until the delivery is sent")
	s.Exec(s.URL, `UPDATE tranship.notification_deliveries SET state = 'sent', next_at = NULL, sent_at = now()`)
	s.round(`{"sweep":true}`)
	require.False(t, s.Sweeping())
}

// TestMends: a schedule that nobody fired, and a copy of one that nobody moved.
func TestMends(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newSweeping(t)
	s.Pipeline(s.actor, "shop", 10)
	db := s.h.plane.DB.Schedules()
	pipeline, err := db.PipelineID(ctx, s.actor, "shop")
	require.NoError(t, err)
	// Its change is committed, and the process that made it died.
	service := &schedules.Service{Store: db, Scheduler: died{}, Clock: control.SystemClock{}}
	made, err := service.Create(ctx, s.actor, schedules.Draft{Pipeline: pipeline, Timing: schedules.Timing{Cron: "0 0 1 1 *"}})
	require.Error(t, err)
	require.Empty(t, s.expression(made.ID.String()))
	s.round(`{"sweep":true}`)
	require.Equal(t, made.NextAt.Format("at(2006-01-02T15:04:05)"), s.expression(made.ID.String()))
	require.False(t, s.Sweeping())

	s.Exec(s.URL, `UPDATE tranship.schedules SET next_at = now(), next_instant = date_trunc('minute', now())`)
	s.round(`{"sweep":true}`)
	require.Len(t, s.Receive("TRANSHIP_ATTEMPTS_QUEUE").Records, 1, "the run of the occurrence that was overdue")
	require.True(t, s.Sweeping())
}

// died is a process that ends after a commit.
type died struct{}

func (died) Moved(context.Context, schedules.Ref) error { return errors.New("the process died") }

// TestReports: the end of a container comes as an event, twice.
func TestReports(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newSweeping(t, "TRANSHIP_ECS_CLUSTER", "rig", "TRANSHIP_ECS_TASK", "worker:1", "TRANSHIP_ECS_CONTAINER", "worker",
		"TRANSHIP_ECS_SUBNETS", "subnet-1", "TRANSHIP_ECS_SECURITY_GROUPS", "sg-1")
	s.Pipeline(s.actor, "shop", 10)
	started, err := s.h.plane.Runs.Start(ctx, s.actor, runs.StartRequest{Pipeline: "shop"})
	require.NoError(t, err)
	id := started.Runs[0].ID
	s.Exec(s.URL, `UPDATE tranship.runs SET policy = policy || '{"compute":"fargate"}'`)
	require.NoError(t, s.h.plane.After(ctx))
	commands := s.Receive("TRANSHIP_TASKS_QUEUE")
	require.Len(t, commands.Records, 1)
	var c dispatch.Command
	require.NoError(t, json.Unmarshal([]byte(commands.Records[0].Body), &c))
	event := func(run uuid.UUID) string {
		return fmt.Sprintf(`{"source":"aws.ecs","detail-type":"ECS Task State Change","detail":{"taskArn":"arn:x","lastStatus":"STOPPED","version":4,
			"startedBy":"tranship/%s/%s/0/%d","stopCode":"EssentialContainerExited","stoppedReason":"Essential container in task exited","containers":[{"exitCode":1}]}}`,
			c.Organization, run, c.Sent)
	}
	for range 2 {
		s.round(event(id))
		r, err := s.h.plane.DB.Run(ctx, s.actor.Organization, id)
		require.NoError(t, err)
		require.Equal(t, 1, r.Interruptions)
	}
	require.Len(t, s.Receive("TRANSHIP_TASKS_QUEUE").Records, 1, "the next attempt")
	s.round(event(uuid.New()))
	s.round(`{"Records":[{"body":"{}"}]}`)
}
