package pgsink

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/internal/pgtest"
)

// tuple writes integers as a COPY tuple; nil: NULL.
func tuple(values ...any) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(values)))
	for _, v := range values {
		if v == nil {
			b = binary.BigEndian.AppendUint32(b, 0xffffffff)
			continue
		}
		b = binary.BigEndian.AppendUint32(b, 4)
		b = binary.BigEndian.AppendUint32(b, uint32(v.(int)))
	}
	return b
}

// one is a change: its row, with a column that was not sent as "".
type one struct {
	op  engine.Op
	row []any
}

// changeBatch makes a batch of changes of a resource.
func changeBatch(resource string, list ...one) *engine.Batch {
	b := &engine.Batch{Resource: resource, Rows: len(list)}
	for _, c := range list {
		var unsent []uint64
		row := slices.Clone(c.row)
		for i, v := range row {
			if v == "" {
				if unsent == nil {
					unsent = []uint64{0}
				}
				unsent[0] |= 1 << i
				row[i] = nil
			}
		}
		b.Wire = append(b.Wire, tuple(row...)...)
		b.Ops = append(b.Ops, c.op)
		b.Unchanged = append(b.Unchanged, unsent)
	}
	b.Bytes, b.CRC = int64(len(b.Wire)), integrity.CRC(0, b.Wire)
	return b
}

// following is a member of a stream with its rows in place, and the stream.
type following struct {
	*bench
	s      *Session
	member *planned
	stream *planned
	claim  int64
	epoch  int64
}

func (b *bench) follow(s *Session, splits ...string) *following {
	b.Helper()
	f := &following{bench: b, s: s}
	req := b.request(job{resource: b.discover("public.t"), read: engine.ReadCDC, write: engine.WriteMerge, verify: engine.VerifyCounts, splits: append([]string{"x"}, splits...)})
	req.Plan.Splits = req.Plan.Splits[1:]
	t, err := s.Plan(b.ctx, req)
	require.NoError(b, err)
	f.member = &planned{t, &engine.ResourcePlan{Read: t.Read, Write: t.Write, Source: req.Plan, Target: t}, `{"v":1}`}
	st, err := s.PlanStream(b.ctx, engine.StreamTargetRequest{Route: req.Route, RunID: req.RunID, Ordinal: req.Ordinal})
	require.NoError(b, err)
	f.stream = &planned{st, &engine.ResourcePlan{Read: st.Read, Target: st, Stream: &engine.StreamPlan{}, Source: &engine.SourcePlan{
		Splits: []engine.Split{{ID: "#changes/0.0", Resource: st.Resource, Descriptor: json.RawMessage(`{}`)}}}}, ""}
	require.NoError(b, b.begin(s, f.member))
	require.NoError(b, b.begin(s, f.stream))
	f.take()
	return f
}

func (f *following) take() {
	f.Helper()
	f.claim++
	_, err := f.s.Claim(f.ctx, f.stream.Target, "#changes/0.0", f.claim)
	require.NoError(f, err)
}

func (f *following) try(claim int64, batches ...*engine.Batch) (*engine.Receipt, error) {
	e := epoch(f.member, "#changes/0.0", claim, f.epoch+1, false, batches)
	e.Stream = f.stream.Target
	return f.s.Apply(f.ctx, e)
}

func (f *following) changes(list ...one) engine.Totals {
	f.Helper()
	r, err := f.try(f.claim, changeBatch("public.t", list...))
	require.NoError(f, err)
	f.epoch++
	m := r.Members["public.t"]
	require.EqualValues(f, len(list), m.Applied+m.Superseded+m.Skipped, "P6")
	require.Equal(f, m.Applied, r.Applied)
	return m
}

func TestMergeOfChanges(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const table = `CREATE TABLE t (id int PRIMARY KEY, a int, b int)`
	b.exec(b.src, table)
	s := b.open(b.to)
	f := b.follow(s)
	rows := func() []string { return b.text(b.dst, "SELECT * FROM t ORDER BY id") }
	ins, upd, del, mov, cut := engine.OpInsert, engine.OpUpdate, engine.OpDelete, engine.OpMove, engine.OpTruncate
	f.changes(one{ins, []any{1, 10, 100}}, one{ins, []any{2, 20, 200}}, one{ins, []any{3, nil, 300}})
	require.Equal(t, []string{"(1,10,100)", "(2,20,200)", "(3,,300)"}, rows())
	m := f.changes(one{upd, []any{1, 11, ""}}, one{upd, []any{1, "", 101}}, one{del, []any{2, "", ""}}, one{ins, []any{2, 22, 222}}, one{upd, []any{3, nil, ""}})
	require.EqualValues(t, 2, m.Superseded)
	require.Equal(t, []string{"(1,11,101)", "(2,22,222)", "(3,,300)"}, rows())
	// Keys that move, in a chain, and exchange.
	f.changes(one{del, []any{1, "", ""}}, one{mov, []any{7, 12, ""}}, one{del, []any{7, "", ""}}, one{mov, []any{8, "", ""}},
		one{del, []any{2, "", ""}}, one{mov, []any{-1, "", 1}}, one{del, []any{3, "", ""}}, one{mov, []any{2, "", ""}}, one{del, []any{-1, "", ""}}, one{mov, []any{3, "", ""}})
	require.Equal(t, []string{"(2,,300)", "(3,22,1)", "(8,12,101)"}, rows())
	f.changes(one{ins, []any{9, 9, 9}}, one{cut, []any{nil, nil, nil}}, one{ins, []any{4, 4, 4}})
	require.Equal(t, []string{"(4,4,4)"}, rows())
	m = f.changes(one{upd, []any{5, 5, ""}})
	require.EqualValues(t, 1, m.Skipped, "there is no such row")
	require.Equal(t, "no such row to update", m.Policies[0].Reason)

	// A stale claim leaves nothing, and an epoch comes once (invariant 2, P2).
	old := f.claim
	f.take()
	_, err := f.try(old, changeBatch("public.t", one{ins, []any{6, 6, 6}}))
	var stale *engine.StaleError
	require.ErrorAs(t, err, &stale)
	f.changes(one{ins, []any{6, 6, 6}})
	f.epoch--
	_, err = f.try(f.claim, changeBatch("public.t", one{ins, []any{66, 6, 6}}))
	require.ErrorAs(t, err, &stale)
	require.Equal(t, []string{"(4,4,4)", "(6,6,6)"}, rows())
	broken := changeBatch("public.t", one{ins, []any{77, 7, 7}})
	broken.CRC++
	f.epoch++
	var mismatch *engine.MismatchError
	_, err = f.try(f.claim, broken)
	require.ErrorAs(t, err, &mismatch)
	require.Equal(t, f.epoch, b.count(b.dst, `SELECT (cursor->>'at')::int8 FROM _tranship.fence WHERE resource = '#changes'`), "the place is kept with every epoch")
}

// TestDeltaWhileRowsAreRead applies random changes while pieces of the table are
// loaded from snapshots of any time between, and publishes: the rows are those of
// the source.
func TestDeltaWhileRowsAreRead(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 3))
		b := newBench(t)
		b.exec(b.src, `CREATE TABLE t (id int PRIMARY KEY, a int, b int)`)
		const keys, pieces = 24, 3
		type row struct{ a, b int }
		now := map[int]row{}
		for id := range keys {
			if r.IntN(2) == 0 {
				now[id] = row{r.IntN(100), r.IntN(100)}
			}
		}
		s := b.open(b.to)
		var ids []string
		for i := range pieces {
			ids = append(ids, fmt.Sprintf("public.t/0.%d", i))
		}
		f := b.follow(s, ids...)
		require.True(t, f.member.Staged)
		// A piece's snapshot is taken at some step, and loaded at a later one.
		taken, total := map[int]map[int]row{}, engine.Totals{}
		load := func(i int) {
			var wire [][]byte
			for id := i * keys / pieces; id < (i+1)*keys/pieces; id++ {
				if v, ok := taken[i][id]; ok {
					wire = append(wire, tuple(id, v.a, v.b))
				}
			}
			_, err := s.Claim(b.ctx, f.member.Target, ids[i], 1)
			require.NoError(t, err)
			var batches []*engine.Batch
			if len(wire) > 0 {
				batches = append(batches, b.wireBatch(f.member, wire, make([]bool, 3)))
			}
			rc, err := s.Apply(b.ctx, epoch(f.member, ids[i], 1, 1, true, batches))
			require.NoError(t, err)
			total.Applied += rc.Applied
		}
		for step := range 3 * pieces {
			var list []one
			for range r.IntN(12) {
				id := r.IntN(keys)
				v, there := now[id]
				switch {
				case !there:
					now[id] = row{r.IntN(100), r.IntN(100)}
					list = append(list, one{engine.OpInsert, []any{id, now[id].a, now[id].b}})
				case r.IntN(3) == 0:
					delete(now, id)
					list = append(list, one{engine.OpDelete, []any{id, "", ""}})
				default:
					v.a = r.IntN(100)
					now[id] = v
					list = append(list, one{engine.OpUpdate, []any{id, v.a, ""}}) // b is large and has not changed
				}
			}
			if i := step / 2; step%2 == 0 && i < pieces {
				taken[i] = map[int]row{}
				for id, v := range now {
					taken[i][id] = v
				}
			}
			if len(list) > 0 {
				f.changes(list...)
			}
			if i := step - pieces; i >= 0 && i < pieces {
				load(i)
			}
		}
		pub := b.publication(f.member, 1)
		pub.Totals = total
		_, err := s.Publish(b.ctx, pub)
		require.NoError(t, err)
		var want []string
		for id := range keys {
			if v, ok := now[id]; ok {
				want = append(want, fmt.Sprintf("(%d,%d,%d)", id, v.a, v.b))
			}
		}
		require.Equal(t, want, b.text(b.dst, "SELECT * FROM t ORDER BY id"), "seed %d", seed)
		// What follows goes to the table itself, and nothing is left beside it.
		f.changes(one{engine.OpInsert, []any{1000, 1, 2}})
		require.EqualValues(t, len(want)+1, b.count(b.dst, "SELECT count(*) FROM t"))
		require.Zero(t, b.count(b.dst, `SELECT count(*) FROM pg_class WHERE relname LIKE '\_tranship\_%delta%'`))
	}
}

// TestChangeConformance is the suite of sinks of changes.
func TestChangeConformance(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t, pgtest.Shared(t))
	b := benchOn(t, url, url)
	reader := b.open(url)
	enginetest.RunChangeSink(t, enginetest.ChangeCase{
		SinkCase: enginetest.SinkCase{
			Spec: New().Spec(),
			Open: func(t *testing.T) engine.SinkSession { t.Helper(); return b.open(url) },
			Rows: func(t *testing.T, target *engine.Target) [][]byte {
				t.Helper()
				return visibleRows(t, b, reader, target)
			},
		},
	})
}
