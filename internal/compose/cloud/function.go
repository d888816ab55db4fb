package cloud

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
)

// Function is what every function begins with.
type Function struct {
	// Name is the function's, such as "worker"; Installation that of the whole.
	Name, Installation string
	Env                *Env
	Log                *slog.Logger
	Metrics            *Metrics
	// AWS is the SDK's configuration; its endpoints and credentials are those of the
	// environment.
	AWS aws.Config
}

// Handler answers one invocation.
type Handler[E, A any] func(ctx context.Context, event E) (A, error)

// Main runs a function for as long as its process lives: wire makes its handler
// out of the environment. A function that cannot begin says why and ends with 1.
func Main[E, A any](name string, wire func(ctx context.Context, f *Function) (Handler[E, A], error)) {
	ctx := context.Background()
	f, err := Begin(ctx, name, os.LookupEnv, os.Stdout)
	if err != nil {
		f.Log.ErrorContext(ctx, "the function cannot begin", "error", err)
		os.Exit(1)
	}
	h, err := wire(ctx, f)
	if err == nil {
		err = f.Env.Err()
	}
	if err != nil {
		f.Log.ErrorContext(ctx, "the function cannot begin", "error", err)
		os.Exit(1)
	}
	lambda.Start(observed(f, h))
}

// Begin reads what all functions need of the environment. Its Log is there even
// with an error.
func Begin(ctx context.Context, name string, lookup func(string) (string, bool), out io.Writer) (*Function, error) {
	env := NewEnv(lookup)
	f := &Function{Name: name, Env: env}
	var level slog.Level
	if err := level.UnmarshalText([]byte(env.Get("LOG_LEVEL", "info"))); err != nil {
		env.Fail("LOG_LEVEL", "it is none of debug, info, warn, error")
	}
	f.Log = newLog(out, level, name)
	f.Installation = env.Need("TRANSHIP_NAME")
	f.Metrics = &Metrics{w: out, installation: f.Installation, function: name, now: time.Now}
	var err error
	if f.AWS, err = config.LoadDefaultConfig(ctx); err != nil {
		return f, fmt.Errorf("read the configuration of the AWS SDK: %w", err)
	}
	return f, nil
}

// observed logs what an invocation failed with; the platform would show only its
// first line.
func observed[E, A any](f *Function, h Handler[E, A]) Handler[E, A] {
	return func(ctx context.Context, event E) (A, error) {
		began := time.Now()
		answer, err := h(ctx, event)
		if err != nil {
			f.Log.ErrorContext(ctx, "the invocation failed", "error", err)
		}
		f.Metrics.Emit(Value{"HandlerTime", Milliseconds, float64(time.Since(began).Microseconds()) / 1000})
		return answer, err
	}
}

// Holder names this invocation in leases, unlike any other.
func Holder(ctx context.Context) string {
	id := "task"
	if c, ok := lambdacontext.FromContext(ctx); ok {
		id = c.AwsRequestID
	}
	return strings.TrimPrefix(lambdacontext.LogStreamName+"/"+id, "/")
}

// MainTask runs a program that is no function: once, until it ends. The context
// ends when the platform asks it to stop.
func MainTask(name string, run func(ctx context.Context, f *Function) error) {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	f, err := Begin(ctx, name, os.LookupEnv, os.Stdout)
	if err == nil {
		err = run(ctx, f)
	}
	cancel()
	if err != nil {
		f.Log.ErrorContext(ctx, "the task failed", "error", err)
		os.Exit(1)
	}
}
