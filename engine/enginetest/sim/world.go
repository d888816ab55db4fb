package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/memsink"
	"github.com/tranship-io/tranship/engine/enginetest/memsource"
	"github.com/tranship-io/tranship/engine/enginetest/memstate"
	"github.com/tranship-io/tranship/engine/runner"
)

// destination is what both kinds of in-memory sinks have for a simulation.
type destination interface {
	Rows(name string) (rows []memsink.Row, replacedBy string)
	Version() int64
	Staging() []string
	Knows() bool
	Backup() any
	Restore(any)
	Crash()
}

var (
	_ destination = (*memsink.DB)(nil)
	_ destination = (*memsink.Objects)(nil)
)

// world is everything that a seed's processes share.
type world struct {
	s   *sched
	sc  scenario
	mut Mutation
	res []*resource
	src *memsource.DB
	dst destination

	state     *memstate.Store
	ids       uint64
	snapshots []any
	backups   []any
	open      []*memsource.Tx
	procs     []*proc
	nextProc  int
	stop      chan struct{}

	// lost is true once the destination was set back: only then may a checkpoint
	// be ahead of it.
	lost bool

	mu         sync.Mutex
	violations []string
	published  map[string]publication
	plans      map[string]*engine.ResourcePlan
	completed  int
}

// publication is what the reader may see from a publish on.
type publication struct {
	plan *engine.ResourcePlan
	// from and to are the source's versions at plan and publish.
	from, to int64
}

// proc is one simulated process: one call of [runner.Run].
type proc struct {
	id     int
	w      *world
	sched  *sched
	state  *gatedState
	handle *memstate.Store
	cancel context.CancelFunc
	// dead: killed. frozen: 1 while it stands still until wake.
	dead   atomic.Bool
	frozen int
	wake   time.Time
	// frozenPlan is true once the process has a frozen plan; old, when its State
	// is not the world's any more; swapped, when it was exchanged under it.
	frozenPlan atomic.Bool
	old        bool
	swapped    bool

	done chan struct{}
	// After done.
	res *runner.Result
	err error
	// reaped is true once its end was looked at.
	reaped bool
}

func newWorld(s *sched, mut Mutation) *world {
	w := &world{s: s, sc: draw(s, mut.Streams), mut: mut, published: map[string]publication{}, plans: map[string]*engine.ResourcePlan{}, stop: make(chan struct{})}
	w.res = w.sc.resources()
	w.sc.source.Broken = mut.Source
	w.src = memsource.New(w.sc.source)
	opt := w.sc.sink
	opt.Broken, opt.Observe = mut.Sink, w.committing
	if w.sc.objects {
		w.dst = memsink.NewObjects(opt)
	} else {
		w.dst = memsink.New(opt)
	}
	w.newState()
	for _, r := range w.res {
		w.src.Create(r.table, tableSchema())
		w.fill(r, s.between(0, 10))
	}
	return w
}

func (w *world) newState() {
	w.state = memstate.New(memstate.Options{NewID: w.newID})
}

// newID makes ids that are the same whenever the seed is.
func (w *world) newID() uuid.UUID {
	n := atomic.AddUint64(&w.ids, 1)
	id := uuid.UUID{6: 0x70, 8: 0x80}
	binary.BigEndian.PutUint64(id[8:], n|1<<63)
	return id
}

// handle is a process's handle of the State. With leases only, as in a shared
// database, all have the same; with the locks of an operating system each its own.
func (w *world) handle() *memstate.Store {
	if w.sc.locks {
		return w.state.Process()
	}
	return w.state
}

// fill inserts rows.
func (w *world) fill(r *resource, n int) {
	for range n {
		tx := w.src.Begin()
		w.insert(tx, r)
		tx.Commit()
	}
}

func (w *world) insert(tx *memsource.Tx, r *resource) {
	r.nextKey++
	var u any = tx.Now()
	if r.read == engine.ReadIncremental && w.s.chance(12) {
		u = nil
	}
	tx.Put(r.table, r.nextKey, u, fmt.Sprintf("%s-%d-%d", r.table, r.nextKey, tx.Now()))
}

// mutate changes the source: what may change depends on what the mode promises.
func (w *world) mutate() {
	r := w.res[w.s.rng.IntN(len(w.res))]
	if r.read == engine.ReadCDC {
		w.change(r)
		return
	}
	if len(w.open) > 0 && w.s.chance(2) {
		tx := w.open[0]
		w.open = w.open[1:]
		w.s.tell("source: a transaction of %d commits as version %d", tx.Now(), tx.Commit())
		return
	}
	tx := w.src.Begin()
	rows := w.src.Rows(r.table, w.src.Version())
	switch {
	case len(rows) == 0 || r.write == engine.WriteDelete || r.name == "appendinc" || w.s.chance(2):
		w.insert(tx, r)
	case r.write == engine.WriteUpsert || w.s.chance(2):
		row := rows[w.s.rng.IntN(len(rows))]
		tx.Put(r.table, row.Ord, tx.Now(), fmt.Sprintf("%s-%d-%d", r.table, row.Ord, tx.Now()))
	default:
		tx.Delete(r.table, rows[w.s.rng.IntN(len(rows))].Ord)
	}
	if w.sc.late && r.read == engine.ReadIncremental && w.s.chance(2) {
		w.s.tell("source: a transaction of %d stays open in %s", tx.Now(), r.table)
		w.open = append(w.open, tx)
		return
	}
	w.s.tell("source: %s changes in version %d", r.table, tx.Commit())
}

// spawn starts a process.
func (w *world) spawn() {
	w.nextProc++
	p := &proc{id: w.nextProc, w: w, sched: w.s, done: make(chan struct{})}
	p.handle = w.handle()
	p.state = &gatedState{State: w.mut.state(p.handle), p: p}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	w.procs = append(w.procs, p)
	w.s.tell("p%d starts", p.id)
	o := runner.Options{
		State: p.state, Pipeline: "sim", Version: "v1", Settings: w.sc.set, Stop: w.stop, Holder: fmt.Sprintf("p%d", p.id),
		OpenSource: func(ctx context.Context, opt engine.OpenOptions) (engine.SourceSession, error) {
			return (&memsource.Source{DB: w.src, Gate: p.gate}).Open(ctx, nil, opt)
		},
		OpenSink: p.openSink,
	}
	for _, r := range w.res {
		o.Resources = append(o.Resources, r.request())
	}
	go func() {
		defer close(p.done)
		p.res, p.err = runner.Run(ctx, o)
	}()
	synctest.Wait()
}

func (p *proc) openSink(ctx context.Context, opt engine.OpenOptions) (engine.SinkSession, error) {
	switch db := p.w.dst.(type) {
	case *memsink.DB:
		ses, err := (&memsink.Sink{DB: db, Gate: p.gate}).Open(ctx, nil, opt)
		if err != nil {
			return nil, err
		}
		return p.w.mut.sink(ses, p.state), nil
	case *memsink.Objects:
		return (&memsink.ObjectSink{DB: db, Gate: p.gate}).Open(ctx, nil, opt)
	}
	return nil, engine.Bugf("unknown destination")
}

// ended tells whether the process has returned.
func (p *proc) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// live are the processes that run and are not frozen.
func (w *world) live() []*proc {
	var out []*proc
	for _, p := range w.procs {
		if !p.ended() && !p.dead.Load() && p.frozen == 0 {
			out = append(out, p)
		}
	}
	return out
}

// kill ends a process: what it waits for is answered, and nothing of it has an
// effect any more. Its servers notice, since its sessions close.
func (w *world) kill(p *proc) {
	p.dead.Store(true)
	p.frozen = 0
	p.cancel()
	if w.sc.locks {
		p.handle.Kill()
	}
	w.s.drop(p)
}
