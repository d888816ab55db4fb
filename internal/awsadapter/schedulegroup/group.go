// Package schedulegroup keeps one-time schedules in a group of EventBridge
// Scheduler: a copy of the next firing of each of our schedules, and the alarm of
// the sweep.
//
// Instants are given in UTC. EventBridge knows nothing of our time zones: it skips
// a local time that does not exist, and we do not.
package schedulegroup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"
	"github.com/aws/aws-sdk-go-v2/service/scheduler/types"
	"github.com/google/uuid"

	"github.com/tranship-io/tranship/control/schedules"
	"github.com/tranship-io/tranship/control/timer"
	"github.com/tranship-io/tranship/internal/awsadapter/effect"
)

// Config says where schedules are and what they invoke.
type Config struct {
	// Group is the group's name, Role the ARN of what Scheduler acts as.
	Group, Role string
	// Function is the ARN of the function that is invoked.
	Function string
	// DeadLetters is the ARN of the queue that gets firings which could not be
	// delivered; empty: none.
	DeadLetters string
}

// Bounds of delivery: a firing that comes later is the daily repair's business.
const (
	maxAge     = time.Hour
	maxRetries = 30
)

// layout is that of at() expressions.
const layout = "at(2006-01-02T15:04:05)"

// ahead is how far in the future a time is set at least: it must not have passed
// when Scheduler reads it.
const ahead = 5 * time.Second

type group struct {
	client *scheduler.Client
	c      Config
}

// set makes or replaces a schedule.
func (g *group) set(ctx context.Context, name string, at time.Time, input string) error {
	expression := expressionOf(at, time.Now())
	target := &types.Target{Arn: &g.c.Function, RoleArn: &g.c.Role, Input: &input,
		RetryPolicy: &types.RetryPolicy{MaximumEventAgeInSeconds: aws.Int32(int32(maxAge.Seconds())), MaximumRetryAttempts: aws.Int32(maxRetries)}}
	if g.c.DeadLetters != "" {
		target.DeadLetterConfig = &types.DeadLetterConfig{Arn: &g.c.DeadLetters}
	}
	exact := &types.FlexibleTimeWindow{Mode: types.FlexibleTimeWindowModeOff}
	update := func() error {
		_, err := g.client.UpdateSchedule(ctx, &scheduler.UpdateScheduleInput{GroupName: &g.c.Group, Name: &name, ScheduleExpression: &expression,
			ScheduleExpressionTimezone: aws.String("UTC"), FlexibleTimeWindow: exact, Target: target,
			ActionAfterCompletion: types.ActionAfterCompletionNone, State: types.ScheduleStateEnabled})
		return err
	}
	err := update()
	var missing *types.ResourceNotFoundException
	if errors.As(err, &missing) {
		_, err = g.client.CreateSchedule(ctx, &scheduler.CreateScheduleInput{GroupName: &g.c.Group, Name: &name, ScheduleExpression: &expression,
			ScheduleExpressionTimezone: aws.String("UTC"), FlexibleTimeWindow: exact, Target: target,
			ActionAfterCompletion: types.ActionAfterCompletionNone, State: types.ScheduleStateEnabled})
		var there *types.ConflictException
		if errors.As(err, &there) {
			// Another one made it since.
			err = update()
		}
	}
	return effect.Of(err, "set schedule %s/%s to %s", g.c.Group, name, expression)
}

// expressionOf rounds up, so that nothing fires before its time.
func expressionOf(at, now time.Time) string {
	if earliest := now.Add(ahead); at.Before(earliest) {
		at = earliest
	}
	return at.UTC().Add(time.Second - time.Nanosecond).Truncate(time.Second).Format(layout)
}

// Schedules is the platform of our schedules: each is named by its id.
type Schedules struct{ group }

var _ schedules.Platform = (*Schedules)(nil)

// New keeps schedules in a group; the function is compile.
func New(a aws.Config, c Config) *Schedules {
	return &Schedules{group{scheduler.NewFromConfig(a), c}}
}

// firing is what a schedule gives to its function.
type firing struct {
	Organization uuid.UUID `json:"organization"`
	Schedule     uuid.UUID `json:"schedule"`
	Revision     int64     `json:"revision"`
	// At is filled in by Scheduler.
	At string `json:"at"`
}

// Set implements [schedules.Platform].
func (s *Schedules) Set(ctx context.Context, w schedules.Wake) error {
	input, err := json.Marshal(firing{w.Organization, w.Schedule, w.Revision, "-"})
	if err != nil {
		return fmt.Errorf("encode the firing of schedule %s: %w", w.Schedule, err)
	}
	// The encoder would write the angle brackets as escapes, which Scheduler does not know.
	text := string(input[:len(input)-len(`"-"}`)]) + `"<aws.scheduler.scheduled-time>"}`
	return s.set(ctx, w.Schedule.String(), w.At, text)
}

// Remove implements [schedules.Platform].
func (s *Schedules) Remove(ctx context.Context, schedule uuid.UUID) error {
	name := schedule.String()
	_, err := s.client.DeleteSchedule(ctx, &scheduler.DeleteScheduleInput{GroupName: &s.c.Group, Name: &name})
	var missing *types.ResourceNotFoundException
	if errors.As(err, &missing) {
		return nil
	}
	return effect.Of(err, "delete schedule %s/%s", s.c.Group, name)
}

// Held implements [schedules.Platform].
func (s *Schedules) Held(ctx context.Context, schedule uuid.UUID) (schedules.Wake, bool, error) {
	name := schedule.String()
	out, err := s.client.GetSchedule(ctx, &scheduler.GetScheduleInput{GroupName: &s.c.Group, Name: &name})
	var missing *types.ResourceNotFoundException
	if errors.As(err, &missing) {
		return schedules.Wake{}, false, nil
	}
	if err != nil {
		return schedules.Wake{}, false, effect.Of(err, "read schedule %s/%s", s.c.Group, name)
	}
	return s.read(schedule, out), true, nil
}

// read understands a schedule of ours; one that somebody changed has no revision.
func (s *Schedules) read(schedule uuid.UUID, out *scheduler.GetScheduleOutput) schedules.Wake {
	w := schedules.Wake{Ref: schedules.Ref{Schedule: schedule}}
	at, err := time.Parse(layout, aws.ToString(out.ScheduleExpression))
	if err != nil || aws.ToString(out.ScheduleExpressionTimezone) != "UTC" || out.State != types.ScheduleStateEnabled ||
		out.Target == nil || aws.ToString(out.Target.Arn) != s.c.Function {
		return w
	}
	var f firing
	if json.Unmarshal([]byte(aws.ToString(out.Target.Input)), &f) != nil || f.Schedule != schedule {
		return w
	}
	return schedules.Wake{Ref: schedules.Ref{Organization: f.Organization, Schedule: schedule}, Revision: f.Revision, At: at.UTC()}
}

// All implements [schedules.Platform]. What is not named by an id is not ours: the
// sweep's schedules are in the same group.
func (s *Schedules) All(ctx context.Context) ([]uuid.UUID, error) {
	var ids []uuid.UUID
	pages := scheduler.NewListSchedulesPaginator(s.client, &scheduler.ListSchedulesInput{GroupName: &s.c.Group, MaxResults: aws.Int32(100)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, effect.Of(err, "list schedules of group %s", s.c.Group)
		}
		for _, is := range page.Schedules {
			if id, err := uuid.Parse(aws.ToString(is.Name)); err == nil {
				ids = append(ids, id)
			}
		}
	}
	return ids, nil
}

// Bell is the alarm of the sweep: one schedule, which invokes it once.
type Bell struct {
	group
	name string
}

var _ timer.Bell = (*Bell)(nil)

// NewBell makes the alarm of a name; the function is sweep.
func NewBell(a aws.Config, c Config, name string) *Bell {
	return &Bell{group{scheduler.NewFromConfig(a), c}, name}
}

// Ring implements [timer.Bell].
func (b *Bell) Ring(ctx context.Context, at time.Time) error {
	return b.set(ctx, b.name, at, `{"sweep":true}`)
}
