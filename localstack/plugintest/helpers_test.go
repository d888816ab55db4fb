package plugintest

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/localstack/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }

// zipped is the deployment package of the test function, built once.
var zipped = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "tranship-function-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "bootstrap")
	build := exec.Command("go", "build", "-o", path, "./function")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the function: %w\n%s", err, out)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	header := &zip.FileHeader{Name: "bootstrap", Method: zip.Deflate}
	header.SetMode(0o755)
	f, err := w.CreateHeader(header)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(program); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
})

// function is one deployed function.
type function struct {
	core *rig.Core
	name string
	api  *lambda.Client
}

// settings of a function; zero values take 30 s and 256 MB.
type settings struct {
	timeout, memory int32
	env             map[string]string
	code            []byte
}

func deploy(t *testing.T, s settings) *function {
	t.Helper()
	core := rig.Shared(t)
	code := s.code
	if code == nil {
		var err error
		code, err = zipped()
		require.NoError(t, err)
	}
	f := &function{core: core, name: rig.Name(t), api: lambda.NewFromConfig(core.AWS())}
	_, err := f.api.CreateFunction(t.Context(), &lambda.CreateFunctionInput{
		FunctionName: &f.name, Runtime: types.RuntimeProvidedal2023, Handler: aws.String("bootstrap"),
		Role:    aws.String("arn:aws:iam::" + rig.Account + ":role/test"),
		Code:    &types.FunctionCode{ZipFile: code},
		Timeout: aws.Int32(max(s.timeout, 1)), MemorySize: aws.Int32(max(s.memory, 256)),
		Environment: &types.Environment{Variables: s.env},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		_, _ = f.api.DeleteFunction(context.Background(), &lambda.DeleteFunctionInput{FunctionName: &f.name})
	})
	waiter := lambda.NewFunctionActiveV2Waiter(f.api, func(o *lambda.FunctionActiveV2WaiterOptions) {
		o.MinDelay, o.MaxDelay = 50*time.Millisecond, 500*time.Millisecond
	})
	require.NoError(t, waiter.Wait(t.Context(), &lambda.GetFunctionInput{FunctionName: &f.name}, time.Minute))
	return f
}

// result is what an invocation gave.
type result struct {
	Text      string   `json:"text"`
	Pid       int      `json:"pid"`
	Request   string   `json:"request"`
	Remaining int64    `json:"remaining"`
	Env       []string `json:"env"`

	ErrorType    string `json:"errorType"`
	ErrorMessage string `json:"errorMessage"`

	functionError string
	logs          string
}

// call invokes the function and returns an error only of the invocation itself.
func (f *function) call(ctx context.Context, event string) (result, error) {
	var r result
	out, err := f.api.Invoke(ctx, &lambda.InvokeInput{
		FunctionName: &f.name, Payload: []byte(event), LogType: types.LogTypeTail,
	})
	if err != nil {
		return r, err
	}
	logs, err := base64.StdEncoding.DecodeString(aws.ToString(out.LogResult))
	if err != nil {
		return r, err
	}
	r.functionError, r.logs = aws.ToString(out.FunctionError), string(logs)
	err = json.Unmarshal(out.Payload, &r)
	return r, err
}

func (f *function) mustCall(t *testing.T, event string) result {
	t.Helper()
	r, err := f.call(t.Context(), event)
	require.NoError(t, err)
	return r
}

// environments are this function's.
func (f *function) environments(t *testing.T) []rig.Environment {
	t.Helper()
	all, err := f.core.Environments(t.Context())
	require.NoError(t, err)
	var own []rig.Environment
	for _, e := range all {
		if e.Function == f.name {
			own = append(own, e)
		}
	}
	return own
}

// waitState waits until the function's only environment is in a state.
func (f *function) waitState(t *testing.T, state string) rig.Environment {
	t.Helper()
	var found rig.Environment
	require.Eventually(t, func() bool {
		own := f.environments(t)
		if len(own) != 1 {
			return false
		}
		found = own[0]
		return found.State == state
	}, 30*time.Second, 20*time.Millisecond)
	return found
}

// processState is the letter in the process table: T is stopped by a signal, an
// empty string is gone.
func processState(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest[:1]
}

func gone(pid int) bool {
	state := processState(pid)
	return state == "" || state == "Z"
}
