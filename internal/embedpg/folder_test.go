//go:build unix

package embedpg

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlace(t *testing.T) {
	if os.Geteuid() != 0 {
		dir := filepath.Join(t.TempDir(), "postgres")
		got, err := Place(dir)
		require.NoError(t, err)
		require.Equal(t, dir, got)
		return
	}
	closed, err := os.MkdirTemp("/tmp", "embedpg-closed-") // root alone
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(closed) })
	want := filepath.Join(closed, "postgres")
	to, err := Place(want)
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(to) })
	require.NotEqual(t, want, to)
	again, err := Place(want)
	require.NoError(t, err)
	require.Equal(t, to, again, "the link is followed")

	require.NoError(t, os.Chmod(closed, 0o755))
	open := filepath.Join(closed, "other")
	got, err := Place(open)
	require.NoError(t, err)
	require.Equal(t, open, got)
}
