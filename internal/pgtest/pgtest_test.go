package pgtest_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/internal/embedpg"
	"github.com/tranship-io/tranship/internal/pgtest"
)

// holderEnv makes this test binary start a server, print where it is, and hang,
// so that TestServerDiesWithItsProcess can kill it.
const holderEnv = "TRANSHIP_PGTEST_HOLDER"

func TestMain(m *testing.M) {
	if os.Getenv(holderEnv) != "" {
		hold()
	}
	pgtest.Main(m)
}

func hold() {
	s, err := pgtest.Start(context.Background(), pgtest.Config{})
	if err != nil {
		panic(err)
	}
	println(s.Dir())
	select {}
}

func query[T any](t *testing.T, url, sql string) T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	var v T
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&v))
	return v
}

func exec1(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	_, err = conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}

func TestSharedGivesEachTestItsDatabase(t *testing.T) {
	t.Parallel()
	for range 4 {
		t.Run("a database/with 'odd' \"name\"", func(t *testing.T) {
			t.Parallel()
			url := pgtest.NewDatabase(t, pgtest.Shared(t))
			exec1(t, url, "CREATE TABLE only_mine (a int)")
			require.Equal(t, int64(0), query[int64](t, url, "SELECT count(*) FROM only_mine"))
		})
	}
}

func TestDefaultsSuitReplicationTests(t *testing.T) {
	t.Parallel()
	s := pgtest.Shared(t)
	require.Equal(t, "logical", query[string](t, s.URL(""), "SHOW wal_level"))
	require.Equal(t, "20", query[string](t, s.URL(""), "SHOW max_prepared_transactions"))
	require.Equal(t, "UTF8", query[string](t, s.URL(""), "SHOW server_encoding"))
	if !s.External() {
		require.Equal(t, "127.0.0.1", query[string](t, s.URL(""), "SHOW listen_addresses"))
	}
}

func TestDropDatabaseWithLeftovers(t *testing.T) {
	t.Parallel()
	s := pgtest.Shared(t)
	var url string
	t.Run("leave", func(t *testing.T) {
		url = pgtest.NewDatabase(t, s)
		exec1(t, url, "CREATE TABLE t (a int)")
		exec1(t, url, "SELECT pg_create_logical_replication_slot(current_database() || '_slot', 'pgoutput')")
		exec1(t, url, "BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'it''s "+time.Now().String()+"'")
		_, err := pgx.Connect(t.Context(), url) // a session that nobody closes
		require.NoError(t, err)
	})
	_, err := pgx.Connect(t.Context(), url)
	require.ErrorContains(t, err, "does not exist")
}

func TestKillAndRestartKeepCommittedRows(t *testing.T) {
	t.Parallel()
	s := pgtest.StartT(t, pgtest.Config{})
	url := s.URL("")
	exec1(t, url, "CREATE TABLE t AS SELECT g FROM generate_series(1, 1000) g")
	port, pid := s.Port(), s.Pid()
	require.NotZero(t, pid)

	require.NoError(t, s.Kill())
	require.Zero(t, s.Pid())
	_, err := pgx.Connect(t.Context(), url)
	require.Error(t, err)

	require.NoError(t, s.Restart(t.Context()))
	require.Equal(t, port, s.Port())
	require.NotEqual(t, pid, s.Pid())
	require.Equal(t, int64(1000), query[int64](t, url, "SELECT count(*) FROM t"))

	require.NoError(t, s.Restart(t.Context()))
	require.Equal(t, int64(1000), query[int64](t, url, "SELECT count(*) FROM t"))
}

func TestPauseAnswersNothingUntilResume(t *testing.T) {
	t.Parallel()
	s := pgtest.StartT(t, pgtest.Config{})
	conn, err := pgx.Connect(t.Context(), s.URL(""))
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	require.NoError(t, s.Pause())
	answered := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.WithoutCancel(t.Context()), "SELECT 1")
		answered <- err
	}()
	select {
	case <-answered:
		t.Fatal("a paused server answered")
	case <-time.After(200 * time.Millisecond):
	}
	require.NoError(t, s.Resume())
	require.NoError(t, <-answered)
}

func TestDataDirIsKeptAndUsedAgain(t *testing.T) {
	t.Parallel()
	base := reachableDir(t)
	config := pgtest.Config{
		DataDir: filepath.Join(base, "cluster"),
		Params:  map[string]string{"work_mem": "5MB", "wal_level": ""},
	}
	s, err := pgtest.Start(t.Context(), config)
	require.NoError(t, err)
	exec1(t, s.URL(""), "CREATE TABLE kept (a int)")
	require.Equal(t, "5MB", query[string](t, s.URL(""), "SHOW work_mem"))
	require.Equal(t, "replica", query[string](t, s.URL(""), "SHOW wal_level"), "an empty value removes the default")
	require.NoError(t, s.Stop())
	require.NoError(t, s.Stop(), "stopping twice is fine")

	s, err = pgtest.Start(t.Context(), config)
	require.NoError(t, err)
	require.Equal(t, int64(0), query[int64](t, s.URL(""), "SELECT count(*) FROM kept"))
	require.NoError(t, s.Stop())
	require.FileExists(t, filepath.Join(config.DataDir, "PG_VERSION"))
}

func TestStopRemovesTemporaryData(t *testing.T) {
	t.Parallel()
	s, err := pgtest.Start(t.Context(), pgtest.Config{})
	require.NoError(t, err)
	require.NoError(t, s.Stop())
	require.NoDirExists(t, s.Dir())
}

func TestServerDiesWithItsProcess(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"=1")
	out, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	dir := strings.TrimSpace(line)
	pidFile, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	require.NoError(t, err)
	port := strings.Split(string(pidFile), "\n")[3]

	require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
	_ = cmd.Wait()

	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = conn.Close()
		}
		_, statErr := os.Stat(dir)
		return err != nil && errors.Is(statErr, os.ErrNotExist)
	}, 20*time.Second, 50*time.Millisecond, "the server or its data outlives its process")
}

func TestStartErrorShowsTheLog(t *testing.T) {
	t.Parallel()
	_, err := pgtest.Start(t.Context(), pgtest.Config{Params: map[string]string{"max_connections": "none"}})
	require.ErrorContains(t, err, "max_connections")

	_, err = pgtest.Start(t.Context(), pgtest.Config{Version: "12"})
	require.ErrorContains(t, err, `unknown PostgreSQL version "12"`)
}

func TestEveryVersionStarts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("fetches every version")
	}
	// 13 exists for fewer platforms than the others.
	for _, version := range []string{"15", "16", "18"} {
		t.Run(version, func(t *testing.T) {
			s := pgtest.StartT(t, pgtest.Config{Version: version})
			require.Contains(t, query[string](t, s.URL(""), "SHOW server_version"), version)
			require.Equal(t, version, strings.Split(s.Version(), ".")[0])
		})
	}
}

func TestRunExportsTheServerAndTheExitCode(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(t.TempDir(), "pgtest")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./cmd/pgtest").CombinedOutput()
	require.NoError(t, err, string(out))

	out, err = exec.CommandContext(t.Context(), bin, "run", "--", "sh", "-c", "echo $TRANSHIP_TEST_PG_URL; exit 3").Output()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 3, exit.ExitCode())
	require.Contains(t, string(out), "@127.0.0.1:")

	_, err = pgx.Connect(t.Context(), strings.TrimSpace(string(out)))
	require.Error(t, err, "the server is gone")
}

func TestAttach(t *testing.T) {
	t.Parallel()
	s := pgtest.StartT(t, pgtest.Config{})
	a, err := embedpg.Attach(t.Context(), s.URL("postgres"))
	require.NoError(t, err)
	require.True(t, a.External())
	require.Equal(t, s.Port(), a.Port())
	require.Equal(t, s.Major(), a.Major())
	require.Equal(t, s.URL("x"), a.URL("x"))
	require.ErrorIs(t, a.Stop(), pgtest.ErrExternal)
	require.ErrorIs(t, a.Kill(), pgtest.ErrExternal)
	require.ErrorIs(t, a.Restart(t.Context()), pgtest.ErrExternal)
	require.Equal(t, 1, query[int](t, pgtest.NewDatabase(t, a), "SELECT 1"))
}

// reachableDir returns a folder that the server's user can reach even when the
// test runs as root, whose t.TempDir may lie under a private one.
func reachableDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "pgtest-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
