package pgsource

import (
	"context"
	"fmt"
	"strings"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

// pieceBytes is about how much one COPY of a block range reads: the distance of
// positions, so what a hand-over waits for and a crash repeats.
const pieceBytes = 8 << 20

// piece is one COPY of a read.
type piece struct {
	sql string
	// end is the position after it; nil for pieces whose rows carry positions.
	end *position
	// seen is true when the next run's window reads the piece's rows again.
	seen bool
}

// pieces makes the COPY statements of a read, one after the other.
type pieces struct {
	d      *descriptor
	list   string
	from   string
	filter string
	// remember cuts a cursor window at the next run's mark.
	remember bool

	// after is the key to go on after, as SQL literals; nil at the beginning.
	after []string
	block int64
	next  int
	done  bool
}

// newPieces prepares the statements for a read that goes on at pos.
func newPieces(ctx context.Context, r *readerConn, d *descriptor, pos *position, req *engine.ReadRequest, asText []bool) (*pieces, error) {
	p := &pieces{d: d, filter: userFilter(req.Selection.Where), remember: req.Remember, block: max(pos.Block, d.FirstBlock)}
	cols := make([]string, len(asText))
	for i, f := range req.Plan.Resource.Schema.Fields {
		cols[i] = pgconf.QuoteIdent(f.Name)
		if asText[i] {
			cols[i] += "::text"
		}
	}
	p.list = strings.Join(cols, ", ")
	p.from = qualified(d.Schema, d.Name)
	if d.Kind == kindTable {
		p.from = "ONLY " + p.from
	}
	if len(pos.Key) > 0 {
		var err error
		if p.after, err = r.literals(ctx, d, pos.Key, &req.Plan.Resource.Schema); err != nil {
			return nil, err
		}
	}
	p.done = pos.End
	return p, nil
}

// literals writes a stored key as SQL: text as it is, a binary value by way of
// the server, which alone knows how its types print (P13).
func (r *readerConn) literals(ctx context.Context, d *descriptor, key []keyValue, s *schema.Schema) ([]string, error) {
	out := make([]string, len(key))
	for i, k := range key {
		text := k.Text
		if text == nil {
			f, ok := s.Field(d.Order[i])
			if !ok {
				return nil, engine.Bugf("the plan of %s lacks its key column %q", resourceName(d.Schema, d.Name), d.Order[i])
			}
			res := r.pc.ExecParams(ctx, "SELECT ($1)::text", [][]byte{*k.Binary}, []uint32{f.Native.OID}, []int16{1}, nil).Read()
			if res.Err != nil {
				return nil, pgconf.Classify(fmt.Errorf("%s: read the stored position of column %q: %w", resourceName(d.Schema, d.Name), d.Order[i], res.Err))
			}
			v := string(res.Rows[0][0])
			text = &v
		}
		out[i] = d.literal(i, *text)
	}
	return out, nil
}

func (d *descriptor) literal(i int, text string) string {
	return pgconf.QuoteLiteral(text) + "::" + d.Casts[i]
}

func (d *descriptor) literalRow(texts []string) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = d.literal(i, t)
	}
	return out
}

// compare writes "columns op values" over the first len(values) columns of the
// order, as a row comparison that an index on them serves.
func (d *descriptor) compare(op string, values []string) string {
	names := make([]string, len(values))
	for i := range values {
		names[i] = pgconf.QuoteIdent(d.Order[i])
	}
	if len(names) == 1 {
		return names[0] + " " + op + " " + values[0]
	}
	return "(" + strings.Join(names, ", ") + ") " + op + " (" + strings.Join(values, ", ") + ")"
}

func (p *pieces) copySQL(order bool, conds ...string) string {
	sql := "COPY (SELECT " + p.list + " FROM " + p.from
	if where := joinConditions(append(conds, p.filter)); where != "true" {
		sql += " WHERE " + where
	}
	if order {
		// A bare name would mean the column as selected, cast to text.
		keys := make([]string, len(p.d.Order))
		for i, name := range p.d.Order {
			keys[i] = qualified(p.d.Schema, p.d.Name) + "." + pgconf.QuoteIdent(name)
		}
		sql += " ORDER BY " + strings.Join(keys, ", ")
	}
	return sql + ") TO STDOUT (FORMAT binary)"
}

// take returns the next piece; ok is false after the last.
func (p *pieces) take() (piece, bool) {
	if p.done {
		return piece{}, false
	}
	switch p.d.Way {
	case byBlocks:
		return p.takeBlocks()
	case byCursor:
		return p.takeCursor()
	case byKeys:
		p.done = true
		var conds []string
		if p.after != nil {
			conds = append(conds, p.d.compare(">", p.after))
		} else if p.d.From != nil {
			conds = append(conds, p.d.compare(">=", p.d.literalRow(p.d.From)))
		}
		if p.d.To != nil {
			conds = append(conds, p.d.compare("<", p.d.literalRow(p.d.To)))
		}
		return piece{sql: p.copySQL(true, conds...)}, true
	}
	p.done = true
	return piece{sql: p.copySQL(false), end: &position{End: true}}, true
}

func (p *pieces) takeBlocks() (piece, bool) {
	if p.block > p.d.EndBlock || (p.block == p.d.EndBlock && !p.d.Open) {
		p.done = true
		return piece{}, false
	}
	end := min(p.d.EndBlock, p.block+max(1, pieceBytes/p.d.BlockBytes))
	conds := []string{fmt.Sprintf("ctid >= '(%d,0)'::pg_catalog.tid", p.block)}
	pc := piece{end: &position{Block: end}}
	if end == p.d.EndBlock {
		// The last piece of the table has no bound above.
		p.done = true
		pc.end = &position{Block: end, End: true}
	}
	if end < p.d.EndBlock || !p.d.Open {
		conds = append(conds, fmt.Sprintf("ctid < '(%d,0)'::pg_catalog.tid", end))
	}
	p.block = end
	pc.sql = p.copySQL(false, conds...)
	return pc, true
}

// takeCursor reads the window in the order of (cursor, key); with remember, rows
// that the next run's window holds too come in a piece of their own, so that the
// server's comparison, not ours, decides which they are (P13).
func (p *pieces) takeCursor() (piece, bool) {
	c := p.d.Cursor
	if c.To == nil {
		p.done = true
		return piece{}, false
	}
	split := p.remember && c.Mark != nil
	conds := []string{p.d.compare("<=", []string{p.d.literal(0, *c.To)})}
	switch {
	case p.after != nil:
		conds = append(conds, p.d.compare(">", p.after))
	case c.From != nil && c.After:
		conds = append(conds, p.d.compare(">", []string{p.d.literal(0, *c.From)}))
	case c.From != nil:
		conds = append(conds, p.d.compare(">=", []string{p.d.literal(0, *c.From)}))
	}
	if split && p.next == 0 {
		p.next++
		return piece{sql: p.copySQL(true, append(conds, p.d.compare("<", []string{p.d.literal(0, *c.Mark)}))...)}, true
	}
	if split {
		conds = append(conds, p.d.compare(">=", []string{p.d.literal(0, *c.Mark)}))
	}
	p.done = true
	return piece{sql: p.copySQL(true, conds...), seen: p.remember}, true
}
