package pgsource

import (
	"context"
	"fmt"
	"strings"

	"github.com/tranship-io/tranship/connectors/postgres/pgconf"
	"github.com/tranship-io/tranship/connectors/postgres/pgoutput"
	"github.com/tranship-io/tranship/engine"
)

// complete fills in what the server left out of a row whose key has changed, while
// the rows of its table are being read: they may be read under the new key before
// the change and under the old one after it, and then its large values come with
// neither. The row is read as it is now. That may be later than the change; what
// happened to it in between follows in the stream, and until it has passed, the
// member is not settled. A row that is gone by now needs no values any more.
func (r *changeRead) complete(ctx context.Context, m *member, tuple []pgoutput.Field) error {
	fields := m.read.Plan.Resource.Schema.Fields
	var missing []int
	for i, j := range m.from {
		if j >= 0 && j < len(tuple) && tuple[j].Kind == pgoutput.Unsent {
			missing = append(missing, i)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	names, on := make([]string, len(missing)), make([]string, len(m.key))
	for n, i := range missing {
		names[n] = pgconf.QuoteIdent(fields[i].Name)
	}
	var params [][]byte
	var types []uint32
	var formats []int16
	for n, i := range m.key {
		on[n] = fmt.Sprintf("%s = $%d", pgconf.QuoteIdent(fields[i].Name), n+1)
		params, types, formats = append(params, tuple[m.from[i]].Data), append(types, fields[i].Native.OID), append(formats, 1)
	}
	path := m.read.Plan.Resource.Path
	from := qualified(path[0], path[1])
	if m.read.Plan.Resource.Kind == kindName(kindTable) {
		from = "ONLY " + from
	}
	conn, err := r.s.take(ctx)
	if err != nil {
		return err
	}
	defer r.s.give(ctx, conn)
	res := conn.PgConn().ExecParams(ctx, "SELECT "+strings.Join(names, ", ")+" FROM "+from+" WHERE "+strings.Join(on, " AND "), params, types, formats, []int16{1}).Read()
	if res.Err != nil {
		return fmt.Errorf("%s: read a row whose key has changed: %w", m.name, res.Err)
	}
	var lsn string
	if err := conn.QueryRow(ctx, "SELECT pg_catalog.pg_current_wal_insert_lsn()::text").Scan(&lsn); err != nil {
		return err
	}
	seen, err := pgoutput.ParseLSN(lsn)
	if err != nil {
		return engine.Bugf("%w", err)
	}
	r.pos.Seen = max(r.pos.Seen, seen)
	if len(res.Rows) == 0 {
		return nil
	}
	for n, i := range missing {
		f := &tuple[m.from[i]]
		if f.Kind, f.Data = pgoutput.Binary, res.Rows[0][n]; f.Data == nil {
			f.Kind = pgoutput.Null
		}
	}
	return nil
}
