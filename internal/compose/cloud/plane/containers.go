package plane

import (
	"strings"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/internal/awsadapter/queue"
	"github.com/tranship-io/tranship/internal/awsadapter/tasks"
)

// platform is what attempts can run on: functions, and containers if there is a
// cluster for them.
func (p *Plane) platform() dispatch.Platform {
	return dispatch.Platform{Lambda: true, Fargate: p.Env.Get("TRANSHIP_ECS_CLUSTER", "") != "", LambdaMemory: int64(p.Env.Int("TRANSHIP_WORKER_MEMORY", 1769)) << 20 / 4 * 3}
}

// commands is the queue of each kind of attempt.
func (p *Plane) commands(fargate bool) dispatch.Router {
	r := dispatch.Router{Lambda: queue.Commands{Queue: queue.New(p.AWS, p.Env.Need("TRANSHIP_ATTEMPTS_QUEUE"))}}
	if fargate {
		r.Fargate = queue.Commands{Queue: queue.New(p.AWS, p.Env.Need("TRANSHIP_TASKS_QUEUE"))}
	}
	return r
}

// Containers are the attempts on Fargate.
type Containers struct {
	Starter *dispatch.Starter
	Sweeper *dispatch.TaskSweeper
}

// Containers starts and looks after containers, in functions that do; nil where
// there is no cluster.
func (p *Plane) Containers() *Containers {
	cluster := p.Env.Get("TRANSHIP_ECS_CLUSTER", "")
	if cluster == "" {
		return nil
	}
	list := func(name string) []string {
		return strings.FieldsFunc(p.Env.Need(name), func(r rune) bool { return r == ',' || r == ' ' })
	}
	t := tasks.New(p.AWS, tasks.Config{
		Cluster: cluster, Definition: p.Env.Need("TRANSHIP_ECS_TASK"), Container: p.Env.Need("TRANSHIP_ECS_CONTAINER"),
		Subnets: list("TRANSHIP_ECS_SUBNETS"), SecurityGroups: list("TRANSHIP_ECS_SECURITY_GROUPS"), PublicIP: p.Env.Get("TRANSHIP_ECS_PUBLIC_IP", "false") == "true",
	})
	c := &Containers{
		Starter: &dispatch.Starter{Tasks: t, Store: p.DB, Runner: p.Operations},
		Sweeper: &dispatch.TaskSweeper{Tasks: t, Store: p.DB, Runner: p.Operations, Clock: control.SystemClock{}},
	}
	p.Operations.Effects[dispatch.KindTask] = c.Starter
	p.Operations.Effects[dispatch.KindStopTask] = &dispatch.Stopper{Tasks: t}
	return c
}
