package pgsource

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/engine"
)

// Sizes of splits.
const (
	// defaultSplitBytes keeps what a lost claim reads again small, and is large
	// enough that the few milliseconds that a split costs don't matter.
	defaultSplitBytes = 48 << 20
	// minSplitBytes is the least that is worth a split when there are more slots
	// than splits.
	minSplitBytes = 4 << 20
	// maxSplits bounds the plan's size.
	maxSplits = 4096
	// slowestRead is the rate that an estimate of a read's time assumes, in bytes
	// of the table per second: far below what is usual, so that a snapshot is not
	// begun that can't end in time.
	slowestRead = 10 << 20
)

// planning is one Plan call.
type planning struct {
	s       *Session
	req     engine.PlanRequest
	rel     *relation
	columns []column
	key     []string
	// unproved is true when the key is the user's and no index proves it.
	unproved bool
	plan     *engine.SourcePlan
}

// Plan cuts a resource into splits; see engine.SourceSession. A plan with a
// snapshot takes it here and holds it, with ACCESS SHARE locks, until Close.
func (s *Session) Plan(ctx context.Context, req engine.PlanRequest) (*engine.SourcePlan, error) {
	return s.plan(ctx, req, func(p *planning) error {
		switch req.Read {
		case engine.ReadFull, "":
			return p.full(ctx)
		case engine.ReadIncremental:
			return p.incremental(ctx)
		case engine.ReadCDC:
			return p.changes(ctx)
		}
		return engine.Permanentf("use full, incremental or cdc", "%s: read mode %q is not supported by the postgres source", req.Resource, req.Read)
	})
}

// plan looks at the relation, and lets splits plan what is read of it.
func (s *Session) plan(ctx context.Context, req engine.PlanRequest, splits func(*planning) error) (*engine.SourcePlan, error) {
	p := &planning{s: s, req: req}
	err := s.query(ctx, func(tx pgx.Tx) error {
		var err error
		p.rel, err = s.find(ctx, tx, req.Resource)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := p.choose(); err != nil {
		return nil, err
	}
	p.plan = &engine.SourcePlan{
		Resource: p.rel.asResource(p.columns, p.key),
		Wire:     []engine.WireFormat{engine.WirePostgresCopy},
		Rows:     p.rel.rows, Bytes: p.rel.bytes,
	}
	if p.rel.policies {
		p.warn("row-level security applies to this role: rows that the policies hide are not read; use a role with BYPASSRLS to read all")
	}
	if err := splits(p); err != nil {
		return nil, err
	}
	return p.plan, nil
}

func (p *planning) warn(format string, args ...any) {
	p.plan.Warnings = append(p.plan.Warnings, fmt.Sprintf(format, args...))
}

// choose settles columns and key, and refuses selections that can't be read.
func (p *planning) choose() error {
	sel, r := p.req.Selection, p.rel
	for _, list := range [][]string{sel.Include, sel.Exclude, sel.Key} {
		for _, name := range list {
			if _, ok := r.column(name); !ok {
				return engine.Permanentf("the columns are "+strings.Join(namesOf(r.columns), ", "), "%s: there is no column %q", r.resource(), name)
			}
		}
	}
	for _, c := range r.columns {
		name := c.field.Name
		if (len(sel.Include) > 0 && !slices.Contains(sel.Include, name)) || slices.Contains(sel.Exclude, name) {
			continue
		}
		if !c.selectable {
			return engine.Permanentf("GRANT SELECT ("+quoteList([]string{name})+") ON "+r.sql()+" TO the role, or exclude the column",
				"%s: the role may not read column %q", r.resource(), name)
		}
		p.columns = append(p.columns, c)
	}
	if len(p.columns) == 0 {
		return engine.Permanentf("include at least one", "%s: no column is selected", r.resource())
	}
	p.key = r.key()
	if len(sel.Key) > 0 {
		p.key = slices.Clone(sel.Key)
		p.unproved = !r.uniqueOn(p.key)
		if i := firstDouble(p.key); i >= 0 {
			return engine.Permanentf("", "%s: key names column %q twice", r.resource(), p.key[i])
		}
	}
	for _, k := range p.key {
		c, _ := r.column(k)
		switch {
		case !slices.ContainsFunc(p.columns, func(c column) bool { return c.field.Name == k }):
			return engine.Permanentf("include it, or give another key", "%s: column %q is part of the key but not selected", r.resource(), k)
		case !c.orderable:
			return engine.Permanentf("give another key", "%s: key column %q has type %s, which has no order", r.resource(), k, c.field.Native.Type)
		case p.unproved && !c.exact:
			return engine.Permanentf("create a unique index on the key with NOT NULL columns, or give another key",
				"%s: key column %q has type %s, in which different values can count as equal, and no unique index proves the key", r.resource(), k, c.field.Native.Type)
		}
	}
	return nil
}

func namesOf(columns []column) []string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.field.Name
	}
	return names
}

func firstDouble(list []string) int {
	for i, v := range list {
		if slices.Contains(list[:i], v) {
			return i
		}
	}
	return -1
}

// full plans a read of all rows (P12).
func (p *planning) full(ctx context.Context) error {
	keyed := len(p.key) > 0
	c := p.req.Consistency
	if c == "" {
		c = engine.ConsistencySnapshot
		if keyed {
			c = engine.ConsistencyChunked
		}
	}
	p.plan.Consistency = c
	switch c {
	case engine.ConsistencyChunked:
		if !keyed {
			return engine.Permanentf("use consistency snapshot, or give columns that identify a row as key",
				"%s: this %s has no key, so it can't be read in chunks", p.rel.resource(), kindName(p.rel.kind))
		}
		p.plan.Coverage = fmt.Sprintf("ranges of the key (%s), each in a transaction of its own: a row that lives through the run with its key is read exactly once; one whose key changes meanwhile may be missed or read twice",
			strings.Join(p.key, ", "))
		return p.byKeys(ctx, descriptor{})
	case engine.ConsistencySnapshot:
		return p.snapshot(ctx)
	}
	return engine.Permanentf("use chunked or snapshot", "%s: consistency %q is not supported", p.rel.resource(), c)
}

// snapshot plans a read of one exported snapshot.
func (p *planning) snapshot(ctx context.Context) error {
	if err := p.checkHolder(); err != nil {
		return err
	}
	h, tables, err := p.s.hold(ctx, p.rel)
	if err != nil {
		return err
	}
	base := descriptor{Holder: h.id, Snapshot: h.snapshot}
	p.plan.Coverage = "all rows as of one snapshot of the database"
	if p.rel.kind == kindForeign {
		p.plan.Coverage = "all rows as the foreign server shows them to one statement"
	}
	if p.blockRanges(tables) {
		p.byBlocks(base, tables)
		return nil
	}
	if len(p.key) > 0 && (p.rel.kind == kindTable || p.rel.kind == kindPartitioned || p.rel.kind == kindMatView) {
		return p.byKeys(ctx, base)
	}
	base.Way = whole
	p.addSplit(base, p.rel.rows, p.rel.bytes)
	if p.rel.bytes > defaultSplitBytes || p.rel.rows > 1_000_000 {
		p.warn("this %s can only be read in one piece, without parallel reads or resuming in the middle", kindName(p.rel.kind))
	}
	return nil
}

// checkHolder refuses a snapshot that nobody can hold for as long as the read
// takes (P12).
func (p *planning) checkHolder() error {
	if p.req.HolderLives || p.req.AttemptTime <= 0 {
		return nil
	}
	hint := "use consistency chunked, or run where one process lives as long as the read"
	if len(p.key) == 0 {
		hint = "give columns that identify a row as key, so that it can be read in chunks, or run where one process lives as long as the read"
	}
	if p.rel.bytes < 0 {
		if p.rel.kind == kindView || p.rel.kind == kindForeign {
			p.warn("the time that this %s takes can't be estimated, and its snapshot ends with the attempt", kindName(p.rel.kind))
			return nil
		}
		return engine.Permanentf(hint, "%s: its size is not known, and nobody can hold its snapshot beyond one attempt of %s", p.rel.resource(), p.req.AttemptTime)
	}
	need := time.Duration(p.rel.bytes/slowestRead/int64(max(1, p.req.Slots))) * time.Second
	if need > p.req.AttemptTime {
		return engine.Permanentf(hint, "%s: a snapshot of %d MB is expected to take about %s, longer than one attempt of %s, and nobody can hold it beyond that",
			p.rel.resource(), p.rel.bytes>>20, need, p.req.AttemptTime)
	}
	return nil
}

// blockRanges tells whether the tables can be read by ranges of heap blocks: the
// server can since version 14, and each partition must be readable by itself.
func (p *planning) blockRanges(tables []table) bool {
	if p.s.version < 140000 || p.rel.kind == kindView || p.rel.kind == kindForeign {
		return false
	}
	if p.rel.kind != kindPartitioned {
		// ctid needs the right to the whole table.
		return p.rel.heap && p.rel.readable
	}
	return !p.rel.policies && !slices.ContainsFunc(tables, func(t table) bool {
		return t.kind != kindPartitioned && (!t.readable || t.kind != kindTable || !t.heap)
	})
}

// byBlocks cuts each table into ranges of blocks. The last range has no end: the
// snapshot shows no row beyond the blocks that the table has now.
func (p *planning) byBlocks(base descriptor, tables []table) {
	var total int64
	for _, t := range tables {
		total += t.bytes
	}
	size := p.splitBytes(total)
	for _, t := range tables {
		if t.kind == kindPartitioned {
			continue
		}
		d := base
		d.Way, d.OID, d.Schema, d.Name, d.Kind = byBlocks, t.oid, t.schema, t.name, t.kind
		d.Partial = !t.readable
		d.BlockBytes = 8192
		if t.blocks > 0 {
			d.BlockBytes = max(1, t.bytes/t.blocks)
		}
		step := max(1, size/d.BlockBytes)
		for first := int64(0); first == 0 || first < t.blocks; first += step {
			d.FirstBlock, d.EndBlock = first, min(t.blocks, first+step)
			d.Open = d.EndBlock == t.blocks
			bytes := (d.EndBlock - first) * d.BlockBytes
			rows := int64(-1)
			if p.rel.rows >= 0 && total > 0 {
				rows = int64(float64(p.rel.rows) * float64(bytes) / float64(total))
			}
			p.addSplit(d, rows, bytes)
		}
	}
}

// splitBytes is the size of a split for so many bytes.
func (p *planning) splitBytes(total int64) int64 {
	size := p.req.SplitBytes
	if size <= 0 {
		size = defaultSplitBytes
		// A few splits a slot, so that all slots end at about the same time.
		if perSlot := total / int64(2*max(1, p.req.Slots)); perSlot < size {
			size = max(perSlot+1, minSplitBytes)
		}
	}
	return max(size, total/maxSplits+1)
}

// addSplit appends a split; a descriptor without a relation is the resource's.
func (p *planning) addSplit(d descriptor, rows, bytes int64) {
	d.Version = 1
	d.Restart = p.req.Write == engine.WriteReplace && p.req.Read != engine.ReadIncremental
	if d.OID == 0 {
		d.OID, d.Schema, d.Name, d.Kind = p.rel.oid, p.rel.schema, p.rel.name, p.rel.kind
		d.Partial = !p.rel.readable
	}
	for _, name := range d.Order {
		if c, ok := p.rel.column(name); ok {
			d.Casts = append(d.Casts, c.cast)
		}
	}
	d.Schemas = p.typeSchemas(d.Order)
	name := p.rel.resource()
	p.plan.Splits = append(p.plan.Splits, engine.Split{
		ID: fmt.Sprintf("%s/%d", name, len(p.plan.Splits)+1), Resource: p.req.Resource,
		Descriptor: encode(d), Rows: rows, Bytes: bytes,
	})
}
