package sqlite

import (
	"database/sql"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
)

var update = flag.Bool("update", false, "write the golden files anew")

func rawFile(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	return db
}

// schemaOf returns the file's schema as SQLite keeps it.
func schemaOf(t *testing.T, path string) string {
	t.Helper()
	db := rawFile(t, path)
	defer db.Close()
	var id, version int
	require.NoError(t, db.QueryRow("PRAGMA application_id").Scan(&id))
	require.NoError(t, db.QueryRow("PRAGMA user_version").Scan(&version))
	out := fmt.Sprintf("PRAGMA application_id = %d;\nPRAGMA user_version = %d;\n", id, version)
	rows, err := db.Query("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY name")
	require.NoError(t, err)
	require.NoError(t, eachRow(rows, func(r scanner) error {
		var s string
		err := r.Scan(&s)
		out += "\n" + s + ";\n"
		return err
	}))
	return out
}

// TestMigrateFromEveryVersion opens files of every earlier version: each gets
// the schema that a new file has, which is the golden one.
func TestMigrateFromEveryVersion(t *testing.T) {
	scripts, err := migrations()
	require.NoError(t, err)
	require.NotEmpty(t, scripts)
	golden := filepath.Join("testdata", "schema.sql")
	for from := range len(scripts) + 1 {
		path := filepath.Join(t.TempDir(), "state.db")
		db := rawFile(t, path)
		for _, s := range scripts[:from] {
			_, err := db.Exec(s)
			require.NoError(t, err)
		}
		if from > 0 {
			_, err := db.Exec(fmt.Sprintf("INSERT INTO meta VALUES ('installation', 'mine'); PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, from))
			require.NoError(t, err)
		}
		require.NoError(t, db.Close())
		s, err := Open(t.Context(), path)
		require.NoError(t, err)
		if from > 0 {
			require.Equal(t, "mine", s.ownUUID, "the installation stays")
		}
		require.NoError(t, s.Close())
		got := schemaOf(t, path)
		if *update {
			require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err, "make it with go test ./store/sqlite -run TestMigrateFromEveryVersion -update")
		require.Equal(t, string(want), got, "from version %d", from)
	}
}

// TestMigrationNames holds the scripts' names to their form, so that their order
// is the order in which they landed.
func TestMigrationNames(t *testing.T) {
	entries, err := migrationFiles.ReadDir("migrations")
	require.NoError(t, err)
	for _, e := range entries {
		require.Regexp(t, `^20\d{12}_[a-z]+(_[a-z]+)+\.sql$`, e.Name())
	}
}

// A failed migration leaves the file as it was.
func TestMigrateIsAllOrNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := Open(t.Context(), path)
	require.NoError(t, err)
	defer s.Close()
	before := schemaOf(t, path)
	err = s.update(t.Context(), "migrate", func(x *tx) error {
		if err := x.script("CREATE TABLE half (x); PRAGMA user_version = 77"); err != nil {
			return err
		}
		return x.script("CREATE TABLE broken (")
	})
	require.Error(t, err)
	require.Equal(t, before, schemaOf(t, path))
}

// A full disk is told as such, leaves nothing behind, and is no end of the run.
func TestFullDisk(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, err)
	defer s.Close()
	route := engine.Route{Pipeline: strings.Repeat("p", 100_000), Source: "src", Sink: "dst"}
	var pages int
	require.NoError(t, s.write.conn.QueryRowContext(t.Context(), "PRAGMA page_count").Scan(&pages))
	limit := func(n int) {
		_, err := s.write.conn.ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", n))
		require.NoError(t, err)
	}
	limit(pages + 2)
	_, _, err = s.StartRun(t.Context(), engine.StartRequest{Route: route, Version: "v1"})
	require.Equal(t, engine.Permanent, engine.ClassOf(err), err)
	require.Contains(t, engine.HintOf(err), "free space")
	_, known, err := s.RouteKnown(t.Context(), route)
	require.NoError(t, err)
	require.False(t, known)
	require.Empty(t, s.locks, "the lock is let go")
	limit(1 << 30)
	_, _, err = s.StartRun(t.Context(), engine.StartRequest{Route: route, Version: "v1"})
	require.NoError(t, err)
}
