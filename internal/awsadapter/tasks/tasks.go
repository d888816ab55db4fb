// Package tasks starts attempts as tasks of ECS on Fargate.
package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/operations"
	"github.com/tranship-io/tranship/internal/awsadapter/effect"
)

// CommandVariable is the environment variable that gives a task its command.
const CommandVariable = "TRANSHIP_COMMAND"

// Config says where tasks run.
type Config struct {
	// Cluster is the name or ARN of the cluster, Definition the family or ARN of the
	// task definition, Container the name of its container.
	Cluster, Definition, Container string
	Subnets, SecurityGroups        []string
	// PublicIP gives tasks an address of their own, which they need in a subnet
	// without another way out.
	PublicIP bool
}

// Tasks is the cluster.
type Tasks struct {
	client *ecs.Client
	c      Config
}

var _ dispatch.Tasks = (*Tasks)(nil)

// New starts tasks in a cluster.
func New(a aws.Config, c Config) *Tasks { return &Tasks{ecs.NewFromConfig(a), c} }

// Run implements [dispatch.Tasks]: the token is ECS's client token.
func (t *Tasks) Run(ctx context.Context, c dispatch.Command, token string) (string, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", c, err)
	}
	public := types.AssignPublicIpDisabled
	if t.c.PublicIP {
		public = types.AssignPublicIpEnabled
	}
	out, err := t.client.RunTask(ctx, &ecs.RunTaskInput{
		Cluster: &t.c.Cluster, TaskDefinition: &t.c.Definition, Count: aws.Int32(1), LaunchType: types.LaunchTypeFargate,
		ClientToken: &token, StartedBy: aws.String(startedBy(c)), EnableECSManagedTags: true, PropagateTags: types.PropagateTagsTaskDefinition,
		NetworkConfiguration: &types.NetworkConfiguration{AwsvpcConfiguration: &types.AwsVpcConfiguration{
			Subnets: t.c.Subnets, SecurityGroups: t.c.SecurityGroups, AssignPublicIp: public}},
		Overrides: &types.TaskOverride{ContainerOverrides: []types.ContainerOverride{{
			Name: &t.c.Container, Environment: []types.KeyValuePair{{Name: aws.String(CommandVariable), Value: aws.String(string(body))}}}}},
	})
	if err != nil {
		return "", effect.Of(err, "run a task of %s in %s", t.c.Definition, t.c.Cluster)
	}
	if len(out.Tasks) == 0 {
		why := errors.New("no reason is given")
		if len(out.Failures) > 0 {
			why = fmt.Errorf("%s %s", aws.ToString(out.Failures[0].Reason), aws.ToString(out.Failures[0].Detail))
		}
		return "", &operations.LaterError{Err: fmt.Errorf("run a task of %s in %s: %w", t.c.Definition, t.c.Cluster, why)}
	}
	return aws.ToString(out.Tasks[0].TaskArn), nil
}

// Stop implements [dispatch.Tasks].
func (t *Tasks) Stop(ctx context.Context, id, reason string) error {
	_, err := t.client.StopTask(ctx, &ecs.StopTaskInput{Cluster: &t.c.Cluster, Task: &id, Reason: &reason})
	var invalid *types.InvalidParameterException
	if errors.As(err, &invalid) && strings.Contains(invalid.ErrorMessage(), "not found") {
		return nil // it ended so long ago that ECS has forgotten it
	}
	return effect.Of(err, "stop task %s", id)
}

// describeMost is how many tasks one call describes.
const describeMost = 100

// Ended implements [dispatch.Tasks].
func (t *Tasks) Ended(ctx context.Context, running []dispatch.Task) ([]dispatch.TaskEnd, error) {
	var ends []dispatch.TaskEnd
	for len(running) > 0 {
		page := running[:min(len(running), describeMost)]
		running = running[len(page):]
		of := make(map[string]dispatch.Task, len(page))
		ids := make([]string, len(page))
		for i, r := range page {
			of[r.ID], ids[i] = r, r.ID
		}
		out, err := t.client.DescribeTasks(ctx, &ecs.DescribeTasksInput{Cluster: &t.c.Cluster, Tasks: ids})
		if err != nil {
			return nil, effect.Of(err, "describe tasks of %s", t.c.Cluster)
		}
		for _, is := range out.Tasks {
			if aws.ToString(is.LastStatus) != stopped {
				continue
			}
			s := stop{code: string(is.StopCode), why: aws.ToString(is.StoppedReason)}
			if len(is.Containers) > 0 {
				s.exit = is.Containers[0].ExitCode
			}
			ends = append(ends, s.end(of[aws.ToString(is.TaskArn)], is.Version))
		}
		for _, f := range out.Failures {
			if task, ok := of[aws.ToString(f.Arn)]; ok && aws.ToString(f.Reason) == "MISSING" {
				ends = append(ends, dispatch.TaskEnd{Task: task, Version: math.MaxInt64, Reason: "ECS does not know it any more"})
			}
		}
	}
	return ends, nil
}
