package archtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestModuleKeepsItsRooms(t *testing.T) {
	t.Parallel()
	found, err := Check("../..", Module)
	require.NoError(t, err)
	for _, line := range found {
		t.Error(line)
	}
}

// TestCheckerCatches builds a module with one import per file and expects
// exactly those that the design forbids.
func TestCheckerCatches(t *testing.T) {
	t.Parallel()
	const ours = Module + "/"
	files := []struct {
		file, imports string
		forbidden     bool
	}{
		{"events/a.go", "fmt", false},
		{"events/b.go", ours + "engine", true},
		{"engine/a.go", ours + "events", false},
		{"engine/plan/a.go", ours + "engine/schema", false},
		{"engine/b.go", ours + "pipeline", true},
		{"engine/c.go", "github.com/jackc/pgx/v5", true},
		{"engine/d_test.go", "github.com/aws/aws-sdk-go-v2/aws", true},
		{"engine/e.go", "github.com/apache/arrow-go/v18/arrow", false},
		{"engine/f.go", ours + "engine/enginetest", true},
		{"engine/f_test.go", ours + "engine/enginetest", false},
		{"engine/enginetest/a.go", ours + "engine", false},
		{"engine/enginetest/sim/a.go", ours + "connectors/postgres", true},
		{"pipeline/a.go", ours + "engine", false},
		{"pipeline/b.go", ours + "connectors/catalog", true},
		{"connectors/postgres/a.go", ours + "engine/schema", false},
		{"connectors/postgres/b.go", ours + "connectors/postgres/copyfmt", false},
		{"connectors/postgres/c.go", ours + "connectors/files", true},
		{"connectors/postgres/copyfmt/d.go", ours + "connectors/files", true},
		{"connectors/postgres/e.go", ours + "internal/pgtest", true},
		{"connectors/postgres/f_test.go", ours + "internal/pgtest", false},
		{"connectors/files/g_test.go", ours + "connectors/sample", false},
		{"connectors/files/h_test.go", ours + "connectors/postgres", true},
		{"connectors/files/i.go", ours + "connectors/catalog", true},
		{"connectors/catalog/a.go", ours + "connectors/files", false},
		{"connectors/catalog/b.go", ours + "store/sqlite", true},
		{"store/sqlite/a.go", ours + "pipeline", false},
		{"store/sqlite/b.go", ours + "control", true},
		{"store/sqlite/c.go", ours + "store", true},
		{"store/a.go", ours + "control", false},
		{"cmd/tranship/a.go", ours + "connectors/catalog", false},
		{"cmd/tranship/b.go", ours + "store/sqlite", false},
		{"cmd/tranship/cli/c.go", ours + "cmd/tranship/ui", false},
		{"cmd/tranship/d.go", ours + "functions/worker", true},
		{"cmd/tranship/e.go", ours + "internal/pgtest", true},
		{"functions/worker/a.go", ours + "functions/sweep", true},
		{"api/client/a.go", ours + "engine", true},
		{"internal/killtest/a.go", ours + "internal/pgtest", false},
		{"internal/gendocs/a.go", ours + "connectors/catalog", false},
		{"internal/pgtest/a.go", ours + "engine", true},
		{"internal/demo/a.go", ours + "functions/worker", true},
		{"bench/a.go", ours + "internal/pgtest", false},
		{"examples/x/a.go", ours + "engine", false},
		{"drawer/a.go", "fmt", true},
		{"engine/g.go", ours + "drawer", true},
		{"bench/other/go.mod", "", false},
		{"bench/other/a.go", ours + "functions/worker", false}, // another module
		{"engine/testdata/a.go", ours + "store", false},        // not compiled
	}
	root := t.TempDir()
	var want []string
	for _, f := range files {
		name := filepath.Join(root, f.file)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		text := "package x\n\nimport _ \"" + f.imports + "\"\n"
		if strings.HasSuffix(name, "go.mod") {
			text = "module other\n"
		}
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		if f.forbidden {
			want = append(want, f.file)
		}
	}
	found, err := Check(root, Module)
	require.NoError(t, err)
	got := make([]string, 0, len(found))
	for _, line := range found {
		file, _, _ := strings.Cut(line, " imports ")
		got = append(got, file)
	}
	require.ElementsMatch(t, want, got, strings.Join(found, "\n"))
}

// TestDependenciesAreExplained wants a line in docs/dependencies.md for each
// direct dependency.
func TestDependenciesAreExplained(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	doc, err := os.ReadFile("../../docs/dependencies.md")
	require.NoError(t, err)
	direct := 0
	for line := range strings.Lines(string(mod)) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) != 2 || !strings.HasPrefix(fields[1], "v") {
			continue // not a requirement, or marked indirect
		}
		direct++
		path := fields[0]
		if strings.HasPrefix(path, "github.com/aws/aws-sdk-go-v2/") {
			path = "github.com/aws/aws-sdk-go-v2" // one line for its many modules
		}
		require.Contains(t, string(doc), path)
	}
	require.NotZero(t, direct)
}
