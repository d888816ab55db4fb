package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/internal/cloudtest"
)

func TestMain(m *testing.M) { cloudtest.Main(m) }

// TestSweep: a command that was lost is sent again, facts that nobody confirmed are
// told of again, and with the last work the sweep turns itself off.
func TestSweep(t *testing.T) {
	t.Parallel()
	i := cloudtest.New(t)
	actor, _ := i.Organization()
	i.Pipeline(actor, "shop", 10)
	f := i.Function("sweep", "TRANSHIP_LEASE", "1s")
	h, err := wire(t.Context(), f)
	require.NoError(t, err)
	require.NoError(t, f.Env.Err())
	t.Cleanup(h.plane.DB.Close)
	sweep := func(event string) {
		answer, err := h.handle(i.Invocation(time.Minute), json.RawMessage(event))
		require.NoError(t, err)
		text, err := json.Marshal(answer)
		require.NoError(t, err)
		require.JSONEq(t, `{"batchItemFailures":[]}`, string(text))
	}
	started, err := h.plane.Runs.Start(t.Context(), actor, runs.StartRequest{Pipeline: "shop"})
	require.NoError(t, err)
	require.NoError(t, h.plane.After(t.Context()))
	require.True(t, i.Sweeping())
	require.Len(t, i.Receive("TRANSHIP_ATTEMPTS_QUEUE").Records, 1)
	require.Len(t, i.Receive("TRANSHIP_FACTS_QUEUE").Records, 1)
	require.Eventually(t, func() bool {
		sweep(`{"sweep":true}`)
		return len(i.Receive("TRANSHIP_ATTEMPTS_QUEUE").Records) == 1
	}, 30*time.Second, 100*time.Millisecond, "the offer has expired by now")
	require.True(t, i.Sweeping())

	_, err = h.plane.Runs.Cancel(t.Context(), actor, started.Runs[0].ID)
	require.NoError(t, err)
	require.NoError(t, h.plane.After(t.Context()))
	_ = i.Receive("TRANSHIP_FACTS_QUEUE")
	i.Exec(i.URL, `UPDATE tranship.fact_relays SET created_at = created_at - interval '1 hour'`)
	sweep(`{"source":"aws.ecs","detail":{}}`)
	require.NotEmpty(t, i.Receive("TRANSHIP_FACTS_QUEUE").Records)
	require.True(t, i.Sweeping(), "facts that wait are work")

	i.Exec(i.URL, `DELETE FROM tranship.fact_relays`)
	require.Eventually(t, func() bool {
		sweep(`{"Records":[{"body":"{}"}]}`)
		return !i.Sweeping()
	}, 30*time.Second, 100*time.Millisecond)
}
