package enginetest

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/memrow"
	"github.com/tranship-io/tranship/engine/schema"
)

// StreamCase is a source of changes under test.
type StreamCase struct {
	// Open makes a new session on the same source.
	Open func(t *testing.T) engine.SourceSession
	// Decode reads the rows of a wire batch.
	Decode Decoder
	// Table is a table with a key and some rows; Change commits a transaction on it
	// that inserts, updates and deletes, another one with every n. Rows are its rows now,
	// in canonical encoding.
	Table  string
	Change func(t *testing.T, n int)
	Rows   func(t *testing.T) [][]byte
	Write  engine.WriteMode
}

// RunStreamer runs the conformance suite of sources of changes.
func RunStreamer(t *testing.T, c StreamCase) {
	t.Helper()
	t.Run("rows and changes together are the table", func(t *testing.T) { streamWhole(t, c, 0) })
	t.Run("a stream goes on at every mark", func(t *testing.T) {
		for stop := 1; stop <= 3; stop++ {
			streamWhole(t, c, stop)
		}
	})
	t.Run("what is acknowledged is gone", func(t *testing.T) { streamAcknowledged(t, c) })
	t.Run("a dropped stream has lost its place", func(t *testing.T) { streamDropped(t, c) })
}

// streamRun is a planned stream of one member, and what its reads made of a model
// table: the last state of each key.
type streamRun struct {
	t      *testing.T
	c      StreamCase
	s      engine.Streamer
	req    engine.StreamRequest
	member *engine.SourcePlan
	source *engine.SourcePlan
	plan   *engine.StreamPlan
	route  engine.Route
	staged map[string][]byte
	delta  map[string]modelRow
	pos    engine.Position
}

// modelRow is a key's state after its changes; nil fields are gone rows.
type modelRow struct {
	fields  [][]byte
	unsent  []bool
	deleted bool
}

func (c StreamCase) begin(t *testing.T, name string, cursor json.RawMessage) (*streamRun, engine.SourceSession) {
	t.Helper()
	ses := c.Open(t)
	t.Cleanup(func() { require.NoError(t, ses.Close(t.Context())) })
	s, ok := ses.(engine.Streamer)
	require.True(t, ok, "a source that advertises cdc is an engine.Streamer")
	sel := engine.Selection{Resource: c.Table}
	var member json.RawMessage
	if cursor != nil {
		member = json.RawMessage(`{"v":1}`)
	}
	p, err := ses.Plan(t.Context(), engine.PlanRequest{Selection: sel, Read: engine.ReadCDC, Write: c.Write, Slots: 2, Cursor: member})
	require.NoError(t, err)
	require.NotEmpty(t, p.NextCursor, "its rows stand once they are published")
	require.Equal(t, cursor != nil, len(p.Splits) == 0, "rows are read once")
	r := &streamRun{t: t, c: c, s: s, member: p, staged: map[string][]byte{}, delta: map[string]modelRow{},
		route: engine.Route{Installation: "5b0c1e52-8c1f-4b21-a9c7-3f3ad0d54f10", Pipeline: name, Source: ses.Identity(), Sink: "suite"}}
	r.req = engine.StreamRequest{Route: r.route, Members: []engine.StreamMember{{Selection: sel, Write: c.Write, Plan: p, Follows: cursor != nil}}, Cursor: cursor}
	r.source, r.plan, err = s.PlanStream(t.Context(), r.req)
	require.NoError(t, err)
	require.Equal(t, []string{c.Table}, r.plan.Members)
	require.Len(t, r.source.Splits, 1)
	require.NoError(t, s.PrepareStream(t.Context(), r.req, r.source, r.plan))
	require.NoError(t, s.PrepareStream(t.Context(), r.req, r.source, r.plan), "a crash only repeats it")
	r.source.Splits[0].ID, r.source.Splits[0].Resource = engine.StreamResource+"/0.0", engine.StreamResource
	return r, ses
}

func (r *streamRun) wire() engine.WireFormat {
	if len(r.member.Wire) > 0 {
		return r.member.Wire[0]
	}
	return ""
}

// pieces reads all pieces and returns where they ended.
func (r *streamRun) pieces(ses engine.SourceSession, between func(n int)) []engine.Position {
	r.t.Helper()
	var ends []engine.Position
	for i := range r.member.Splits {
		between(i)
		w := &collector{schema: &r.member.Resource.Schema, wire: r.wire(), decode: r.c.Decode}
		res, err := ses.Read(r.t.Context(), engine.ReadRequest{Split: r.member.Splits[i], Plan: r.member,
			Selection: engine.Selection{Resource: r.c.Table}, Wire: r.wire(), BatchBytes: 1 << 16}, w)
		require.NoError(r.t, err)
		require.True(r.t, res.Done)
		w.done()
		for _, row := range w.rows {
			r.staged[r.key(row)] = row
		}
		ends = append(ends, res.End)
	}
	return ends
}

// pass reads the stream up to where the source is; stop > 0 ends every read at that
// mark, and the next one goes on there.
func (r *streamRun) pass(ses engine.SourceSession, stop int) {
	r.t.Helper()
	for n := 0; ; n++ {
		require.Less(r.t, n, 10_000, "the stream catches up")
		w := &collector{schema: &r.member.Resource.Schema, wire: r.wire(), decode: r.c.Decode, stopAt: stop, changes: true}
		res, err := ses.Read(r.t.Context(), engine.ReadRequest{Split: r.source.Splits[0], Plan: r.source, From: r.pos, BatchBytes: 1 << 16,
			Members: map[string]engine.MemberRead{r.c.Table: {Selection: engine.Selection{Resource: r.c.Table}, Plan: r.member, Wire: r.wire()}}}, w)
		require.NoError(r.t, err)
		require.Zero(r.t, w.held, "what is reserved is written or given back")
		if res.Done {
			w.done()
		}
		r.take(w)
		if res.Done {
			require.NotEmpty(r.t, res.End)
			r.pos = res.End
			return
		}
		require.True(r.t, w.stopped, "a read ends early only when it is told to")
		r.pos = w.marks[len(w.marks)-1]
	}
}

func (r *streamRun) key(row []byte) string {
	var key []byte
	for _, k := range r.member.Resource.Schema.Key {
		key = append(key, fieldsOf(&r.member.Resource.Schema, row)[r.member.Resource.Schema.Index(k)]...)
	}
	return string(key)
}

// take applies the changes before the last mark to the model.
func (r *streamRun) take(w *collector) {
	var moved modelRow
	for i, row := range w.rows {
		key, fields := r.key(row), fieldsOf(&r.member.Resource.Schema, row)
		next := modelRow{fields: fields, unsent: make([]bool, len(fields))}
		for c := range fields {
			if u := w.unchanged[i]; len(u) > 0 && u[c/64]&(1<<(c%64)) != 0 {
				next.unsent[c] = true
			}
		}
		base, known := r.delta[key]
		switch w.ops[i] {
		case engine.OpDelete:
			moved, next = base, modelRow{deleted: true}
		case engine.OpTruncate:
			clear(r.delta)
			clear(r.staged)
			continue
		case engine.OpMove:
			base, known = moved, moved.fields != nil
			require.True(r.t, known || !contains(next.unsent), "the suite moves rows whose columns are known")
		}
		for c := range next.unsent {
			if next.unsent[c] && known && !base.deleted {
				next.fields[c], next.unsent[c] = base.fields[c], base.unsent[c]
			}
		}
		r.delta[key] = next
	}
}

func contains(bits []bool) bool {
	for _, b := range bits {
		if b {
			return true
		}
	}
	return false
}

// rows are the model's rows, merged as a sink merges them.
func (r *streamRun) rows() [][]byte {
	var out [][]byte
	for key, row := range r.staged {
		if _, ok := r.delta[key]; !ok {
			out = append(out, row)
		}
	}
	for key, d := range r.delta {
		if d.deleted {
			continue
		}
		var row []byte
		for c, f := range d.fields {
			if d.unsent[c] {
				require.Contains(r.t, r.staged, key, "an unsent column is the staged row's")
				f = fieldsOf(&r.member.Resource.Schema, r.staged[key])[c]
			}
			row = append(row, f...)
		}
		out = append(out, row)
	}
	return out
}

// fieldsOf cuts a canonical row.
func fieldsOf(s *schema.Schema, row []byte) [][]byte {
	out := make([][]byte, len(s.Fields))
	for i := range out {
		out[i] = memrow.Field(row, i)
	}
	return out
}

func streamWhole(t *testing.T, c StreamCase, stop int) {
	t.Helper()
	r, ses := c.begin(t, "suite_whole", nil)
	ends := r.pieces(ses, func(n int) { c.Change(t, n) })
	c.Change(t, 1000)
	settled, err := r.s.Settled(nil, ends)
	require.NoError(t, err)
	require.False(t, settled, "nothing is streamed yet")
	r.pass(ses, stop)
	settled, err = r.s.Settled(r.pos, ends)
	require.NoError(t, err)
	require.True(t, settled, "the stream has passed what the pieces saw")
	RequireSameRows(t, c.Rows(t), r.rows(), "rows and changes together")
	c.Change(t, 1001)
	r.pass(ses, stop)
	RequireSameRows(t, c.Rows(t), r.rows(), "what came after")
	lag, err := r.s.Lag(t.Context(), r.pos)
	require.NoError(t, err)
	require.GreaterOrEqual(t, lag.Bytes, int64(0))
	require.NoError(t, r.s.Acknowledge(t.Context(), r.source.Splits[0], r.pos))
	c.drop(t, r)
}

// drop drops what the case has made at the source.
func (c StreamCase) drop(t *testing.T, r *streamRun) {
	t.Helper()
	all, err := r.s.Streams(t.Context())
	require.NoError(t, err)
	for _, info := range all {
		if info.Pipeline == r.route.Pipeline {
			require.NoError(t, r.s.DropStream(t.Context(), info.Name))
		}
	}
}

// again reads the stream in a new session from a position.
func (c StreamCase) again(t *testing.T, r *streamRun, from engine.Position) error {
	t.Helper()
	ses := c.Open(t)
	t.Cleanup(func() { require.NoError(t, ses.Close(t.Context())) })
	w := &collector{schema: &r.member.Resource.Schema, wire: r.wire(), decode: c.Decode, changes: true}
	_, err := ses.Read(t.Context(), engine.ReadRequest{Split: r.source.Splits[0], Plan: r.source, From: from, BatchBytes: 1 << 16,
		Members: map[string]engine.MemberRead{c.Table: {Selection: engine.Selection{Resource: c.Table}, Plan: r.member, Wire: r.wire()}}}, w)
	return err
}

func streamAcknowledged(t *testing.T, c StreamCase) {
	t.Helper()
	r, ses := c.begin(t, "suite_ack", nil)
	c.Change(t, 0)
	r.pass(ses, 0)
	first := r.pos
	c.Change(t, 1)
	r.pass(ses, 0)
	require.NoError(t, r.s.Acknowledge(t.Context(), r.source.Splits[0], r.pos))
	require.NoError(t, c.again(t, r, r.pos), "what is not acknowledged is there")
	err := c.again(t, r, first)
	require.ErrorIs(t, err, engine.ErrPositionLost)
	require.Equal(t, engine.Permanent, engine.ClassOf(err))
	c.drop(t, r)
}

func streamDropped(t *testing.T, c StreamCase) {
	t.Helper()
	r, ses := c.begin(t, "suite_drop", nil)
	c.Change(t, 0)
	r.pass(ses, 0)
	c.drop(t, r)
	require.ErrorIs(t, c.again(t, r, r.pos), engine.ErrPositionLost)
	_, _, err := r.s.PlanStream(t.Context(), engine.StreamRequest{Route: r.route, Members: r.req.Members, Cursor: r.pos})
	require.ErrorIs(t, err, engine.ErrPositionLost)
	all, err := r.s.Streams(t.Context())
	require.NoError(t, err)
	for _, info := range all {
		require.NotEqual(t, r.route.Pipeline, info.Pipeline)
	}
}
