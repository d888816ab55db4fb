// Command project folds facts into history, metrics, costs and deliveries.
package main

import (
	"context"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/projection"
	"github.com/tranship-io/tranship/internal/awsadapter/queue"
	"github.com/tranship-io/tranship/internal/compose/cloud"
	"github.com/tranship-io/tranship/internal/compose/cloud/plane"
)

func main() {
	cloud.Main("project", func(ctx context.Context, f *cloud.Function) (cloud.Handler[events.SQSEvent, events.SQSEventResponse], error) {
		h, err := wire(ctx, f)
		if err != nil {
			return nil, err
		}
		return h.handle, nil
	})
}

func wire(ctx context.Context, f *cloud.Function) (*handler, error) {
	dead := f.Env.Need("TRANSHIP_DEAD_QUEUE")
	p, err := plane.Open(ctx, f, 1)
	if err != nil {
		return nil, err
	}
	h := &handler{plane: p, batch: cloud.Batch[projection.Told]{
		Check: check, Dead: queue.Dead{Queue: queue.New(f.AWS, dead), Fifo: strings.HasSuffix(dead, ".fifo")}, Log: f.Log,
	}}
	read := p.DB.Projection()
	h.projector = &projection.Projector{Relay: read, Store: read, Ended: h.ended, Clock: control.SystemClock{}, Log: f.Log, Workers: 1}
	return h, nil
}
