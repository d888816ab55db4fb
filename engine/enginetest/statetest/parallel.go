package statetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

var parallelTests = map[string]func(*world){
	"eight slots do each split once": func(w *world) {
		t := w.t
		const slots, epochs = 8, 3
		run, main := w.begin(t, resource("a", 9), resource("b", 5), resource("c", 0))
		owners := sync.Map{}
		published := sync.Map{}
		var facts atomic.Int64
		work := func(l engine.Lease) error {
			for {
				c, err := w.ClaimSplit(w.ctx, l.Fence, nil)
				if errors.Is(err, engine.ErrSplitDone) {
					return nil
				}
				if err != nil {
					return err
				}
				if c == nil {
					time.Sleep(time.Millisecond)
					continue
				}
				if other, taken := owners.LoadOrStore(c.ID, l.Slot); taken {
					return fmt.Errorf("slot %d claimed %s, which slot %v owns", l.Slot, c.ID, other)
				}
				if c.Kind == engine.SplitPublish {
					if _, twice := published.LoadOrStore(c.ID, true); twice {
						return fmt.Errorf("%s was published twice", c.ID)
					}
				}
				if err := w.workOn(l, c, epochs, &facts); err != nil {
					return err
				}
				owners.Delete(c.ID)
				if c.Kind == engine.SplitRead && c.Epoch == 0 {
					// Interrupted once, to be claimed again by whoever comes.
					if err := w.ReturnSplit(w.ctx, l.Fence, c.ID, c.Claim); err != nil {
						return err
					}
				}
			}
		}
		var wg sync.WaitGroup
		for slot := range slots {
			l := main
			if slot > 0 {
				l = w.acquire(t, run, slot)
			}
			wg.Go(func() {
				if err := work(l); err != nil {
					t.Errorf("slot %d: %v", l.Slot, err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		all := must(w.Splits(w.ctx, run.ID))(t)
		require.Len(t, all, 9+5+0+3)
		for _, s := range all {
			require.True(t, s.Done, s.ID)
			if s.Kind == engine.SplitRead {
				require.EqualValues(t, 2*epochs, s.Epoch, s.ID)
				require.EqualValues(t, 2*epochs, s.Totals.Read, s.ID)
				require.EqualValues(t, 2, s.Claim, s.ID)
			}
		}
		require.Len(t, w.facts(t, run.ID), int(facts.Load()))
		require.Len(t, must(w.Artifacts(w.ctx, run.ID, "a"))(t), 9*2*epochs)
	},
}

// workOn commits some epochs of a split; a second visit ends it.
func (w *world) workOn(l engine.Lease, c *engine.ClaimedSplit, epochs int64, facts *atomic.Int64) error {
	second := c.Epoch > 0
	if c.Kind == engine.SplitPublish {
		return w.CommitPublish(w.ctx, l.Fence, engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: 1}, json.RawMessage(`1`), nil)
	}
	for n := range epochs {
		f, err := events.New(l.RunID, time.Now(), events.EpochCommitted{Split: c.ID, Epoch: c.Epoch + n + 1})
		if err != nil {
			return err
		}
		epoch := c.Epoch + n + 1
		p := engine.Progress{Split: c.ID, Claim: c.Claim, Epoch: epoch, Done: second && n == epochs-1, Totals: engine.Totals{Read: epoch},
			Artifacts: []engine.Artifact{{Name: fmt.Sprintf("%s-%d", c.ID, epoch), Split: c.ID}}, Facts: []events.Fact{f}}
		if err := w.Commit(w.ctx, l.Fence, p); err != nil {
			return err
		}
		facts.Add(1)
	}
	return nil
}
