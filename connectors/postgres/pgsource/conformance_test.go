package pgsource_test

import (
	"testing"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/connectors/postgres/pgsource"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest"
	"github.com/tranship-io/tranship/engine/schema"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	d := newDB(t)
	d.exec(`CREATE TABLE orders (id int PRIMARY KEY, t text, n numeric, u timestamptz);
		INSERT INTO orders SELECT i, CASE WHEN i % 4 <> 0 THEN 'row ' || i END, i / 7.0, CASE WHEN i % 9 <> 0 THEN '2024-01-01'::timestamptz + (i / 3) * interval '1 s' END FROM generate_series(1, 120) i;
		CREATE TABLE log AS SELECT t, n FROM orders; CREATE TABLE nothing (id int PRIMARY KEY);
		CREATE TABLE odd (k numeric, b interval, PRIMARY KEY (k, b)); INSERT INTO odd SELECT i / 3, i * interval '1.5 s' FROM generate_series(1, 60) i`)
	snap := engine.PlanRequest{Read: engine.ReadFull, Consistency: engine.ConsistencySnapshot}
	enginetest.RunSource(t, enginetest.SourceCase{
		Spec: pgsource.New().Spec(),
		Open: func(t *testing.T) engine.SourceSession { t.Helper(); return open(t, d.url) },
		Resources: []enginetest.SourceResource{
			{Name: "public.orders", Plan: engine.PlanRequest{Read: engine.ReadFull, SplitBytes: 4000}},
			{Name: "public.orders", Plan: snap},
			{Name: "public.orders", Skipped: 13, Plan: engine.PlanRequest{Read: engine.ReadIncremental, Write: engine.WriteAppend,
				Selection: engine.Selection{Cursor: "u"}}},
			{Name: "public.odd", Plan: engine.PlanRequest{Read: engine.ReadFull}},
			{Name: "public.log", Plan: snap},
			{Name: "public.nothing", Empty: true, Plan: engine.PlanRequest{Read: engine.ReadFull}},
			{Name: "public.nothing", Empty: true, Plan: engine.PlanRequest{Read: engine.ReadIncremental, Selection: engine.Selection{Cursor: "id"}}},
		},
		Decode: canonicalTuples,
	})
}

// canonicalTuples reads COPY tuples in canonical encoding.
func canonicalTuples(_ engine.WireFormat, s *schema.Schema, b *engine.Batch) ([][]byte, error) {
	d, err := pgcopy.NewDigester(s.Fields, nil)
	if err != nil {
		return nil, err
	}
	var rows [][]byte
	for buf := b.Wire; len(buf) > 0; {
		n, err := pgcopy.TupleLen(buf, len(s.Fields))
		if err != nil {
			return nil, err
		}
		row, err := d.AppendCanonical(nil, buf[:n])
		if err != nil {
			return nil, err
		}
		rows, buf = append(rows, row), buf[n:]
	}
	return rows, nil
}
