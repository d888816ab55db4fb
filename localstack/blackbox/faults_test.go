package blackbox

import (
	"testing"
	"time"
)

// TestBadDays breaks services below runs that go on. It is not parallel: what it
// breaks belongs to all.
func TestBadDays(t *testing.T) {
	c := admin(t)
	slow := settings{slow: true, pipeline: map[string]any{"epoch_size": "64KiB"}}
	t.Run("every message twice and late", func(t *testing.T) {
		faults(t, rigWorld.sqs, map[string]any{"duplicate": true, "shuffle": 3})
		p := (&client{t: t, key: c.key}).pipe(2_000, slow)
		p.complete(p.start(), 4*time.Minute)
		id := p.start()
		p.wait(id, 4*time.Minute, "completed")
		p.equal(2)
	})
	t.Run("SQS answers 500 for a while", func(t *testing.T) {
		p := (&client{t: t, key: c.key}).pipe(5_000, slow)
		id := p.start()
		p.wait(id, time.Minute, "running", "completed")
		t.Run("while", func(t *testing.T) {
			faults(t, rigWorld.sqs, map[string]any{"fail": true})
			time.Sleep(10 * time.Second)
		})
		sweepOften(t)
		p.complete(id, 4*time.Minute)
	})
	t.Run("a command is lost", func(t *testing.T) {
		faults(t, rigWorld.sqs, map[string]any{"lose": 1, "only": "tranship-attempts"})
		p := (&client{t: t, key: c.key}).pipe(500, slow)
		sweepOften(t)
		p.complete(p.start(), 5*time.Minute)
	})
	consistent(t)
}
