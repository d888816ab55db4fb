package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/memsink"
	"github.com/tranship-io/tranship/engine/enginetest/memsource"
	"github.com/tranship-io/tranship/engine/runner"
	"github.com/tranship-io/tranship/engine/schema"
)

// kind is a way to replicate a resource.
type kind struct {
	name        string
	read        engine.ReadMode
	write       engine.WriteMode
	consistency engine.Consistency
	// objects tells whether a store of objects can do it too.
	objects bool
}

var kinds = []kind{
	{"replace", engine.ReadFull, engine.WriteReplace, engine.ConsistencyChunked, true},
	{"replacesnap", engine.ReadFull, engine.WriteReplace, engine.ConsistencySnapshot, true},
	{"append", engine.ReadFull, engine.WriteAppend, engine.ConsistencyChunked, true},
	{"appendsnap", engine.ReadFull, engine.WriteAppend, engine.ConsistencySnapshot, true},
	{"upsertinc", engine.ReadIncremental, engine.WriteUpsert, "", false},
	{"appendinc", engine.ReadIncremental, engine.WriteAppend, "", true},
	{"delete", engine.ReadFull, engine.WriteDelete, engine.ConsistencyChunked, false},
}

// changing are the kinds that a change stream replicates.
var changing = []kind{
	{"merge", engine.ReadCDC, engine.WriteMerge, "", false},
	{"merge", engine.ReadCDC, engine.WriteMerge, "", false},
	{"changelog", engine.ReadCDC, engine.WriteAppend, "", false},
}

// faults are how often, once in n picks, something goes wrong; 0 means never.
type faults struct {
	crash, freeze, fail, failAfter, delay int
	sinkCrash, sinkRestore, sourceCrash   int
	stateLoss, stateRestore               int
	twin, mutate, slotLoss                int
	// changes is how often the source of a change stream changes in a round.
	changes int
	// budget bounds the faults of a round, so that every round ends.
	budget int
}

// scenario is what a seed decides before anything runs.
type scenario struct {
	objects bool
	kinds   []kind
	rounds  int
	faults  faults
	set     runner.Settings
	source  memsource.Options
	sink    memsink.Options
	// oldState lets zombies keep the State that was lost, as an open file does.
	oldState bool
	// locks: a State file with the locks of an operating system, which a process
	// loses when it dies; otherwise leases alone decide.
	locks bool
	// stream: the resources are replicated by their changes.
	stream bool
	// late lets source transactions commit after runs that began later.
	late bool
}

func draw(s *sched, streams bool) scenario {
	sc := scenario{
		objects: s.chance(4), rounds: s.between(1, 3), oldState: s.chance(2), late: s.chance(2), locks: s.chance(2),
		source: memsource.Options{SplitRows: s.between(2, 6), BatchRows: s.between(1, 3)},
		sink:   memsink.Options{Unlogged: s.chance(2), NoTerminate: s.chance(3)},
		set: runner.Settings{Slots: s.between(1, 3), EpochBytes: 1, EpochTime: time.Hour, GiveUp: 20 * time.Second, MinTries: 2,
			LeaseTime: 20 * time.Second, Jitter: -1, Verify: engine.VerifyCounts},
	}
	if s.chance(2) {
		sc.set.Verify = engine.VerifyDigest
	}
	if s.chance(3) {
		sc.set.EpochBytes = int64(s.between(60, 300))
	}
	if s.chance(3) {
		sc.set.AttemptRows = int64(s.between(2, 10))
	}
	kinds := kinds
	if sc.stream = s.chance(2) && !sc.objects || streams; sc.stream {
		sc.objects, kinds = false, slices.Concat(changing, kinds[:1])
		sc.set.OnLost = engine.OnLostResync
	}
	for n := s.between(1, 3); len(sc.kinds) < n; {
		k := kinds[s.rng.IntN(len(kinds))]
		if !sc.objects || k.objects {
			sc.kinds = append(sc.kinds, k)
		}
	}
	sc.oldState = sc.oldState && !sc.locks
	sc.faults = drawFaults(s)
	if sc.stream {
		sc.faults.changes = s.between(0, 40)
	}
	if slices.ContainsFunc(sc.kinds, func(k kind) bool { return k.name == "changelog" }) {
		// A log with a gap has no state to be replayed to.
		sc.faults.sinkRestore, sc.faults.slotLoss = 0, 0
	}
	return sc
}

// drawFaults makes calm and stormy seeds: some have one kind of fault only.
func drawFaults(s *sched) faults {
	all := s.chance(3)
	pick := func(one, n int) int {
		if all || s.chance(3) {
			return one * s.between(1, n)
		}
		return 0
	}
	return faults{
		crash: pick(15, 4), freeze: pick(15, 4), fail: pick(10, 4), failAfter: pick(10, 4), delay: pick(8, 3),
		sinkCrash: pick(40, 4), sinkRestore: pick(60, 4), sourceCrash: pick(40, 4), stateLoss: pick(60, 4), stateRestore: pick(60, 4),
		twin: pick(30, 3), mutate: pick(15, 4), slotLoss: pick(80, 4), budget: s.between(2, 12),
	}
}

// resource is one resource of a scenario.
type resource struct {
	kind
	table string
	// nextKey is the next key to insert.
	nextKey int64
	// held is a transaction that is in the log and not visible yet (P16).
	held *memsource.Tx
}

func (sc *scenario) resources() []*resource {
	out := make([]*resource, len(sc.kinds))
	for i, k := range sc.kinds {
		out[i] = &resource{kind: k, table: fmt.Sprintf("%s%d", k.name, i)}
	}
	return out
}

func (r *resource) request() runner.ResourceRequest {
	q := runner.ResourceRequest{Selection: engine.Selection{Resource: r.table}, Read: r.read, Write: r.write, Consistency: r.consistency}
	if r.read == engine.ReadIncremental {
		q.Cursor = "u"
	}
	return q
}

// tableSchema is the schema of every table: a key, a cursor, a value.
func tableSchema() schema.Schema {
	return schema.Schema{Key: []string{"id"}, Fields: []schema.Field{
		{Name: "id", Type: schema.Type{Kind: schema.Int64}},
		{Name: "u", Type: schema.Type{Kind: schema.Int64}, Nullable: true},
		{Name: "v", Type: schema.Type{Kind: schema.String}},
	}}
}
