package casetest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/schema"
)

// TestCase25Counts: values longer than the target's column fail by name and
// limit, or are set aside and counted; what is reported as written is there, and
// nothing is cut.
func TestCase25Counts(t *testing.T) {
	t.Parallel()
	for _, write := range []string{"replace", "append", "upsert"} {
		t.Run(write, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.src.exec(`CREATE TABLE big(id int PRIMARY KEY, s text);
				INSERT INTO big SELECT i, CASE WHEN i % 3 = 0 THEN repeat('x', 6) ELSE 'ok' || i END FROM generate_series(1, 10) i`)
			p.dst.exec(`CREATE TABLE big(id int PRIMARY KEY, s varchar(5))`)
			resource := "{name: public.big, write: " + write
			settings := quick + ", schema_policy: freeze"
			message := p.fails(doc(toPostgres, settings, resource+"}"))
			for _, word := range []string{"public.big", `"s"`, "id=3", `xxxxxx`, "5"} {
				require.Contains(t, message, word)
			}
			require.EqualValues(t, 0, p.dst.count("SELECT count(*) FROM big"))

			out := p.must(doc(toPostgres, settings, resource+", policies: {columns: {s: set_aside}}, set_aside: 'table:public.aside'}"))
			r := out.receipt(t)
			require.Equal(t, []int64{10, 7, 3}, []int64{r.RowsRead, r.RowsWritten, r.RowsSetAside})
			require.Equal(t, map[string]int64{"s set_aside": 3}, counts(r))
			require.Equal(t, r.RowsWritten, p.dst.count("SELECT count(*) FROM big"))
			require.Equal(t, []string{"(id=3,xxxxxx)", "(id=6,xxxxxx)", "(id=9,xxxxxx)"}, p.dst.text(`SELECT key, "values"->>'s' FROM aside ORDER BY key`))

			p.dst.exec("TRUNCATE big")
			file := p.dir + "/aside.jsonl"
			r = p.must(doc(toPostgres, settings, resource+", policies: {columns: {s: set_aside}}, set_aside: 'file:"+file+"'}")).receipt(t)
			require.Equal(t, []int64{10, 7, 3}, []int64{r.RowsRead, r.RowsWritten, r.RowsSetAside})
			require.Equal(t, []string{"id=3", "id=6", "id=9"}, keysIn(t, file))

			p.dst.exec("TRUNCATE big")
			r = p.must(doc(toPostgres, settings, resource+", policies: {default: clamp}}")).receipt(t)
			require.EqualValues(t, 10, r.RowsWritten)
			require.Equal(t, map[string]int64{"s clamp": 3}, counts(r))
			require.EqualValues(t, 3, p.dst.count("SELECT count(*) FROM big WHERE s = 'xxxxx'"))

			p.dst.exec("TRUNCATE big")
			r = p.must(doc(toPostgres, settings, resource+", policies: {default: null}}")).receipt(t)
			require.Equal(t, map[string]int64{"s null": 3}, counts(r))
			require.Equal(t, []string{"(3)", "(6)", "(9)"}, p.dst.text("SELECT id FROM big WHERE s IS NULL ORDER BY id"))
		})
	}
}

// TestCase25Evolve: by default the target is widened, so that nothing is too long.
func TestCase25Evolve(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.src.exec(`CREATE TABLE big(id int PRIMARY KEY, s text); INSERT INTO big VALUES (1, repeat('x', 70000))`)
	p.dst.exec(`CREATE TABLE big(id int PRIMARY KEY, s varchar(5))`)
	p.must(doc(toPostgres, digest, "{name: public.big, write: upsert}"))
	require.EqualValues(t, 70000, p.dst.count("SELECT length(s) FROM big"))
}

// TestCase25SetAsideFiles: rows that a file format cannot hold, and the read-back
// of those that it holds.
func TestCase25SetAsideFiles(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.src.exec(nonfin)
	for _, format := range formats {
		file := p.dir + "/" + format + ".aside.jsonl"
		r := p.must(doc(p.toFiles(format), digest, "{name: public.nonfin, policies: {default: set_aside}, set_aside: 'file:"+file+"'}")).receipt(t)
		require.Equal(t, []int64{3, 1, 2}, []int64{r.RowsRead, r.RowsWritten, r.RowsSetAside})
		require.Equal(t, []string{"2"}, ids(p.rows(format, "public.nonfin")))
		require.Equal(t, []string{"id=1", "id=3"}, keysIn(t, file))
	}
}

// keysIn are the keys of the rows in a file of rows set aside.
func keysIn(t *testing.T, file string) []string {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	var out []string
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var line struct {
			Key    string                     `json:"key"`
			Reason string                     `json:"reason"`
			Values map[string]json.RawMessage `json:"values"`
		}
		require.NoError(t, json.Unmarshal(sc.Bytes(), &line))
		require.NotEmpty(t, line.Reason)
		require.NotEmpty(t, line.Values)
		out = append(out, line.Key)
	}
	return out
}

// lines are the thousand lines of case 35; which says where NUL stands.
func lines(which string) *rowSource {
	s := &rowSource{name: "lines", schema: schema.Schema{Key: []string{"id"}, Fields: []schema.Field{
		{Name: "id", Type: schema.Type{Kind: schema.Int64}},
		{Name: "s", Type: schema.Type{Kind: schema.String}, Nullable: true},
		{Name: "j", Type: schema.Type{Kind: schema.JSONB}, Nullable: true},
	}}}
	for id := 1; id <= 1000; id++ {
		row := []string{fmt.Sprint(id), fmt.Sprintf("text %d", id), fmt.Sprintf(`{"k":"%d"}`, id)}
		switch {
		case id == 500 && strings.Contains(which, "s"):
			row[1] = "a\x00b"
		case id == 501:
			row[1], row[2] = `a\u0000b`, `{"k":"\\u0000"}`
		}
		if id == 500 && strings.Contains(which, "j") {
			row[2] = `{"k":"x\u0000y"}`
		}
		s.rows = append(s.rows, row)
	}
	return s
}

// TestCase35NUL: PostgreSQL holds no U+0000: the run fails and names the value,
// or a policy is counted; text that only looks like an escape is left alone.
func TestCase35NUL(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for which, column := range map[string]string{"s": "s", "j": "j", "sj": "s"} {
		src := lines(which)
		p.more = []engine.Source{src}
		out := p.run(arrowDoc(toPostgres, digest, "{name: lines}"))
		require.Error(t, out.err)
		for _, word := range []string{"lines", `column "` + column + `"`, "id=500"} {
			require.Contains(t, out.err.Error(), word)
		}
		require.Equal(t, engine.Permanent, engine.ClassOf(out.err))
		require.Equal(t, 1, src.reads, "no retry loop: %s", p.log)
		require.Equal(t, column == "s", strings.Contains(out.err.Error(), "clamp"), "the hint names what would help")
	}
	others := func() {
		t.Helper()
		require.EqualValues(t, 999, p.dst.count(`SELECT count(*) FROM lines WHERE id <> 500`))
		require.EqualValues(t, 998, p.dst.count(`SELECT count(*) FROM lines WHERE id NOT IN (500, 501) AND s = 'text ' || id AND j = jsonb_build_object('k', id::text)`))
		require.Equal(t, []string{`(8,"a\\u0000b",6,"\\u0000")`}, p.dst.text(`SELECT length(s), s, length(j->>'k'), j->>'k' FROM lines WHERE id = 501`))
	}
	p.more = []engine.Source{lines("sj")}
	for policy, want := range map[string]string{"null": "(500,,)", "clamp": "(500,ab,)"} {
		// jsonb has no nearest value: clamp strips the NUL of the text only.
		r := p.must(arrowDoc(toPostgres, digest, "{name: lines, policies: {columns: {s: "+policy+", j: null}}}"), restart).receipt(t)
		require.Equal(t, map[string]int64{"s " + policy: 1, "j null": 1}, counts(r))
		require.EqualValues(t, 1000, r.RowsWritten)
		others()
		require.Equal(t, []string{want}, p.dst.text("SELECT * FROM lines WHERE id = 500"))
	}
	r := p.must(arrowDoc(toPostgres, digest, "{name: lines, policies: {default: set_aside}, set_aside: 'file:"+p.dir+"/aside.jsonl'}")).receipt(t)
	require.Equal(t, []int64{999, 1}, []int64{r.RowsWritten, r.RowsSetAside})
	others()
	require.Equal(t, []string{"id=500"}, keysIn(t, p.dir+"/aside.jsonl"))

	// Files hold it.
	for _, format := range []string{"parquet", "jsonl"} {
		p.must(arrowDoc(p.toFiles(format), digest, "{name: lines}"))
		rows := p.rows(format, "lines")
		require.Len(t, rows, 1000)
		want := map[string][]string{"parquet": {"a\x00b", `a\u0000b`}, "jsonl": {`"a\u0000b"`, `"a\\u0000b"`}}[format]
		require.Equal(t, want, []string{rows[499]["s"], rows[500]["s"]})
	}
}
