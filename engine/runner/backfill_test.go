package runner_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/memsink"
	"github.com/tranship-io/tranship/engine/runner"
	"github.com/tranship-io/tranship/engine/schema"
)

// timed makes a table whose column u is the time of the transaction.
func (d *desk) timed(write engine.WriteMode) {
	d.src.Create("a", schema.Schema{Key: []string{"id"}, Fields: []schema.Field{
		{Name: "id", Type: schema.Type{Kind: schema.Int64}}, {Name: "u", Type: schema.Type{Kind: schema.Int64}}, {Name: "v", Type: schema.Type{Kind: schema.String}}}})
	d.o.Resources = []runner.ResourceRequest{{Selection: engine.Selection{Resource: "a", Cursor: "u"}, Read: engine.ReadIncremental, Write: write}}
}

// put writes a row and returns its cursor's value.
func (d *desk) put(id int, text string) int64 {
	tx := d.src.Begin()
	at := tx.Now()
	tx.Put("a", int64(id), at, text)
	tx.Commit()
	return at
}

// TestBackfillMovesNoCursor: rows that the target has lost are read again by their
// range, and the next run goes on where it would have gone on.
func TestBackfillMovesNoCursor(t *testing.T) {
	for _, write := range []engine.WriteMode{engine.WriteUpsert, engine.WriteAppend} {
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(t, memsink.Options{})
			d.timed(write)
			at := make([]int64, 20)
			for i := range at {
				at[i] = d.put(i, fmt.Sprint("row ", i))
			}
			_, err := d.run(t.Context())
			require.NoError(t, err)
			d.has("a", 1)

			d.put(20, "after the run")
			d.o.Resources[0].Range = &engine.CursorRange{From: fmt.Sprint(at[5]), To: fmt.Sprint(at[9])}
			res, err := d.run(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 5, res.Receipt.Resources[0].RowsRead)
			if write == engine.WriteAppend {
				require.Zero(t, res.Receipt.Resources[0].RowsWritten, "what is there is left out")
			}

			d.o.Resources[0].Range = nil
			res, err = d.run(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 1, res.Receipt.Resources[0].RowsWritten, "the row after the first run")
			d.has("a", 1)
		})
	}
}

func TestBackfillNeedsAnIncrementalResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, memsink.Options{})
		d.table("a", 3, engine.WriteReplace, engine.ConsistencyChunked)
		d.o.Resources[0].Range = &engine.CursorRange{From: "1"}
		_, err := d.run(t.Context())
		require.Equal(t, engine.Permanent, engine.ClassOf(err))
		require.ErrorContains(t, err, "it is read in mode full")
	})
}
