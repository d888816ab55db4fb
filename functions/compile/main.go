// Command compile fires schedules: EventBridge Scheduler invokes it at the next
// instant of each, and once a day to compare all of them with what it holds.
package main

import (
	"context"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/schedules"
	"github.com/tranship-io/tranship/internal/compose/cloud"
	"github.com/tranship-io/tranship/internal/compose/cloud/plane"
)

func main() {
	cloud.Main("compile", func(ctx context.Context, f *cloud.Function) (cloud.Handler[event, answer], error) {
		p, err := plane.Open(ctx, f, 1)
		if err != nil {
			return nil, err
		}
		return newHandler(p).handle, nil
	})
}

func newHandler(p *plane.Plane) *handler {
	return &handler{plane: p, compiler: &schedules.Compiler{Firing: p.Firing, Mirror: p.Calendar(), Clock: control.SystemClock{}, Log: p.Log}}
}
