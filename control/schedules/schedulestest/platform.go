// Package schedulestest holds what every platform that keeps copies of schedules
// must do, and one in memory that does it.
package schedulestest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control/schedules"
)

// Memory is a platform in memory. Fail, if set, is asked before each call, which
// then fails with its error; After is asked once a change has been made.
type Memory struct {
	Fail, After func(call string) error

	mu   sync.Mutex
	held map[uuid.UUID]schedules.Wake
}

var _ schedules.Platform = (*Memory)(nil)

func (m *Memory) call(name string, do func()) error {
	if m.Fail != nil {
		if err := m.Fail(name); err != nil {
			return err
		}
	}
	m.mu.Lock()
	if m.held == nil {
		m.held = map[uuid.UUID]schedules.Wake{}
	}
	do()
	m.mu.Unlock()
	if m.After != nil {
		return m.After(name)
	}
	return nil
}

// Set implements [schedules.Platform].
func (m *Memory) Set(_ context.Context, w schedules.Wake) error {
	return m.call("set", func() { m.held[w.Schedule] = w })
}

// Remove implements [schedules.Platform].
func (m *Memory) Remove(_ context.Context, id uuid.UUID) error {
	return m.call("remove", func() { delete(m.held, id) })
}

// Held implements [schedules.Platform].
func (m *Memory) Held(_ context.Context, id uuid.UUID) (w schedules.Wake, there bool, err error) {
	err = m.call("held", func() { w, there = m.held[id] })
	return w, there && err == nil, err
}

// All implements [schedules.Platform].
func (m *Memory) All(context.Context) (ids []uuid.UUID, err error) {
	err = m.call("all", func() { ids = slices.Collect(maps.Keys(m.held)) })
	return ids, err
}

// TestPlatform is the contract of a platform that is empty but for others' things.
func TestPlatform(t *testing.T, p schedules.Platform) {
	t.Helper()
	ctx := t.Context()
	at := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Second)
	wake := schedules.Wake{Ref: schedules.Ref{Organization: uuid.Must(uuid.NewV7()), Schedule: uuid.Must(uuid.NewV7())}, Revision: 3, At: at}

	_, there, err := p.Held(ctx, wake.Schedule)
	require.NoError(t, err)
	require.False(t, there)
	require.NoError(t, p.Remove(ctx, wake.Schedule), "what is not there can be removed")

	for range 2 {
		require.NoError(t, p.Set(ctx, wake))
		held, there, err := p.Held(ctx, wake.Schedule)
		require.NoError(t, err)
		require.True(t, there)
		require.Equal(t, wake, held)
	}
	moved := wake
	moved.Revision, moved.At = 4, at.Add(time.Hour)
	require.NoError(t, p.Set(ctx, moved))
	held, _, err := p.Held(ctx, wake.Schedule)
	require.NoError(t, err)
	require.Equal(t, moved, held, "there is one copy, which was replaced")

	// A fraction of a second never makes it fire before its time.
	fraction := moved
	fraction.At = at.Add(time.Hour + 300*time.Millisecond)
	require.NoError(t, p.Set(ctx, fraction))
	held, _, err = p.Held(ctx, wake.Schedule)
	require.NoError(t, err)
	require.False(t, held.At.Before(fraction.At))
	require.Less(t, held.At.Sub(fraction.At), 2*time.Second)

	// Nor is a time refused that has just passed.
	late := wake
	late.Schedule, late.At = uuid.Must(uuid.NewV7()), time.Now().Add(-time.Minute).UTC()
	require.NoError(t, p.Set(ctx, late))
	held, there, err = p.Held(ctx, late.Schedule)
	require.NoError(t, err)
	require.True(t, there)
	require.Equal(t, late.Ref, held.Ref)

	ids, err := p.All(ctx)
	require.NoError(t, err)
	require.ElementsMatch(t, []uuid.UUID{wake.Schedule, late.Schedule}, ids)
	for _, id := range ids {
		require.NoError(t, p.Remove(ctx, id))
	}
	ids, err = p.All(ctx)
	require.NoError(t, err)
	require.Empty(t, ids)
}
