package schedules

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"
	"github.com/aws/aws-sdk-go-v2/service/scheduler/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/localstack/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }

// schedule is a schedule of the test's own with a queue as its target.
type schedule struct {
	t      *testing.T
	driver *Driver
	name   string
	url    *string
	input  *scheduler.CreateScheduleInput
}

func newSchedule(t *testing.T, expression string) *schedule {
	t.Helper()
	core := rig.Shared(t)
	d := New(core.AWS(), slog.New(slog.DiscardHandler))
	s := &schedule{t: t, driver: d, name: rig.Name(t)}
	queue, err := d.sqs.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &s.name})
	require.NoError(t, err)
	s.url = queue.QueueUrl
	s.input = &scheduler.CreateScheduleInput{
		Name: &s.name, ScheduleExpression: &expression, State: types.ScheduleStateEnabled,
		FlexibleTimeWindow: &types.FlexibleTimeWindow{Mode: types.FlexibleTimeWindowModeOff},
		Target: &types.Target{
			Arn:     aws.String("arn:aws:sqs:" + rig.Region + ":" + rig.Account + ":" + s.name),
			RoleArn: aws.String("arn:aws:iam::" + rig.Account + ":role/test"),
			Input:   aws.String(`{"at":"<aws.scheduler.scheduled-time>"}`),
		},
	}
	_, err = d.scheduler.CreateSchedule(t.Context(), s.input)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, _ = d.scheduler.DeleteSchedule(context.Background(), &scheduler.DeleteScheduleInput{Name: &s.name})
	})
	return s
}

func (s *schedule) update(change func(*scheduler.UpdateScheduleInput)) {
	s.t.Helper()
	in := &scheduler.UpdateScheduleInput{
		Name: s.input.Name, ScheduleExpression: s.input.ScheduleExpression, State: s.input.State,
		FlexibleTimeWindow: s.input.FlexibleTimeWindow, Target: s.input.Target,
	}
	change(in)
	_, err := s.driver.scheduler.UpdateSchedule(s.t.Context(), in)
	require.NoError(s.t, err)
}

// lookAt makes the driver look at this schedule only, as if it were that time.
func (s *schedule) lookAt(now time.Time) {
	s.t.Helper()
	require.NoError(s.t, s.driver.look(s.t.Context(), types.ScheduleSummary{Name: &s.name, GroupName: aws.String("default")}, now))
}

// fired takes the instants that came to the queue.
func (s *schedule) fired() []string {
	s.t.Helper()
	var instants []string
	for {
		out, err := s.driver.sqs.ReceiveMessage(s.t.Context(), &sqs.ReceiveMessageInput{QueueUrl: s.url, MaxNumberOfMessages: 10})
		require.NoError(s.t, err)
		if len(out.Messages) == 0 {
			return instants
		}
		for _, m := range out.Messages {
			var body struct {
				At string `json:"at"`
			}
			require.NoError(s.t, json.Unmarshal([]byte(aws.ToString(m.Body)), &body))
			instants = append(instants, body.At)
		}
	}
}

func TestOneTimeScheduleFiresOnceAndAgainWhenMoved(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 5, 4, 3, 2, 0, 0, time.UTC)
	s := newSchedule(t, "at(2030-05-04T03:02:00)")
	s.lookAt(at.Add(-time.Second))
	require.Empty(t, s.fired())
	s.lookAt(at.Add(time.Second))
	s.lookAt(at.Add(2 * time.Second))
	require.Equal(t, []string{"2030-05-04T03:02:00Z"}, s.fired())
	s.update(func(in *scheduler.UpdateScheduleInput) { in.ScheduleExpression = aws.String("at(2030-05-04T04:00:00)") })
	s.lookAt(at.Add(time.Minute))
	require.Empty(t, s.fired())
	s.lookAt(at.Add(time.Hour))
	require.Equal(t, []string{"2030-05-04T04:00:00Z"}, s.fired())
}

func TestStateIsRespected(t *testing.T) {
	t.Parallel()
	s := newSchedule(t, "rate(1 minute)")
	s.update(func(in *scheduler.UpdateScheduleInput) { in.State = types.ScheduleStateDisabled })
	now := time.Now()
	s.lookAt(now)
	s.lookAt(now.Add(5 * time.Minute))
	require.Empty(t, s.fired(), "a schedule that is off does not fire")
	s.update(func(*scheduler.UpdateScheduleInput) {})
	s.lookAt(now.Add(6 * time.Minute))
	require.Empty(t, s.fired(), "switching on does not make up for what was missed")
	s.lookAt(now.Add(7 * time.Minute))
	require.Len(t, s.fired(), 1)
	s.lookAt(now.Add(7*time.Minute + time.Second))
	require.Empty(t, s.fired())
}

func TestFireOnDemand(t *testing.T) {
	t.Parallel()
	s := newSchedule(t, "rate(1 day)")
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 2 {
		require.NoError(t, s.driver.Fire(t.Context(), "default", s.name, at))
	}
	require.Equal(t, []string{"2030-01-01T00:00:00Z", "2030-01-01T00:00:00Z"}, s.fired())
}
