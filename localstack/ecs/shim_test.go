package ecs_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsecs "github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/localstack/ecs"
)

// TestMain makes this test binary the program of tasks: the variable TASK says how
// it behaves.
func TestMain(m *testing.M) {
	switch task := os.Getenv("TASK"); task {
	case "":
		os.Exit(m.Run())
	case "obedient", "deaf":
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM)
		if err := os.WriteFile(os.Getenv("READY"), nil, 0o600); err != nil {
			os.Exit(99)
		}
		<-signals
		if task == "deaf" {
			select {}
		}
		os.Exit(7)
	default:
		code, err := strconv.Atoi(task)
		if err != nil {
			code = 98
		}
		os.Exit(code)
	}
}

// service is a shim and an SDK client for it.
type service struct {
	*awsecs.Client
	url string

	mu     sync.Mutex
	events []map[string]any
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{}
	shim := ecs.New(ecs.Config{
		Program:     os.Args[0],
		StopTimeout: 300 * time.Millisecond,
		LogDir:      t.TempDir(),
		Environment: func(context.Context) (map[string]string, error) {
			return map[string]string{"TASK": "3"}, nil
		},
		Events: func(_ context.Context, detail json.RawMessage) error {
			var event map[string]any
			if err := json.Unmarshal(detail, &event); err != nil {
				return err
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.events = append(s.events, event)
			return nil
		},
	})
	server := httptest.NewServer(shim)
	t.Cleanup(server.Close)
	t.Cleanup(shim.Close)
	s.url = server.URL
	s.Client = awsecs.New(awsecs.Options{
		Region: "us-east-1", BaseEndpoint: &server.URL, Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
	return s
}

func (s *service) run(t *testing.T, token string, env ...string) *awsecs.RunTaskOutput {
	t.Helper()
	out, err := s.RunTask(t.Context(), runInput(token, env...))
	require.NoError(t, err)
	return out
}

func runInput(token string, env ...string) *awsecs.RunTaskInput {
	in := &awsecs.RunTaskInput{
		Cluster: aws.String("rig"), TaskDefinition: aws.String("worker:1"), ClientToken: &token, StartedBy: aws.String("me"),
		Overrides: &types.TaskOverride{ContainerOverrides: []types.ContainerOverride{{Name: aws.String("worker")}}},
	}
	for i := 0; i < len(env); i += 2 {
		in.Overrides.ContainerOverrides[0].Environment = append(in.Overrides.ContainerOverrides[0].Environment,
			types.KeyValuePair{Name: &env[i], Value: &env[i+1]})
	}
	return in
}

// stopped waits for a task's end.
func (s *service) stopped(t *testing.T, arn *string) types.Task {
	t.Helper()
	var task types.Task
	require.Eventually(t, func() bool {
		out, err := s.DescribeTasks(t.Context(), &awsecs.DescribeTasksInput{Cluster: aws.String("rig"), Tasks: []string{*arn}})
		require.NoError(t, err)
		require.Len(t, out.Tasks, 1)
		task = out.Tasks[0]
		return aws.ToString(task.LastStatus) == "STOPPED"
	}, 20*time.Second, 10*time.Millisecond)
	return task
}

func (s *service) faults(t *testing.T, document string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.url+"/_rig/faults", strings.NewReader(document))
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusNoContent, answer.StatusCode)
}

// statuses are the last statuses and versions of a task's events.
func (s *service) statuses(arn string) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string]int{}
	for _, e := range s.events {
		if e["taskArn"] == arn {
			found[e["lastStatus"].(string)]++
		}
	}
	return found
}

func TestTaskEndsWithItsProgram(t *testing.T) {
	t.Parallel()
	s := newService(t)
	out := s.run(t, "a")
	require.Len(t, out.Tasks, 1)
	require.Equal(t, "PROVISIONING", *out.Tasks[0].LastStatus)
	require.Equal(t, "family:worker", *out.Tasks[0].Group)
	arn := out.Tasks[0].TaskArn
	task := s.stopped(t, arn)
	require.Equal(t, types.TaskStopCodeEssentialContainerExited, task.StopCode)
	require.Equal(t, int32(3), *task.Containers[0].ExitCode, "from the definition's environment")
	require.NotNil(t, task.StoppedAt)
	require.Eventually(t, func() bool { return s.statuses(*arn)["STOPPED"] == 1 }, 5*time.Second, time.Millisecond)
	require.Equal(t, map[string]int{"PROVISIONING": 1, "RUNNING": 1, "STOPPED": 1}, s.statuses(*arn))

	task = s.stopped(t, s.run(t, "b", "TASK", "0").Tasks[0].TaskArn)
	require.Equal(t, int32(0), *task.Containers[0].ExitCode, "overrides win")
}

func TestSameTokenIsTheSameTask(t *testing.T) {
	t.Parallel()
	s := newService(t)
	first := s.run(t, "token")
	require.Equal(t, first.Tasks[0].TaskArn, s.run(t, "token").Tasks[0].TaskArn)
	require.NotEqual(t, first.Tasks[0].TaskArn, s.run(t, "other").Tasks[0].TaskArn)
}

func TestStopIsAskedForAndThenForced(t *testing.T) {
	t.Parallel()
	s := newService(t)
	for kind, want := range map[string]int32{"obedient": 7, "deaf": 137} {
		ready := t.TempDir() + "/ready"
		arn := s.run(t, kind, "TASK", kind, "READY", ready).Tasks[0].TaskArn
		require.Eventually(t, func() bool {
			_, err := os.Stat(ready)
			return err == nil
		}, 20*time.Second, 5*time.Millisecond)
		list, err := s.ListTasks(t.Context(), &awsecs.ListTasksInput{Cluster: aws.String("rig"), StartedBy: aws.String("me")})
		require.NoError(t, err)
		require.Contains(t, list.TaskArns, *arn)
		_, err = s.StopTask(t.Context(), &awsecs.StopTaskInput{Cluster: aws.String("rig"), Task: arn, Reason: aws.String("enough")})
		require.NoError(t, err)
		task := s.stopped(t, arn)
		require.Equal(t, want, *task.Containers[0].ExitCode, kind)
		require.Equal(t, "enough", *task.StoppedReason)
		require.Equal(t, types.TaskStopCodeUserInitiated, task.StopCode)
	}
}

func TestBadDays(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.faults(t, `{"throttle":1,"no_capacity":1,"die_at_start":1,"events_twice":true}`)
	_, err := s.RunTask(t.Context(), runInput("t"))
	require.ErrorContains(t, err, "ThrottlingException")
	out := s.run(t, "t")
	require.Empty(t, out.Tasks)
	require.Contains(t, *out.Failures[0].Reason, "Capacity is unavailable")
	arn := s.run(t, "t").Tasks[0].TaskArn
	task := s.stopped(t, arn)
	require.Equal(t, types.TaskStopCodeTaskFailedToStart, task.StopCode)
	require.Nil(t, task.Containers[0].ExitCode)
	require.Eventually(t, func() bool { return s.statuses(*arn)["STOPPED"] == 2 }, 5*time.Second, time.Millisecond)
	require.Equal(t, int32(3), *s.stopped(t, s.run(t, "u").Tasks[0].TaskArn).Containers[0].ExitCode, "the faults are used up")
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	s := newService(t)
	in := runInput("x")
	in.Overrides.ContainerOverrides[0].Name = aws.String("nobody")
	_, err := s.RunTask(t.Context(), in)
	require.ErrorContains(t, err, "not a container in the TaskDefinition")
	_, err = s.StopTask(t.Context(), &awsecs.StopTaskInput{Task: aws.String("none")})
	require.ErrorContains(t, err, "not found")
	out, err := s.DescribeTasks(t.Context(), &awsecs.DescribeTasksInput{Tasks: []string{"none"}})
	require.NoError(t, err)
	require.Equal(t, "MISSING", *out.Failures[0].Reason)
	_, err = s.ListClusters(t.Context(), &awsecs.ListClustersInput{})
	require.ErrorContains(t, err, "not simulated")
}
