package memsource_test

import (
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest"
	"github.com/tranship-io/tranship/engine/enginetest/memrow"
	"github.com/tranship-io/tranship/engine/enginetest/memsource"
	"github.com/tranship-io/tranship/engine/schema"
)

func decode(_ engine.WireFormat, s *schema.Schema, b *engine.Batch) ([][]byte, error) {
	var out [][]byte
	for rest := b.Wire; len(rest) > 0; {
		row, more, err := memrow.Cut(rest, len(s.Fields))
		if err != nil {
			return nil, err
		}
		out, rest = append(out, append([]byte(nil), row...)), more
	}
	return out, nil
}

func TestConformance(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	t.Cleanup(func() { mem.AssertSize(t, 0) })
	db := memsource.New(memsource.Options{SplitRows: 20, Memory: mem})
	t.Cleanup(db.Free)

	s, rec, err := enginetest.Values(mem)
	require.NoError(t, err)
	defer rec.Release()
	db.Create("values", s)
	require.NoError(t, db.Load("values", rec))
	values, err := enginetest.CanonicalRows(&s, rec)
	require.NoError(t, err)

	live := schema.Schema{Key: []string{"id"}, Fields: []schema.Field{
		{Name: "id", Type: schema.Type{Kind: schema.Int64}}, {Name: "u", Type: schema.Type{Kind: schema.Int64}, Nullable: true}, {Name: "v", Type: schema.Type{Kind: schema.String}}}}
	db.Create("live", live)
	db.Create("empty", live)
	var rows, timed [][]byte
	for i := range int64(50) {
		tx := db.Begin()
		row := []any{i, any(tx.Now()), fmt.Sprint("row ", i)}
		if i%10 == 0 {
			row[1] = nil
		}
		tx.Put("live", row...)
		tx.Commit()
		rows = append(rows, memrow.Append(nil, row))
		if row[1] != nil {
			timed = append(timed, memrow.Append(nil, row))
		}
	}
	source := &memsource.Source{DB: db}
	enginetest.RunSource(t, enginetest.SourceCase{
		Spec: source.Spec(), Decode: decode,
		Open: func(t *testing.T) engine.SourceSession {
			t.Helper()
			ses, err := source.Open(t.Context(), nil, engine.OpenOptions{})
			require.NoError(t, err)
			return ses
		},
		Resources: []enginetest.SourceResource{
			{Name: "values", Plan: engine.PlanRequest{Read: engine.ReadFull}, Rows: values},
			{Name: "live", Plan: engine.PlanRequest{Read: engine.ReadFull, Consistency: engine.ConsistencyChunked}, Rows: rows},
			{Name: "live", Plan: engine.PlanRequest{Read: engine.ReadFull, Consistency: engine.ConsistencySnapshot}, Rows: rows},
			{Name: "live", Plan: engine.PlanRequest{Read: engine.ReadIncremental, Selection: engine.Selection{Cursor: "u"}}, Rows: timed, Skipped: 5},
			{Name: "empty", Plan: engine.PlanRequest{Read: engine.ReadFull}, Empty: true},
		},
	})
}

func TestStreamConformance(t *testing.T) {
	db := memsource.New(memsource.Options{SplitRows: 20, BatchRows: 2})
	live := schema.Schema{Key: []string{"id"}, Fields: []schema.Field{
		{Name: "id", Type: schema.Type{Kind: schema.Int64}}, {Name: "u", Type: schema.Type{Kind: schema.Int64}, Nullable: true}, {Name: "v", Type: schema.Type{Kind: schema.String}}}}
	db.Create("live", live)
	for i := range int64(50) {
		tx := db.Begin()
		tx.Put("live", i*3, tx.Now(), fmt.Sprint("row ", i))
		tx.Commit()
	}
	source := &memsource.Source{DB: db}
	next := int64(1000)
	enginetest.RunStreamer(t, enginetest.StreamCase{
		Decode: decode, Table: "live", Write: engine.WriteMerge,
		Open: func(t *testing.T) engine.SourceSession {
			t.Helper()
			ses, err := source.Open(t.Context(), nil, engine.OpenOptions{})
			require.NoError(t, err)
			return ses
		},
		Change: func(t *testing.T, n int) {
			t.Helper()
			rows := db.Rows("live", db.Version())
			tx := db.Begin()
			text := func(i int) string { return string(memrow.Field(rows[i].Wire, 2)[4:]) }
			at := n % 20
			tx.Put("live", rows[at].Ord, tx.Now(), text(at))
			tx.Put("live", rows[at+1].Ord, tx.Now(), "changed")
			tx.Delete("live", rows[at+2].Ord)
			next++
			tx.Put("live", next, tx.Now(), "new")
			tx.Move("live", rows[at+3].Ord, next+5000, tx.Now(), fmt.Sprint("moved ", next))
			tx.Commit()
		},
		Rows: func(*testing.T) [][]byte {
			var out [][]byte
			for _, row := range db.Rows("live", db.Version()) {
				out = append(out, row.Wire)
			}
			return out
		},
	})
}
