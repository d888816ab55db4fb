package plugintest

import (
	"archive/zip"
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

func TestInvocationSeesWhatAWSGives(t *testing.T) {
	t.Parallel()
	f := deploy(t, settings{timeout: 30, memory: 300, env: map[string]string{"MINE": "yes"}})
	r := f.mustCall(t, `{"do":"echo","text":"hello"}`)
	require.Empty(t, r.functionError)
	require.Equal(t, "hello", r.Text)
	require.NotEmpty(t, r.Request)
	require.Positive(t, r.Remaining)
	require.LessOrEqual(t, r.Remaining, int64(30_000))
	for _, want := range []string{
		"MINE=yes", "AWS_LAMBDA_FUNCTION_NAME=" + f.name, "AWS_LAMBDA_FUNCTION_MEMORY_SIZE=300",
		"AWS_REGION=us-east-1", "AWS_ENDPOINT_URL=" + f.core.Endpoint(),
	} {
		require.Contains(t, r.Env, want)
	}
	require.False(t, slices.ContainsFunc(r.Env, func(v string) bool { return strings.HasPrefix(v, "LOCALSTACK_") }))
	for _, want := range []string{"START RequestId: " + r.Request, "\nhello\n", "END RequestId: " + r.Request, "Init Duration:", "Memory Size: 300 MB"} {
		require.Contains(t, r.logs, want)
	}
	again := f.mustCall(t, `{"do":"echo"}`)
	require.Equal(t, r.Pid, again.Pid, "the second invocation is warm")
	require.NotContains(t, again.logs, "Init Duration:")
}

func TestParallelInvocationsRunInEnvironmentsOfTheirOwn(t *testing.T) {
	t.Parallel()
	f := deploy(t, settings{timeout: 60})
	// Each invocation hangs until all have been seen running.
	var invocations errgroup.Group
	var mu sync.Mutex
	killed := 0
	for range 6 {
		invocations.Go(func() error {
			r, err := f.call(t.Context(), `{"do":"hang"}`)
			mu.Lock()
			defer mu.Unlock()
			if r.ErrorType == "Runtime.ExitError" {
				killed++
			}
			return err
		})
	}
	require.Eventually(t, func() bool {
		running := 0
		for _, e := range f.environments(t) {
			if e.State == "running" {
				running++
			}
		}
		return running == 6
	}, time.Minute, 50*time.Millisecond)
	for _, e := range f.environments(t) {
		require.NoError(t, f.core.Kill(t.Context(), e.ID))
	}
	require.NoError(t, invocations.Wait())
	require.Equal(t, 6, killed)
}

func TestReservedConcurrencyThrottles(t *testing.T) {
	t.Parallel()
	f := deploy(t, settings{timeout: 60})
	_, err := f.api.PutFunctionConcurrency(t.Context(), &lambda.PutFunctionConcurrencyInput{
		FunctionName: &f.name, ReservedConcurrentExecutions: aws.Int32(1),
	})
	require.NoError(t, err)
	var first errgroup.Group
	first.Go(func() error {
		_, err := f.call(t.Context(), `{"do":"hang"}`)
		return err
	})
	busy := f.waitState(t, "running")
	_, err = f.api.Invoke(t.Context(), &lambda.InvokeInput{FunctionName: &f.name, Payload: []byte(`{}`)},
		func(o *lambda.Options) { o.Retryer = aws.NopRetryer{} })
	var throttled *types.TooManyRequestsException
	require.ErrorAs(t, err, &throttled)
	require.NoError(t, f.core.Kill(t.Context(), busy.ID))
	require.NoError(t, first.Wait())
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	f := deploy(t, settings{timeout: 1})
	warm := f.mustCall(t, `{"do":"echo"}`)
	r := f.mustCall(t, `{"do":"hang","text":"before"}`)
	require.Equal(t, "Unhandled", r.functionError)
	require.Equal(t, "Sandbox.Timedout", r.ErrorType)
	require.Contains(t, r.ErrorMessage, "Task timed out after 1.00 seconds")
	require.Contains(t, r.logs, "before\n")
	require.Contains(t, r.logs, "Status: timeout")
	require.True(t, gone(warm.Pid), "the environment is not used again")
	fresh := f.mustCall(t, `{"do":"echo"}`)
	require.Empty(t, fresh.functionError)
	require.NotEqual(t, warm.Pid, fresh.Pid)
}

func TestCrashes(t *testing.T) {
	t.Parallel()
	f := deploy(t, settings{timeout: 30})
	for _, c := range []struct{ event, kind, message string }{
		{`{"do":"error","text":"not today"}`, "errorString", "not today"},
		{`{"do":"panic"}`, "string", "as asked"},
		{`{"do":"exit","n":3}`, "Runtime.ExitError", "exit status 3"},
		{`{"do":"exit","n":0}`, "Runtime.ExitError", "exited without providing a reason"},
		{`{"do":"large","n":7}`, "Function.ResponseSizeTooLarge", "exceeded maximum allowed payload size"},
	} {
		r := f.mustCall(t, c.event)
		require.Equal(t, "Unhandled", r.functionError, c.event)
		require.Equal(t, c.kind, r.ErrorType, c.event)
		require.Contains(t, r.ErrorMessage, c.message, c.event)
		require.Contains(t, r.logs, "Status: error", c.event)
		require.Empty(t, f.mustCall(t, `{"do":"echo"}`).functionError, "after "+c.event)
	}
}

func TestInitFailures(t *testing.T) {
	t.Parallel()
	f := deploy(t, settings{timeout: 5, env: map[string]string{"INIT": "exit"}})
	for range 2 { // each invocation tries anew
		r := f.mustCall(t, `{"do":"echo"}`)
		require.Equal(t, "Runtime.ExitError", r.ErrorType)
		require.Contains(t, r.ErrorMessage, "exit status 17")
		require.Contains(t, r.logs, "giving up at the start\n")
	}
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	_, err := w.Create("readme.txt")
	require.NoError(t, errors.Join(err, w.Close()))
	empty := deploy(t, settings{code: b.Bytes()})
	require.Equal(t, "Runtime.InvalidEntrypoint", empty.mustCall(t, `{}`).ErrorType)
}

func TestMemoryLimitKills(t *testing.T) {
	t.Parallel()
	f := deploy(t, settings{timeout: 60, memory: 256})
	r := f.mustCall(t, `{"do":"allocate","n":400}`)
	require.Equal(t, "Runtime.ExitError", r.ErrorType)
	require.Contains(t, r.ErrorMessage, "signal: killed")
	require.Empty(t, f.mustCall(t, `{"do":"echo"}`).functionError)
}

func TestFrozenBetweenInvocations(t *testing.T) {
	t.Parallel()
	f := deploy(t, settings{timeout: 30})
	first := f.mustCall(t, `{"do":"echo"}`)
	e := f.waitState(t, "frozen")
	require.Equal(t, first.Pid, e.Pid)
	require.Eventually(t, func() bool { return processState(e.Pid) == "T" }, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, first.Pid, f.mustCall(t, `{"do":"echo"}`).Pid, "it goes on where it stood")
}

func TestKillOnDemand(t *testing.T) {
	t.Parallel()
	f := deploy(t, settings{timeout: 60})
	f.mustCall(t, `{"do":"echo"}`)
	idle := f.waitState(t, "frozen")
	require.NoError(t, f.core.Kill(t.Context(), idle.ID))
	require.Eventually(t, func() bool { return gone(idle.Pid) }, 10*time.Second, 10*time.Millisecond)
	require.Error(t, f.core.Kill(t.Context(), idle.ID), "there is nothing to kill")

	var invocation errgroup.Group
	var r result
	invocation.Go(func() (err error) {
		r, err = f.call(t.Context(), `{"do":"hang","text":"working"}`)
		return err
	})
	busy := f.waitState(t, "running")
	require.NotEmpty(t, busy.Request)
	require.NoError(t, f.core.Kill(t.Context(), busy.ID))
	require.NoError(t, invocation.Wait())
	require.Equal(t, "Runtime.ExitError", r.ErrorType)
	require.Contains(t, r.ErrorMessage, "signal: killed")
	require.Empty(t, f.mustCall(t, `{"do":"echo"}`).functionError)
}

func TestDeleteEndsTheProcess(t *testing.T) {
	t.Parallel()
	f := deploy(t, settings{timeout: 30})
	pid := f.mustCall(t, `{"do":"echo"}`).Pid
	_, err := f.api.DeleteFunction(t.Context(), &lambda.DeleteFunctionInput{FunctionName: &f.name})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return gone(pid) }, 20*time.Second, 20*time.Millisecond)
	require.Empty(t, f.environments(t))
}
