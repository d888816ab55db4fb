package pgsource_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/internal/pgtest"
)

// A standby can be read: locks and exported snapshots work there, and what can't be
// known there is said.
func TestStandby(t *testing.T) {
	t.Parallel()
	// The server's user must reach it.
	base, err := os.MkdirTemp("", "tranship-standby-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	require.NoError(t, os.Chmod(base, 0o711))
	dir := filepath.Join(base, "data")
	primary, err := pgtest.Start(context.Background(), pgtest.Config{DataDir: dir})
	require.NoError(t, err)
	d := &db{t: t, url: primary.URL("postgres")}
	d.conn = d.connect()
	d.exec(numbers)
	d.exec(`CREATE TABLE log AS SELECT * FROM numbers`)
	require.NoError(t, d.conn.Close(context.Background()))
	identity := d.open().Identity()
	require.NoError(t, primary.Stop())

	standby := pgtest.StartT(t, pgtest.Config{DataDir: dir, Files: map[string][]byte{"standby.signal": {}}})
	d = &db{t: t, url: standby.URL("postgres")}
	d.conn = d.connect()
	require.True(t, value[bool](d, "SELECT pg_is_in_recovery()"))
	s := d.open()
	require.Equal(t, identity, s.Identity(), "a failover changes no route")
	for _, req := range []engine.PlanRequest{full("public.numbers", splitBytes(100_000)), full("public.numbers", snapshot, splitBytes(100_000)), full("public.log")} {
		p := plan(t, s, req)
		require.Len(t, readAll(t, s, p, req.Selection, readOptions{}).rows, 5000)
	}
	r := newRoute(t, s, "public.numbers", "u")
	require.Len(t, r.run(readOptions{}), 5000)
	require.Contains(t, fmt.Sprint(r.plan.Warnings), "the source is a standby")
	findings, err := s.(engine.ConnectionTester).TestConnection(context.Background())
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(findings), "standby")
}
