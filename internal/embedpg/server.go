//go:build unix

package embedpg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrExternal is returned by the calls that would stop a server which this
// process did not start.
var ErrExternal = errors.New("the server is shared and not ours to stop")

// Server is a PostgreSQL server on 127.0.0.1. Its methods may be called from
// several goroutines.
type Server struct {
	config   Config
	version  string
	bin      string
	dir      string
	temp     bool
	password string
	user     *owner
	external *url.URL // set for a server that Attach found
	watch    *watchdog

	mu   sync.Mutex
	port int
	proc *process // nil while the server is down
}

// process is one life of the postmaster.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has exited
}

func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Start fetches the binaries if needed, makes a cluster and starts a server.
// The server runs until Stop, or until this process ends in whatever way; ctx
// bounds only the start.
func Start(ctx context.Context, config Config) (*Server, error) {
	version, err := release(config.Version)
	if err != nil {
		return nil, err
	}
	bin, err := Fetch(ctx, config)
	if err != nil {
		return nil, err
	}
	user, err := serverOwner()
	if err != nil {
		return nil, err
	}
	s := &Server{config: config, version: version, bin: filepath.Join(bin, "bin"), user: user}
	if err := s.makeDataDir(ctx); err != nil {
		s.removeTemp()
		return nil, fmt.Errorf("make PostgreSQL cluster: %w", err)
	}
	if s.watch, err = newWatchdog(s.dir, s.temp); err != nil {
		s.removeTemp()
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.startLocked(ctx); err != nil {
		s.watch.dismiss()
		s.removeTemp()
		return nil, err
	}
	return s, nil
}

// Version is the server's release: "17.11.0", or what an external one reports.
func (s *Server) Version() string { return s.version }

// Major is the server's major version.
func (s *Server) Major() int {
	major, _, _ := strings.Cut(s.version, ".")
	n, _ := strconv.Atoi(major) // release and Attach only let numbers through
	return n
}

// Port is the TCP port on 127.0.0.1. It stays the same over Restart.
func (s *Server) Port() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.port
}

// Dir is the cluster's folder; empty for an external server.
func (s *Server) Dir() string { return s.dir }

// LogPath is the server's log; empty for an external server.
func (s *Server) LogPath() string {
	if s.external != nil {
		return ""
	}
	return filepath.Join(s.dir, logName)
}

// Password is the password of the superuser postgres.
func (s *Server) Password() string { return s.password }

// External says that the server was not started by this process, so that it
// cannot be stopped, killed or restarted.
func (s *Server) External() bool { return s.external != nil }

// URL is the connection string of a database, as superuser. An empty name means
// the database postgres.
func (s *Server) URL(database string) string {
	if database == "" {
		database = "postgres"
	}
	if s.external != nil {
		u := *s.external
		u.Path = "/" + database
		return u.String()
	}
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, s.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port())),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Pid is the postmaster's process id, or zero while the server is down or
// external.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || s.proc.exited() {
		return 0
	}
	return s.proc.cmd.Process.Pid
}

// Chown gives a file or folder to the user that runs the server, for instance a
// tablespace's folder.
func (s *Server) Chown(path string) error { return s.user.chown(path) }

// WriteFile writes a file into the data folder, readable by the server alone,
// and returns its path. Reload or Restart makes the server look at it.
func (s *Server) WriteFile(name string, data []byte) (string, error) {
	if s.external != nil {
		return "", ErrExternal
	}
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return "", err
	}
	return path, s.user.chown(path)
}

// Reload makes the server read its configuration files again.
func (s *Server) Reload() error {
	return s.signal(syscall.SIGHUP)
}

// Stop ends the server and removes a temporary data folder. Stopping twice is
// not an error.
func (s *Server) Stop() error {
	if s.external != nil {
		return ErrExternal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// What will be deleted needs no checkpoint.
	first := syscall.SIGINT
	if s.temp {
		first = syscall.SIGQUIT
	}
	err := s.stopLocked(first)
	s.watch.dismiss()
	s.removeTemp()
	return err
}

// Kill ends the postmaster and all its children with SIGKILL, as a crash of the
// machine's process table would. Restart recovers the cluster.
func (s *Server) Kill() error {
	if s.external != nil {
		return ErrExternal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.killLocked()
}

// Restart shuts the server down, unless it already is, and starts it on the
// same port.
func (s *Server) Restart(ctx context.Context) error {
	if s.external != nil {
		return ErrExternal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.stopLocked(syscall.SIGINT); err != nil {
		return err
	}
	return s.startLocked(ctx)
}

// Shutdown stops the server cleanly and keeps its data and port, so that
// Restart can bring it back.
func (s *Server) Shutdown() error {
	if s.external != nil {
		return ErrExternal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopLocked(syscall.SIGINT)
}

// Pause freezes the server and all its children until Resume: connections stay
// open and nothing answers.
func (s *Server) Pause() error { return s.signalTree(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *Server) Resume() error { return s.signalTree(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) error {
	if s.external != nil {
		return ErrExternal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return errors.New("the server is down")
	}
	return s.proc.cmd.Process.Signal(sig)
}

func (s *Server) signalTree(sig syscall.Signal) error {
	if s.external != nil {
		return ErrExternal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return errors.New("the server is down")
	}
	pid := s.proc.cmd.Process.Pid
	// The parent stops first and goes on last, so that it makes no child that is
	// missed.
	if sig == syscall.SIGSTOP {
		if err := s.proc.cmd.Process.Signal(sig); err != nil {
			return err
		}
	}
	kids, err := children(pid)
	if err != nil {
		return err
	}
	for _, kid := range kids {
		_ = syscall.Kill(kid, sig) // a child may have ended by itself
	}
	if sig != syscall.SIGSTOP {
		return s.proc.cmd.Process.Signal(sig)
	}
	return nil
}

func (s *Server) startLocked(ctx context.Context) error {
	const tries = 5 // another process may take the port that was free a moment ago
	for try := 1; ; try++ {
		err := s.startOnce(ctx)
		if err == nil {
			return nil
		}
		// A port that clients already know is not changed under them.
		free := s.port == 0 && s.config.Port == 0
		if !free || try == tries || !strings.Contains(s.LogTail(), "Address already in use") {
			return err
		}
	}
}

func (s *Server) startOnce(ctx context.Context) error {
	port := s.port
	if port == 0 {
		port = s.config.Port
	}
	if port == 0 {
		var err error
		if port, err = FreePort(ctx); err != nil {
			return err
		}
	}
	args := []string{"-D", s.dir, "-p", strconv.Itoa(port)}
	params := s.config.params()
	for _, k := range slices.Sorted(mapKeys(params)) {
		args = append(args, "-c", k+"="+params[k])
	}
	logFile, err := s.openLog()
	if err != nil {
		return err
	}
	defer func() { _ = logFile.Close() }()
	cmd := s.user.command(filepath.Join(s.bin, "postgres"), args...)
	cmd.Dir = s.dir
	cmd.Stdout = logFile
	cmd.Stderr = logFile
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // why it ended is in its log
		close(p.done)
	}()
	s.proc = p
	old := s.port
	s.port = port
	if err := s.waitReady(ctx, p); err != nil {
		s.port = old
		_ = s.killLocked()
		return err
	}
	return nil
}

// waitReady polls until the server answers a query.
func (s *Server) waitReady(ctx context.Context, p *process) error {
	timeout := s.config.StartTimeout
	if timeout == 0 {
		timeout = time.Minute
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, s.password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)), Path: "/postgres",
		RawQuery: "sslmode=disable&connect_timeout=5",
	}
	for {
		err := ping(ctx, u.String())
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("postgres ended while starting:\n%s", s.LogTail())
		case <-ctx.Done():
			return fmt.Errorf("postgres does not answer after %s: %w\n%s", timeout, err, s.LogTail())
		case <-time.After(20 * time.Millisecond):
		}
		// A pg_hba.conf of the caller's may refuse us; then the server answers too.
		if refused(err) && len(s.config.Files) > 0 {
			return nil
		}
	}
}

func ping(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// stopLocked asks the server to end with sig and insists after a while.
func (s *Server) stopLocked(sig syscall.Signal) error {
	if s.proc == nil {
		return nil
	}
	p := s.proc
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal postgres: %w", err)
	}
	// A paused server would never see the signal.
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	select {
	case <-p.done:
		s.proc = nil
		return nil
	case <-time.After(30 * time.Second):
		return s.killLocked()
	}
}

func (s *Server) killLocked() error {
	if s.proc == nil {
		return nil
	}
	if err := killTree(s.proc.cmd.Process.Pid, s.proc.done); err != nil {
		return err
	}
	s.proc = nil
	return nil
}

func (s *Server) removeTemp() {
	if s.temp && s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}
