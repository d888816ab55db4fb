package sample

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/integrity"
)

// collector is a Writer that keeps what the source proves, and stops after a
// number of marks.
type collector struct {
	t        testing.TB
	rows     int
	skipped  int
	seen     []engine.RowID
	digest   integrity.Digest
	reserved int64
	marks    int
	stopAt   int
	pos      engine.Position
	ids      []int64
}

func (c *collector) Reserve(_ context.Context, n int64) error { c.reserved += n; return nil }
func (c *collector) Unreserve(n int64)                        { c.reserved -= n }

func (c *collector) Write(_ context.Context, b *engine.Batch) error {
	require.LessOrEqual(c.t, size(b.Record), b.Bytes, "a batch is no larger than what was reserved for it")
	require.Equal(c.t, integrity.RecordCRC(b.Record), b.CRC)
	c.reserved -= b.Bytes
	c.rows += b.Rows
	c.skipped += b.Skipped
	c.seen = append(c.seen, b.Seen...)
	c.digest.Add(b.Digest)
	c.ids = append(c.ids, b.Record.Column(0).(*array.Int64).Int64Values()...)
	b.Release()
	return nil
}

func (c *collector) Keep(ctx context.Context, pos engine.Position) error { return c.Mark(ctx, pos) }

func (c *collector) Mark(_ context.Context, pos engine.Position) error {
	c.pos = pos
	if c.marks++; c.marks == c.stopAt {
		return engine.ErrBoundary
	}
	return nil
}

func size(rec arrow.RecordBatch) int64 {
	var n int64
	var add func(d arrow.ArrayData)
	add = func(d arrow.ArrayData) {
		for i, b := range d.Buffers() {
			if b != nil && (i > 0 || d.NullN() > 0) {
				n += int64(b.Len())
			}
		}
		for _, c := range d.Children() {
			add(c)
		}
	}
	for _, c := range rec.Columns() {
		add(c.Data())
	}
	return n
}

func open(t testing.TB, cfg string) engine.SourceSession {
	t.Helper()
	s, err := NewSource().Open(t.Context(), engine.Config(cfg), engine.OpenOptions{})
	require.NoError(t, err)
	return s
}

func plan(t testing.TB, s engine.SourceSession, req engine.PlanRequest) *engine.SourcePlan {
	t.Helper()
	p, err := s.Plan(t.Context(), req)
	require.NoError(t, err)
	require.NoError(t, p.Resource.Schema.Validate())
	return p
}

func TestSameRowsHoweverTheyAreRead(t *testing.T) {
	t.Parallel()
	for _, resource := range []string{orders, kinds} {
		for _, specials := range []bool{false, true} {
			whole := map[integrity.Digest]int{}
			for _, splits := range []int{1, 3, 7} {
				s := open(t, fmt.Sprintf(`{"seed":7,"rows":1000,"splits":%d,"specials":%t}`, splits, specials))
				p := plan(t, s, engine.PlanRequest{Selection: engine.Selection{Resource: resource}, Read: engine.ReadFull})
				require.Len(t, p.Splits, splits)
				c := &collector{t: t}
				for _, sp := range p.Splits {
					req := engine.ReadRequest{Split: sp, Plan: p, BatchBytes: 64 << 10}
					// Stop after the second batch, and go on from there.
					c.marks, c.stopAt = 0, 2
					res, err := s.Read(t.Context(), req, c)
					require.NoError(t, err)
					c.stopAt = 0
					if !res.Done {
						req.From = c.pos
						res, err = s.Read(t.Context(), req, c)
						require.NoError(t, err)
					}
					require.True(t, res.Done)
				}
				require.Equal(t, 1000, c.rows)
				require.Zero(t, c.reserved)
				whole[c.digest]++
			}
			require.Len(t, whole, 1)
		}
	}
}

func TestIncremental(t *testing.T) {
	t.Parallel()
	sel := engine.Selection{Resource: orders, Cursor: "updated_at", Lookback: 5 * time.Second}
	s := open(t, `{"rows":100}`)
	p := plan(t, s, engine.PlanRequest{Selection: sel, Read: engine.ReadIncremental})
	require.Nil(t, p.Window)
	c := &collector{t: t}
	_, err := s.Read(t.Context(), engine.ReadRequest{Split: p.Splits[0], Plan: p, Selection: sel, Remember: true}, c)
	require.NoError(t, err)
	require.Len(t, c.ids, 100)
	require.Len(t, c.seen, 5)

	more := open(t, `{"rows":120}`)
	p2 := plan(t, more, engine.PlanRequest{Selection: sel, Read: engine.ReadIncremental, Cursor: p.NextCursor})
	require.Equal(t, &engine.Window{Cursor: "updated_at", UpTo: "2024-01-01T00:01:39.000000Z"}, p2.Window)
	skip := map[engine.RowID]struct{}{}
	for _, id := range c.seen {
		skip[id] = struct{}{}
	}
	c2 := &collector{t: t}
	_, err = more.Read(t.Context(), engine.ReadRequest{Split: p2.Splits[0], Plan: p2, Selection: sel, Skip: skip, Remember: true}, c2)
	require.NoError(t, err)
	require.Equal(t, 20, c2.rows)
	require.Equal(t, 5, c2.skipped)
	require.EqualValues(t, 101, c2.ids[0])

	// Nothing new: nothing but the window is read.
	p3 := plan(t, more, engine.PlanRequest{Selection: sel, Read: engine.ReadIncremental, Cursor: p2.NextCursor})
	require.EqualValues(t, 5, p3.Rows)
	// Fewer rows than before are no reason to go back.
	p4 := plan(t, s, engine.PlanRequest{Selection: engine.Selection{Resource: orders, Cursor: "id"}, Read: engine.ReadIncremental, Cursor: p2.NextCursor})
	require.EqualValues(t, 0, p4.Rows)
	require.JSONEq(t, `{"rows":120}`, string(p4.NextCursor))
}

func TestChosenColumnsKeepTheirValues(t *testing.T) {
	t.Parallel()
	s := open(t, `{"rows":10}`)
	p := plan(t, s, engine.PlanRequest{Selection: engine.Selection{Resource: orders, Include: []string{"amount"}}, Read: engine.ReadFull})
	require.Equal(t, []string{"id", "amount"}, p.Resource.Schema.Names())
	c := &collector{t: t}
	_, err := s.Read(t.Context(), engine.ReadRequest{Split: p.Splits[0], Plan: p}, c)
	require.NoError(t, err)
	require.Equal(t, 10, c.rows)
}

func TestWideRowsAndNone(t *testing.T) {
	t.Parallel()
	s := open(t, `{"rows":3,"row_bytes":5000000}`)
	p := plan(t, s, engine.PlanRequest{Selection: engine.Selection{Resource: orders}, Read: engine.ReadFull})
	c := &collector{t: t}
	_, err := s.Read(t.Context(), engine.ReadRequest{Split: p.Splits[0], Plan: p, BatchBytes: 1 << 20}, c)
	require.NoError(t, err)
	require.Equal(t, 3, c.marks, "a row larger than a batch is a batch of its own")

	s = open(t, `{"rows":0}`)
	p = plan(t, s, engine.PlanRequest{Selection: engine.Selection{Resource: orders}, Read: engine.ReadFull})
	require.Len(t, p.Splits, 1)
	res, err := s.Read(t.Context(), engine.ReadRequest{Split: p.Splits[0], Plan: p}, &collector{t: t})
	require.NoError(t, err)
	require.True(t, res.Done)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, cfg := range []string{`{"row":1}`, `{"rows":-1}`, `{"row_bytes":999999999}`} {
		_, err := NewSource().Open(t.Context(), engine.Config(cfg), engine.OpenOptions{})
		require.Error(t, err, cfg)
		require.Equal(t, engine.Permanent, engine.ClassOf(err))
	}
	s := open(t, `{}`)
	for _, req := range []engine.PlanRequest{
		{Selection: engine.Selection{Resource: "sample.none"}, Read: engine.ReadFull},
		{Selection: engine.Selection{Resource: orders, Where: "true"}, Read: engine.ReadFull},
		{Selection: engine.Selection{Resource: orders, Exclude: []string{"nothing"}}, Read: engine.ReadFull},
		{Selection: engine.Selection{Resource: orders, Cursor: "note"}, Read: engine.ReadIncremental},
		{Selection: engine.Selection{Resource: orders, Cursor: "id"}, Read: engine.ReadIncremental, Cursor: json.RawMessage(`[]`)},
		{Selection: engine.Selection{Resource: orders}, Read: engine.ReadCDC},
		{Selection: engine.Selection{Resource: orders}, Read: engine.ReadFull, Consistency: engine.ConsistencySnapshot},
	} {
		_, err := s.Plan(t.Context(), req)
		require.Error(t, err, "%+v", req)
		require.Equal(t, engine.Permanent, engine.ClassOf(err))
	}
	found, err := s.Discover(t.Context(), []string{"sample.o*"})
	require.NoError(t, err)
	require.Len(t, found, 1)
}
