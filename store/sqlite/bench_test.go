package sqlite_test

import (
	"encoding/json"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
	"github.com/tranship-io/tranship/store/sqlite"
)

// BenchmarkCommit measures a checkpoint as the attempt loop stores it, its sync
// to the disk included: fence, claim, position, totals and two facts.
func BenchmarkCommit(b *testing.B) {
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "state.db"))
	require.NoError(b, err)
	defer s.Close()
	l, split := prepareRun(b, s, 1)
	c := split[0]
	for b.Loop() {
		c.Epoch++
		require.NoError(b, s.Commit(b.Context(), l.Fence, step(b, l, c)))
	}
}

// BenchmarkCommitSlots measures the same from eight slots at once.
func BenchmarkCommitSlots(b *testing.B) {
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "state.db"))
	require.NoError(b, err)
	defer s.Close()
	l, splits := prepareRun(b, s, 8)
	var next atomic.Int64
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		c := *splits[(next.Add(1)-1)%8]
		for pb.Next() {
			c.Epoch++
			if err := s.Commit(b.Context(), l.Fence, step(b, l, &c)); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkClaim measures claiming among many splits.
func BenchmarkClaim(b *testing.B) {
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "state.db"))
	require.NoError(b, err)
	defer s.Close()
	l, splits := prepareRun(b, s, 1000)
	for _, c := range splits[:990] {
		c.Epoch++
		p := step(b, l, c)
		p.Done = true
		require.NoError(b, s.Commit(b.Context(), l.Fence, p))
	}
	for _, c := range splits[990:] {
		require.NoError(b, s.ReturnSplit(b.Context(), l.Fence, c.ID, c.Claim))
	}
	for b.Loop() {
		c, err := s.ClaimSplit(b.Context(), l.Fence, nil)
		require.NoError(b, err)
		require.NoError(b, s.ReturnSplit(b.Context(), l.Fence, c.ID, c.Claim))
	}
}

func step(tb testing.TB, l engine.Lease, c *engine.ClaimedSplit) engine.Progress {
	tb.Helper()
	p := engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: c.Epoch, Position: json.RawMessage(`{"after":["1234567"]}`), Totals: engine.Totals{Read: c.Epoch}}
	for _, body := range []events.Payload{events.EpochCommitted{Split: c.ID, Epoch: c.Epoch}, events.CheckpointSaved{Split: c.ID, Epoch: c.Epoch}} {
		f, err := events.New(l.RunID, time.Now(), body)
		require.NoError(tb, err)
		p.Facts = append(p.Facts, f)
	}
	return p
}
