package sample

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	incremental := engine.PlanRequest{Selection: engine.Selection{Cursor: "id"}, Read: engine.ReadIncremental}
	nothing := incremental
	nothing.Cursor = []byte(`{"rows":60}`)
	enginetest.RunSource(t, enginetest.SourceCase{
		Spec: NewSource().Spec(),
		Open: func(t *testing.T) engine.SourceSession {
			t.Helper()
			s, err := NewSource().Open(t.Context(), engine.Config(`{"seed":3,"rows":60,"splits":3}`), engine.OpenOptions{})
			require.NoError(t, err)
			return s
		},
		Resources: []enginetest.SourceResource{
			{Name: orders, Plan: engine.PlanRequest{Read: engine.ReadFull, Consistency: engine.ConsistencyChunked}},
			{Name: kinds, Plan: engine.PlanRequest{Read: engine.ReadFull}},
			{Name: orders, Plan: incremental},
			{Name: orders, Plan: nothing, Empty: true},
		},
	})
}
