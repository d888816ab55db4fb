package apitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRandomRequests has Schemathesis make requests from the document, right and
// wrong ones: none is answered with 5xx, or in a way that the document does not
// list. TRANSHIP_SCHEMATHESIS is how many examples an operation gets.
func TestRandomRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), filepath.Join(root, "scripts", "python-tools.sh"), "api").CombinedOutput()
	require.NoError(t, err, string(out))
	// The short form is for every change: some examples of each operation. The long
	// one also tries the bounds of every parameter and field.
	examples, phases := "4", "fuzzing"
	if n := os.Getenv("TRANSHIP_SCHEMATHESIS"); n != "" {
		examples, phases = n, "coverage,fuzzing"
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, ".tools", "py-api", "bin", "python"), "-m", "schemathesis.cli", "run", w.base+"/openapi.json",
		"--header", "Authorization: Bearer "+w.orgs[0].key, "--phases", phases, "--max-examples", examples, "--seed", "1",
		"--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,response_headers_conformance",
		"--suppress-health-check", "all", "--warnings", "off", "--no-color", "--no-shrink", "--max-failures", "20", "--continue-on-failure",
		"--request-timeout", "60", "--workers", "1")
	cmd.Dir = t.TempDir()
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err = cmd.CombinedOutput()
	if err != nil {
		t.Fatal(err, strings.ReplaceAll(string(out), w.orgs[0].key, "KEY"))
	}
	require.Contains(t, string(out), "Fuzzing (in", string(out))
}
