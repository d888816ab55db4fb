package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/store/sqlite"
)

// raw opens a SQLite file behind the store's back.
func raw(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func requirePermanent(t *testing.T, err error, texts ...string) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, engine.Permanent, engine.ClassOf(err), err.Error())
	for _, s := range texts {
		require.Contains(t, err.Error(), s)
	}
}

func TestOpenMakesTheFile(t *testing.T) {
	for _, name := range []string{"state.db", "a b?c#d%41&e=f.db", "zustand-ü.db"} {
		path := filepath.Join(t.TempDir(), ".tranship", name)
		s := open(t, path)
		own, err := s.Installation(t.Context())
		require.NoError(t, err)
		info, err := os.Stat(path)
		require.NoError(t, err, "under its very name")
		if runtime.GOOS != "windows" {
			require.EqualValues(t, 0o600, info.Mode().Perm(), "only the user may look")
		}
		require.NoError(t, s.Close())
		again := open(t, path)
		got, err := again.Installation(t.Context())
		require.NoError(t, err)
		require.Equal(t, own, got, "made once")
	}
}

func TestOpenSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	open(t, path)
	var mode string
	require.NoError(t, raw(t, path).QueryRow("PRAGMA journal_mode").Scan(&mode))
	require.Equal(t, "wal", mode)
}

func TestOpenRefuses(t *testing.T) {
	_, err := sqlite.Open(t.Context(), "")
	requirePermanent(t, err)
	_, err = sqlite.Open(t.Context(), ":memory:")
	requirePermanent(t, err, ":memory:")
	dir := t.TempDir()
	_, err = sqlite.Open(t.Context(), dir)
	requirePermanent(t, err, dir)
	_, err = sqlite.Open(t.Context(), filepath.Join(dir, "file", "state.db"))
	require.NoError(t, err)
	_, err = sqlite.Open(t.Context(), filepath.Join(dir, "file", "state.db", "below.db"))
	requirePermanent(t, err, "below.db")
}

func TestNewerFileIsRefusedAndUntouched(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	require.NoError(t, open(t, path).Close())
	db := raw(t, path)
	_, err := db.Exec("PRAGMA user_version = 9999")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	_, err = sqlite.Open(t.Context(), path)
	requirePermanent(t, err, path, "schema version 9999", "upgrade tranship")
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestForeignFilesAreRefusedAndUntouched(t *testing.T) {
	dir := t.TempDir()
	foreign := filepath.Join(dir, "other.db")
	_, err := raw(t, foreign).Exec("CREATE TABLE theirs (x)")
	require.NoError(t, err)
	text := filepath.Join(dir, "text.db")
	require.NoError(t, os.WriteFile(text, []byte("This is a letter, long enough to be looked at, and no database at all.\n"), 0o600))
	for path, want := range map[string]string{foreign: "another program", text: "not a database"} {
		before, err := os.ReadFile(path)
		require.NoError(t, err)
		_, err = sqlite.Open(t.Context(), path)
		requirePermanent(t, err, path, want)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, before, after)
	}
}

// Many processes may open a new file at the same time.
func TestOpenTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	ids := make(chan string)
	for range 8 {
		go func() {
			s, err := sqlite.Open(context.Background(), path)
			if err != nil {
				ids <- err.Error()
				return
			}
			id, err := s.Installation(context.Background())
			if err == nil {
				err = s.Close()
			}
			if err != nil {
				id = err.Error()
			}
			ids <- id
		}()
	}
	first := <-ids
	require.Len(t, first, 36, first)
	for range 7 {
		require.Equal(t, first, <-ids, "one installation")
	}
}

func TestOldRunsAreForgotten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path, sqlite.WithKeepRuns(3))
	var last engine.Run
	for i := range 7 {
		r := route
		if i == 0 {
			r.Pipeline = "other"
		}
		run, _, err := s.StartRun(t.Context(), engine.StartRequest{Route: r, Version: "v1"})
		require.NoError(t, err)
		l, err := s.Acquire(t.Context(), run.ID, 0, "w", time.Hour)
		require.NoError(t, err)
		require.NoError(t, s.SavePlan(t.Context(), l.Fence, planOf(1), nil))
		c, err := s.ClaimSplit(t.Context(), l.Fence, nil)
		require.NoError(t, err)
		p := step(t, l, c)
		p.Artifacts, p.Seen = []engine.Artifact{{Name: "x"}}, []engine.RowID{{1}}
		require.NoError(t, s.Commit(t.Context(), l.Fence, p))
		require.NoError(t, s.FinishRun(t.Context(), l.Fence, engine.RunEnd{State: engine.StateFailed}))
		last = run
	}
	runs, err := s.ListRuns(t.Context(), "shop", 0)
	require.NoError(t, err)
	require.Len(t, runs, 3)
	require.EqualValues(t, 6, last.Ordinal, "ordinals go on")
	others, err := s.ListRuns(t.Context(), "other", 0)
	require.NoError(t, err)
	require.Len(t, others, 1, "each route keeps its own")
	require.NoError(t, s.Close())
	for _, table := range []string{"facts", "resources", "splits", "slots", "artifacts", "seen"} {
		var orphans, rows int
		key := fmt.Sprintf("SELECT count(*), count(*) FILTER (WHERE run NOT IN (SELECT seq FROM runs)) FROM %s", table)
		require.NoError(t, raw(t, path).QueryRow(key).Scan(&rows, &orphans))
		require.Positive(t, rows, table)
		require.Zero(t, orphans, table)
	}
}

func TestUnfinishedRunsAreNotForgotten(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"), sqlite.WithKeepRuns(1))
	run, _, err := s.StartRun(t.Context(), engine.StartRequest{Route: route, Version: "v1"})
	require.NoError(t, err)
	again, resumed, err := s.StartRun(t.Context(), engine.StartRequest{Route: route, Version: "v1"})
	require.NoError(t, err)
	require.True(t, resumed)
	require.Equal(t, run.ID, again.ID)
}

func TestBusyFileIsRetryable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := open(t, path, sqlite.WithBusyTimeout(50*time.Millisecond))
	l, splits := prepareRun(t, s, 1)
	db := raw(t, path)
	_, err := db.Exec("BEGIN IMMEDIATE")
	require.NoError(t, err)
	err = s.Commit(t.Context(), l.Fence, step(t, l, splits[0]))
	require.Equal(t, engine.Retryable, engine.ClassOf(err), err)
	require.Contains(t, err.Error(), path)
	_, err = s.Splits(t.Context(), l.RunID)
	require.NoError(t, err, "reading goes on")
	_, err = db.Exec("ROLLBACK")
	require.NoError(t, err)
	require.NoError(t, s.Commit(t.Context(), l.Fence, step(t, l, splits[0])))
}

func TestCanceledCallsWriteNothing(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	l, splits := prepareRun(t, s, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := step(t, l, splits[0])
	p.Epoch = 9
	require.ErrorIs(t, s.Commit(ctx, l.Fence, p), context.Canceled)
	all, err := s.Splits(t.Context(), l.RunID)
	require.NoError(t, err)
	require.Zero(t, all[0].Epoch)
}

func TestClosedStore(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"))
	l, splits := prepareRun(t, s, 1)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "twice is the same")
	require.Error(t, s.Commit(t.Context(), l.Fence, step(t, l, splits[0])))
	_, err := s.GetRun(t.Context(), l.RunID)
	require.Error(t, err)
}

// The lock outlives the file: a state file that is deleted while a process works
// on a route does not let a second one in.
func TestLockSurvivesALostFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	a := open(t, path)
	prepareRun(t, a, 1)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		require.NoError(t, os.Remove(path+suffix))
	}
	b := open(t, path)
	_, _, err := b.StartRun(t.Context(), engine.StartRequest{Route: route, Version: "v1"})
	require.ErrorIs(t, err, engine.ErrLocked)
}

// Two names of one file share its locks.
func TestLockFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	a := open(t, filepath.Join(dir, "real", "state.db"))
	require.NoError(t, os.Symlink(filepath.Join(dir, "real"), filepath.Join(dir, "folder")))
	require.NoError(t, os.Symlink(filepath.Join(dir, "real", "state.db"), filepath.Join(dir, "file.db")))
	prepareRun(t, a, 1)
	for _, path := range []string{filepath.Join(dir, "folder", "state.db"), filepath.Join(dir, "file.db")} {
		b := open(t, path)
		require.Equal(t, a.Path(), b.Path())
		_, _, err := b.StartRun(t.Context(), engine.StartRequest{Route: route, Version: "v1"})
		require.ErrorIs(t, err, engine.ErrLocked)
	}
}

// Two processes write to one file at the same time, for different pipelines;
// none of them fails for the other.
func TestWritersShareAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	const commits = 50
	errs := make(chan error, 2)
	stores := [2]*sqlite.Store{}
	runs := [2]engine.Lease{}
	for i := range stores {
		s := open(t, path)
		r := route
		r.Pipeline = fmt.Sprint("pipeline ", i)
		run, _, err := s.StartRun(t.Context(), engine.StartRequest{Route: r, Version: "v1"})
		require.NoError(t, err)
		l, err := s.Acquire(t.Context(), run.ID, 0, "w", time.Hour)
		require.NoError(t, err)
		require.NoError(t, s.SavePlan(t.Context(), l.Fence, planOf(1), nil))
		stores[i], runs[i] = s, l
	}
	for i, s := range stores {
		go func() {
			c, err := s.ClaimSplit(context.Background(), runs[i].Fence, nil)
			for n := int64(1); err == nil && n <= commits; n++ {
				err = s.Commit(context.Background(), runs[i].Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: n})
			}
			errs <- err
		}()
	}
	require.NoError(t, <-errs)
	require.NoError(t, <-errs)
	for i, s := range stores {
		all, err := s.Splits(t.Context(), runs[i].RunID)
		require.NoError(t, err)
		require.EqualValues(t, commits, all[0].Epoch)
	}
}
