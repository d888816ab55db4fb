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
	"syscall"
	"testing"
	"time"

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
	return &place{t: t, dir: t.TempDir(), env: map[string]string{}, signals: make(chan os.Signal, 2), out: &buffer{}, err: &buffer{}}
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
	for _, c := range []string{"", "init", "connectors", "check", "discover", "inspect", "plan", "run", "runs", "show", "cancel", "pause", "reset", "schema", "version"} {
		a := p.app()
		out := &buffer{}
		a.stdout = out
		assert.Equal(t, exitOK, a.main(context.Background(), append(strings.Fields(c), "--help")))
		golden(t, "help/"+cmp.Or(c, "tranship")+".golden", out.String())
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

// begin starts a run in the background and waits until rows move.
func (p *place) begin(args ...string) <-chan int {
	p.t.Helper()
	p.out, p.err = &buffer{}, &buffer{}
	done := make(chan int, 1)
	a := p.app()
	go func() { done <- a.main(context.Background(), p.args(append([]string{"run", "--json"}, args...))) }()
	out := p.out
	require.Eventually(p.t, func() bool { return strings.Contains(out.String(), string(events.TypeSplitClaimed)) }, 20*time.Second, 20*time.Millisecond)
	return done
}

func waitFor(t *testing.T, done <-chan int) int {
	t.Helper()
	select {
	case code := <-done:
		return code
	case <-time.After(30 * time.Second):
		t.Fatal("the command does not end")
		return -1
	}
}

func TestInterruptPausesAndRunGoesOn(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.pipeline(", rows: 300, delay_ms: 50")
	done := p.begin()
	time.Sleep(300 * time.Millisecond)
	p.signals <- syscall.SIGTERM
	assert.Equal(t, exitPaused, waitFor(t, done), p.err)
	facts := p.facts()
	run := facts[0].RunID
	assert.Equal(t, events.TypeRunPaused, facts[len(facts)-1].Type, "the last fact says so")
	assert.Zero(t, p.rows(), "nothing is visible yet")

	p.pipeline(", rows: 300, delay_ms: 50", "# a comment changes nothing", "resources: [{name: main.numbers}]", "settings: {slots: 1}")
	require.Equal(t, exitOK, p.run("run", "--json"), p.err)
	again := p.facts()
	assert.Equal(t, run, again[0].RunID, "the same run goes on")
	assert.Equal(t, facts[len(facts)-1].Number+1, again[0].Number, "only new facts are written")
	assert.Equal(t, 300, p.rows())
}

func TestSecondInterruptEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.pipeline(", rows: 20, delay_ms: 60000")
	done := p.begin()
	p.signals <- syscall.SIGINT
	require.Eventually(t, func() bool { return strings.Contains(p.err.String(), "interrupt again") }, 10*time.Second, 10*time.Millisecond)
	begin := time.Now()
	p.signals <- syscall.SIGINT
	assert.Equal(t, exitPaused, waitFor(t, done), p.err)
	assert.Less(t, time.Since(begin), 20*time.Second)

	p.pipeline(", rows: 20")
	require.Equal(t, exitOK, p.run("run"), p.err)
	assert.Equal(t, 20, p.rows())
}

func TestInterruptBeforeARun(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.pipeline(", wait_ms: 60000")
	p.signals <- syscall.SIGINT
	assert.Equal(t, exitPaused, p.run("run"))
	assert.Contains(t, p.err.String(), "stopped before a run was begun")
}

func TestInterruptOfOtherCommands(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.pipeline(", wait_ms: 60000")
	for _, command := range []string{"plan", "discover"} {
		p.signals = make(chan os.Signal, 2)
		p.signals <- syscall.SIGINT
		assert.Equal(t, exitFailed, p.run(command))
		assert.Equal(t, "error: interrupted\n", p.err.String())
	}
}

func TestPauseCancelAndSecondProcess(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.pipeline(", rows: 3000, delay_ms: 50")
	done := p.begin()
	first, firstErr := p.out, p.err

	other := &place{t: t, dir: p.dir, env: p.env, signals: make(chan os.Signal), out: &buffer{}, err: &buffer{}}
	assert.Equal(t, exitUsage, other.run("run"), "a second process is refused")
	assert.Contains(t, other.err.String(), "another process works on this run")
	assert.Equal(t, exitUsage, other.run("reset", "main.numbers"))

	require.Equal(t, exitOK, other.run("pause", "latest"), other.err)
	assert.Equal(t, exitPaused, waitFor(t, done), firstErr)
	assert.Contains(t, first.String(), string(events.TypeRunPaused))

	done = p.begin()
	require.Equal(t, exitOK, other.run("cancel", "latest"), other.err)
	assert.Equal(t, exitCanceled, waitFor(t, done), p.err)
	require.Equal(t, exitOK, other.run("runs"))
	assert.Contains(t, other.out.String(), "canceled")
	assert.Equal(t, exitOK, other.run("cancel", "latest"), "asking twice changes nothing")
	assert.Equal(t, exitOK, other.run("reset", "main.numbers"), other.err)
	assert.Equal(t, exitUsage, other.run("reset", "main.others"))
	assert.Contains(t, other.err.String(), "does not replicate main.others")
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
