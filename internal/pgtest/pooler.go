package pgtest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tranship-io/tranship/internal/embedpg"
)

// Pooler starts pgbouncer before a database and returns the database's URL through
// it. Modes are "session" and "transaction". A pgbouncer that is not on the PATH is
// fetched with apt-get, without being installed; where neither works, the test is
// skipped.
func Pooler(tb testing.TB, database, mode string) string {
	tb.Helper()
	program, libraries := pgbouncer(tb)
	u, err := url.Parse(database)
	if err != nil {
		tb.Fatalf("read the database's URL: %v", err)
	}
	port, err := embedpg.FreePort(tb.Context())
	if err != nil {
		tb.Fatalf("find a port for pgbouncer: %v", err)
	}
	password, _ := u.User.Password()
	name := strings.TrimPrefix(u.Path, "/")
	dir := tb.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
		return path
	}
	users := file("users.txt", fmt.Sprintf("%q %q\n", u.User.Username(), password))
	config := file("pgbouncer.ini", fmt.Sprintf(`[databases]
%s = host=%s port=%s dbname=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
auth_type = plain
auth_file = %s
pool_mode = %s
unix_socket_dir =
ignore_startup_parameters = extra_float_digits
`, name, u.Hostname(), u.Port(), name, port, users, mode))
	cmd := exec.CommandContext(tb.Context(), program, "-q", config)
	if os.Geteuid() == 0 {
		// It refuses to run as root; the files are read before it becomes another.
		cmd.Args = []string{program, "-q", "-u", "nobody", config}
		for _, p := range []string{filepath.Dir(dir), dir, users, config} {
			if err := os.Chmod(p, 0o755); err != nil {
				tb.Fatal(err)
			}
		}
	}
	cmd.Env = []string{"LD_LIBRARY_PATH=" + libraries}
	cmd.Stderr = tb.Output()
	cmd.WaitDelay = 5 * time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if err := cmd.Start(); err != nil {
		tb.Fatalf("start pgbouncer: %v", err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	u.Host = fmt.Sprintf("127.0.0.1:%d", port)
	dialer := net.Dialer{Timeout: time.Second}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		conn, err := dialer.DialContext(tb.Context(), "tcp", u.Host)
		if err == nil {
			_ = conn.Close()
			return u.String()
		}
		if time.Now().After(deadline) {
			tb.Fatalf("pgbouncer does not answer: %v", err)
		}
	}
}

// pgbouncer finds the program, and the folder of libraries that it needs besides
// the system's.
func pgbouncer(tb testing.TB) (program, libraries string) {
	tb.Helper()
	if p, err := exec.LookPath("pgbouncer"); err == nil {
		return p, ""
	}
	dir := tb.TempDir()
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	defer cancel()
	fetch := exec.CommandContext(ctx, "sh", "-ec", `apt-get download pgbouncer libevent-2.1-7 libc-ares2 && for d in *.deb; do dpkg -x "$d" .; done`)
	fetch.Dir = dir
	if out, err := fetch.CombinedOutput(); err != nil {
		tb.Skipf("NOT TESTED: pgbouncer is not on the PATH, and apt-get cannot fetch it: %v\n%s", err, out)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		tb.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(dir, "usr", "lib", "*-linux-gnu"))
	if err != nil || len(found) == 0 {
		tb.Fatalf("no libraries beside the fetched pgbouncer: %v", err)
	}
	return filepath.Join(dir, "usr", "sbin", "pgbouncer"), found[0]
}
