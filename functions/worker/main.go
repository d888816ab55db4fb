// Command worker executes attempts of runs: as a function one for each message of
// the queue attempts, bounded by the invocation; as a task on Fargate the one that
// TRANSHIP_COMMAND holds, until it is told to stop.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/uuid"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/runner"
	"github.com/tranship-io/tranship/internal/awsadapter/queue"
	"github.com/tranship-io/tranship/internal/compose/cloud"
	"github.com/tranship-io/tranship/internal/compose/cloud/plane"
	"github.com/tranship-io/tranship/internal/compose/cloud/vault"
	"github.com/tranship-io/tranship/internal/compose/ends"
	"github.com/tranship-io/tranship/internal/compose/worker"
	"github.com/tranship-io/tranship/store"
)

const name = "worker"

func main() {
	if os.Getenv("TRANSHIP_COMMAND") != "" {
		cloud.MainTask(name, task)
		return
	}
	cloud.Main(name, func(ctx context.Context, f *cloud.Function) (cloud.Handler[events.SQSEvent, events.SQSEventResponse], error) {
		dead := f.Env.Need("TRANSHIP_DEAD_QUEUE")
		h, err := wire(ctx, f, "AWS_LAMBDA_FUNCTION_MEMORY_SIZE")
		if err != nil {
			return nil, err
		}
		h.batch = cloud.Batch[dispatch.Command]{Check: check, Dead: queue.Dead{Queue: queue.New(f.AWS, dead)}, Log: f.Log}
		return h.handle, nil
	})
}

// wire makes what function and task have in common; memory is the variable that
// holds the process's memory in MiB.
func wire(ctx context.Context, f *cloud.Function, memory string) (*handler, error) {
	// One connection for heartbeats while another one commits.
	p, err := plane.Open(ctx, f, 2)
	if err != nil {
		return nil, err
	}
	v := vault.Open(f, p.DB)
	routes := &ends.Resolver{Store: p.DB, Secrets: v.Secrets, Catalog: catalog.New(os.Stdout)}
	has := int64(f.Env.Int(memory, 512)) << 20
	// Three quarters are the attempt's; Go's collector hurries before the platform kills.
	budget := has / 4 * 3
	debug.SetMemoryLimit(has / 100 * 92)
	return &handler{plane: p, config: worker.Config{
		Store: attempts{p.DB.DB}, Memory: budget, MaxMemory: budget, AttemptTime: f.Env.Duration("TRANSHIP_ATTEMPT_TIME", time.Hour),
		Ends: func(ctx context.Context, r runs.Run, organization uuid.UUID, learn func(secrets ...string)) (runner.Options, error) {
			return routes.Options(ctx, ends.Route{Organization: organization, Pipeline: r.Pipeline, Name: r.Title, Number: r.Number, Key: r.Route, Hash: r.Hash}, learn)
		},
	}}, nil
}

// attempts gives a worker the engine's State of one run.
type attempts struct{ *store.DB }

// RunState implements [worker.Store].
func (s attempts) RunState(organization, run uuid.UUID) engine.State {
	return s.DB.RunState(organization, run)
}

// task executes the attempt that the environment names.
func task(ctx context.Context, f *cloud.Function) error {
	var c dispatch.Command
	f.Env.JSON("TRANSHIP_COMMAND", &c)
	h, err := wire(ctx, f, "TRANSHIP_TASK_MEMORY")
	if err == nil {
		err = f.Env.Err()
	}
	if err == nil {
		err = check(c)
	}
	if err != nil {
		return err
	}
	out, err := h.execute(context.WithoutCancel(ctx), ctx.Done(), h.config, c)
	if err != nil {
		f.Log.WarnContext(ctx, "what follows the attempt is left to the sweep", "error", err)
	}
	if out.What == "" {
		return fmt.Errorf("begin %s: %w", c, err)
	}
	return nil
}
