package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/gate"
)

// errDead is what a process sees that is no more: nothing of it has an effect.
var errDead = engine.Permanentf("", "this process is dead")

// verdict is what the scheduler decided about a parked call.
type verdict struct {
	// run lets the effect happen; err, if set, is answered instead of success.
	run bool
	err error
}

// parked is a call at a gate.
type parked struct {
	proc    *proc
	call    gate.Call
	ctx     context.Context
	verdict chan verdict
}

// sched lets exactly one parked call go on at a time, chosen by the seed, once
// every goroutine of the bubble has come to rest. The order in which calls park
// has no influence: they are sorted by process and name.
type sched struct {
	rng   *rand.Rand
	start time.Time

	mu     sync.Mutex
	parked []*parked

	steps int
	hash  uint64
	lines []string
}

func newSched(seed uint64) *sched {
	return &sched{rng: rand.New(rand.NewPCG(seed, 0x7472616e73686970)), start: time.Now(), hash: 14695981039346656037}
}

// gate is the gate of a process: see [gate.Func].
func (p *proc) gate(ctx context.Context, c gate.Call, effect func() error) error {
	if p.dead.Load() {
		return errDead
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	k := &parked{proc: p, call: c, ctx: ctx, verdict: make(chan verdict)}
	p.sched.mu.Lock()
	p.sched.parked = append(p.sched.parked, k)
	p.sched.mu.Unlock()
	v := <-k.verdict
	if v.run {
		if err := effect(); err != nil {
			return err
		}
	}
	return v.err
}

// ready returns the parked calls that may go on now, in an order that only the
// seed's history decides.
func (s *sched) ready() []*parked {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*parked, 0, len(s.parked))
	for _, k := range s.parked {
		if k.proc.frozen == 0 {
			out = append(out, k)
		}
	}
	slices.SortStableFunc(out, func(a, b *parked) int {
		return cmp.Or(cmp.Compare(a.proc.id, b.proc.id), strings.Compare(a.call.Op, b.call.Op), strings.Compare(a.call.Subject, b.call.Subject))
	})
	return out
}

// release lets a call go on and waits until everything rests again.
func (s *sched) release(k *parked, v verdict, note string) {
	s.mu.Lock()
	s.parked = slices.DeleteFunc(s.parked, func(o *parked) bool { return o == k })
	s.mu.Unlock()
	s.tell("p%d %s %s %s", k.proc.id, k.call.Op, k.call.Subject, note)
	k.verdict <- v
	synctest.Wait()
}

// drop answers every parked call of a dead process.
func (s *sched) drop(p *proc) {
	s.mu.Lock()
	var mine []*parked
	s.parked = slices.DeleteFunc(s.parked, func(k *parked) bool {
		if k.proc == p {
			mine = append(mine, k)
		}
		return k.proc == p
	})
	s.mu.Unlock()
	for _, k := range mine {
		k.verdict <- verdict{err: errDead}
	}
	synctest.Wait()
}

// tell adds a line to the trace.
func (s *sched) tell(format string, args ...any) {
	line := fmt.Sprintf("%7.2fs ", time.Since(s.start).Seconds()) + fmt.Sprintf(format, args...)
	h := fnv.New64a()
	_, _ = h.Write([]byte(line))
	s.hash = (s.hash ^ h.Sum64()) * 1099511628211
	s.lines = append(s.lines, line)
}

// note adds a line to the trace that is not part of its hash: ids are random.
func (s *sched) note(format string, args ...any) {
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

// sleep lets time pass, and with it heartbeats and retries.
func (s *sched) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// chance is true once in n times; never for n = 0.
func (s *sched) chance(n int) bool { return n > 0 && s.rng.IntN(n) == 0 }

// between draws a number from lo to hi.
func (s *sched) between(lo, hi int) int { return lo + s.rng.IntN(hi-lo+1) }

// errLost is a connection that broke; errUnknown one that broke in a commit.
var (
	errLost    = errors.New("connection lost")
	errUnknown = fmt.Errorf("connection lost: %w", engine.ErrCommitUnknown)
)
