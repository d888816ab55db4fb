// Package memsource is an in-memory [engine.Source] for simulations and
// conformance suites: tables with versioned rows, so that snapshot and chunked
// reads mean what they mean on a database, transactions that commit late, and a
// snapshot that lives only as long as its session.
package memsource

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/enginetest/gate"
	"github.com/tranship-io/tranship/engine/enginetest/memrow"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
)

// Options of a database.
type Options struct {
	// Identity names it in routes; empty means "mem://source".
	Identity string
	// SplitRows is the number of rows that a split is planned for; 0 means 1000.
	SplitRows int
	// BatchRows bounds the rows of a batch beside its bytes; 0 means no bound.
	BatchRows int
	// NoWire makes it hand over Arrow records only.
	NoWire bool
	// Memory allocates records; nil means Go's memory.
	Memory memory.Allocator
	// Broken removes protections.
	Broken Broken
}

// DB is the database. It outlives sessions and is safe for concurrent use.
type DB struct {
	opt Options

	mu       sync.Mutex
	tables   map[string]*table
	version  int64
	clock    int64
	open     map[*Tx]struct{}
	sessions int64
	live     map[*Session]struct{}
	// log has every committed transaction, lsn their number; slots say up to where
	// the log was let go.
	log   []*logged
	lsn   int64
	slots map[string]int64
	// confirmed is the last acknowledgement since a slot was made.
	confirmed int64
}

// New makes an empty database.
func New(opt Options) *DB {
	if opt.Identity == "" {
		opt.Identity = "mem://source"
	}
	if opt.SplitRows <= 0 {
		opt.SplitRows = 1000
	}
	if opt.Memory == nil {
		opt.Memory = memory.NewGoAllocator()
	}
	return &DB{opt: opt, tables: map[string]*table{}, open: map[*Tx]struct{}{}, live: map[*Session]struct{}{}, slots: map[string]int64{}}
}

type table struct {
	name   string
	schema schema.Schema
	// rows has every version of every row.
	rows []*version
	// keyed rows are ordered by their int64 key, others by insertion.
	keyed  bool
	key    []int
	serial int64
	// tip is the table's state at the end of the log, by place.
	tip map[int64][]byte
}

// version is one version of a row, visible to snapshots in [from, to).
type version struct {
	Row
	from, to int64
}

// Row is a row as the database has it.
type Row struct {
	// Ord is the place in the table's order: the int64 key, or the insertion number.
	Ord int64
	// Wire is the row in canonical encoding, Key its key fields.
	Wire []byte
	Key  string

	values []any
	rec    arrow.RecordBatch
}

// Value is the row's i-th value, as it was put.
func (r Row) Value(i int) any { return r.values[i] }

// Create makes a table. A table with a key needs a first key column of kind int64.
func (db *DB) Create(name string, s schema.Schema) {
	db.mu.Lock()
	defer db.mu.Unlock()
	t := &table{name: name, schema: s}
	for _, k := range s.Key {
		t.key = append(t.key, s.Index(k))
	}
	t.keyed = len(t.key) > 0 && s.Fields[t.key[0]].Type.Kind == schema.Int64
	db.tables[name] = t
}

// Load inserts the rows of a record, which are ordered as they come.
func (db *DB) Load(name string, rec arrow.RecordBatch) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	t := db.tables[name]
	t.keyed = false
	h := integrity.NewHasher(&t.schema)
	db.version++
	for i := range int(rec.NumRows()) {
		wire, err := h.AppendRow(nil, rec, i)
		if err != nil {
			return fmt.Errorf("load %s: %w", name, err)
		}
		t.serial++
		t.rows = append(t.rows, &version{from: db.version, Row: Row{Ord: t.serial, Wire: wire, Key: memrow.Pick(wire, t.key),
			rec: rec.NewSlice(int64(i), int64(i)+1)}})
	}
	return nil
}

// Free releases the records that were loaded.
func (db *DB) Free() {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, t := range db.tables {
		for _, v := range t.rows {
			if v.rec != nil {
				v.rec.Release()
				v.rec = nil
			}
		}
	}
}

// Tx is a transaction. Its changes are visible once it commits, in one version.
type Tx struct {
	db      *DB
	start   int64
	changes []change
	// logged is what the log has of it, nil before [Tx.Log].
	logged *logged
}

type change struct {
	table  *table
	values []any
	ord    int64
	delete bool
	// move: its place was ord. truncate: all rows go.
	move, truncate bool
}

// Begin begins a transaction and takes the clock's next tick as its time.
func (db *DB) Begin() *Tx {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.clock++
	tx := &Tx{db: db, start: db.clock}
	db.open[tx] = struct{}{}
	return tx
}

// Now is the transaction's time: what a row written in it has as its cursor.
func (tx *Tx) Now() int64 { return tx.start }

// Put inserts a row or replaces the one with its key.
func (tx *Tx) Put(name string, values ...any) {
	tx.changes = append(tx.changes, change{table: tx.db.table(name), values: values})
}

// Delete deletes the row with the int64 key.
func (tx *Tx) Delete(name string, ord int64) {
	tx.changes = append(tx.changes, change{table: tx.db.table(name), ord: ord, delete: true})
}

// Move changes the key of a row that is there.
func (tx *Tx) Move(name string, from int64, values ...any) {
	tx.changes = append(tx.changes, change{table: tx.db.table(name), values: values, ord: from, move: true})
}

// Truncate removes all rows.
func (tx *Tx) Truncate(name string) {
	tx.changes = append(tx.changes, change{table: tx.db.table(name), truncate: true})
}

func (db *DB) table(name string) *table {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.tables[name]
}

// Commit makes the changes visible and returns their version.
func (tx *Tx) Commit() int64 {
	db := tx.db
	db.mu.Lock()
	defer db.mu.Unlock()
	delete(db.open, tx)
	tx.log()
	tx.logged.visible = true
	db.version++
	for _, c := range tx.changes {
		t := c.table
		if c.truncate {
			for _, row := range t.at(db.version) {
				t.end(row.Ord, db.version)
			}
			continue
		}
		if c.delete || c.move {
			t.end(c.ord, db.version)
		}
		if c.delete {
			continue
		}
		wire := memrow.Append(nil, c.values)
		v := &version{from: db.version, Row: Row{Wire: wire, Key: memrow.Pick(wire, t.key), values: c.values}}
		if t.keyed {
			v.Ord, _ = memrow.Int(memrow.Field(wire, t.key[0]))
			t.end(v.Ord, db.version)
		} else {
			t.serial++
			v.Ord = t.serial
		}
		t.rows = append(t.rows, v)
	}
	return db.version
}

// end ends the living version of a row.
func (t *table) end(ord, at int64) {
	for _, v := range t.rows {
		if v.Ord == ord && v.to == 0 {
			v.to = at
		}
	}
	t.rows = slices.DeleteFunc(t.rows, func(v *version) bool { return v.from == v.to })
}

// Crash restarts the server: sessions connect again, but their snapshots are gone.
func (db *DB) Crash() {
	db.mu.Lock()
	defer db.mu.Unlock()
	for s := range db.live {
		clear(s.snapshots)
	}
}

// Version returns the number of commits so far.
func (db *DB) Version() int64 {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.version
}

// Rows returns a table's rows as a snapshot of the version sees them, in order.
func (db *DB) Rows(name string, at int64) []Row {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.tables[name].at(at)
}

func (t *table) at(v int64) []Row {
	var out []Row
	for _, r := range t.rows {
		if r.from <= v && (r.to == 0 || r.to > v) {
			out = append(out, r.Row)
		}
	}
	slices.SortFunc(out, func(a, b Row) int { return cmp.Compare(a.Ord, b.Ord) })
	return out
}

// Source is the [engine.Source] of a database.
type Source struct {
	DB *DB
	// Gate is where the sessions' effects pass; nil means open.
	Gate gate.Func
}

var _ engine.Source = (*Source)(nil)
