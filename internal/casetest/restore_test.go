package casetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/runner"
	"github.com/tranship-io/tranship/internal/pgtest"
)

// world is a pipeline whose state file and destination can be lost and set back.
type world struct {
	*place
	kind     kind
	next     int
	document string
	// other is a document of the same route and another version.
	other   string
	states  []string
	backups []string
	steps   []string
	// stood counts rows that unfinished runs had applied.
	stood int64
}

// kind is a way of writing.
type kind struct {
	name, read, write, format string
}

var kinds = []kind{
	{name: "append", read: "incremental", write: "append"},
	{name: "upsert", read: "incremental", write: "upsert"},
	{name: "replace", read: "full", write: "replace"},
	{name: "append to parquet", read: "incremental", write: "append", format: "parquet"},
	{name: "replace of jsonl", read: "full", write: "replace", format: "jsonl"},
}

func newWorld(t *testing.T, k kind) *world {
	t.Helper()
	w := &world{place: newPlace(t), kind: k}
	w.src.exec(pace + `CREATE TABLE t(id int PRIMARY KEY, v text)`)
	w.src.streams()
	sink := toPostgres
	if k.format != "" {
		sink = w.toFiles(k.format)
	}
	cursor := ""
	if k.read == "incremental" {
		cursor = ", cursor: id"
	}
	w.document = doc(sink, quick, "{name: public.t, where: pace(id), read: "+k.read+", write: "+k.write+cursor+"}")
	w.other = strings.Replace(w.document, "verify: digest", "verify: counts", 1)
	return w
}

func (w *world) note(format string, args ...any) {
	w.steps = append(w.steps, fmt.Sprintf(format, args...))
}

// insert adds rows that take several epochs.
func (w *world) insert(n int) {
	w.t.Helper()
	w.note("insert %d..%d", w.next+1, w.next+n)
	w.src.exec(fmt.Sprintf("INSERT INTO t SELECT i, repeat(md5(i::text), 20) FROM generate_series(%d, %d) i", w.next+1, w.next+n))
	w.next += n
}

// complete runs to completion. A run that was begun, or planned, before the last
// rows came ends where its frozen plan ends; the one after it brings the rest.
func (w *world) complete(changes ...change) {
	w.t.Helper()
	for again := false; ; again = true {
		w.note("run%s", strings.Repeat(" anew", len(changes)))
		out := w.run(w.document, append(changes, smallSteps)...)
		changes = nil
		if refused(out.err) {
			w.loseState()
			out = w.run(w.document, smallSteps)
		}
		require.NoError(w.t, out.err, "after %s\n%s", strings.Join(w.steps, "; "), w.log)
		if w.compare() {
			return
		}
		require.False(w.t, again, "rows are lost after %s\n%s", strings.Join(w.steps, "; "), w.log)
	}
}

// interrupt leaves an unfinished run whose first epochs are applied.
func (w *world) interrupt() {
	w.t.Helper()
	at := w.next - 5
	w.note("a run that fails at %d", at)
	w.src.paceFailsAt(strconv.Itoa(at))
	// A run that has nothing to read of that row completes.
	out := w.run(w.document, smallSteps)
	switch {
	case out.err == nil:
		w.note("(it completed)")
		w.compare()
	case refused(out.err):
		w.note("(refused)")
	default:
		require.ErrorContains(w.t, out.err, "can not be read", "after %s\n%s", strings.Join(w.steps, "; "), w.log)
		if r := out.Receipt; r != nil && len(r.Resources) == 1 {
			w.note("(%d rows stand)", r.Resources[0].RowsWritten)
			w.stood += r.Resources[0].RowsWritten
		}
	}
	w.src.paceRuns()
}

// refused tells whether a state file was refused because the destination knows
// another installation only.
func refused(err error) bool {
	return err != nil && strings.Contains(err.Error(), "move this state file away")
}

// stop asks a run to stop after a while; it is paused, or was completed before.
func (w *world) stop(after time.Duration) {
	w.t.Helper()
	w.note("stop a run after %s", after)
	stop := make(chan struct{})
	time.AfterFunc(after, func() { close(stop) })
	out := w.run(w.document, smallSteps, func(o *runner.Options) { o.Stop = stop })
	require.True(w.t, out.err == nil || refused(out.err) || engine.ClassOf(out.err) == engine.Retryable || strings.Contains(out.err.Error(), "stopped while"), "%v after %s", out.err, strings.Join(w.steps, "; "))
}

// kill breaks a run off at any instruction.
func (w *world) kill(after time.Duration) {
	w.t.Helper()
	w.note("kill a run after %s", after)
	ctx, cancel := context.WithTimeout(w.t.Context(), after)
	defer cancel()
	w.during = ctx
	w.run(w.document, smallSteps)
	w.during = nil
}

// compare requires that the destination has the source's first rows, each once,
// and tells whether it has all of them.
func (w *world) compare() bool {
	w.t.Helper()
	var got []string
	if w.kind.format != "" {
		got = ids(w.rows(w.kind.format, "public.t"))
	} else {
		for _, id := range w.dst.text("SELECT id FROM t ORDER BY id") {
			got = append(got, strings.Trim(id, "()"))
		}
		w.noStaging()
	}
	for i, id := range got {
		require.Equal(w.t, strconv.Itoa(i+1), id, "after %s\n%s", strings.Join(w.steps, "; "), w.log)
	}
	require.LessOrEqual(w.t, len(got), w.next)
	return len(got) == w.next
}

func (w *world) saveState() {
	w.t.Helper()
	dir := filepath.Join(w.dir, fmt.Sprintf("state%d", len(w.states)))
	w.note("save state %d", len(w.states))
	w.states = append(w.states, dir)
	copyDir(w.t, filepath.Dir(w.state), dir)
}

func (w *world) loseState() {
	w.t.Helper()
	w.note("lose the state")
	require.NoError(w.t, os.RemoveAll(filepath.Dir(w.state)))
}

func (w *world) restoreState(i int) {
	w.t.Helper()
	w.note("restore state %d", i)
	require.NoError(w.t, os.RemoveAll(filepath.Dir(w.state)))
	copyDir(w.t, w.states[i], filepath.Dir(w.state))
}

// database is the destination's name.
func (w *world) database() string { return w.dst.conn.Config().Database }

// backup keeps the whole destination, ledger included.
func (w *world) backup() {
	w.t.Helper()
	w.note("back up the destination %d", len(w.backups))
	if w.kind.format != "" {
		dir := filepath.Join(w.dir, fmt.Sprintf("backup%d", len(w.backups)))
		copyDir(w.t, w.folder(w.kind.format), dir)
		w.backups = append(w.backups, dir)
		return
	}
	name := fmt.Sprintf("%.50s_b%d", w.database(), len(w.backups))
	w.admin("CREATE DATABASE "+name+" TEMPLATE "+w.database(), true)
	w.backups = append(w.backups, name)
	w.t.Cleanup(func() { require.NoError(w.t, pgtest.Shared(w.t).DropDatabase(context.Background(), name)) })
}

func (w *world) restore(i int) {
	w.t.Helper()
	w.note("restore the destination %d", i)
	if w.kind.format != "" {
		require.NoError(w.t, os.RemoveAll(w.folder(w.kind.format)))
		copyDir(w.t, w.backups[i], w.folder(w.kind.format))
		return
	}
	w.admin("DROP DATABASE "+w.database()+" WITH (FORCE)", true)
	w.admin("CREATE DATABASE "+w.database()+" TEMPLATE "+w.backups[i], false)
	w.dst.conn = w.dst.connect()
}

// admin runs a statement for which nobody may be connected to the destination.
func (w *world) admin(sql string, connected bool) {
	w.t.Helper()
	if connected {
		_ = w.dst.conn.Close(w.t.Context())
	}
	c, err := pgx.Connect(w.t.Context(), pgtest.Shared(w.t).URL(""))
	require.NoError(w.t, err)
	_, err = c.Exec(w.t.Context(), sql)
	require.NoError(w.t, errors.Join(err, c.Close(w.t.Context())))
	if connected && !strings.HasPrefix(sql, "DROP") {
		w.dst.conn = w.dst.connect()
	}
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) && path == from {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil || d.IsDir() {
			return errors.Join(err, os.MkdirAll(filepath.Join(to, rel), 0o700))
		}
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		out, err := os.Create(filepath.Join(to, rel))
		if err != nil {
			return errors.Join(err, in.Close())
		}
		_, err = io.Copy(out, in)
		return errors.Join(err, in.Close(), out.Close())
	}))
}

// TestRestores is P1 and P3 from end to end: whatever is lost or set back, and
// when, a run that completes leaves every row once.
func TestRestores(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		for name, play := range map[string]func(*world){
			"state lost after completed runs": func(w *world) {
				w.insert(300)
				w.complete()
				w.loseState()
				w.complete()
				w.insert(50)
				w.loseState()
				w.complete()
			},
			"state lost in an unfinished run": func(w *world) {
				w.insert(100)
				w.complete()
				w.insert(300)
				w.interrupt()
				w.loseState()
				w.insert(10)
				w.complete()
				w.complete()
			},
			"older state of completed runs": func(w *world) {
				w.insert(100)
				w.complete()
				w.saveState()
				w.insert(100)
				w.complete()
				w.insert(100)
				w.complete()
				w.restoreState(0)
				w.insert(10)
				w.complete()
				w.complete()
			},
			"older state in and after an unfinished run": func(w *world) {
				w.insert(100)
				w.complete()
				w.saveState()
				w.insert(300)
				w.interrupt()
				w.saveState()
				w.restoreState(0)
				w.complete()
				w.restoreState(1)
				w.insert(10)
				w.complete()
				w.restoreState(0)
				w.complete()
			},
			"destination of an earlier day": func(w *world) {
				w.insert(100)
				w.complete()
				w.backup()
				w.insert(200)
				w.complete()
				w.restore(0)
				w.complete()
				w.insert(10)
				w.complete()
			},
			"destination set back into an unfinished run": func(w *world) {
				w.insert(300)
				w.interrupt()
				w.backup()
				w.complete()
				w.insert(10)
				w.complete()
				w.restore(0)
				w.complete()
				w.complete()
			},
			"destination set back to before an unfinished run": func(w *world) {
				w.insert(100)
				w.complete()
				w.backup()
				w.insert(300)
				w.interrupt()
				w.restore(0)
				w.complete()
			},
			"both set back, to different days": func(w *world) {
				w.insert(100)
				w.complete()
				w.backup()
				w.insert(300)
				w.interrupt()
				w.saveState()
				w.complete()
				w.insert(100)
				w.complete()
				w.restore(0)
				w.restoreState(0)
				w.complete()
				w.loseState()
				w.restore(0)
				w.complete()
			},
		} {
			if k.name != "append" && !strings.HasPrefix(name, "both") {
				continue // TestRestoresAtRandom plays all of it with every kind
			}
			t.Run(k.name+": "+name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, k)
				play(w)
				require.Equal(t, strings.Contains(strings.Join(w.steps, ";"), "that fails"), w.stood > 0, "unfinished runs have applied something: %v", w.steps)
			})
		}
	}
}

// TestRestoresAtRandom plays histories that nobody thought of.
func TestRestoresAtRandom(t *testing.T) {
	t.Parallel()
	seeds := 1
	if n, err := strconv.Atoi(os.Getenv("TRANSHIP_CASE_SEEDS")); err == nil {
		seeds = n
	}
	for _, k := range kinds {
		for seed := range seeds {
			t.Run(fmt.Sprintf("%s %d", k.name, seed), func(t *testing.T) {
				t.Parallel()
				random := rand.New(rand.NewPCG(uint64(seed), 35))
				w := newWorld(t, k)
				w.insert(60)
				for range 10 {
					switch random.IntN(13) {
					case 0, 1:
						w.insert(1 + random.IntN(150))
					case 2, 3:
						w.interrupt()
					case 4:
						w.saveState()
					case 5:
						w.backup()
					case 6:
						if len(w.states) > 0 && random.IntN(3) > 0 {
							w.restoreState(random.IntN(len(w.states)))
						} else {
							w.loseState()
						}
					case 7:
						if len(w.backups) > 0 {
							w.restore(random.IntN(len(w.backups)))
						}
					case 8:
						w.complete()
					case 9:
						// Another document of the same route.
						w.document, w.other = w.other, w.document
						w.note("the other document")
					case 10:
						w.complete(restart)
					case 11:
						w.stop(time.Duration(random.IntN(400)) * time.Millisecond)
					case 12:
						w.kill(time.Duration(random.IntN(400)) * time.Millisecond)
					}
				}
				w.complete()
			})
		}
	}
}

// failPlan fails the source's plan, so that a run is begun in State and leaves no
// trace at the destination.
func failPlan(o *runner.Options) {
	open := o.OpenSource
	o.OpenSource = func(ctx context.Context, opt engine.OpenOptions) (engine.SourceSession, error) {
		s, err := open(ctx, opt)
		return &planless{s}, err
	}
}

type planless struct{ engine.SourceSession }

func (planless) Plan(context.Context, engine.PlanRequest) (*engine.SourcePlan, error) {
	return nil, engine.Permanentf("", "no plan today")
}

// TestTwoInstallations: a state file that the destination never heard of does not
// begin anew where another one has written (P1): both are named.
func TestTwoInstallations(t *testing.T) {
	t.Parallel()
	for _, k := range []kind{kinds[0], kinds[3]} { // append, to tables and files
		w := newWorld(t, k)
		w.insert(50)
		require.ErrorContains(t, w.run(w.document, failPlan).err, "no plan today")
		w.saveState()
		w.loseState()
		w.complete()
		w.restoreState(0)
		message := w.fails(w.document)
		require.Contains(t, message, "installation")
		require.Contains(t, message, "move this state file away")
		require.True(t, w.compare())
		w.loseState()
		w.insert(10)
		w.complete()
	}
}

// TestTargetGone: a run that was planned for a target that is gone, with all that
// the destination knew of it, begins anew instead of failing for ever (P3).
func TestTargetGone(t *testing.T) {
	t.Parallel()
	for _, k := range []kind{kinds[0], kinds[2]} { // append, replace
		w := newWorld(t, k)
		w.insert(50)
		w.backup()
		w.complete()
		w.insert(20)
		w.interrupt()
		w.restore(0)
		w.complete()
	}
}
