package contracts

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/operations"
	"github.com/tranship-io/tranship/internal/awsadapter/tasks"
	"github.com/tranship-io/tranship/localstack/ecs"
)

// cluster is a shim of ECS whose tasks sleep until they are stopped.
func cluster(t *testing.T) (*ecs.Shim, *tasks.Tasks, chan json.RawMessage) {
	t.Helper()
	program := t.TempDir() + "/task"
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\nexec sleep 600\n"), 0o700))
	reports := make(chan json.RawMessage, 100)
	shim := ecs.New(ecs.Config{Program: program, StopTimeout: 100 * time.Millisecond, Events: func(_ context.Context, detail json.RawMessage) error {
		reports <- detail
		return nil
	}})
	server := httptest.NewServer(shim)
	t.Cleanup(func() { shim.Close(); server.Close() })
	c := aws.Config{Region: "us-east-1", BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""), RetryMaxAttempts: 1}
	return shim, tasks.New(c, tasks.Config{Cluster: "rig", Definition: "worker:1", Container: "worker", Subnets: []string{"subnet-1"}}), reports
}

func command() dispatch.Command {
	return dispatch.Command{Organization: uuid.Must(uuid.NewV7()), Run: uuid.Must(uuid.NewV7()), Slot: 0, Sent: 17, Compute: dispatch.Fargate}
}

func TestTasks(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	shim, cluster, reports := cluster(t)
	c := command()
	shim.SetFaults(ecs.Faults{Throttle: 1, NoCapacity: 1, EventsTwice: true})
	for range 2 {
		_, err := cluster.Run(ctx, c, "token")
		var later *operations.LaterError
		require.ErrorAs(t, err, &later, "nothing was started, for now")
	}
	id, err := cluster.Run(ctx, c, "token")
	require.NoError(t, err)
	again, err := cluster.Run(ctx, c, "token")
	require.NoError(t, err)
	require.Equal(t, id, again, "the same token starts one task")

	running := []dispatch.Task{{Command: c, ID: id}, {Command: command(), ID: "arn:aws:ecs:us-east-1:000000000000:task/rig/unknown"}}
	ends, err := cluster.Ended(ctx, running)
	require.NoError(t, err)
	require.Len(t, ends, 1, "what ECS does not know has ended")
	require.Equal(t, running[1], ends[0].Task)
	for range 2 {
		require.NoError(t, cluster.Stop(ctx, id, "test"))
	}
	require.NoError(t, cluster.Stop(ctx, running[1].ID, "test"))

	var told []dispatch.TaskEnd
	for len(told) < 2 {
		e, ended, err := tasks.EndOf(<-reports)
		require.NoError(t, err)
		if ended {
			told = append(told, e)
		}
	}
	require.Equal(t, told[0], told[1], "the same report twice")
	require.Equal(t, dispatch.Task{Command: c, ID: id}, told[0].Task, "a report tells which command it is about")
	ends, err = cluster.Ended(ctx, running[:1])
	require.NoError(t, err)
	require.Len(t, ends, 1)
	require.Equal(t, told[0].Version, ends[0].Version)
}

func TestReportsOfOthers(t *testing.T) {
	for _, detail := range []string{
		`{"lastStatus":"RUNNING","startedBy":"tranship/a/b/0/1"}`,
		`{"lastStatus":"STOPPED","startedBy":"ecs-svc/123"}`,
		`{"lastStatus":"STOPPED","startedBy":"tranship/x/y/0/1"}`,
		`{}`,
	} {
		_, ended, err := tasks.EndOf(json.RawMessage(detail))
		require.NoError(t, err)
		require.False(t, ended)
	}
	_, _, err := tasks.EndOf(json.RawMessage(`[]`))
	require.Error(t, err)
}
