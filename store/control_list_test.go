package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/engine"
)

// TestRunsAreListed: page by page, by pipeline and state, the newest first, with the
// sums of the read model.
func TestRunsAreListed(t *testing.T) {
	t.Parallel()
	s := newTold(t, newDB(t), "a")
	conn := superuser(t, s.d)
	org := s.a.Organization
	states := []engine.RunState{engine.StateCompleted, engine.StateFailed, engine.StateCanceled}
	want := map[engine.RunState][]uuid.UUID{}
	for i := range 30 {
		id, state := uuid.Must(uuid.NewV7()), states[i%3]
		_, err := conn.Exec(t.Context(), `INSERT INTO runs (organization, id, pipeline, title, pipeline_name, version, route_key, state, created_at)
			VALUES ($1, $2, $3, 'shop', 'shop', 'v', 'a->b', $4, now() - $5::interval)`, org, id, s.pipeline, state, time.Duration(i)*time.Minute)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), `INSERT INTO run_history (organization, run, pipeline_name, route_key, version, created_at, state, rows_read, rows_applied, bytes)
			VALUES ($1, $2, 'shop', 'a->b', 'v', now(), $3, $4::bigint, $4::bigint + 1, $4::bigint + 2)`, org, id, state, i)
		require.NoError(t, err)
		want[state] = append(want[state], id)
		want[""] = append(want[""], id)
		if state != engine.StateCanceled {
			want["two"] = append(want["two"], id)
		}
	}
	list := func(f runs.Filter) (ids []uuid.UUID) {
		t.Helper()
		for after := ""; ; {
			page, err := s.d.Runs(t.Context(), org, f, control.Page{Limit: 7, After: after})
			require.NoError(t, err)
			for _, r := range page.Items {
				ids = append(ids, r.ID)
				i := r.Totals.Read
				require.Equal(t, runs.Totals{Read: i, Written: i + 1, Bytes: i + 2}, r.Totals)
				require.Equal(t, want[""][i], r.ID)
			}
			if page.Next == "" {
				return ids
			}
			after = page.Next
		}
	}
	for _, pipeline := range []string{"", "shop", s.pipeline.String()} {
		t.Run(fmt.Sprintf("pipeline %q", pipeline), func(t *testing.T) {
			require.Equal(t, want[""], list(runs.Filter{Pipeline: pipeline}))
			require.Equal(t, want[engine.StateFailed], list(runs.Filter{Pipeline: pipeline, States: []engine.RunState{engine.StateFailed}}))
			require.Equal(t, want["two"], list(runs.Filter{Pipeline: pipeline, States: []engine.RunState{engine.StateFailed, engine.StateCompleted, engine.StateFailed}}))
			require.Empty(t, list(runs.Filter{Pipeline: pipeline, States: []engine.RunState{engine.StateRunning}}))
			require.Len(t, list(runs.Filter{Pipeline: pipeline, States: states, From: time.Now().Add(-10*time.Minute - 30*time.Second)}), 11)
		})
	}
	require.Empty(t, list(runs.Filter{Pipeline: "other"}))
}
