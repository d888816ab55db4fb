// Package schedules fires the schedules of EventBridge Scheduler that LocalStack's
// core keeps and never fires. It reads them back through AWS's own interface and
// invokes their targets at their instants: functions asynchronously, queues by a
// message. It creates, changes and deletes nothing.
//
// It is simulated: flexible windows, start and end dates, retries and dead letters
// of a schedule are not. A one-time schedule whose instant had passed when it was
// first seen fires at once.
package schedules

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"
	"github.com/aws/aws-sdk-go-v2/service/scheduler/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/google/uuid"
)

// pollEvery is how often schedules are read back: a firing is late by at most that,
// where AWS promises a precision of a minute.
const pollEvery = time.Second

// Driver fires schedules.
type Driver struct {
	scheduler *scheduler.Client
	lambda    *lambda.Client
	sqs       *sqs.Client
	log       *slog.Logger

	mu   sync.Mutex
	seen map[string]*state // by ARN
}

// state is what the driver knows of one schedule.
type state struct {
	expression string
	enabled    bool
	// through is the instant up to which occurrences have fired.
	through time.Time
}

// New makes a driver for the AWS of a configuration.
func New(config aws.Config, log *slog.Logger) *Driver {
	return &Driver{
		scheduler: scheduler.NewFromConfig(config), lambda: lambda.NewFromConfig(config), sqs: sqs.NewFromConfig(config),
		log: log, seen: map[string]*state{},
	}
}

// Run fires what is due until the context ends.
func (d *Driver) Run(ctx context.Context) {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		if err := d.round(ctx, time.Now()); err != nil && ctx.Err() == nil {
			d.log.Error("schedules: " + err.Error())
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// round reads all schedules and fires those that are due.
func (d *Driver) round(ctx context.Context, now time.Time) error {
	var failures []error
	pages := scheduler.NewListSchedulesPaginator(d.scheduler, &scheduler.ListSchedulesInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("list schedules: %w", err)
		}
		for _, summary := range page.Schedules {
			if err := d.look(ctx, summary, now); err != nil {
				failures = append(failures, fmt.Errorf("schedule %s: %w", aws.ToString(summary.Name), err))
			}
		}
	}
	return errors.Join(failures...)
}

func (d *Driver) look(ctx context.Context, summary types.ScheduleSummary, now time.Time) error {
	s, err := d.scheduler.GetSchedule(ctx, &scheduler.GetScheduleInput{Name: summary.Name, GroupName: summary.GroupName})
	var gone *types.ResourceNotFoundException
	if errors.As(err, &gone) {
		return nil
	}
	if err != nil {
		return err
	}
	at, err := d.due(s, now)
	if err != nil || at.IsZero() {
		return err
	}
	return d.invoke(ctx, s, at)
}

// due returns the latest instant that has come since the last look, or the zero time,
// and remembers it as fired. Of several instants missed in between only the last one
// fires.
func (d *Driver) due(s *scheduler.GetScheduleOutput, now time.Time) (time.Time, error) {
	zone, err := time.LoadLocation(aws.ToString(s.ScheduleExpressionTimezone))
	if err != nil {
		return time.Time{}, err
	}
	text := aws.ToString(s.ScheduleExpression)
	e, err := parse(text, zone, aws.ToTime(s.CreationDate))
	if err != nil {
		return time.Time{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	key := aws.ToString(s.Arn)
	known := d.seen[key]
	enabled := s.State == types.ScheduleStateEnabled
	if known == nil || known.expression != text || enabled && !known.enabled {
		// Changed or switched on: only what comes from now on, but for a one-time
		// schedule, which may have been made a moment late.
		known = &state{expression: text, through: now}
		if strings.HasPrefix(text, "at(") {
			known.through = time.Time{}
		}
		if previous := d.seen[key]; previous != nil && previous.expression == text {
			known.through = later(known.through, previous.through)
		}
		d.seen[key] = known
	}
	known.enabled = enabled
	if !enabled {
		return time.Time{}, nil
	}
	var last time.Time
	for at := e.next(known.through); !at.IsZero() && !at.After(now); at = e.next(at) {
		last = at
		known.through = at
	}
	return last, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Fire invokes a schedule's target now, as of an instant: a test of late, early and
// repeated firings.
func (d *Driver) Fire(ctx context.Context, group, name string, at time.Time) error {
	s, err := d.scheduler.GetSchedule(ctx, &scheduler.GetScheduleInput{Name: &name, GroupName: &group})
	if err != nil {
		return err
	}
	return d.invoke(ctx, s, at)
}

func (d *Driver) invoke(ctx context.Context, s *scheduler.GetScheduleOutput, at time.Time) error {
	if s.Target == nil {
		return errors.New("it has no target")
	}
	input := strings.NewReplacer(
		"<aws.scheduler.scheduled-time>", at.UTC().Format(time.RFC3339),
		"<aws.scheduler.schedule-arn>", aws.ToString(s.Arn),
		"<aws.scheduler.execution-id>", uuid.NewString(),
		"<aws.scheduler.attempt-number>", "1",
	).Replace(aws.ToString(s.Target.Input))
	target, err := arn.Parse(aws.ToString(s.Target.Arn))
	if err != nil {
		return err
	}
	d.log.Info("schedule fires", "schedule", aws.ToString(s.Name), "at", at, "target", target.Resource)
	switch target.Service {
	case "lambda":
		_, err = d.lambda.Invoke(ctx, &lambda.InvokeInput{
			FunctionName: s.Target.Arn, InvocationType: lambdatypes.InvocationTypeEvent, Payload: []byte(input),
		})
	case "sqs":
		var url *sqs.GetQueueUrlOutput
		if url, err = d.sqs.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &target.Resource}); err != nil {
			return err
		}
		message := &sqs.SendMessageInput{QueueUrl: url.QueueUrl, MessageBody: &input}
		if s.Target.SqsParameters != nil {
			message.MessageGroupId = s.Target.SqsParameters.MessageGroupId
		}
		_, err = d.sqs.SendMessage(ctx, message)
	default:
		err = fmt.Errorf("targets of service %s are not simulated", target.Service)
	}
	return err
}
