//go:build unix

package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
	"github.com/tranship-io/tranship/store/sqlite"
)

// childEnv makes the test binary a process that works on the state file named
// by it until it is killed.
const childEnv = "TRANSHIP_TEST_STATE"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		if err := child(path); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// child resumes the run and commits epoch after epoch, in four slots, and tells
// each commit that returned.
func child(path string) error {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, path)
	if err != nil {
		return err
	}
	run, _, err := s.StartRun(ctx, engine.StartRequest{Route: route, Version: "v1"})
	if err != nil {
		return err
	}
	failed := make(chan error, 4)
	for slot := range 4 {
		l, err := s.Acquire(ctx, run.ID, slot, "child", time.Hour)
		if err != nil {
			return err
		}
		if slot == 0 {
			if plan, err := s.LoadPlan(ctx, run.ID); err != nil {
				return err
			} else if plan == nil {
				if err := s.SavePlan(ctx, l.Fence, planOf(4), nil); err != nil {
					return err
				}
			}
		}
		c, err := s.ClaimSplit(ctx, l.Fence, nil)
		if err != nil {
			return err
		}
		go func() {
			for {
				c.Epoch++
				f, err := events.New(run.ID, time.Now(), events.CheckpointSaved{Split: c.ID, Epoch: c.Epoch})
				if err == nil {
					err = s.Commit(ctx, l.Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: c.Epoch, Totals: engine.Totals{Read: c.Epoch},
						Artifacts: []engine.Artifact{{Name: fmt.Sprint(c.ID, "@", c.Epoch), Split: c.ID}}, Facts: []events.Fact{f}})
				}
				if err != nil {
					failed <- err
					return
				}
				// One write a line, so that a line is whole or not there.
				_, _ = os.Stdout.WriteString(c.ID + " " + strconv.FormatInt(c.Epoch, 10) + "\n")
			}
		}()
	}
	return <-failed
}

// start runs a child and returns the lines that it prints.
func start(t *testing.T, path string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+path)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	return cmd, bufio.NewScanner(out)
}

// TestKilledProcess kills a working process with SIGKILL at random moments. A
// second process is refused while it lives and goes on at once when it is dead;
// no commit that returned is lost, and facts have no gaps.
func TestKilledProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	told := map[string]int64{}
	commits := 0
	for round := range 12 {
		cmd, lines := start(t, path)
		for n := 0; n <= rand.IntN(60); n++ {
			require.True(t, lines.Scan(), "the child works")
			note(t, told, lines.Text())
			commits++
		}
		// Alive: refused at once, by the lock, long before its lease ends.
		s := open(t, path)
		began := time.Now()
		_, _, err := s.StartRun(t.Context(), engine.StartRequest{Route: route, Version: "v1"})
		require.ErrorIs(t, err, engine.ErrLocked)
		require.Contains(t, err.Error(), strconv.Itoa(cmd.Process.Pid), "names the process")

		require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
		for lines.Scan() { // What it still told before it died.
			note(t, told, lines.Text())
			commits++
		}
		require.Error(t, cmd.Wait())

		run, resumed, err := s.StartRun(t.Context(), engine.StartRequest{Route: route, Version: "v1"})
		require.NoError(t, err)
		require.True(t, resumed)
		require.Less(t, time.Since(began), 30*time.Second, "no lease is waited for")

		splits, err := s.Splits(t.Context(), run.ID)
		require.NoError(t, err)
		var sum int64
		for _, sp := range splits {
			require.GreaterOrEqual(t, sp.Epoch, told[sp.ID], "round %d: split %s lost a commit", round, sp.ID)
			require.LessOrEqual(t, sp.Epoch, told[sp.ID]+1, "round %d: split %s has a commit that was never made", round, sp.ID)
			require.Equal(t, sp.Epoch, sp.Totals.Read)
			require.False(t, sp.Owned)
			told[sp.ID] = sp.Epoch
			sum += sp.Epoch
		}
		facts, err := s.Facts(t.Context(), run.ID, 0, 0)
		require.NoError(t, err)
		require.Len(t, facts, int(sum), "a fact for each commit")
		for i, f := range facts {
			require.EqualValues(t, i+1, f.Number)
		}
		artifacts, err := s.Artifacts(t.Context(), run.ID, "public.orders")
		require.NoError(t, err)
		require.Len(t, artifacts, int(sum), "an artifact for each commit")
		require.NoError(t, s.Close())
	}
	t.Logf("%d commits in 12 lives", commits)
}

func note(t *testing.T, told map[string]int64, line string) {
	t.Helper()
	id, epoch, ok := strings.Cut(line, " ")
	require.True(t, ok, line)
	n, err := strconv.ParseInt(epoch, 10, 64)
	require.NoError(t, err, line)
	told[id] = max(told[id], n)
}
