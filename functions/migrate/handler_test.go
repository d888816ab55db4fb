package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/internal/awsadapter/parameter"
	"github.com/tranship-io/tranship/internal/cloudtest"
)

func TestMain(m *testing.M) { cloudtest.Main(m) }

// TestMigrate: the first one makes everything, with a key that works; another one
// changes nothing.
func TestMigrate(t *testing.T) {
	t.Parallel()
	i := cloudtest.New(t)
	h, err := wire(t.Context(), i.Function("migrate"))
	require.NoError(t, err)
	t.Cleanup(h.db.Close)
	first, err := h.handle(i.Invocation(time.Minute), struct{}{})
	require.NoError(t, err)
	require.Zero(t, first.From)
	require.Positive(t, first.Version)
	require.True(t, first.Bootstrapped)
	store := parameter.New(i.AWS)
	key, err := store.Get(t.Context(), i.Env["TRANSHIP_FIRST_KEY_PARAMETER"])
	require.NoError(t, err)
	signer, err := h.signer(t.Context())
	require.NoError(t, err)
	_, err = signer.Verify(key, time.Now())
	require.NoError(t, err)
	signing, err := store.Get(t.Context(), i.Env["TRANSHIP_SIGNING_PARAMETER"])
	require.NoError(t, err)

	second, err := h.handle(i.Invocation(time.Minute), struct{}{})
	require.NoError(t, err)
	require.Equal(t, answer{Version: first.Version, From: first.Version}, second)
	again, err := store.Get(t.Context(), i.Env["TRANSHIP_FIRST_KEY_PARAMETER"])
	require.NoError(t, err)
	require.Equal(t, key, again)
	same, err := store.Get(t.Context(), i.Env["TRANSHIP_SIGNING_PARAMETER"])
	require.NoError(t, err)
	require.Equal(t, signing, same)

	f := i.Function("migrate", "TRANSHIP_DATABASE", "postgres://u:hunter2@h/d")
	_, err = wire(t.Context(), f)
	require.ErrorContains(t, err, "TRANSHIP_DATABASE_SECRET")
	require.NotContains(t, err.Error(), "hunter2")
}
