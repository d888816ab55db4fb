package rig

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// EnvEndpoint names a running emulator that Shared uses instead of starting one.
const EnvEndpoint = "TRANSHIP_TEST_AWS"

// shared is the one core of a test binary.
var shared struct {
	once sync.Once
	core *Core
	err  error
}

// Main runs a package's tests and then stops the shared core. A TestMain that has
// more to do calls m.Run and StopShared itself.
func Main(m *testing.M) {
	code := m.Run()
	if err := StopShared(); err != nil {
		fmt.Fprintln(os.Stderr, "rig:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// Shared returns the test binary's core, which the first caller starts. With
// TRANSHIP_TEST_AWS set it is that one, and then its External is true.
func Shared(tb testing.TB) *Core {
	tb.Helper()
	shared.once.Do(func() {
		if endpoint := os.Getenv(EnvEndpoint); endpoint != "" {
			shared.core = Attach(endpoint)
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
		defer cancel()
		shared.core, shared.err = Start(ctx, Config{})
	})
	if shared.err != nil {
		tb.Fatalf("start shared AWS: %v", shared.err)
	}
	return shared.core
}

// StopShared stops the shared core if this process started one.
func StopShared() error {
	if shared.core == nil {
		return nil
	}
	return shared.core.Stop()
}

// StartT starts a core of the test's own and stops it at the test's end. Its log's
// end is shown if the test failed.
func StartT(tb testing.TB, config Config) *Core {
	tb.Helper()
	core, err := Start(tb.Context(), config)
	if err != nil {
		tb.Fatalf("start AWS: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("end of the core's log:\n%s", core.LogTail())
		}
		if err := core.Stop(); err != nil {
			tb.Errorf("stop AWS: %v", err)
		}
	})
	return core
}

// Name makes a unique name for a resource out of a test's: at most 40 characters of
// a-z, 0-9 and hyphens, so that every service takes it.
func Name(tb testing.TB) string {
	tb.Helper()
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, tb.Name())
	return fmt.Sprintf("%.29s-%s", clean, strings.ToLower(rand.Text()[:10]))
}
