package pgcopy_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/postgres/pgcopy"
)

// replicate sends a table through records into another of the same columns,
// compares the digest read back, and the rows as text.
func (s *server) replicate(from, to string) {
	t := s.t
	t.Helper()
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	fields, infos := s.columns(from)
	tuples := s.copyOut("SELECT * FROM "+from, len(fields))
	rec := decode(t, mem, fields, tuples)
	defer rec.Release()
	cols := make([]pgcopy.EncodeColumn, len(fields))
	for i, f := range fields {
		cols[i] = pgcopy.EncodeColumn{Name: f.Name, Type: infos[i]}
	}
	e, err := pgcopy.NewEncoder(fields, cols)
	require.NoError(t, err)
	out, err := e.AppendTuples(nil, rec, 0, len(tuples))
	require.NoError(t, err)
	s.exec("CREATE TABLE " + to + " (LIKE " + from + ")")
	require.NoError(t, s.copyIn(to, out))
	require.Equal(t, "0", s.text("SELECT count(*)::text FROM "+from+" AS source FULL JOIN "+to+" AS target USING (id) WHERE source::text IS DISTINCT FROM target::text"))
	back, err := pgcopy.NewReadBackDigester(fields, infos)
	require.NoError(t, err)
	require.Equal(t, recordDigest(t, fields, rec), digest(t, back, s.copyOut("SELECT * FROM "+to, len(fields))))
}

// Case 01: no rounding, no shift of the decimal point, no step through floats.
func TestCase01Decimals(t *testing.T) {
	s := newServer(t)
	s.exec(`CREATE TABLE num_scale(id int PRIMARY KEY, u numeric, p numeric(38,30), m numeric(12,2));
		INSERT INTO num_scale VALUES
		(1, 0.1234567890123456789012345678, 0.000000000000000000000000000001, 1234567890.12),
		(2, 12345678901234567890123456789.5, 99999999.999999999999999999999999999999, -0.01),
		(3, -1e-20, 0, 0)`)
	s.replicate("num_scale", "out_num")
	require.Equal(t, "0.1234567890123456789012345678", s.text("SELECT u::text FROM out_num WHERE id = 1"))
	require.Equal(t, "12345678901234567890123456789.5", s.text("SELECT u::text FROM out_num WHERE id = 2"))
	require.Equal(t, "-0.00000000000000000001", s.text("SELECT u::text FROM out_num WHERE id = 3"))
	require.Equal(t, "0.00", s.text("SELECT m::text FROM out_num WHERE id = 3"))

	fields, _ := s.columns("num_scale")
	rec := decode(t, memory.DefaultAllocator, fields, s.copyOut("SELECT * FROM num_scale ORDER BY id", 4))
	defer rec.Release()
	require.Equal(t, "0.1234567890123456789012345678", rec.Column(1).ValueStr(0))
	require.Equal(t, "99999999.999999999999999999999999999999", rec.Column(2).ValueStr(1))
	require.Equal(t, "1234567890.12", rec.Column(3).ValueStr(0))
}

// Case 02: what is not finite stays what it is.
func TestCase02NotFinite(t *testing.T) {
	s := newServer(t)
	infinity, negative := "'Infinity'", "'-Infinity'"
	if s.major < 14 {
		infinity, negative = "'NaN'", "'NaN'"
	}
	s.exec(`CREATE TABLE nonfin(id int PRIMARY KEY, ts timestamp, tz timestamptz, d date, n numeric, f float8);
		INSERT INTO nonfin VALUES
		(1,'-infinity','infinity','infinity','NaN','-Infinity'),
		(2,'2024-01-02 03:04:05.678901','2024-01-02 03:04:05.678901+00','2024-01-02',1.5,1.5),
		(3,'infinity','-infinity','-infinity',` + infinity + `,'NaN'), (4,NULL,NULL,NULL,` + negative + `,NULL)`)
	s.replicate("nonfin", "out_nonfin")
	require.Equal(t, "(1,-infinity,infinity,infinity,NaN,-Infinity)", s.text("SELECT o::text FROM out_nonfin o WHERE id = 1"))
}

// Case 03: NULL, empty, and NULL inside are three things.
func TestCase03Arrays(t *testing.T) {
	s := newServer(t)
	s.exec(`CREATE TABLE arr(id int PRIMARY KEY, a int[], t text[], m float8[]);
		INSERT INTO arr VALUES (1, NULL, '{}', NULL),
		(2, '{1,NULL,3}', ARRAY['a,b','NULL',NULL,'say "hi"','',E'\\'], '{{0.98,0.67,0},{0.67,0.41,0.59}}')`)
	s.replicate("arr", "out_arr")
	require.Equal(t, "true true true", s.text(`SELECT concat_ws(' ', (a IS NULL)::text, (cardinality(t) = 0)::text, (t IS NOT NULL)::text) FROM out_arr WHERE id = 1`))
	require.Equal(t, "true [1:2][1:3] 0.59 6", s.text(`SELECT concat_ws(' ', (a[2] IS NULL)::text, array_dims(m), m[2][3], cardinality(t)) FROM out_arr WHERE id = 2`))
}
