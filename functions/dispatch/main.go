// Command dispatch starts a container on Fargate for each attempt that is to run in
// one.
package main

import (
	"context"

	"github.com/aws/aws-lambda-go/events"

	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/internal/awsadapter/queue"
	"github.com/tranship-io/tranship/internal/compose/cloud"
	"github.com/tranship-io/tranship/internal/compose/cloud/plane"
)

func main() {
	cloud.Main("dispatch", func(ctx context.Context, f *cloud.Function) (cloud.Handler[events.SQSEvent, events.SQSEventResponse], error) {
		dead := f.Env.Need("TRANSHIP_DEAD_QUEUE")
		f.Env.Need("TRANSHIP_ECS_CLUSTER")
		p, err := plane.Open(ctx, f, 1)
		if err != nil {
			return nil, err
		}
		h := &handler{plane: p, starter: p.Containers().Starter,
			batch: cloud.Batch[dispatch.Command]{Check: check, Dead: queue.Dead{Queue: queue.New(f.AWS, dead)}, Log: f.Log}}
		return h.handle, nil
	})
}
