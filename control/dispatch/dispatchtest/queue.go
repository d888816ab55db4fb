// Package dispatchtest holds the suite that every queue of commands passes.
package dispatchtest

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/dispatch"
)

// TestQueue checks that commands arrive as they were sent. arrived returns those
// that did so far, in any order and perhaps more than once.
func TestQueue(t *testing.T, q dispatch.CommandQueue, arrived func() []dispatch.Command) {
	t.Helper()
	var sent []dispatch.Command
	for i := range 3 {
		organization := uuid.New()
		for j := range 4 {
			c := dispatch.Command{Organization: organization, Run: uuid.New(), Slot: j, Sent: int64(i*10 + j + 1), Cancel: j == 3}
			require.NoError(t, q.Send(t.Context(), c))
			sent = append(sent, c)
		}
	}
	var got []dispatch.Command
	require.Eventually(t, func() bool {
		got = append(got, arrived()...)
		return !slices.ContainsFunc(sent, func(c dispatch.Command) bool { return !slices.Contains(got, c) })
	}, 30*time.Second, 20*time.Millisecond)
	for _, c := range got {
		require.Contains(t, sent, c)
	}
}
