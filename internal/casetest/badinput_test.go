package casetest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/engine/runner"
	"github.com/tranship-io/tranship/internal/pgtest"
	"github.com/tranship-io/tranship/pipeline"
)

// betweenPlanAndRead runs something once after the plan, before the first read.
func betweenPlanAndRead(act func()) change {
	return func(o *runner.Options) {
		open := o.OpenSource
		o.OpenSource = func(ctx context.Context, opt engine.OpenOptions) (engine.SourceSession, error) {
			s, err := open(ctx, opt)
			return &hooked{SourceSession: s, act: act}, err
		}
	}
}

type hooked struct {
	engine.SourceSession
	once sync.Once
	act  func()
}

func (h *hooked) Read(ctx context.Context, req engine.ReadRequest, out engine.Writer) (engine.ReadResult, error) {
	h.once.Do(h.act)
	return h.SourceSession.Read(ctx, req, out)
}

// says requires every word in a message.
func says(t *testing.T, message string, words ...string) {
	t.Helper()
	for _, w := range words {
		require.Contains(t, message, w)
	}
}

// TestBadInputDocuments: a wrong file is refused before anything is touched.
func TestBadInputDocuments(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	good := doc(toPostgres, digest, "{name: public.t}")
	for name, c := range map[string]struct {
		text  string
		words []string
	}{
		"no YAML":            {"version: [1", []string{"not valid YAML"}},
		"empty":              {"", []string{"empty", "tranship init"}},
		"a newer version":    {strings.Replace(good, "version: 1", "version: 2", 1), []string{"version", "1"}},
		"unknown key":        {strings.Replace(good, "resources:", "resuorces:", 1), []string{"resuorces", `did you mean "resources"?`}},
		"unknown connector":  {strings.Replace(good, "connector: postgres", "connector: postgers", 1), []string{"postgers", `did you mean "postgres"?`}},
		"unknown mode":       {strings.Replace(good, "{name: public.t}", "{name: public.t, write: upsrt}", 1), []string{"upsrt", "upsert"}},
		"missing variable":   {strings.Replace(good, "SINK_URL", "SINK_ULR", 1), []string{"SINK_ULR"}},
		"no cursor":          {strings.Replace(good, "{name: public.t}", "{name: public.t, read: incremental}", 1), []string{"cursor"}},
		"unknown table":      {strings.Replace(good, "public.t}", "public.ordesr}", 1), []string{"public.ordesr", `did you mean "public.orders"?`}},
		"no match":           {strings.Replace(good, "public.t}", "'nowhere.*'}", 1), []string{"nowhere.*"}},
		"unknown column":     {strings.Replace(good, "public.t}", "public.orders, columns: {exclude: [pasword]}}", 1), []string{"pasword", "public.orders"}},
		"unknown key column": {strings.Replace(good, "public.t}", "public.orders, key: [uid]}", 1), []string{"uid", "public.orders"}},
		"unknown cursor":     {strings.Replace(good, "public.t}", "public.orders, read: incremental, cursor: updated}", 1), []string{"updated", "public.orders"}},
		"broken filter":      {strings.Replace(good, "public.t}", "public.orders, where: idd > 3}", 1), []string{"public.orders", "idd"}},
		"format without":     {doc("{connector: files, path: "+p.dir+"/x, format: orc}", digest, "{name: public.orders}"), []string{"orc", "parquet"}},
		"upsert into files":  {doc(p.toFiles("parquet"), digest, "{name: public.orders, write: upsert}"), []string{"upsert", "files"}},
	} {
		if name == "empty" || c.text != good {
			p.src.exec("CREATE TABLE IF NOT EXISTS orders(id int PRIMARY KEY)")
			message := p.fails(c.text)
			for _, w := range c.words {
				require.Contains(t, message, w, name)
			}
		}
	}
	require.Empty(t, p.dst.text("SELECT relname FROM pg_class WHERE relname = 'orders'"), "nothing was made")
	_, err := pipeline.ReadFile(filepath.Join(p.dir, "nothing.yaml"), pipeline.Options{Sources: catalog.New(os.Stderr).SourceSpecs()})
	says(t, err.Error(), "nothing.yaml", "tranship init")
}

// TestBadInputChangesWhileReading: what happens to a table between plan and read
// is noticed; a replace begins anew or fails by name, and never silently reads
// nothing (P12).
func TestBadInputChangesWhileReading(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.dst.exec("CREATE TABLE plain(id int PRIMARY KEY, v text, n numeric(10,2)); CREATE TABLE keyless(id int, v text, n numeric(10,2))")
	fill := "(id int, v text, n numeric(10,2)); INSERT INTO %s SELECT i, 'v' || i, i FROM generate_series(1, 500) i"
	again := "CREATE TABLE %s" + strings.ReplaceAll(fill, "generate_series(1, 500)", "generate_series(1, 300)")
	for _, c := range []struct {
		name, sql string
		rows      int64 // after a run that completes; 0: it fails
		words     []string
		old       int64 // rows at the target after a failure
	}{
		{"truncated and filled again", "TRUNCATE %s; INSERT INTO %s SELECT i, 'v' || i, i FROM generate_series(1, 300) i", 300, nil, 0},
		{"rewritten", "VACUUM FULL %s", 500, nil, 0},
		{"made anew", "DROP TABLE %s; " + again, 300, nil, 0},
		{"dropped", "DROP TABLE %s", 0, []string{"no such table"}, 500},
		{"column dropped", "ALTER TABLE %s DROP COLUMN v", 0, []string{`column "v"`, "dropped", "--restart"}, 500},
		{"column of another type", "ALTER TABLE %s ALTER n TYPE numeric(12,4)", 0, []string{`column "n"`, "numeric(10,2)"}, 500},
	} {
		for _, table := range []string{"plain", "keyless"} {
			if table == "keyless" && !strings.HasPrefix(c.name, "truncated") && !strings.HasPrefix(c.name, "column d") {
				continue // one lock stops them all
			}
			of := func(sql string) string { return strings.ReplaceAll(sql, "%s", table) }
			p.src.exec(of("DROP TABLE IF EXISTS %s; CREATE TABLE %s" + fill))
			if table == "plain" {
				p.src.exec("ALTER TABLE plain ADD PRIMARY KEY (id)")
			}
			document := doc(toPostgres, quick+", split_size: 64KiB, consistency: chunked", "{name: public."+table+"}")
			if table == "keyless" {
				// A snapshot's holder has the table locked: nothing can be done to it.
				document = strings.Replace(document, "consistency: chunked", "consistency: snapshot", 1)
			}
			p.must(document, restart)
			require.EqualValues(t, 500, p.dst.count("SELECT count(*) FROM "+table))
			if table == "keyless" {
				p.must(document, restart, betweenPlanAndRead(func() {
					conn := p.src.connect()
					_, err := conn.Exec(t.Context(), "SET lock_timeout = '50ms'")
					require.NoError(t, err)
					_, err = conn.Exec(t.Context(), strings.Split(of(c.sql), "; ")[0])
					require.ErrorContains(t, err, "lock timeout", c.name)
				}))
				require.EqualValues(t, 500, p.dst.count("SELECT count(*) FROM keyless"), c.name)
				continue
			}
			out := p.run(document, restart, betweenPlanAndRead(func() {
				for _, sql := range strings.Split(of(c.sql), "; ") {
					p.src.exec(sql)
				}
				if strings.Contains(c.sql, "CREATE") {
					p.src.exec("ALTER TABLE plain ADD PRIMARY KEY (id)")
				}
			}))
			if c.rows > 0 {
				require.NoError(t, out.err, c.name)
				require.Equal(t, c.rows, p.dst.count("SELECT count(*) FROM plain"), c.name)
				continue
			}
			require.Error(t, out.err, c.name)
			says(t, out.err.Error(), append(c.words, "public.plain")...)
			require.Equal(t, c.old, p.dst.count("SELECT count(*) FROM plain"), "%s: the old rows stay", c.name)
		}
	}
}

// TestBadInputColumnDroppedAtResume: a resumed append names the column that is
// gone; what was applied stays, and restarting goes on without a double.
func TestBadInputColumnDroppedAtResume(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.src.exec(pace + `CREATE TABLE t(id int PRIMARY KEY, a text, b text); INSERT INTO t SELECT i, repeat('a', 500), 'b' FROM generate_series(1, 200) i`)
	document := doc(toPostgres, quick, "{name: public.t, where: pace(id), read: incremental, write: append, cursor: id}")
	p.src.streams()
	p.src.paceFailsAt("190")
	p.fails(document, smallSteps)
	applied := p.dst.count("SELECT count(*) FROM t")
	require.Positive(t, applied)
	p.src.paceRuns()
	p.src.exec("ALTER TABLE t RENAME COLUMN b TO kept")
	says(t, p.fails(document), "public.t", `column "b"`)
	require.Equal(t, applied, p.dst.count("SELECT count(*) FROM t"))
	// A new run may not forget the rows that stand (P21): it says so.
	message := p.fails(document, restart)
	says(t, message, "public.t", `column "b"`, "rows")
	require.Equal(t, applied, p.dst.count("SELECT count(*) FROM t"))
	p.src.exec("ALTER TABLE t RENAME COLUMN kept TO b")
	p.must(document)
	require.EqualValues(t, 200, p.dst.count("SELECT count(DISTINCT id) FROM t WHERE b = 'b'"))
	require.EqualValues(t, 200, p.dst.count("SELECT count(*) FROM t"))
}

// TestBadInputKeys: a key that is none is named with its value, before the old
// rows are touched.
func TestBadInputKeys(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.src.exec(`CREATE TABLE dup(k int, v text); INSERT INTO dup VALUES (1, 'a'), (2, 'b'), (2, 'c');
		CREATE TABLE nul(k int, v text); INSERT INTO nul VALUES (1, 'a'), (NULL, 'b')`)
	p.dst.exec(`CREATE TABLE dup(k int PRIMARY KEY, v text); INSERT INTO dup VALUES (7, 'old'); CREATE TABLE nul(k int PRIMARY KEY, v text); INSERT INTO nul VALUES (7, 'old')`)
	for table, value := range map[string]string{"dup": "k=2", "nul": "k"} {
		for _, write := range []string{"replace", "append"} {
			message := p.fails(doc(toPostgres, quick, "{name: public."+table+", key: [k], write: "+write+"}"))
			says(t, message, "public."+table, value)
			require.Contains(t, p.dst.text("SELECT * FROM "+table), "(7,old)", "%s %s", table, write)
			require.Len(t, p.dst.text("SELECT * FROM "+table), 1, "%s %s", table, write)
		}
	}
	says(t, p.fails(doc(toPostgres, quick, "{name: public.nul, key: [k], write: upsert}")), "public.nul", "k", "NULL")
	// An upsert without any key has nothing to go by.
	p.src.exec("CREATE TABLE free(v text); INSERT INTO free VALUES ('a')")
	says(t, p.fails(doc(toPostgres, quick, "{name: public.free, write: upsert}")), "public.free", "key")
}

// TestBadInputHangingSource: a source that answers nothing is given up in time.
func TestBadInputHangingSource(t *testing.T) {
	t.Parallel()
	srv := pgtest.StartT(t, pgtest.Config{})
	p := placeOn(t, pgtest.NewDatabase(t, srv), pgtest.NewDatabase(t, pgtest.Shared(t)))
	p.src.exec(`CREATE TABLE t(id int PRIMARY KEY, v text); INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 2000) i`)
	document := strings.Replace(doc(toPostgres, quick, "{name: public.t}"), `url: "${SOURCE_URL}"}`, `url: "${SOURCE_URL}", stall_timeout: 1s, connect_timeout: 1s}`, 1)
	p.must(document)
	began := time.Now()
	message := p.fails(document, betweenPlanAndRead(func() { require.NoError(t, srv.Pause()) }))
	require.NoError(t, srv.Resume())
	says(t, message, "public.t")
	require.Less(t, time.Since(began), 30*time.Second)
	require.EqualValues(t, 2000, p.dst.count("SELECT count(*) FROM t"))
	p.must(document)

	require.NoError(t, srv.Pause())
	began = time.Now()
	message = p.fails(document)
	require.NoError(t, srv.Resume())
	says(t, message, "open source", "127.0.0.1")
	require.Less(t, time.Since(began), 30*time.Second)
}
