package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/statetest"
	"github.com/tranship-io/tranship/store/sqlite"
)

func open(t *testing.T, path string, opts ...sqlite.Option) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestConformance(t *testing.T) {
	statetest.Run(t, func(t *testing.T) engine.State {
		t.Helper()
		return open(t, filepath.Join(t.TempDir(), "state.db"))
	})
}

// machine is a folder: each process opens the file in it.
type machine struct{ path string }

func (m machine) Process(t *testing.T) engine.State {
	t.Helper()
	return open(t, m.path)
}

// Kill closes the file, which lets the locks go as the kernel would, and tells
// nobody. TestKilledProcess uses real processes and SIGKILL.
func (m machine) Kill(t *testing.T, p engine.State) {
	t.Helper()
	require.NoError(t, p.(*sqlite.Store).Close())
}

func TestProcesses(t *testing.T) {
	statetest.RunProcesses(t, func(t *testing.T) statetest.Machine {
		t.Helper()
		return machine{filepath.Join(t.TempDir(), "state.db")}
	})
}
