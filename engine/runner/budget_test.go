package runner

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestBudgetBlocksUntilTheSinkIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(100)
		require.NoError(t, b.reserve(t.Context(), 80))
		b.handOver(80)
		got := false
		go func() {
			if b.reserve(t.Context(), 30) == nil {
				got = true
			}
		}()
		synctest.Wait()
		require.False(t, got, "80 of 100 are on their way")
		b.release(80)
		synctest.Wait()
		require.True(t, got)
		b.unreserve(30)
		require.Zero(t, b.held+b.sent)
	})
}

func TestBudgetLetsAnOversizeRowPassAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(100)
		require.NoError(t, b.reserve(t.Context(), 1))
		b.handOver(1)
		got := false
		go func() {
			if b.reserve(t.Context(), 5000) == nil {
				got = true
			}
		}()
		synctest.Wait()
		require.False(t, got, "something is on its way")
		b.release(1)
		synctest.Wait()
		require.True(t, got, "alone, a row of any size passes (invariant 11)")
	})
}

func TestBudgetWaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(10)
		require.NoError(t, b.reserve(t.Context(), 10))
		b.handOver(10)
		ctx, cancel := context.WithCancelCause(t.Context())
		var err error
		go func() { err = b.reserve(ctx, 10) }()
		synctest.Wait()
		cancel(errAbandoned)
		synctest.Wait()
		require.ErrorIs(t, err, errAbandoned)
	})
}
