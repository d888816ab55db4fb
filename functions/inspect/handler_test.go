package main

import (
	"io"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/control/inspections"
	"github.com/tranship-io/tranship/internal/cloudtest"
)

func TestMain(m *testing.M) { cloudtest.Main(m) }

func TestMargin(t *testing.T) {
	t.Parallel()
	require.Equal(t, 15*time.Second, margin(15*time.Minute))
	require.Equal(t, time.Second, margin(3*time.Second))
}

// TestInspect: an invocation executes the inspection that it names, once, within
// its time.
func TestInspect(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	i := cloudtest.New(t)
	actor, _ := i.Organization()
	i.Pipeline(actor, "shop", 10)
	f := i.Function("inspect")
	h, err := wire(ctx, f)
	require.NoError(t, err)
	require.NoError(t, f.Env.Err())
	t.Cleanup(h.db.Close)
	service := &inspections.Service{Store: h.db, Connections: h.db, Pipelines: h.db, Catalog: catalog.New(io.Discard)}
	look := func(r inspections.Request, timeout time.Duration) inspections.Inspection {
		made, err := service.Start(ctx, actor, r)
		require.NoError(t, err)
		for n := range 2 {
			out, err := h.handle(i.Invocation(timeout), event{actor.Organization, made.ID})
			require.NoError(t, err)
			require.Equal(t, n == 0, out.Looked, "asked for twice, executed once")
		}
		over, err := service.Get(ctx, actor, made.ID)
		require.NoError(t, err)
		return over
	}
	tested := look(inspections.Request{Kind: inspections.Test, Connection: "shop-to"}, time.Minute)
	require.Equal(t, inspections.Succeeded, tested.State, tested.Error)
	found := look(inspections.Request{Kind: inspections.Discover, Connection: "shop-from"}, time.Minute)
	require.Equal(t, inspections.Succeeded, found.State, found.Error)
	require.Contains(t, string(found.Result), "sample.orders")

	out, err := h.handle(i.Invocation(time.Minute), event{uuid.New(), tested.ID})
	require.NoError(t, err)
	require.False(t, out.Looked, "it is another organization's")
	_, err = h.handle(i.Invocation(time.Minute), event{Inspection: tested.ID})
	require.Error(t, err)
	_, err = h.handle(i.Invocation(time.Minute), event{})
	require.NoError(t, err, "a call that keeps the function active")
}
