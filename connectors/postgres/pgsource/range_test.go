package pgsource_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
)

// TestPlanRange: a range is read as it is now, and nothing moves on.
func TestPlanRange(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE ev (id int PRIMARY KEY, u numeric(10,2)); INSERT INTO ev SELECT n, n / 2.0 FROM generate_series(1, 100) n; INSERT INTO ev VALUES (1000, NULL)`)
	s := d.open()
	req := engine.PlanRequest{Selection: engine.Selection{Resource: "public.ev", Cursor: "u"}, Read: engine.ReadIncremental, Write: engine.WriteUpsert, Slots: 2, HolderLives: true}
	part := func(from, to string) (*engine.SourcePlan, error) {
		return s.(engine.RangePlanner).PlanRange(t.Context(), req, engine.CursorRange{From: from, To: to})
	}
	rows := func(from, to string) int {
		t.Helper()
		p, err := part(from, to)
		require.NoError(t, err)
		require.Equal(t, string(req.Cursor), string(p.NextCursor), "the cursor stays")
		w := readAll(t, s, p, req.Selection, readOptions{})
		require.Zero(t, w.skipped, "rows without a cursor are in no range")
		return len(w.rows)
	}
	require.Equal(t, 5, rows("3", "5"), "both ends are included")
	require.Equal(t, 1, rows("3", "3"))
	require.Equal(t, 6, rows("", "3.00"))
	require.Equal(t, 3, rows("49", ""), "an open end is the greatest there is")
	require.Zero(t, rows("7", "3"))
	require.Zero(t, rows("51", ""))

	_, err := part("3", "monday")
	require.Equal(t, engine.Permanent, engine.ClassOf(err))
	require.ErrorContains(t, err, "monday")

	// An append completes what its runs have read, and goes no further.
	req.Write = engine.WriteAppend
	_, err = part("3", "5")
	require.Equal(t, engine.Permanent, engine.ClassOf(err), "nothing was read yet")
	req.Cursor = plan(t, s, req).NextCursor
	d.exec(`INSERT INTO ev VALUES (101, 50.5), (102, 20)`)
	require.Equal(t, 4, rows("49.5", "60")+rows("20", "20"), "two of each")
	p, err := part("20", "20")
	require.NoError(t, err)
	require.Equal(t, "50.00", p.Window.UpTo, "what is there already is found by it")
}
