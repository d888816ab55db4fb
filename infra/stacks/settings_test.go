package stacks_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/infra/stacks"
	"github.com/tranship-io/tranship/infra/transhipcdk"
)

func TestSettingsAreStrict(t *testing.T) {
	file := filepath.Join(t.TempDir(), "settings.json")
	write := func(text string) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	write(`{"profile":"warm","webhooks":{"hosts":["h"]}}`)
	s, err := stacks.Load(file)
	require.NoError(t, err)
	require.Equal(t, stacks.Warm, s.Profile)
	require.JSONEq(t, `{"hosts":["h"]}`, string(s.Webhooks))

	write(`{"profil":"warm"}`)
	_, err = stacks.Load(file)
	require.ErrorContains(t, err, `unknown field "profil"`)

	write(`{} {}`)
	_, err = stacks.Load(file)
	require.ErrorContains(t, err, "something follows")

	_, err = stacks.Load(file + "x")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Errors before anything is synthesized say what to do.
func TestSettingsThatCannotWork(t *testing.T) {
	built := root
	t.Run("no digest", func(t *testing.T) {
		empty := t.TempDir()
		_, err := synthesize(&stacks.Settings{}, empty)
		require.ErrorContains(t, err, "make image")
	})
	t.Run("no zips", func(t *testing.T) {
		empty := t.TempDir()
		require.PanicsWithValue(t, "function migrate: there is no "+filepath.Join(empty, "dist", "functions", "migrate.zip")+"; build it with: make functions", func() {
			s := ownDatabase()
			_, err := synthesize(s, empty)
			require.NoError(t, err)
		})
	})
	for name, c := range map[string]struct {
		settings *stacks.Settings
		want     string
	}{
		"profile":              {&stacks.Settings{Profile: "hot"}, "idle or warm"},
		"platform":             {&stacks.Settings{BackupDays: 99}, "1 to 35"},
		"connections":          {&stacks.Settings{MaxACU: 1}, "max_connections (189) are 151"},
		"network without name": {func() *stacks.Settings { s := ownDatabase(); s.VPC = &transhipcdk.ExistingVPC{}; return s }(), "give the VPC's id"},
		"tasks without where":  {func() *stacks.Settings { s, on := ownDatabase(), true; s.Tasks, s.Fargate = nil, &on; return s }(), "say in tasks"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := synthesize(c.settings, built)
			require.ErrorContains(t, err, c.want)
		})
	}
}
