package blackbox

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestKilledWorkers(t *testing.T) {
	t.Parallel()
	sweepOften(t)
	c := admin(t)
	var pipes []*pipe
	var ids []string
	for i := range 4 {
		p := c.pipe(20_000, settings{
			slow: true, write: []string{"append", "upsert"}[i%2],
			pipeline: map[string]any{"epoch_size": "64KiB", "split_size": "256KiB"},
		})
		pipes, ids = append(pipes, p), append(ids, p.start())
	}
	killed := 0
	deadline := time.Now().Add(12 * time.Minute)
	for killed < 20 {
		require.True(t, time.Now().Before(deadline), "only %d workers were killed", killed)
		for i, id := range ids {
			r := pipes[i].run(id)
			pipes[i].resumed(id, r)
			if r.text("state") == "completed" {
				pipes[i].equal(pipes[i].times())
				pipes[i].done++
				ids[i] = pipes[i].start()
			}
		}
		running := environments(t, "worker", "running")
		if len(running) == 0 {
			time.Sleep(200 * time.Millisecond)
			continue
		}
		victim := running[rand.IntN(len(running))]
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Millisecond)
		if rigWorld.core.Kill(t.Context(), victim.ID) == nil {
			killed++
		}
	}
	for i, id := range ids {
		p := pipes[i]
		require.Eventually(t, func() bool {
			r := p.run(id)
			p.resumed(id, r)
			return r.text("state") == "completed"
		}, 6*time.Minute, time.Second)
		p.equal(p.times())
		facts := p.facts(id)
		require.Equal(t, 1, count(facts, "run.started"))
		require.Equal(t, 1, count(facts, "run.completed"))
	}
	consistent(t)
}
