// Package sim runs the engine under a deterministic scheduler, with in-memory
// source, sink and State, and lets everything go wrong that P1–P15 speak of:
// processes that die, freeze and come back, answers that are lost, destinations
// that crash or are restored, a State that is lost or set back, twins. After
// every step and every run it checks the invariants. The same seed gives the
// same history.
package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tranship-io/tranship/engine"
)

// maxSteps bounds a round: a run that needs more is stuck (invariant 13).
const maxSteps = 4000

// Result is what a seed gave.
type Result struct {
	Seed uint64
	// Violations say what did not hold; none is the right result.
	Violations []string
	// Trace is the seed's history, Hash its sum.
	Trace []string
	Hash  uint64
	Steps int
	// Runs counts completed runs.
	Runs int
	// About describes the scenario.
	About string
}

// Run simulates one seed.
func Run(t *testing.T, seed uint64, mut Mutation) Result {
	t.Helper()
	out := Result{Seed: seed}
	synctest.Test(t, func(*testing.T) {
		s := newSched(seed)
		w := newWorld(s, mut)
		out.About = fmt.Sprintf("%+v", w.sc)
		w.play()
		w.finish()
		out.Violations, out.Trace, out.Hash, out.Steps, out.Runs = w.violations, s.lines, s.hash, s.steps, w.completed
	})
	return out
}

// play runs the scenario's rounds and then, with all faults over, once more.
func (w *world) play() {
	for i := range w.sc.rounds {
		w.s.tell("round %d", i+1)
		f := w.sc.faults
		if !w.round(&f) {
			return
		}
		w.end(false, false)
		for range w.s.between(0, 4) {
			w.mutate()
		}
	}
	// Who was frozen comes back, late, and may do no harm.
	w.s.tell("the frozen wake")
	w.thaw(true)
	none := &faults{}
	// The first run may finish what an earlier one left, the second brings what
	// is new, the third finds nothing to do.
	for i := range 3 {
		for _, tx := range w.open {
			tx.Commit()
		}
		w.open = nil
		for _, r := range w.res {
			w.show(r)
		}
		w.drain(none)
		if w.failed() || !w.round(none) {
			return
		}
		w.end(i > 0, i == 2)
	}
}

// round lets processes run until one has completed a run, and all have ended or
// stand still.
func (w *world) round(f *faults) bool {
	completed := w.completed
	for range maxSteps {
		if w.failed() {
			return false
		}
		if len(w.live()) == 0 {
			w.reap()
			if w.completed > completed {
				return !w.failed()
			}
			w.s.sleep(time.Duration(w.s.between(1, 5000)) * time.Millisecond)
			w.thaw(false)
			w.spawn()
		}
		w.step(f)
	}
	w.violate("invariant 13: the run is stuck: %d steps and no end", maxSteps)
	return false
}

// drain lets the processes that there are come to their ends.
func (w *world) drain(f *faults) {
	for range maxSteps {
		if len(w.live()) == 0 || w.failed() {
			w.reap()
			return
		}
		w.step(f)
	}
	w.violate("invariant 13: processes don't end")
}

func (w *world) step(f *faults) {
	s := w.s
	s.steps++
	s.sleep(time.Duration(s.between(1, 10)) * time.Millisecond)
	w.thaw(false)
	for _, r := range w.res {
		if r.held != nil && s.chance(15) {
			w.show(r)
		}
	}
	w.remember()
	if w.disturb(f) {
		w.look()
		return
	}
	ready := s.ready()
	if len(ready) == 0 {
		s.sleep(time.Duration(s.between(10, 400)) * time.Millisecond)
		w.reap()
		return
	}
	before := w.dst.Version()
	w.advance(ready[s.rng.IntN(len(ready))], f)
	if w.dst.Version() != before {
		w.look()
	}
	w.reap()
}

// reap looks at how processes ended.
func (w *world) reap() {
	for _, p := range w.procs {
		if p.reaped || !p.ended() {
			continue
		}
		p.reaped = true
		if w.sc.locks {
			p.handle.Kill()
		}
		if p.dead.Load() {
			continue
		}
		w.s.tell("p%d ends: %s", p.id, outcome(p))
		if p.err != nil {
			w.s.note("  because %v", p.err)
		}
		if p.err == nil && p.res.Run.State == engine.StateCompleted {
			w.completed++
			w.receipt(p)
		}
		var mismatch *engine.MismatchError
		// A State that changes under a process breaks what the process relies on.
		bug := engine.ClassOf(p.err) == engine.Bug && !p.swapped
		if p.err != nil && (bug || errors.As(p.err, &mismatch)) {
			w.violate("p%d: %v", p.id, p.err)
		}
	}
}

func outcome(p *proc) string {
	if p.err != nil {
		return string(engine.ClassOf(p.err))
	}
	return string(p.res.Run.State)
}

// finish kills what is left so that the bubble can end.
func (w *world) finish() {
	for _, p := range w.procs {
		if !p.ended() {
			w.kill(p)
		}
	}
	for range 100 {
		w.s.sleep(time.Minute)
		left := 0
		for _, p := range w.procs {
			if !p.ended() {
				w.s.drop(p)
				left++
			}
		}
		if left == 0 {
			return
		}
	}
}

// Seeds returns n seeds from a base, spread so that neighbours don't resemble.
func Seeds(base uint64, n int) []uint64 {
	r := rand.New(rand.NewPCG(base, base))
	out := make([]uint64, n)
	for i := range out {
		out[i] = r.Uint64() >> 1
	}
	return out
}
