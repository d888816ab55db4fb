// Command sweep does what nobody did, once a minute while there is work.
package main

import (
	"context"
	"encoding/json"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/inspections"
	"github.com/tranship-io/tranship/control/notify"
	"github.com/tranship-io/tranship/control/sweep"
	"github.com/tranship-io/tranship/control/timer"
	"github.com/tranship-io/tranship/internal/awsadapter/invoke"
	"github.com/tranship-io/tranship/internal/compose/cloud"
	"github.com/tranship-io/tranship/internal/compose/cloud/plane"
)

func main() {
	cloud.Main("sweep", func(ctx context.Context, f *cloud.Function) (cloud.Handler[json.RawMessage, answer], error) {
		h, err := wire(ctx, f)
		if err != nil {
			return nil, err
		}
		return h.handle, nil
	})
}

func wire(ctx context.Context, f *cloud.Function) (*handler, error) {
	f.Env.Need("TRANSHIP_DELIVERIES_QUEUE")
	p, err := plane.Open(ctx, f, 1)
	if err != nil {
		return nil, err
	}
	clock := control.SystemClock{}
	p.Calendar()
	h := &handler{plane: p, loop: &sweep.Loop{
		Sweeper: &sweep.Sweeper{Store: p.DB, Log: f.Log}, Dispatch: p.Dispatch, Clock: clock, Log: f.Log,
		Tasks: []sweep.Task{
			p.Facts,
			timer.Task("schedules", p.Firing, clock),
			p.Operations,
			&inspections.Sweeper{Store: p.DB, Starter: invoke.NewInspections(f.AWS, f.Env.Need("TRANSHIP_INSPECT_FUNCTION"), f.Log), Clock: clock},
			timer.Task("watches", &notify.Watcher{Ledger: p.DB.Notifications()}, clock),
			p.Telling(),
		},
	}}
	if c := p.Containers(); c != nil {
		h.ended = func(ctx context.Context, e dispatch.TaskEnd) error { return dispatch.TaskStopped(ctx, p.DB, e) }
		h.loop.Tasks = append(h.loop.Tasks, c.Sweeper)
	}
	// The alarm comes last: it looks at what the others left for later.
	h.loop.Tasks = append(h.loop.Tasks, &timer.Alarm{Store: p.DB, Bell: p.Alarm(), Clock: clock})
	h.loop.Init()
	return h, nil
}
