package main

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/internal/awsadapter/queue"
	"github.com/tranship-io/tranship/internal/awsadapter/tasks"
	"github.com/tranship-io/tranship/internal/cloudtest"
	"github.com/tranship-io/tranship/internal/compose/cloud"
	"github.com/tranship-io/tranship/internal/compose/cloud/plane"
	"github.com/tranship-io/tranship/localstack/ecs"
)

func TestMain(m *testing.M) { cloudtest.Main(m) }

// TestContainers: a command starts one container however often it comes; throttling
// and a lack of capacity fail nothing; a container that dies before its attempt
// began is an interruption, once.
func TestContainers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	i := cloudtest.New(t)
	actor, _ := i.Organization()
	i.Pipeline(actor, "shop", 10)

	program := t.TempDir() + "/task"
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\nexec sleep 600\n"), 0o700))
	reports := make(chan json.RawMessage, 100)
	shim := ecs.New(ecs.Config{Program: program, Events: func(_ context.Context, detail json.RawMessage) error { reports <- detail; return nil }})
	server := httptest.NewServer(shim)
	t.Cleanup(func() { shim.Close(); server.Close() })

	f := i.Function("dispatch", "TRANSHIP_ECS_CLUSTER", "rig", "TRANSHIP_ECS_TASK", "worker:1", "TRANSHIP_ECS_CONTAINER", "worker",
		"TRANSHIP_ECS_SUBNETS", "subnet-1,subnet-2", "TRANSHIP_ECS_SECURITY_GROUPS", "sg-1")
	p, err := plane.Open(ctx, f, 1)
	require.NoError(t, err)
	t.Cleanup(p.DB.Close)
	p.AWS.BaseEndpoint = &server.URL // of ECS alone: the others are made already
	h := &handler{plane: p, starter: p.Containers().Starter,
		batch: cloud.Batch[dispatch.Command]{Check: check, Dead: queue.Dead{Queue: queue.New(i.AWS, i.Env["TRANSHIP_DEAD_QUEUE"])}, Log: f.Log}}
	require.NoError(t, f.Env.Err())

	started, err := p.Runs.Start(ctx, actor, runs.StartRequest{Pipeline: "shop"})
	require.NoError(t, err)
	id := started.Runs[0].ID
	i.Exec(i.URL, `UPDATE tranship.runs SET policy = policy || '{"compute":"fargate"}'`)
	require.NoError(t, p.After(ctx))
	event := i.Receive("TRANSHIP_TASKS_QUEUE")
	require.Len(t, event.Records, 1)

	shim.SetFaults(ecs.Faults{NoCapacity: 1})
	for range 2 {
		out, err := h.handle(i.Invocation(time.Minute), event)
		require.NoError(t, err)
		require.NotNil(t, out.BatchItemFailures)
		require.Empty(t, out.BatchItemFailures, "what is recorded is the operation's business")
	}
	require.Empty(t, reports, "no container was started")
	require.True(t, i.Sweeping())
	i.Exec(i.URL, `UPDATE tranship.operations SET next_at = now() WHERE kind = 'task'`)
	shim.SetFaults(ecs.Faults{DieAtStart: 1, EventsTwice: true})
	_, err = p.Operations.Run(ctx)
	require.NoError(t, err)
	for ends := 0; ends < 2; {
		end, over, err := tasks.EndOf(<-reports)
		require.NoError(t, err)
		if over {
			ends++
			require.NoError(t, dispatch.TaskStopped(ctx, p.DB, end))
		}
	}
	r, err := p.DB.Run(ctx, actor.Organization, id)
	require.NoError(t, err)
	require.Equal(t, 1, r.Interruptions)
	require.Zero(t, r.Failures)
	require.NoError(t, p.After(ctx))
	require.Len(t, i.Receive("TRANSHIP_TASKS_QUEUE").Records, 1, "the next attempt was offered")

	out, err := h.handle(i.Invocation(time.Minute), cloudtest.Message(`{"organization":"x"}`))
	require.NoError(t, err)
	require.Empty(t, out.BatchItemFailures)
	require.Len(t, i.Receive("TRANSHIP_DEAD_QUEUE").Records, 1)
}
