package contracts

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/schedules/schedulestest"
	"github.com/tranship-io/tranship/internal/awsadapter/schedulegroup"
	"github.com/tranship-io/tranship/localstack/rig"
)

// newGroup makes a group of schedules.
func newGroup(t *testing.T) (*scheduler.Client, schedulegroup.Config) {
	t.Helper()
	client := scheduler.NewFromConfig(rig.Shared(t).AWS())
	name := rig.Name(t)
	_, err := client.CreateScheduleGroup(t.Context(), &scheduler.CreateScheduleGroupInput{Name: &name})
	require.NoError(t, err)
	return client, schedulegroup.Config{Group: name, Role: "arn:aws:iam::000000000000:role/scheduler",
		Function: "arn:aws:lambda:us-east-1:000000000000:function:compile", DeadLetters: "arn:aws:sqs:us-east-1:000000000000:dead"}
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	client, c := newGroup(t)
	// What is not named by an id is left alone, such as the sweep's own schedule.
	bell := schedulegroup.NewBell(rig.Shared(t).AWS(), c, "sweeps-alarm")
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	for range 2 {
		require.NoError(t, bell.Ring(t.Context(), at))
	}
	schedulestest.TestPlatform(t, schedulegroup.New(rig.Shared(t).AWS(), c))
	is, err := client.GetSchedule(t.Context(), &scheduler.GetScheduleInput{GroupName: &c.Group, Name: aws.String("sweeps-alarm")})
	require.NoError(t, err)
	require.Equal(t, at.Format("at(2006-01-02T15:04:05)"), aws.ToString(is.ScheduleExpression))
	require.JSONEq(t, `{"sweep":true}`, aws.ToString(is.Target.Input))
	require.Equal(t, c.DeadLetters, aws.ToString(is.Target.DeadLetterConfig.Arn))
}
