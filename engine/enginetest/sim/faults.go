package sim

import (
	"strings"
	"time"

	"github.com/tranship-io/tranship/engine"
)

// disturb lets something happen to the world, and tells whether it did.
func (w *world) disturb(f *faults) bool {
	s := w.s
	if f.changes > 0 && s.chance(6) {
		f.changes--
		w.mutate()
		return true
	}
	switch {
	case f.budget <= 0:
		return false
	case s.chance(f.mutate):
		w.mutate()
	case s.chance(f.sinkCrash):
		s.tell("destination: crashes")
		w.dst.Crash()
		s.sleep(0)
	case s.chance(f.sourceCrash):
		s.tell("source: restarts")
		w.src.Crash()
	case w.sc.stream && s.chance(f.slotLoss):
		s.tell("source: keeps no more log")
		w.src.LoseSlots()
	case s.chance(f.sinkRestore) && len(w.backups) > 0:
		i := s.rng.IntN(len(w.backups))
		s.tell("destination: restored to backup %d", i)
		w.lost = true
		w.dst.Restore(w.backups[i])
		w.backups = w.backups[:i+1]
		s.sleep(0)
	case s.chance(f.stateLoss) && w.dst.Knows():
		// With both ends empty nobody is left to say that the route exists (P1).
		w.killLive()
		s.tell("state: lost")
		w.swapState(func() {
			w.newState()
			w.snapshots = nil
		})
	case s.chance(f.stateRestore) && len(w.snapshots) > 0:
		w.killLive()
		i := s.rng.IntN(len(w.snapshots))
		s.tell("state: restored to snapshot %d", i)
		w.swapState(func() {
			w.newState()
			w.state.Restore(w.snapshots[i])
			w.snapshots = w.snapshots[:i+1]
		})
	case s.chance(f.twin) && len(w.live()) < 3:
		w.spawn()
	default:
		return false
	}
	f.budget--
	return true
}

// remember takes copies that a later fault may go back to.
func (w *world) remember() {
	if w.s.chance(25) {
		w.backups = append(w.backups, w.dst.Backup())
		w.s.tell("destination: backup %d", len(w.backups)-1)
	}
	if w.s.chance(25) {
		w.snapshots = append(w.snapshots, w.state.Snapshot())
		w.s.tell("state: snapshot %d", len(w.snapshots)-1)
	}
}

func (w *world) killLive() {
	for _, p := range w.live() {
		w.s.tell("p%d is killed", p.id)
		w.kill(p)
	}
}

// swapState puts another State in place. Frozen processes keep the one that
// they have open, or see the new one. Two States that go on side by side are no
// fault but a wrong use: who is not past the freeze of its plan, which fences it,
// does not keep a State that was lost.
func (w *world) swapState(swap func()) {
	swap()
	for _, p := range w.procs {
		switch {
		case p.frozen == 0:
		case !w.sc.oldState:
			p.handle, p.swapped = w.handle(), true
			p.state.State = w.mut.state(p.handle)
		case p.frozenPlan.Load():
			p.old = true
		default:
			w.s.tell("p%d is killed: its State is gone", p.id)
			w.kill(p)
		}
	}
}

// advance lets one parked call go on, or something go wrong with it.
func (w *world) advance(k *parked, f *faults) {
	s := w.s
	if k.proc.old && k.call.Op == "state.start" {
		s.tell("p%d would begin anew on a State that is gone", k.proc.id)
		w.kill(k.proc)
		return
	}
	if k.ctx.Err() != nil {
		// Its caller gave up; the effect may have happened all the same.
		s.release(k, verdict{run: s.chance(2), err: k.ctx.Err()}, "canceled")
		return
	}
	if f.budget > 0 {
		f.budget--
		switch {
		case s.chance(f.crash):
			run := s.chance(2)
			k.proc.dead.Store(true)
			k.proc.cancel()
			s.release(k, verdict{run: run, err: errDead}, "dies here, effect "+yes(run))
			w.kill(k.proc)
			return
		case s.chance(f.freeze):
			k.proc.frozen = 1
			k.proc.wake = time.Now().Add(time.Duration(s.between(1, 100)) * time.Second)
			s.tell("p%d freezes at %s %s", k.proc.id, k.call.Op, k.call.Subject)
			return
		case s.chance(f.fail):
			s.release(k, verdict{err: engine.Retryablef("%s: %w", k.call.Op, errLost)}, "fails")
			return
		case s.chance(f.failAfter):
			err := engine.Retryablef("%s: %w", k.call.Op, errLost)
			if strings.HasSuffix(k.call.Op, "commit") {
				err = engine.Retryablef("%s: %w", k.call.Op, errUnknown)
			}
			s.release(k, verdict{run: true, err: err}, "is done, its answer lost")
			return
		case s.chance(f.delay):
			s.tell("p%d waits at %s", k.proc.id, k.call.Op)
			s.sleep(time.Duration(s.between(1, 3000)) * time.Millisecond)
			return
		}
		f.budget++
	}
	s.release(k, verdict{run: true}, "")
}

func yes(b bool) string {
	if b {
		return "done"
	}
	return "undone"
}

// thaw wakes the processes whose time has come; all of them if forced.
func (w *world) thaw(all bool) {
	for _, p := range w.procs {
		if p.frozen == 1 && (all || !time.Now().Before(p.wake)) {
			w.s.tell("p%d wakes", p.id)
			p.frozen = 0
		}
	}
}
