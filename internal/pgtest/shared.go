package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tranship-io/tranship/internal/embedpg"
)

// shared is the one server of a test binary.
var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Main runs a package's tests and then stops the shared server. A TestMain that
// has more to do calls m.Run and StopShared itself.
func Main(m *testing.M) {
	code := m.Run()
	if err := StopShared(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// Shared returns the test binary's server, which the first caller starts. With
// TRANSHIP_TEST_PG_URL set it is that one, and then its External is true.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	shared.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		if external := os.Getenv(EnvURL); external != "" {
			shared.server, shared.err = embedpg.Attach(ctx, external)
			return
		}
		shared.server, shared.err = Start(ctx, Config{})
	})
	if shared.err != nil {
		tb.Fatalf("start shared PostgreSQL: %v", shared.err)
	}
	return shared.server
}

// StopShared stops the shared server if this process started one.
func StopShared() error {
	if shared.server == nil || shared.server.External() {
		return nil
	}
	return shared.server.Stop()
}

// StartT starts a server of the test's own and stops it at the test's end. Its
// log's end is shown if the test failed.
func StartT(tb testing.TB, config Config) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 10*time.Minute)
	defer cancel()
	s, err := Start(ctx, config)
	if err != nil {
		tb.Fatalf("start PostgreSQL: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("end of the PostgreSQL log:\n%s", s.LogTail())
		}
		if err := s.Stop(); err != nil {
			tb.Errorf("stop PostgreSQL: %v", err)
		}
	})
	return s
}

// NewDatabase creates a database for one test, named after it, and drops it when
// the test ends, with whatever replication slots, prepared transactions and
// sessions are left in it. It is safe in parallel tests.
func NewDatabase(tb testing.TB, s *Server) string {
	tb.Helper()
	name := databaseName(tb.Name())
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	if err := s.CreateDatabase(ctx, name); err != nil {
		tb.Fatalf("create database: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.DropDatabase(ctx, name); err != nil {
			// A test may have killed its server on purpose.
			tb.Logf("drop database: %v", err)
		}
	})
	return s.URL(name)
}

// databaseName makes a unique name of at most 63 bytes out of a test's.
func databaseName(test string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '_'
	}, test)
	return fmt.Sprintf("%.40s_%s", clean, strings.ToLower(rand.Text()[:10]))
}
