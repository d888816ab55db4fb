package access_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/access"
)

func TestKeyFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, access.WriteKeyFile(file, "trk_a"))
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoError(t, access.WriteKeyFile(file, "trk_b"), "a key may be replaced")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "trk_b\n", string(text))

	require.NoError(t, os.WriteFile(file, []byte("my thesis"), 0o600))
	var conflict *control.ConflictError
	require.ErrorAs(t, access.WriteKeyFile(file, "trk_c"), &conflict)
	require.Error(t, access.WriteKeyFile(filepath.Join(t.TempDir(), "no", "folder"), "trk_c"))
	left, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	require.Len(t, left, 1, "no half file stays")
}
