//go:build unix

package embedpg

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	superuser    = "postgres"
	logName      = "tranship.log"
	passwordName = "tranship.password"
)

// makeDataDir makes or finds the cluster and reads its password.
func (s *Server) makeDataDir(ctx context.Context) error {
	if s.config.DataDir == "" {
		dir, err := os.MkdirTemp(tempBase(), "tranship-pg-")
		if err != nil {
			return err
		}
		s.dir, s.temp = dir, true
	} else {
		dir, err := filepath.Abs(s.config.DataDir)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		s.dir = dir
	}
	if err := s.user.chown(s.dir); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(s.dir, "PG_VERSION")); err == nil {
		password, err := os.ReadFile(filepath.Join(s.dir, passwordName))
		if err != nil {
			return fmt.Errorf("folder %s holds a cluster that was not made here: %w", s.dir, err)
		}
		s.password = string(password)
	} else if err := s.initdb(ctx); err != nil {
		return err
	}
	for name, data := range s.config.Files {
		if _, err := s.WriteFile(name, data); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) initdb(ctx context.Context) error {
	s.password = rand.Text()
	pwfile, err := os.CreateTemp(tempBase(), "tranship-pw-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(pwfile.Name()) }()
	_, err = pwfile.WriteString(s.password)
	if err := errors.Join(err, pwfile.Close(), s.user.chown(pwfile.Name())); err != nil {
		return err
	}
	locale := "C.UTF-8"
	if runtime.GOOS != "linux" {
		locale = "C"
	}
	args := append([]string{
		"-D", s.dir, "-U", superuser, "-A", "scram-sha-256", "--pwfile", pwfile.Name(),
		"-E", "UTF8", "--locale", locale,
	}, s.config.InitArgs...)
	cmd := s.user.command(filepath.Join(s.bin, "initdb"), args...)
	cmd.Dir = s.dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		if s.user != nil && errors.Is(err, os.ErrPermission) {
			return fmt.Errorf("user %s, who must run PostgreSQL, cannot reach %s or %s: %w", s.user.name, s.dir, s.bin, err)
		}
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out.String())
	}
	if _, err := s.WriteFile(passwordName, []byte(s.password)); err != nil {
		return err
	}
	return nil
}

func (s *Server) openLog() (*os.File, error) {
	path := s.LogPath()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if err := s.user.chown(path); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// LogTail returns the end of the server's log, for error messages; empty for an
// external server.
func (s *Server) LogTail() string {
	data, err := os.ReadFile(s.LogPath())
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	const keep = 30
	return strings.Join(lines[max(0, len(lines)-keep):], "\n")
}

// tempBase returns a temporary folder that the server's user can reach. Root's
// TMPDIR often is not.
func tempBase() string {
	if os.Geteuid() == 0 {
		return "/tmp"
	}
	return os.TempDir()
}

// refused reports an answer of the server itself, other than that it is still
// starting up.
func refused(err error) bool {
	const cannotConnectNow = "57P03"
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code != cannotConnectNow
}

func mapKeys(m map[string]string) iter.Seq[string] { return maps.Keys(m) }
