package pgsink

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestDetailGolden freezes the form in which plans are stored: a plan that an
// earlier version froze must be understood.
func TestDetailGolden(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(b.src, `CREATE TYPE mood AS ENUM ('sad', 'ok')`, `CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n numeric(10,2), m mood, a int[], twice int GENERATED ALWAYS AS (id * 2) STORED, r int4range)`)
	b.exec(b.dst, `CREATE TABLE t (id int PRIMARY KEY, n numeric(10,1), a int[], twice int GENERATED ALWAYS AS (id * 2) STORED, r int4range)`)
	b.route.Installation = "golden"
	p, err := b.plan(b.open(b.to), job{resource: b.discover("public.t"), write: engine.WriteReplace, run: "run",
		policies: engine.Policies{Default: engine.PolicySetAside, SetAside: "table:aside"}})
	require.NoError(t, err)
	var got bytes.Buffer
	require.NoError(t, json.Indent(&got, bytes.ReplaceAll(p.Detail, []byte(`"Major":`+itoa(b.open(b.to).major)), []byte(`"Major":0`)), "", "  "))
	got.WriteByte('\n')
	golden := filepath.Join("testdata", "detail.golden.json")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o750))
		require.NoError(t, os.WriteFile(golden, got.Bytes(), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
}
