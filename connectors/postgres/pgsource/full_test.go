package pgsource_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
)

// numbers is a table with a key, all kinds of widths and some NULLs.
const numbers = `CREATE TABLE numbers (id int PRIMARY KEY, t text, n numeric(10,2), u timestamptz DEFAULT now());
INSERT INTO numbers SELECT i, CASE WHEN i % 10 <> 0 THEN repeat('x', i % 300) END, i / 7.0, now() FROM generate_series(1, 5000) i;
ANALYZE numbers`

func TestFullReadsEveryRowOnce(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(numbers)
	s := d.open()
	for _, c := range []struct {
		name string
		req  engine.PlanRequest
	}{
		{"chunked", full("public.numbers", splitBytes(100_000))},
		{"snapshot", full("public.numbers", splitBytes(100_000), snapshot)},
	} {
		for _, o := range []readOptions{
			{wire: engine.WirePostgresCopy}, {},
			{wire: engine.WirePostgresCopy, batch: 20_000, limit: 1}, {batch: 20_000, limit: 2},
			{wire: engine.WirePostgresCopy, asText: []string{"n"}},
		} {
			t.Run(fmt.Sprintf("%s/%+v", c.name, o), func(t *testing.T) {
				p := plan(t, s, c.req)
				require.Greater(t, len(p.Splits), 3)
				w := readAll(t, s, p, c.req.Selection, o)
				require.Len(t, w.rows, 5000)
				requireUnique(t, column(w.rows, 0))
				if o.limit > 0 && c.name == "chunked" {
					require.Greater(t, w.marks, len(p.Splits))
				}
			})
		}
	}
}

func TestDigestDoesNotDependOnTheWay(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(numbers)
	s := d.open()
	chunked := full("public.numbers", splitBytes(100_000))
	snap := full("public.numbers", snapshot)
	p, q := plan(t, s, chunked), plan(t, s, snap)
	a := readAll(t, s, p, chunked.Selection, readOptions{wire: engine.WirePostgresCopy})
	b := readAll(t, s, q, snap.Selection, readOptions{})
	require.Equal(t, a.digest, b.digest)
}

func TestFilterAndColumns(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(numbers)
	s := d.open()
	req := full("public.numbers", where("id % 2 = 0 -- even"), exclude("t", "u"))
	p := plan(t, s, req)
	require.Equal(t, []string{"id", "n"}, p.Resource.Schema.Names())
	w := readAll(t, s, p, req.Selection, readOptions{})
	require.Len(t, w.rows, 2500)

	_, err := s.Plan(context.Background(), full("public.numbers", exclude("id")))
	requireClass(t, engine.Permanent, err, `"id" is part of the key but not selected`)
	_, err = s.Plan(context.Background(), full("public.numbers", include("nope")))
	requireClass(t, engine.Permanent, err, `no column "nope"`, "id, t, n, u")
	_, err = s.Plan(context.Background(), full("public.nothing"))
	requireClass(t, engine.Permanent, err, "public.nothing", "no such table")
}
