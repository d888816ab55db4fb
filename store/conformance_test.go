package store

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/statetest"
)

// TestConformance gives each test an organization of its own in one database,
// so that it also proves that they do not touch each other.
//
// statetest.RunProcesses is for States that can tell whether another process
// lives: here only its lease says so, see TestProcesses.
func TestConformance(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	statetest.Run(t, func(t *testing.T) engine.State {
		t.Helper()
		return d.State(newOrganization(t, d, key(t)))
	})
}

// key makes an organization's key of a test's name.
func key(t *testing.T) string {
	t.Helper()
	k := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(t.Name()))
	require.NotEmpty(t, k)
	return strings.Trim(k[max(0, len(k)-50):], "-")
}
