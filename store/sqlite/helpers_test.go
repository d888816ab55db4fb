package sqlite_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/store/sqlite"
)

var route = engine.Route{Pipeline: "shop", Source: "postgres://src/shop", Sink: "postgres://dst/shop"}

func planOf(splits int) *engine.RunPlan {
	src := &engine.SourcePlan{Resource: engine.Resource{Name: "public.orders"}}
	for i := range splits {
		src.Splits = append(src.Splits, engine.Split{ID: fmt.Sprintf("public.orders/%d", i), Resource: "public.orders", Descriptor: json.RawMessage(`{}`)})
	}
	return &engine.RunPlan{Resources: []*engine.ResourcePlan{{
		Selection: engine.Selection{Resource: "public.orders"}, Source: src, Target: &engine.Target{Resource: "public.orders"}}}}
}

// prepareRun starts a run with a plan of n splits, all claimed by slot 0.
func prepareRun(tb testing.TB, s *sqlite.Store, n int) (engine.Lease, []*engine.ClaimedSplit) {
	tb.Helper()
	run, _, err := s.StartRun(tb.Context(), engine.StartRequest{Route: route, Version: "v1"})
	require.NoError(tb, err)
	l, err := s.Acquire(tb.Context(), run.ID, 0, "test", time.Hour)
	require.NoError(tb, err)
	require.NoError(tb, s.SavePlan(tb.Context(), l.Fence, planOf(n), nil))
	var claimed []*engine.ClaimedSplit
	for range n {
		c, err := s.ClaimSplit(tb.Context(), l.Fence, nil)
		require.NoError(tb, err)
		claimed = append(claimed, c)
	}
	return l, claimed
}
