// Package memsink is an in-memory destination for simulations and conformance
// suites, in two kinds: [Sink], transactional, with fence, ledger, staging and
// publish as P1–P8 say; and [Objects], a store of artifacts with one manifest a
// target, as P11 says.
//
// A destination outlives its sessions. It can be backed up, restored to an
// earlier state and crashed, and it can be broken on purpose (see [Broken]), so
// that a simulation proves that it would notice.
package memsink

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/gate"
)

// Options of a destination.
type Options struct {
	// Identity names it in routes; empty means "mem://sink".
	Identity string
	// Unlogged keeps staging and its ledger rows where a crash empties them (P7).
	Unlogged bool
	// NoTerminate forbids to end the sessions of overtaken owners, so that raises
	// have to wait for their locks (P5).
	NoTerminate bool
	// LockTimeout bounds waiting for a lock; 0 means 5 s.
	LockTimeout time.Duration
	// NoWire makes it take Arrow records only.
	NoWire bool
	// Broken removes protections.
	Broken Broken
	// Observe, if set, is called inside the effect of every epoch's and publish's
	// commit, before its rows are visible.
	Observe func(Commit)
}

// Broken removes one protection of a destination each.
type Broken struct {
	// NoClaimCheck: the ledger's compare-and-swap ignores claim and epoch.
	NoClaimCheck bool
	// NoOrdinalCheck: the fence row is not compared.
	NoOrdinalCheck bool
	// EarlyAnswer: Apply answers before its transaction commits.
	EarlyAnswer bool
	// NoPublishRow: a publish does not look whether it happened before.
	NoPublishRow bool
	// NoStagingCheck: a publish doesn't compare staging with the ledger.
	NoStagingCheck bool
	// NoWindow: an append writes rows of the window again.
	NoWindow bool
	// NoStandingCheck: a run supersedes another whose appended rows stand.
	NoStandingCheck bool
	// NoCursorCheck: a plan may start elsewhere than the stored cursor.
	NoCursorCheck bool
	// KeepCursor: a member whose rows are read again keeps its cursor meanwhile.
	KeepCursor bool
	// FillMoved: columns of a row that was moved are taken from whatever row was
	// staged under its key.
	FillMoved bool
	// EarlyMerge: a publish merges the changes that were there when it began, and
	// lets epochs go on meanwhile.
	EarlyMerge bool
}

// Commit is what an observer is told: who commits, and whose right it is by the
// fence and the ledger, whether they were compared or not.
type Commit struct {
	Target  *engine.Target
	Split   string
	Claim   int64
	Epoch   int64
	Publish bool

	// Rows are the rows that it writes.
	Rows []Row
	// Plan is the frozen plan that the destination has of the run's resource.
	Plan *engine.ResourcePlan
	// HaveRun and HaveOrdinal are in the fence row, HaveClaim and HaveEpoch in
	// the ledger row (-1: there is none).
	HaveRun     string
	HaveOrdinal int64
	HaveClaim   int64
	HaveEpoch   int64
}

func (db *DB) observe(x *txn, epoch int64, publish bool, rows []Row) {
	if db.opt.Observe == nil {
		return
	}
	f := db.fences[x.fence]
	c := Commit{Target: x.target, Split: x.row.split, Claim: x.claim, Epoch: epoch, Publish: publish, Rows: rows,
		Plan: db.plans[planKey{fence: x.fence, run: x.target.RunID}], HaveRun: f.run, HaveOrdinal: f.ordinal, HaveClaim: -1, HaveEpoch: -1}
	if row, ok := db.ledger[x.row]; ok {
		c.HaveClaim, c.HaveEpoch = row.Claim, row.Epoch
	}
	db.opt.Observe(c)
}

// DB is a transactional destination.
type DB struct {
	opt Options

	mu sync.Mutex
	store
	// version counts changes of live tables.
	version int64
	txns    map[*txn]struct{}
	// waiting are raises that wait for a fence: nobody overtakes them.
	waiting  map[fenceKey]int
	changed  chan struct{}
	sessions int64
}

// store is what survives sessions; its maps hold values, and rows never change.
type store struct {
	tables map[string]table
	fences map[fenceKey]fence
	ledger map[ledgerKey]ledgerRow
	plans  map[planKey]*engine.ResourcePlan
	// deltas are by the name of their staging; their maps never change.
	deltas map[string]delta
}

// Row is a row of a table.
type Row struct {
	// Wire is the row in canonical encoding, Key its key fields.
	Wire []byte
	Key  string
	// Run is the id of the run that wrote it.
	Run string
	// Of a row of an appended change: what it did, where it committed, its number
	// there, and the fields that were not sent.
	Op       engine.Op
	Commit   string
	Sequence int64
	Unsent   uint64
}

type table struct {
	rows     []Row
	unlogged bool
	// Of the last replace or, for staging, of its owner.
	run string
	// staging of a fence's run and generation; false for live tables.
	staging    bool
	fence      fenceKey
	ordinal    int64
	generation int
}

// fenceKey is (installation, route, resource).
type fenceKey struct {
	route    engine.Route
	resource string
}

type fence struct {
	ordinal int64
	run     string
	cursor  []byte
}

type ledgerKey struct {
	fence fenceKey
	run   string
	split string
}

type ledgerRow struct {
	engine.LedgerEntry
	owner      int64
	unlogged   bool
	generation int
	// splits is, in a publish row, how many read rows there must be; receipt is
	// its outcome.
	splits  int
	receipt *engine.Receipt
}

type planKey struct {
	fence fenceKey
	run   string
}

// New makes an empty destination.
func New(opt Options) *DB {
	if opt.Identity == "" {
		opt.Identity = "mem://sink"
	}
	if opt.LockTimeout <= 0 {
		opt.LockTimeout = 5 * time.Second
	}
	return &DB{opt: opt, txns: map[*txn]struct{}{}, waiting: map[fenceKey]int{}, changed: make(chan struct{}), store: store{
		tables: map[string]table{}, fences: map[fenceKey]fence{}, ledger: map[ledgerKey]ledgerRow{}, plans: map[planKey]*engine.ResourcePlan{},
		deltas: map[string]delta{},
	}}
}

// Backup returns a copy of the whole destination.
func (db *DB) Backup() any {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.store.clone()
}

// Restore puts an earlier copy in the destination's place and ends all sessions'
// transactions.
func (db *DB) Restore(backup any) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if s, ok := backup.(store); ok {
		db.store = s.clone()
	}
	db.version++
	db.endAll()
}

// Crash restarts the destination: transactions end, and what is unlogged is empty (P7).
func (db *DB) Crash() {
	db.mu.Lock()
	defer db.mu.Unlock()
	for name, t := range db.tables {
		if t.unlogged {
			t.rows = nil
			db.tables[name] = t
		}
	}
	maps.DeleteFunc(db.ledger, func(_ ledgerKey, r ledgerRow) bool { return r.unlogged })
	db.endAll()
}

func (s store) clone() store {
	return store{tables: maps.Clone(s.tables), fences: maps.Clone(s.fences), ledger: maps.Clone(s.ledger), plans: maps.Clone(s.plans), deltas: maps.Clone(s.deltas)}
}

// Version changes whenever the rows of a live table do.
func (db *DB) Version() int64 {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.version
}

// Knows tells whether a route has begun here, so that a lost State finds it again.
func (db *DB) Knows() bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	return len(db.fences) > 0
}

// Rows returns the rows of a live table as a reader sees them now, and the run
// that replaced it last.
func (db *DB) Rows(name string) (rows []Row, replacedBy string) {
	db.mu.Lock()
	defer db.mu.Unlock()
	t := db.tables[name]
	return t.rows[:len(t.rows):len(t.rows)], t.run
}

// Insert puts rows into a live table from outside, as its owner would.
func (db *DB) Insert(name string, rows ...Row) {
	db.mu.Lock()
	defer db.mu.Unlock()
	t := db.tables[name]
	t.rows = append(slices.Clip(t.rows), rows...)
	db.tables[name] = t
	db.version++
}

// Staging lists the staging tables that there are.
func (db *DB) Staging() []string {
	db.mu.Lock()
	defer db.mu.Unlock()
	var out []string
	for name, t := range db.tables {
		if t.staging {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// StreamAt returns the cursor that the destination has of a route's change stream.
func (db *DB) StreamAt() engine.Position {
	db.mu.Lock()
	defer db.mu.Unlock()
	for k, f := range db.fences {
		if k.resource == engine.StreamResource {
			return f.cursor
		}
	}
	return nil
}

// Published tells whether the last run of every resource is published.
func (db *DB) Published() bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	for k, f := range db.fences {
		if !db.ledger[ledgerKey{fence: k, run: f.run, split: engine.PublishSplit(k.resource)}].Done {
			return false
		}
	}
	return true
}

// Applied returns the epoch that the ledger has for a split of a run; false if
// there is no row.
func (db *DB) Applied(run, split string) (int64, bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for k, r := range db.ledger {
		if k.run == run && k.split == split {
			return r.Epoch, true
		}
	}
	return 0, false
}

// SortRows orders rows so that two tables can be compared.
func SortRows(rows []Row) []Row {
	out := slices.Clone(rows)
	slices.SortFunc(out, func(a, b Row) int { return cmp.Or(bytes.Compare(a.Wire, b.Wire), cmp.Compare(a.Run, b.Run)) })
	return out
}

// Sink is the [engine.Sink] of a destination.
type Sink struct {
	DB *DB
	// Gate is where the sessions' effects pass; nil means open.
	Gate gate.Func
}

var _ engine.Sink = (*Sink)(nil)
