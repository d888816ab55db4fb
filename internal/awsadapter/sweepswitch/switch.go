// Package sweepswitch turns the schedule that wakes the sweep on and off.
package sweepswitch

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"
	"github.com/aws/aws-sdk-go-v2/service/scheduler/types"

	"github.com/tranship-io/tranship/control/sweep"
)

// Switch is a schedule of EventBridge Scheduler. The deployment makes it; the
// switch changes nothing of it but its state.
type Switch struct {
	client      *scheduler.Client
	group, name string
}

var _ sweep.Switch = (*Switch)(nil)

// New switches a schedule of a group.
func New(c aws.Config, group, name string) *Switch {
	return &Switch{client: scheduler.NewFromConfig(c), group: group, name: name}
}

// On implements [sweep.Switch].
func (s *Switch) On(ctx context.Context) error { return s.set(ctx, types.ScheduleStateEnabled) }

// Off implements [sweep.Switch].
func (s *Switch) Off(ctx context.Context) error { return s.set(ctx, types.ScheduleStateDisabled) }

// set reads the schedule first, since an update replaces all of it.
func (s *Switch) set(ctx context.Context, state types.ScheduleState) error {
	is, err := s.client.GetSchedule(ctx, &scheduler.GetScheduleInput{GroupName: &s.group, Name: &s.name})
	if err != nil {
		return fmt.Errorf("read schedule %s/%s: %w", s.group, s.name, err)
	}
	if is.State == state {
		return nil
	}
	_, err = s.client.UpdateSchedule(ctx, &scheduler.UpdateScheduleInput{
		GroupName: &s.group, Name: &s.name, State: state,
		ScheduleExpression: is.ScheduleExpression, ScheduleExpressionTimezone: is.ScheduleExpressionTimezone,
		FlexibleTimeWindow: is.FlexibleTimeWindow, Target: is.Target, Description: is.Description,
		KmsKeyArn: is.KmsKeyArn, StartDate: is.StartDate, EndDate: is.EndDate, ActionAfterCompletion: is.ActionAfterCompletion,
	})
	if err != nil {
		return fmt.Errorf("make schedule %s/%s %s: %w", s.group, s.name, state, err)
	}
	return nil
}
