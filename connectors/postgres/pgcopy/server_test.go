package pgcopy_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
	"github.com/tranship-io/tranship/engine/integrity"
	"github.com/tranship-io/tranship/engine/schema"
	"github.com/tranship-io/tranship/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// server is one test's database.
type server struct {
	t     *testing.T
	conn  *pgx.Conn
	major int
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := pgtest.Shared(t)
	conn, err := pgx.Connect(t.Context(), pgtest.NewDatabase(t, s))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return &server{t: t, conn: conn, major: s.Major()}
}

func (s *server) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.conn.Exec(s.t.Context(), sql, args...)
	require.NoError(s.t, err, sql)
}

func (s *server) text(sql string) string {
	s.t.Helper()
	var v string
	require.NoError(s.t, s.conn.QueryRow(s.t.Context(), sql).Scan(&v), sql)
	return v
}

// columns describes a table's columns as the catalog has them.
func (s *server) columns(table string) ([]schema.Field, []pgcopy.TypeInfo) {
	s.t.Helper()
	type column struct {
		Name      string
		OID       uint32
		Typmod    int32
		Formatted string
	}
	rows, err := s.conn.Query(s.t.Context(), `SELECT attname::text, atttypid, atttypmod, format_type(atttypid, atttypmod)
		FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum`, table)
	require.NoError(s.t, err)
	cols, err := pgx.CollectRows(rows, pgx.RowToStructByPos[column])
	require.NoError(s.t, err)
	oids := make([]uint32, len(cols))
	for i, c := range cols {
		oids[i] = c.OID
	}
	rows, err = s.conn.Query(s.t.Context(), pgcopy.CatalogSQL, oids)
	require.NoError(s.t, err)
	types, err := pgx.CollectRows(rows, pgx.RowToStructByPos[pgcopy.CatalogRow])
	require.NoError(s.t, err)
	catalog := pgcopy.NewCatalog(s.major, types)
	fields, infos := make([]schema.Field, len(cols)), make([]pgcopy.TypeInfo, len(cols))
	for i, c := range cols {
		infos[i], err = catalog.Type(c.OID, c.Typmod, c.Formatted)
		require.NoError(s.t, err)
		fields[i] = schema.Field{Name: c.Name, Type: infos[i].Logical(), Native: infos[i].Native(), Nullable: true}
	}
	return fields, infos
}

// copyOut returns the tuples of a query, cut by the scanner out of pieces of an
// awkward size.
func (s *server) copyOut(query string, columns int) [][]byte {
	s.t.Helper()
	var all bytes.Buffer
	_, err := s.conn.PgConn().CopyTo(s.t.Context(), &all, "COPY ("+query+") TO STDOUT (FORMAT binary)")
	require.NoError(s.t, err, query)
	var tuples [][]byte
	scan := pgcopy.NewScanner(columns)
	for stream := all.Bytes(); len(stream) > 0; {
		piece := stream[:min(7, len(stream))]
		stream = stream[len(piece):]
		require.NoError(s.t, scan.Scan(piece, func(t []byte) error {
			tuples = append(tuples, bytes.Clone(t))
			return nil
		}))
	}
	require.NoError(s.t, scan.Close())
	return tuples
}

func (s *server) copyIn(table string, tuples []byte) error {
	s.t.Helper()
	stream := pgcopy.AppendTrailer(append(pgcopy.AppendHeader(nil), tuples...))
	_, err := s.conn.PgConn().CopyFrom(s.t.Context(), bytes.NewReader(stream), "COPY "+table+" FROM STDIN (FORMAT binary)")
	return err
}

// selectList casts to text what a decoding source must.
func selectList(fields []schema.Field, infos []pgcopy.TypeInfo) string {
	list := make([]string, len(fields))
	for i, f := range fields {
		list[i] = pgx.Identifier{f.Name}.Sanitize()
		if infos[i].SelectAsText() {
			list[i] += "::text"
		}
	}
	return strings.Join(list, ", ")
}

func digest(t *testing.T, d *pgcopy.Digester, tuples [][]byte) integrity.Digest {
	t.Helper()
	for _, tuple := range tuples {
		require.NoError(t, d.Tuple(tuple))
	}
	sum, rows := d.Take()
	require.EqualValues(t, len(tuples), rows)
	return sum
}

func decode(t *testing.T, mem memory.Allocator, fields []schema.Field, tuples [][]byte) arrow.RecordBatch {
	t.Helper()
	d, err := pgcopy.NewDecoder(mem, fields)
	require.NoError(t, err)
	defer d.Release()
	for _, tuple := range tuples {
		require.NoError(t, d.Append(tuple))
	}
	require.Equal(t, len(tuples), d.Rows())
	return d.Take()
}

// typeCase is a type and literals of it. All of them, and NULL, make the trip.
type typeCase struct {
	typ    string
	values []string
	// since is the first major version that knows the type.
	since int
	// unsafe is true for a type that must not pass verbatim.
	unsafe bool
}

func TestEveryTypeRoundTrips(t *testing.T) {
	s := newServer(t)
	s.exec(`CREATE SCHEMA shop;
		CREATE TYPE shop.mood AS ENUM ('sad', 'ok', 'say "hi"');
		CREATE TYPE shop.pair AS (a int, b shop.mood);
		CREATE DOMAIN shop.price AS numeric(10,2) CHECK (VALUE >= 0);
		CREATE DOMAIN shop.top_price AS shop.price;
		CREATE DOMAIN shop.label AS text`)
	for i, c := range typeCases() {
		if c.since > s.major {
			continue
		}
		t.Run(c.typ, func(t *testing.T) {
			s := &server{t: t, conn: s.conn, major: s.major}
			table := fmt.Sprintf("src_%d", i)
			s.exec(fmt.Sprintf("CREATE TABLE %s (id int, v %s)", table, c.typ))
			for id, v := range append(c.values, "NULL") {
				s.exec(fmt.Sprintf("INSERT INTO %s VALUES (%d, %s)", table, id, v))
			}
			s.roundTrip(table, c)
		})
	}
}

// roundTrip sends a table through every path and compares in the server, as text.
func (s *server) roundTrip(table string, c typeCase) {
	t := s.t
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	fields, infos := s.columns(table)
	list := selectList(fields, infos)
	tuples := s.copyOut("SELECT "+list+" FROM "+table, 2)
	require.NotEmpty(t, tuples)

	// The digest of tuples is that of the decoded record.
	d, err := pgcopy.NewDigester(fields, nil)
	require.NoError(t, err)
	want := digest(t, d, tuples)
	rec := decode(t, mem, fields, tuples)
	defer rec.Release()
	s2 := &schema.Schema{Fields: fields}
	require.NoError(t, s2.Validate())
	got, err := integrity.RecordDigest(s2, rec)
	require.NoError(t, err)
	if want != got {
		for i, tuple := range tuples {
			a, _ := d.AppendCanonical(nil, tuple)
			b, _ := integrity.NewHasher(s2).AppendRow(nil, rec, i)
			require.Equal(t, fmt.Sprintf("%x", b), fmt.Sprintf("%x", a), "row %d", i)
		}
	}
	require.Equal(t, want, got)

	same := func(other string) {
		t.Helper()
		require.Equal(t, "0", s.text(fmt.Sprintf(`SELECT count(*)::text FROM %s a FULL JOIN %s b USING (id)
			WHERE a.v::text IS DISTINCT FROM b.v::text OR b.id IS NULL OR a.id IS NULL`, table, other)), other)
		back, err := pgcopy.NewReadBackDigester(fields, readBackTypes(infos))
		require.NoError(t, err)
		require.Equal(t, want, digest(t, back, s.copyOut("SELECT "+list+" FROM "+other, 2)), other)
	}

	// Encoded in binary form, where there is one.
	columns := make([]pgcopy.EncodeColumn, len(fields))
	asText := false
	for i, f := range fields {
		columns[i] = pgcopy.EncodeColumn{Name: f.Name, Type: infos[i], Text: infos[i].SelectAsText()}
		asText = asText || columns[i].Text
	}
	if !asText {
		e, err := pgcopy.NewEncoder(fields, columns)
		require.NoError(t, err)
		out, err := e.AppendTuples(nil, rec, 0, int(rec.NumRows()))
		require.NoError(t, err)
		s.exec(fmt.Sprintf("CREATE TABLE %s_bin (LIKE %s)", table, table))
		require.NoError(t, s.copyIn(table+"_bin", out))
		same(table + "_bin")
	}

	// As text, cast by the server under another DateStyle and IntervalStyle.
	columns[1].Text = true
	e, err := pgcopy.NewEncoder(fields, columns)
	require.NoError(t, err)
	out, err := e.AppendTuples(nil, rec, 0, int(rec.NumRows()))
	require.NoError(t, err)
	s.exec(fmt.Sprintf("CREATE TABLE %s_text (id int, v text)", table))
	require.NoError(t, s.copyIn(table+"_text", out))
	s.exec(fmt.Sprintf(`CREATE TABLE %[1]s_cast (LIKE %[1]s); SET DateStyle = 'SQL, DMY'; SET IntervalStyle = 'sql_standard'; SET TimeZone = 'America/New_York';
		INSERT INTO %[1]s_cast SELECT id, v::%[2]s FROM %[1]s_text; RESET DateStyle; RESET IntervalStyle; RESET TimeZone`, table, c.typ))
	same(table + "_cast")

	// Verbatim (P14).
	safe, reason := pgcopy.WireSafe(infos[1], infos[1])
	require.Equal(t, !c.unsafe, safe, reason)
	if again, ok := pgcopy.FieldType(fields[1]); safe && ok {
		rebuilt, reason := pgcopy.WireSafe(again, infos[1])
		require.True(t, rebuilt, "rebuilt from its field: %s", reason)
	}
	if safe {
		raw := s.copyOut("SELECT * FROM "+table, 2)
		s.exec(fmt.Sprintf("CREATE TABLE %s_wire (LIKE %s)", table, table))
		require.NoError(t, s.copyIn(table+"_wire", bytes.Join(raw, nil)))
		require.Equal(t, "0", s.text(fmt.Sprintf(`SELECT count(*)::text FROM %[1]s a FULL JOIN %[1]s_wire b USING (id)
			WHERE a.v::text IS DISTINCT FROM b.v::text`, table)))
		require.Equal(t, digest(t, d, raw), digest(t, d, s.copyOut("SELECT * FROM "+table+"_wire", 2)))
	} else {
		require.NotEmpty(t, reason)
	}
}

// readBackTypes are the types of a select list: text where it was cast.
func readBackTypes(infos []pgcopy.TypeInfo) []pgcopy.TypeInfo {
	out := make([]pgcopy.TypeInfo, len(infos))
	for i, t := range infos {
		if out[i] = t; t.SelectAsText() {
			out[i] = pgcopy.TypeInfo{OID: pgcopy.OIDText, Typmod: -1, Name: "text", Typtype: 'b'}
		}
	}
	return out
}
