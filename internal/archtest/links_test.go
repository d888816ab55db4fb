package archtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFunctionsLinkNoMoreThanTheyUse(t *testing.T) {
	t.Parallel()
	found, err := CheckLinks("../..", Module)
	require.NoError(t, err)
	for _, line := range found {
		t.Error(line)
	}
}

func TestLinksAreFollowed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for file, to := range map[string]string{
		"functions/authorizer/main.go":   Module + "/control/access",
		"functions/authorizer/x_test.go": Module + "/store",
		"control/access/a.go":            Module + "/control",
		"control/a.go":                   "github.com/jackc/pgx/v5",
		"functions/sweep/main.go":        Module + "/store",
		"store/a.go":                     "github.com/jackc/pgx/v5",
	} {
		name := filepath.Join(root, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte("package x\n\nimport _ \""+to+"\"\n"), 0o600))
	}
	found, err := CheckLinks(root, Module)
	require.NoError(t, err)
	require.Equal(t, []string{"functions/authorizer must not link github.com/jackc/pgx/v5: functions/authorizer > control/access > control > github.com/jackc/pgx/v5"}, found)
}
