package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/internal/cloudtest"
)

func TestMain(m *testing.M) { cloudtest.Main(m) }

// TestProject: facts that messages tell of are folded once, in whatever order and
// how often they come; a message about a run that is gone does no harm, and one
// that makes no sense goes to the dead letters.
func TestProject(t *testing.T) {
	t.Parallel()
	i := cloudtest.New(t)
	actor, _ := i.Organization()
	i.Pipeline(actor, "shop", 10)
	f := i.Function("project")
	h, err := wire(t.Context(), f)
	require.NoError(t, err)
	require.NoError(t, f.Env.Err())
	t.Cleanup(h.plane.DB.Close)
	started, err := h.plane.Runs.Start(t.Context(), actor, runs.StartRequest{Pipeline: "shop"})
	require.NoError(t, err)
	id := started.Runs[0].ID
	require.NoError(t, h.plane.After(t.Context()))
	event := i.Receive("TRANSHIP_FACTS_QUEUE")
	require.Len(t, event.Records, 1)

	_, err = h.plane.Runs.Cancel(t.Context(), actor, id)
	require.NoError(t, err)
	require.NoError(t, h.plane.After(t.Context()))
	later := i.Receive("TRANSHIP_FACTS_QUEUE")
	require.Len(t, later.Records, 1)
	gone := cloudtest.Message(fmt.Sprintf(`{"organization":%q,"run":%q,"through":1}`, actor.Organization, uuid.New()))
	later.Records = append(later.Records, event.Records[0], gone.Records[0], cloudtest.Message(`{"through":1}`).Records[0])
	for range 2 {
		answer, err := h.handle(i.Invocation(time.Minute), later)
		require.NoError(t, err)
		require.NotNil(t, answer.BatchItemFailures)
		require.Empty(t, answer.BatchItemFailures)
	}
	var state string
	i.Query(i.URL, `SELECT state FROM tranship.run_history WHERE run = $1`, &state, id)
	require.Equal(t, "canceled", state)
	var waiting, ended int64
	i.Query(i.URL, `SELECT count(*) FROM tranship.fact_relays`, &waiting)
	require.Zero(t, waiting, "what is folded is confirmed")
	i.Query(i.URL, `SELECT sum(runs)::bigint FROM tranship.metrics_hourly WHERE resource = ''`, &ended)
	require.EqualValues(t, 1, ended, "an ending is counted once")
	require.NotEmpty(t, i.Receive("TRANSHIP_DEAD_QUEUE").Records)
}
