package runner

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
)

func newFeed(b *bounds, bytes int64, d time.Duration) *feed {
	return &feed{budget: newBudget(1 << 20), bounds: b, items: make(chan item, 64), progress: new(ResourceProgress), epochBytes: bytes, epochTime: d, since: time.Now()}
}

func (f *feed) put(t *testing.T, rows, skipped int, bytes int64) {
	t.Helper()
	require.NoError(t, f.Reserve(t.Context(), bytes))
	require.NoError(t, f.Write(t.Context(), &engine.Batch{Rows: rows, Skipped: skipped, Bytes: bytes, Wire: make([]byte, bytes)}))
}

// ends drains what was fed and returns its cuts.
func (f *feed) ends() []*cut {
	var out []*cut
	for {
		select {
		case it := <-f.items:
			if it.end != nil {
				out = append(out, it.end)
			}
		default:
			return out
		}
	}
}

func TestEpochsEndAtMarks(t *testing.T) {
	f := newFeed(&bounds{}, 100, time.Hour)
	f.put(t, 1, 0, 60)
	require.NoError(t, f.Mark(t.Context(), json.RawMessage("1")))
	require.Empty(t, f.ends(), "60 bytes are not enough")
	f.put(t, 1, 0, 60)
	require.Empty(t, f.ends(), "only a mark ends an epoch")
	require.NoError(t, f.Mark(t.Context(), json.RawMessage("2")))
	ends := f.ends()
	require.Len(t, ends, 1)
	require.Equal(t, "2", string(ends[0].pos))
	require.False(t, ends[0].last)
	require.NoError(t, f.Mark(t.Context(), json.RawMessage("3")))
	require.Empty(t, f.ends(), "nothing came since")
}

func TestEpochsEndByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed(&bounds{}, 1<<30, 15*time.Second)
		f.put(t, 0, 3, 0)
		time.Sleep(14 * time.Second)
		require.NoError(t, f.Mark(t.Context(), nil))
		require.Empty(t, f.ends())
		time.Sleep(2 * time.Second)
		require.NoError(t, f.Mark(t.Context(), nil))
		require.Len(t, f.ends(), 1, "skipped rows are progress too")
	})
}

func TestBoundariesEndReadingAtTheNextMark(t *testing.T) {
	for name, c := range map[string]struct {
		bounds *bounds
		reach  func(*bounds)
		reason string
	}{
		"rows":     {&bounds{rows: 3}, nil, "rows"},
		"bytes":    {&bounds{bytes: 50}, nil, "bytes"},
		"deadline": {&bounds{deadline: time.Now().Add(-time.Second)}, nil, "deadline"},
		"stop":     {&bounds{}, func(b *bounds) { b.Stop("stop"); b.Stop("pause") }, "stop"},
	} {
		t.Run(name, func(t *testing.T) {
			b := c.bounds
			f := newFeed(b, 1<<30, time.Hour)
			f.put(t, 3, 0, 60)
			if c.reach != nil {
				c.reach(b)
			}
			require.ErrorIs(t, f.Mark(t.Context(), json.RawMessage("7")), engine.ErrBoundary)
			ends := f.ends()
			require.Len(t, ends, 1)
			require.True(t, ends[0].last)
			require.Equal(t, "7", string(ends[0].pos))
			reason, reached := b.reached()
			require.True(t, reached)
			require.Equal(t, c.reason, reason)
		})
	}
}

func TestReceiptsMustAddUp(t *testing.T) {
	end := engine.EpochEnd{Rows: 10, CRC: 7}
	require.NoError(t, checkReceipt("r", "r/0.0", end, &engine.Receipt{Applied: 6, Superseded: 1, Skipped: 1, SetAside: 2, CRC: 7}))
	var m *engine.MismatchError
	require.ErrorAs(t, checkReceipt("r", "r/0.0", end, &engine.Receipt{Applied: 9, CRC: 7}), &m)
	require.Equal(t, "rows", m.What)
	require.ErrorAs(t, checkReceipt("r", "r/0.0", end, &engine.Receipt{Applied: 10, CRC: 8}), &m)
	require.Equal(t, "crc", m.What)
	require.Contains(t, m.Error(), "r/0.0")
}

func TestTriesAreBoundedByTimeAndNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTry(Settings{GiveUp: time.Minute, MinTries: 4, Jitter: -1})
		began := time.Now()
		n := 0
		for {
			wait, again := tr.next()
			if !again {
				break
			}
			n++
			time.Sleep(wait)
		}
		require.GreaterOrEqual(t, time.Since(began), time.Minute)
		require.Less(t, time.Since(began), 80*time.Second)
		require.Greater(t, n, 8)
	})
}

func TestCursorsAreComparedByValue(t *testing.T) {
	same := func(a, b string) bool { return engine.SameJSON(json.RawMessage(a), json.RawMessage(b)) }
	require.True(t, same(`{"a":1,"b":[2]}`, ` {"b": [2], "a":1}`))
	require.False(t, same(`9007199254740993`, `9007199254740992`), "no float64 in between")
	require.True(t, same(``, ``))
	require.False(t, same(``, `null`))
}
