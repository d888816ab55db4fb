package blackbox

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/stretchr/testify/require"
)

func tasks() *ecs.Client {
	config := rigWorld.aws()
	config.BaseEndpoint = aws.String(rigWorld.ecs)
	return ecs.NewFromConfig(config)
}

// stopAll stops the tasks that run now, as Fargate does when it retires hosts.
func stopAll(t *testing.T) int {
	t.Helper()
	list, err := tasks().ListTasks(t.Context(), &ecs.ListTasksInput{Cluster: aws.String("rig")})
	require.NoError(t, err)
	for _, arn := range list.TaskArns {
		_, err := tasks().StopTask(t.Context(), &ecs.StopTaskInput{Cluster: aws.String("rig"), Task: &arn, Reason: aws.String("the host is retired")})
		require.NoError(t, err)
	}
	return len(list.TaskArns)
}

// TestFargate is not parallel: the shim's faults belong to all tasks.
func TestFargate(t *testing.T) {
	onFargate := settings{slow: true, service: map[string]any{"compute": "fargate"}, pipeline: map[string]any{"epoch_size": "64KiB"}}
	t.Run("a task is asked to stop and hands over", func(t *testing.T) {
		p := admin(t).pipe(10_000, onFargate)
		id := p.start()
		p.wait(id, 2*time.Minute, "running")
		require.Eventually(t, func() bool {
			return one[int](t, p.target, "SELECT count(*) FROM pg_stat_user_tables") > 0 && stopAll(t) > 0
		}, time.Minute, time.Second)
		p.complete(id, 5*time.Minute)
		require.NotZero(t, count(p.facts(id), "attempt.handed_over"))
	})
	t.Run("throttled, without capacity, dead at the start, events twice", func(t *testing.T) {
		faults(t, rigWorld.ecs, map[string]any{"throttle": 2, "no_capacity": 1, "die_at_start": 1, "events_twice": true})
		sweepOften(t)
		p := admin(t).pipe(500, onFargate)
		id := p.start()
		p.complete(id, 8*time.Minute)
		require.Equal(t, 1, count(p.facts(id), "run.completed"))
		require.Zero(t, count(p.facts(id), "attempt.failed"))
	})
	consistent(t)
}
