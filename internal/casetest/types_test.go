package casetest

import (
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var formats = []string{"parquet", "jsonl", "csv"}

// TestCase01DecimalScale: no digit of a numeric moves or is lost.
func TestCase01DecimalScale(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.src.exec(`CREATE TABLE num_scale(id int PRIMARY KEY, u numeric, p numeric(38,30), m numeric(12,2));
		INSERT INTO num_scale VALUES
		(1, 0.1234567890123456789012345678, 0.000000000000000000000000000001, 1234567890.12),
		(2, 12345678901234567890123456789.5, 99999999.999999999999999999999999999999, -0.01),
		(3, -1e-20, 0, 0)`)
	p.must(doc(toPostgres, digest, "{name: public.num_scale}"))
	all := "SELECT * FROM num_scale ORDER BY id"
	require.Equal(t, p.src.text(all), p.dst.text(all))
	require.Equal(t, []string{"(numeric)", "(\"numeric(38,30)\")", "(\"numeric(12,2)\")"}, p.dst.text(`SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'num_scale'::regclass AND attnum > 1 ORDER BY attnum`))

	for _, format := range formats {
		p.must(doc(p.toFiles(format), digest, "{name: public.num_scale}"))
		rows := p.rows(format, "public.num_scale")
		require.Len(t, rows, 3)
		for i, want := range []row{
			{"u": "0.1234567890123456789012345678", "p": "0.000000000000000000000000000001", "m": "1234567890.12"},
			{"u": "12345678901234567890123456789.5", "p": "99999999.999999999999999999999999999999", "m": "-0.01"},
			{"u": "-0.00000000000000000001", "p": "0", "m": "0"},
		} {
			for column, v := range want {
				got := rows[i][column]
				if column != "u" {
					// A fixed scale may show its zeros, and Arrow prints exponents.
					require.Equal(t, exactly(t, v), exactly(t, got), "%s %s row %d", format, column, i+1)
					continue
				}
				require.Equal(t, v, got, "%s %s row %d", format, column, i+1)
			}
		}
	}
}

// exactly is the value of a decimal as a fraction.
func exactly(t *testing.T, s string) string {
	t.Helper()
	v, ok := new(big.Rat).SetString(s)
	require.True(t, ok, s)
	return v.String()
}

const nonfin = `CREATE TABLE nonfin(id int PRIMARY KEY, ts timestamp, tz timestamptz, d date, n numeric, f float8);
	INSERT INTO nonfin VALUES
	(1,'-infinity','infinity','infinity','NaN','-Infinity'),
	(2,'2024-01-02 03:04:05.678901','2024-01-02 03:04:05.678901+00','2024-01-02',1.5,1.5),
	(3,'infinity','-infinity','-infinity','Infinity','NaN')`

// TestCase02NonFinite: infinities arrive, or follow a policy that is counted;
// never another value, never an empty table with success.
func TestCase02NonFinite(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.src.exec(nonfin)
	p.must(doc(toPostgres, digest, "{name: public.nonfin}"))
	all := "SELECT * FROM nonfin ORDER BY id"
	require.Equal(t, p.src.text(all), p.dst.text(all))
	require.EqualValues(t, 3, p.dst.count("SELECT count(*) FROM nonfin"))

	for _, format := range formats {
		message := p.fails(doc(p.toFiles(format), digest, "{name: public.nonfin}"))
		require.Contains(t, message, "public.nonfin")
		require.Contains(t, message, "id=1")
		require.Contains(t, message, "infinity")
		require.NoFileExists(t, p.folder(format)+"/public.nonfin/manifest.json")

		out := p.must(doc(p.toFiles(format), digest, "{name: public.nonfin, policies: {default: null}}"))
		got := counts(out.receipt(t))
		want := map[string]int64{"ts null": 2, "tz null": 2, "d null": 2, "n null": 2, "f null": 2}
		rows := p.rows(format, "public.nonfin")
		require.Len(t, rows, 3)
		switch format {
		case "parquet":
			// DOUBLE has NaN and infinities; unbounded decimals are exact text.
			delete(want, "f null")
			delete(want, "n null")
			require.Equal(t, []string{"NaN", "Infinity"}, []string{rows[0]["n"], rows[2]["n"]})
			require.Equal(t, "-Inf", rows[0]["f"])
			require.Equal(t, "NaN", rows[2]["f"])
			require.Equal(t, "2024-01-02T03:04:05.678901", rows[1]["ts"])
			require.Equal(t, "2024-01-02T03:04:05.678901Z", rows[1]["tz"])
			require.Equal(t, "2024-01-02", rows[1]["d"])
		case "jsonl":
			require.Equal(t, `"2024-01-02T03:04:05.678901"`, rows[1]["ts"])
			require.Equal(t, `"2024-01-02T03:04:05.678901Z"`, rows[1]["tz"])
			require.Equal(t, `"2024-01-02"`, rows[1]["d"])
		case "csv":
			delete(want, "f null")
			require.Equal(t, "-Infinity", rows[0]["f"])
			require.Equal(t, "NaN", rows[2]["f"])
			require.Equal(t, "2024-01-02T03:04:05.678901", rows[1]["ts"])
		}
		require.Equal(t, want, got, format)
		require.Equal(t, "1.5", strings.Trim(rows[1]["n"], `"`))
		require.Equal(t, "1.5", rows[1]["f"])
		for _, column := range []string{"ts", "tz", "d"} {
			require.Equal(t, null, rows[0][column], "%s %s", format, column)
			require.Equal(t, null, rows[2][column], "%s %s", format, column)
		}
	}

	// Clamp is a value at the end of the range, counted, and never 1970 or 0.
	out := p.must(doc(p.toFiles("jsonl"), digest, "{name: public.nonfin, columns: {exclude: [n, f]}, policies: {default: clamp}}"))
	require.Equal(t, map[string]int64{"ts clamp": 2, "tz clamp": 2, "d clamp": 2}, counts(out.receipt(t)))
	for _, r := range p.rows("jsonl", "public.nonfin") {
		require.NotContains(t, r["ts"]+r["tz"]+r["d"], "1970")
	}
}

// TestCase03Arrays: a NULL array, an empty one and one with NULL stay three things.
func TestCase03Arrays(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.src.exec(`CREATE TABLE arr(id int PRIMARY KEY, a int[], t text[], m float8[]);
		INSERT INTO arr VALUES
		(1, NULL, '{}', NULL),
		(2, '{1,NULL,3}', ARRAY['a,b','NULL',NULL,'say "hi"','',E'\\'], '{{0.98,0.67,0},{0.67,0.41,0.59}}')`)
	p.must(doc(toPostgres, digest, "{name: public.arr}"))
	require.Equal(t, []string{"(t,0,f)"}, p.dst.text("SELECT a IS NULL, cardinality(t), t IS NULL FROM arr WHERE id = 1"))
	require.Equal(t, []string{`(t,6,"a,b",NULL,,"say ""hi""","","\\",[1:2][1:3],0.59)`},
		p.dst.text("SELECT a[2] IS NULL, cardinality(t), t[1], t[2], t[3], t[4], t[5], t[6], array_dims(m), m[2][3] FROM arr WHERE id = 2"))

	p.must(doc(p.toFiles("jsonl"), digest, "{name: public.arr}"))
	rows := p.rows("jsonl", "public.arr")
	require.Equal(t, null, rows[0]["a"])
	require.Equal(t, "[]", rows[0]["t"])
	require.Equal(t, null, rows[0]["m"])
	require.Equal(t, "[1,null,3]", rows[1]["a"])
	require.Equal(t, `["a,b","NULL",null,"say \"hi\"","","\\"]`, rows[1]["t"])
	require.Equal(t, "[[0.98,0.67,0],[0.67,0.41,0.59]]", rows[1]["m"])

	// Parquet has no arrays of two dimensions: the column goes as text by policy.
	require.Contains(t, p.fails(doc(p.toFiles("parquet"), digest, "{name: public.arr}")), `column "m" row id=2`)
	p.must(doc(p.toFiles("parquet"), digest, "{name: public.arr, policies: {columns: {m: text}}}"))
	rows = p.rows("parquet", "public.arr")
	require.Equal(t, null, rows[0]["a"])
	require.Equal(t, "[]", rows[0]["t"])
	require.Equal(t, "[1,null,3]", rows[1]["a"])
	require.Equal(t, `["a,b","NULL",null,"say \"hi\"","","\\"]`, rows[1]["t"])
	require.Equal(t, null, rows[0]["m"])
	require.Equal(t, "[[0.98,0.67,0],[0.67,0.41,0.59]]", rows[1]["m"])

	p.must(doc(p.toFiles("csv"), digest, "{name: public.arr}"))
	rows = p.rows("csv", "public.arr")
	require.Equal(t, null, rows[0]["a"])
	require.Equal(t, "[]", rows[0]["t"])
	require.Equal(t, `["a,b","NULL",null,"say \"hi\"","","\\"]`, rows[1]["t"])
}

// TestSpareTypes: short reports on types.
func TestSpareTypes(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.src.exec(`CREATE TABLE spare(id int PRIMARY KEY, b bytea, i int, g bigint, iv interval, j jsonb, ts timestamp, d date, s text);
		INSERT INTO spare VALUES
		(1, '\xdeadbeef', 2129020, 9007199254740993, '1 year 2 mons 3 days 04:05:06.789', '{"n": 9007199254740993, "l": [12345678901234567890123.5]}', NULL, '2024-02-29', '007'),
		(2, '\x', -2147483648, 9223372036854775807, '-1 mon +1 day -00:00:00.000001', '{"n": 1e400}', '1969-12-31 23:59:59.999999', '1969-12-31', ''),
		(3, NULL, NULL, -9223372036854775808, NULL, 'null', '0001-01-01 00:00:00', '0001-01-01', NULL)`)
	all := "SELECT * FROM spare ORDER BY id"
	p.must(doc(toPostgres, digest, "{name: public.spare}"))
	require.Equal(t, p.src.text(all), p.dst.text(all))
	require.Equal(t, []string{"(4)"}, p.dst.text("SELECT octet_length(b) FROM spare WHERE id = 1"))
	require.Equal(t, []string{"(9007199254740993,12345678901234567890123.5)"}, p.dst.text("SELECT j->>'n', j->'l'->>0 FROM spare WHERE id = 1"))
	// The other way of an upsert: the same values.
	p.src.exec("UPDATE spare SET i = i + 1 WHERE id < 3 AND i > 0")
	p.must(doc(toPostgres, digest, "{name: public.spare, write: upsert}"))
	require.Equal(t, p.src.text(all), p.dst.text(all))

	// In Parquet JSON is text, and intervals are ISO 8601 text.
	p.must(doc(p.toFiles("parquet"), digest, "{name: public.spare}"))
	rows := p.rows("parquet", "public.spare")
	require.Equal(t, "3q2+7w==", rows[0]["b"])
	require.Equal(t, "2129021", rows[0]["i"])
	require.Equal(t, "9007199254740993", rows[0]["g"])
	require.Equal(t, "9223372036854775807", rows[1]["g"])
	require.Equal(t, "-9223372036854775808", rows[2]["g"])
	require.Equal(t, "P1Y2M3DT4H5M6.789S", rows[0]["iv"])
	require.Equal(t, null, rows[0]["ts"], "a NULL timestamp stays NULL")
	require.Equal(t, "1969-12-31T23:59:59.999999", rows[1]["ts"])
	require.Equal(t, "2024-02-29", rows[0]["d"])
	require.Equal(t, "1969-12-31", rows[1]["d"])
	require.Equal(t, "0001-01-01", rows[2]["d"])
	require.Equal(t, "007", rows[0]["s"])
	require.Equal(t, "", rows[1]["s"])
	require.Equal(t, null, rows[2]["s"])

	p.must(doc(p.toFiles("jsonl"), digest, "{name: public.spare, where: id < 3}"))
	rows = p.rows("jsonl", "public.spare")
	require.Equal(t, `"3q2+7w=="`, rows[0]["b"])
	require.Equal(t, "2129021", rows[0]["i"])
	require.Equal(t, "9007199254740993", rows[0]["g"])
	require.Contains(t, rows[0]["j"], "9007199254740993")
	require.Contains(t, rows[0]["j"], "12345678901234567890123.5")
	require.Equal(t, `"007"`, rows[0]["s"])
	// A JSON null is not SQL's NULL: it follows the policy.
	require.Contains(t, p.fails(doc(p.toFiles("jsonl"), digest, "{name: public.spare}")), `column "j" row id=3`)

	p.must(doc(p.toFiles("csv"), digest, "{name: public.spare}"))
	rows = p.rows("csv", "public.spare")
	require.Equal(t, "", rows[1]["s"])
	require.Equal(t, null, rows[2]["s"])
	require.Equal(t, "2129021", rows[0]["i"])
}
