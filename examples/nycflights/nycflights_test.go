package nycflights_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/examples/nycflights"
	"github.com/tranship-io/tranship/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestLoad(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, pgtest.Shared(t))
	require.NoError(t, nycflights.Load(t.Context(), url))

	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	one := func(sql string) (n int64) {
		t.Helper()
		require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&n))
		return n
	}
	for _, table := range nycflights.Tables() {
		require.Equal(t, table.Rows, one("SELECT count(*) FROM public."+table.Name), table.Name)
	}
	require.Equal(t, int64(5), one(`SELECT count(*) FROM pg_constraint
		WHERE contype = 'p' AND connamespace = 'public'::regnamespace`), "every table has a key")

	// Values that a wrong NULL or column order would change.
	require.Equal(t, int64(8_255), one("SELECT count(*) FROM flights WHERE dep_time IS NULL"))
	require.Equal(t, int64(350_217_607), one("SELECT sum(distance) FROM flights"))
	require.Equal(t, int64(3), one("SELECT count(*) FROM airports WHERE tzone IS NULL"))
	require.Equal(t, int64(1), one("SELECT id FROM flights WHERE carrier = 'UA' AND flight = 1545 AND month = 1 AND day = 1"))
	require.Equal(t, nycflights.Tables()[4].Rows, one("SELECT max(id) FROM flights"))
	require.Zero(t, one("SELECT count(*) FROM flights WHERE updated_at <> time_hour"))

	// What changes later gets a cursor value after all others.
	_, err = conn.Exec(t.Context(), "UPDATE flights SET dep_delay = 0 WHERE id = 7")
	require.NoError(t, err)
	require.Equal(t, int64(7), one("SELECT id FROM flights ORDER BY updated_at DESC LIMIT 1"))

	require.ErrorContains(t, nycflights.Load(t.Context(), url), "already exists")
}

func TestFilesAreThePublishedOnes(t *testing.T) {
	t.Parallel()
	for table, want := range map[string]string{
		"airlines": "162551bd3401a12d63db3d92b7e66af3017d2e40d55919d6a678489323c10609",
		"airports": "36c290b69800422f36618f471a042b670b9329e8eb0686eff44f371a9761e148",
		"flights":  "563db8f117faf6ffd76aa868099df37dfa78dc17b5ac6d3d9ea6476e051a0bc4",
		"planes":   "778962edec8339f6f6edb1d6506869f61cab573eda03d7e162d2899c76d04c1a",
		"weather":  "5d1ea2548a3941eac0b4a9ca70805daa9fa49bbb711a0c7557b2bba0bd7c3f64",
	} {
		f, err := nycflights.Open(table)
		require.NoError(t, err)
		h := sha256.New()
		_, err = io.Copy(h, f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.Equal(t, want, hex.EncodeToString(h.Sum(nil)), table)
	}
	_, err := nycflights.Open("none")
	require.ErrorContains(t, err, `open table "none"`)
}
