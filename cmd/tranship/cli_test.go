package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/connectors/files"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

// buffer is a bytes.Buffer that may be written and read at once.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// place is a folder with a pipeline file and a state file of its own.
type place struct {
	t       *testing.T
	dir     string
	env     map[string]string
	signals chan os.Signal
	out     *buffer
	err     *buffer
}

func newPlace(t *testing.T) *place {
	t.Helper()
	dir := t.TempDir()
	return &place{t: t, dir: dir, env: map[string]string{envConfig: filepath.Join(dir, "config")}, signals: make(chan os.Signal, 2), out: &buffer{}, err: &buffer{}}
}

// pipeline writes the file: drip's keys and further lines.
func (p *place) pipeline(source string, more ...string) {
	p.t.Helper()
	lines := append([]string{
		"version: 1", "name: test", "source: {connector: drip" + source + "}",
		"sink: {connector: files, path: '" + filepath.Join(p.dir, "out") + "', format: jsonl}",
	}, more...)
	if len(more) == 0 {
		lines = append(lines, "resources: [{name: main.numbers}]")
	}
	require.NoError(p.t, os.WriteFile(filepath.Join(p.dir, "pipeline.yaml"), []byte(strings.Join(lines, "\n")+"\n"), 0o600))
}

// run runs one command with fresh outputs and returns its exit code.
func (p *place) run(args ...string) int {
	p.t.Helper()
	p.out, p.err = &buffer{}, &buffer{}
	return p.app().main(context.Background(), p.args(args))
}

func (p *place) app() *app {
	return &app{
		stdin: strings.NewReader(""), stdout: p.out, stderr: p.err, version: "test", signals: p.signals, exit: func(int) {},
		lookup:  func(name string) (string, bool) { v, ok := p.env[name]; return v, ok },
		catalog: catalog.Of([]engine.Source{drip{}}, []engine.Sink{files.NewSink()}),
	}
}

func (p *place) args(args []string) []string {
	return append(args, "--file", filepath.Join(p.dir, "pipeline.yaml"), "--state", filepath.Join(p.dir, "state.db"))
}

// rows counts the published rows: those of the files that manifests name.
func (p *place) rows() int {
	p.t.Helper()
	var n int
	manifests, err := filepath.Glob(filepath.Join(p.dir, "out", "*", "manifest.json"))
	require.NoError(p.t, err)
	for _, path := range manifests {
		b, err := os.ReadFile(path)
		require.NoError(p.t, err)
		var m struct {
			Rows  int `json:"rows"`
			Files []struct {
				Name string `json:"name"`
			} `json:"files"`
		}
		require.NoError(p.t, json.Unmarshal(b, &m))
		var lines int
		for _, f := range m.Files {
			b, err := os.ReadFile(filepath.Join(filepath.Dir(path), filepath.FromSlash(f.Name)))
			require.NoError(p.t, err)
			lines += bytes.Count(b, []byte("\n"))
		}
		require.Equal(p.t, m.Rows, lines)
		n += lines
	}
	return n
}

func TestHelp(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, c := range []string{"", "init", "connectors", "check", "discover", "inspect", "plan", "run", "runs", "show", "cancel", "pause", "reset", "schema", "version",
		"context", "context add", "apply", "pipelines", "connections", "schedules", "schedules create", "facts", "keys", "keys create",
		"runs list", "runs start", "runs watch", "runs cancel"} {
		a := p.app()
		out := &buffer{}
		a.stdout = out
		assert.Equal(t, exitOK, a.main(context.Background(), append(strings.Fields(c), "--help")))
		golden(t, "help/"+strings.ReplaceAll(cmp.Or(c, "tranship"), " ", "-")+".golden", out.String())
	}
}

func TestWrongUse(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.pipeline(", rows: 3")
	for args, want := range map[string]string{
		"rum":                         `did you mean "run"?`,
		"run --slts 2":                "unknown flag: --slts",
		"run --slots x":               "invalid argument",
		"run --slots 1000":            "between 1 and 256",
		"run --memory 1KiB":           "at least 32MiB",
		"run --attempt-time soon":     "--attempt-time soon cannot be",
		"run --verify all":            "--verify all cannot be",
		"run a.yaml":                  "given twice",
		"run --receipt /no/such/x":    "is not there",
		"show":                        "accepts 1 arg(s)",
		"show latest":                 "there is no state file",
		"runs":                        "there is no state file",
		"inspect main.number":         `did you mean "main.numbers"?`,
		"connectors postgress":        `there is no connector "postgress"`,
		"reset main.numbers":          "there is no state file",
		"init --set nonsense --force": "write source.KEY=VALUE",
		"init --source mysql --force": `there is no source connector "mysql"`,
		"init":                        "is there already",
	} {
		assert.Equal(t, exitUsage, p.run(strings.Fields(args)...), args)
		assert.Contains(t, p.err.String(), want, args)
		assert.Equal(t, 1, strings.Count(p.err.String(), "error: "), "%s: an error is printed once", args)
	}
}

func TestBadFiles(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, command := range []string{"run", "check", "plan", "discover"} {
		assert.Equal(t, exitUsage, p.run(command), command)
		assert.Contains(t, p.err.String(), "there is no pipeline file")

		p.pipeline(", rowz: 3")
		assert.Equal(t, exitUsage, p.run(command), command)
		assert.Contains(t, p.err.String(), `pipeline.yaml:3:27: source.rowz: unknown key "rowz" (did you mean "rows"?)`)

		p.pipeline(`, url: "${NOT_THERE}"`)
		assert.Equal(t, exitUsage, p.run(command), command)
		assert.Contains(t, p.err.String(), "the environment variable NOT_THERE is not set")
		require.NoError(t, os.Remove(filepath.Join(p.dir, "pipeline.yaml")))
	}
}

func TestLooking(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.pipeline(", rows: 3")
	require.Equal(t, exitOK, p.run("check"), p.err)
	assert.Contains(t, p.out.String(), "warning  source speed: it is slow\n         hint: wait")
	require.Equal(t, exitOK, p.run("discover"))
	assert.Contains(t, p.out.String(), "main.others")
	require.Equal(t, exitOK, p.run("discover", "--selected"))
	assert.NotContains(t, p.out.String(), "main.others")
	require.Equal(t, exitOK, p.run("inspect", "main.numbers"))
	assert.Contains(t, p.out.String(), "as cursors, best first:\n  yes  id  int64  it grows")
	require.Equal(t, exitOK, p.run("plan"), p.err)
	assert.Contains(t, p.out.String(), "main.numbers → ")
	assert.Contains(t, p.out.String(), "covers all numbers")
	require.Equal(t, exitOK, p.run("plan", "--json"))
	var plan planned
	require.NoError(t, json.Unmarshal([]byte(p.out.String()), &plan))
	assert.Equal(t, "main.numbers", plan.Resources[0].Resource)
	assert.NoFileExists(t, filepath.Join(p.dir, "state.db"), "looking leaves nothing behind")
	assert.NoDirExists(t, filepath.Join(p.dir, "out", "main.numbers"))
	require.Equal(t, exitOK, p.run("connectors", "drip"))
	assert.Contains(t, p.out.String(), "delay_ms")
	require.Equal(t, exitOK, p.run("schema"))
	assert.Contains(t, p.out.String(), `"const": "drip"`)
}

func TestRunToTheEnd(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.pipeline(", rows: 95", "resources: [{name: 'main.*'}]", "settings: {verify: digest}")
	receipt := filepath.Join(p.dir, "receipt.json")
	require.Equal(t, exitOK, p.run("run", "--receipt", receipt), p.err)
	assert.Contains(t, p.out.String(), "of test: completed")
	assert.Contains(t, p.out.String(), "= destination")
	assert.Equal(t, 190, p.rows())

	b, err := os.ReadFile(receipt)
	require.NoError(t, err)
	var r engine.RunReceipt
	require.NoError(t, json.Unmarshal(b, &r))
	assert.Equal(t, engine.StateCompleted, r.State)
	require.Len(t, r.Resources, 2)
	assert.EqualValues(t, 95, r.Resources[0].RowsWritten)

	require.Equal(t, exitOK, p.run("runs"))
	assert.Contains(t, p.out.String(), "completed")
	require.Equal(t, exitOK, p.run("show", "latest", "--facts"))
	assert.Contains(t, p.out.String(), "publish.done")
	require.Equal(t, exitOK, p.run("show", r.RunID, "--json"))
	var s shown
	require.NoError(t, json.Unmarshal([]byte(p.out.String()), &s))
	assert.JSONEq(t, string(b), string(s.Receipt))

	// A completed run is followed by the next.
	require.Equal(t, exitOK, p.run("run", "--json"), p.err)
	facts := p.facts()
	require.NotEmpty(t, facts)
	for i, f := range facts {
		assert.EqualValues(t, i+1, f.Number, "numbers have no gaps")
		assert.NotEqual(t, r.RunID, f.RunID.String())
	}
	assert.Equal(t, 190, p.rows(), "replace leaves only the new rows")
}

// facts are the facts on standard output.
func (p *place) facts() []events.Fact {
	p.t.Helper()
	var out []events.Fact
	for _, line := range strings.Split(strings.TrimSpace(p.out.String()), "\n") {
		var f events.Fact
		require.NoError(p.t, json.Unmarshal([]byte(line), &f), line)
		out = append(out, f)
	}
	return out
}

func TestFailedRun(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.pipeline(", rows: 50, fail_at: 35")
	assert.Equal(t, exitFailed, p.run("run"))
	assert.Contains(t, p.err.String(), "row 35 cannot be read")
	assert.Contains(t, p.err.String(), "hint: mend it")
	assert.Equal(t, 1, strings.Count(p.err.String(), "error: "))
	assert.Contains(t, p.out.String(), "failed (a plain run goes on)")
	require.Equal(t, exitOK, p.run("runs"))
	assert.Contains(t, p.out.String(), "failed (resumable)")
}

func TestConnectionFailures(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.pipeline(", refuse: network", "resources: [{name: main.numbers}]", "settings: {connect_timeout: 1s}")
	assert.Equal(t, exitFailed, p.run("run"), "it may be there later")
	assert.Equal(t, exitFailed, p.run("check"))
	assert.Contains(t, p.out.String(), "error    source: nobody answers")
	p.pipeline(", refuse: password")
	assert.Equal(t, exitUsage, p.run("run"), "only another configuration helps")
}

// No secret leaves, whatever a connector says (invariant 10).
func TestSecretsStayIn(t *testing.T) {
	t.Parallel()
	const secret = `c0rrect "horse"`
	p := newPlace(t)
	p.env["SOURCE_URL"] = "postgres://me:sw0rdf%21sh@db.example/shop"
	p.env["PW"] = secret
	p.pipeline(`, url: "${SOURCE_URL}", password: "${PW}", refuse: password`)
	for _, command := range []string{"run", "check", "plan", "discover", "run --json", "check --json"} {
		assert.Equal(t, exitUsage, p.run(strings.Fields(command)...), command)
		all := p.out.String() + p.err.String()
		for _, s := range []string{secret, `c0rrect`, "horse", "sw0rdf", "sw0rdf!sh"} {
			assert.NotContains(t, all, s, command)
		}
		assert.Contains(t, all, "***", command)
	}
	p.pipeline(`, url: "${SOURCE_URL}", password: "${PW}", rows: 20, fail_at: 15`)
	assert.Equal(t, exitFailed, p.run("run", "--json", "-v"))
	all := p.out.String() + p.err.String()
	files := 0
	require.NoError(t, filepath.WalkDir(p.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "pipeline.yaml" {
			return err
		}
		files++
		b, err := os.ReadFile(path)
		all += string(b)
		return err
	}))
	require.NotZero(t, files)
	for _, s := range []string{`c0rrect`, "horse", "sw0rdf"} {
		assert.NotContains(t, all, s)
	}
}

func TestInit(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	require.Equal(t, exitOK, p.run("init", "--name", "n", "--source", "drip", "--sink", "files", "--set", "source.rows=5", "--resource", "main.*"), p.err)
	b, err := os.ReadFile(filepath.Join(p.dir, "pipeline.yaml"))
	require.NoError(t, err)
	golden(t, "init.golden", string(b))
	p.env["SOURCE_URL"] = "x://y"
	require.Equal(t, exitOK, p.run("check"), p.err)

	require.Equal(t, exitOK, p.run("init", "--force", "--source", "drip", "--sink", "files", "--set", "source.url=postgres://u:sw0rdf1sh@h/d"), p.err)
	assert.Contains(t, p.err.String(), "keeps a password out of it")
	assert.NotContains(t, p.err.String()+p.out.String(), "sw0rdf1sh")
}
