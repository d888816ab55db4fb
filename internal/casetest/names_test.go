package casetest

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

// TestCase04Identity: identity values are kept, generated columns do not break
// the load or an upsert, and a table with nothing else loads.
func TestCase04Identity(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"made before", "made by us"} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			ddl := `CREATE TABLE parent(id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, w int, h int,
				                    area int GENERATED ALWAYS AS (w*h) STORED);
				CREATE TABLE child(id int PRIMARY KEY, parent_id int REFERENCES parent);
				CREATE TABLE only_id(id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY);`
			p.src.exec(ddl)
			if target == "made before" {
				p.dst.exec(ddl)
			}
			p.src.exec(`INSERT INTO parent(w,h) VALUES (2,3),(4,5),(6,7);  DELETE FROM parent WHERE id < 3;
				INSERT INTO child VALUES (10,3);
				INSERT INTO only_id DEFAULT VALUES; INSERT INTO only_id DEFAULT VALUES; INSERT INTO only_id DEFAULT VALUES;
				DELETE FROM only_id WHERE id = 2;`)
			resources := []string{"{name: public.parent, write: %}", "{name: public.child, write: %}", "{name: public.only_id, write: %}"}
			document := func(mode string) string {
				return strings.ReplaceAll(doc(toPostgres, digest, resources...), "%", mode)
			}
			check := func(parent string) {
				t.Helper()
				require.Equal(t, []string{parent}, p.dst.text("SELECT id, w, h, area FROM parent"))
				require.Equal(t, []string{"(10,3)"}, p.dst.text("SELECT * FROM child"))
				require.Equal(t, []string{"(1)", "(3)"}, p.dst.text("SELECT id FROM only_id ORDER BY id"))
			}
			// Parents before children, as the foreign key wants it.
			p.must(document("upsert"), oneSlot)
			check("(3,6,7,42)")
			p.src.exec("UPDATE parent SET w = 8 WHERE id = 3")
			p.must(document("upsert"), oneSlot)
			check("(3,8,7,56)")
			p.src.exec("UPDATE parent SET h = 1 WHERE id = 3")
			p.must(doc(toPostgres, digest, "{name: public.only_id}"))
			if target == "made by us" {
				p.must(document("replace"), oneSlot)
				check("(3,8,1,8)")
			}
			p.noStaging()
			// The next value is past the loaded ones.
			require.Equal(t, []string{"(4)"}, p.dst.text("SELECT nextval(pg_get_serial_sequence('only_id', 'id'))"))
		})
	}
}

// TestCase09LongColumns: (a) two long keys stay two columns, (c) a name is cut
// between characters; the same names on every run.
func TestCase09LongColumns(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	alpha, beta, accents := strings.Repeat("k", 70)+"_alpha", strings.Repeat("k", 70)+"_beta", strings.Repeat("é", 40)
	integer := schema.Type{Kind: schema.Int64}
	src := &rowSource{name: "lines", schema: schema.Schema{Fields: []schema.Field{
		{Name: "id", Type: integer}, {Name: alpha, Type: integer, Nullable: true}, {Name: beta, Type: integer, Nullable: true}, {Name: accents, Type: integer, Nullable: true},
	}, Key: []string{"id"}}, rows: [][]string{{"1", "10", "20", "30"}}}
	p.more = []engine.Source{src}
	names := func() []string {
		return p.dst.text("SELECT attname FROM pg_attribute WHERE attrelid = 'lines'::regclass AND attnum > 1 AND NOT attisdropped ORDER BY attnum")
	}
	out := p.must(arrowDoc(toPostgres, digest, "{name: lines}"))
	first := names()
	require.Len(t, first, 3)
	require.NotEqual(t, first[0], first[1])
	for _, n := range first {
		n = strings.Trim(n, "()")
		require.LessOrEqual(t, len(n), 63)
		require.True(t, utf8.ValidString(n))
	}
	require.Equal(t, []string{"(1,10,20,30)"}, p.dst.text("SELECT * FROM lines"))
	// The mapping is shown: in the plan, which the receipt's target was made from.
	require.NotEmpty(t, out.receipt(t).Target)
	for range 2 {
		p.must(arrowDoc(toPostgres, digest, "{name: lines}"))
		require.Equal(t, first, names())
	}
	p.must(arrowDoc(toPostgres, digest, "{name: lines, write: upsert}"))
	require.Equal(t, first, names())
	require.EqualValues(t, 1, p.dst.count("SELECT count(*) FROM lines"))

	p.must(arrowDoc(p.toFiles("jsonl"), digest, "{name: lines}"))
	row := p.rows("jsonl", "lines")[0]
	require.Equal(t, []string{"10", "20", "30"}, []string{row[alpha], row[beta], row[accents]}, "files hold names of any length")
}

// TestCase09LongTables: (b) names that differ in their last character are never mixed.
func TestCase09LongTables(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a, b := strings.Repeat("t", 62)+"a", strings.Repeat("t", 62)+"b"
	for name, n := range map[string]string{a: "1000", b: "2000"} {
		p.src.exec("CREATE TABLE " + name + "(id int PRIMARY KEY, v text); INSERT INTO " + name + " SELECT i, '" + name[62:] + "' FROM generate_series(1," + n + ") i")
	}
	for _, mode := range []string{"replace", "replace", "upsert", "append"} {
		p.must(doc(toPostgres, digest+", slots: 4", "{name: 'public.t*', write: "+mode+"}"), smallSteps)
		require.EqualValues(t, 1000, p.dst.count("SELECT count(*) FROM "+a+" WHERE v = 'a'"))
		require.EqualValues(t, 2000, p.dst.count("SELECT count(*) FROM "+b+" WHERE v = 'b'"))
		p.noStaging()
		if mode == "upsert" { // the targets have keys: the append that follows needs them empty
			p.dst.exec("TRUNCATE " + a + "; TRUNCATE " + b)
		}
	}
	p.must(doc(p.toFiles("parquet"), digest+", slots: 4", "{name: 'public.t*'}"))
	require.Len(t, p.rows("parquet", "public."+a), 1000)
	require.Len(t, p.rows("parquet", "public."+b), 2000)
}

// TestCase09Quotes: (d) dots, spaces, reserved words and quotes in names.
func TestCase09Quotes(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.src.exec(`CREATE SCHEMA "s.t"; CREATE TABLE "s.t"."a.b"("Order Id" int PRIMARY KEY, "select" text, "q""t" int);
		INSERT INTO "s.t"."a.b" VALUES (1, 'x', 2)`)
	for _, mode := range []string{"replace", "replace", "upsert"} {
		p.must(doc(toPostgres, digest, `{name: '"s.t"."a.b"', write: `+mode+`}`))
		require.Equal(t, []string{"(1,x,2)"}, p.dst.text(`SELECT "Order Id", "select", "q""t" FROM "s.t"."a.b"`))
	}
	p.must(doc(toPostgres, digest, `{name: '"s.t"."a.b"', write: append, read: incremental, cursor: "Order Id", target: '"x.y"."c""d"'}`))
	require.Equal(t, []string{"(1,x,2)"}, p.dst.text(`SELECT "Order Id", "select", "q""t" FROM "x.y"."c""d"`))
	p.must(doc(p.toFiles("jsonl"), digest, `{name: '"s.t".*'}`))
	folders, err := filepath.Glob(p.folder("jsonl") + "/*")
	require.NoError(t, err)
	require.Len(t, folders, 1)
	var found []string
	for _, r := range p.rows("jsonl", filepath.Base(folders[0])) {
		body, err := json.Marshal(r)
		require.NoError(t, err)
		found = append(found, string(body))
	}
	require.JSONEq(t, `{"Order Id": "1", "select": "\"x\"", "q\"t": "2"}`, strings.Join(found, ""))
}
