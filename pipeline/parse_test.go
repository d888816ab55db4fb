package pipeline_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/pipeline"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares text with a file under testdata.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

type tlsConfig struct {
	Mode string `json:"mode,omitempty" jsonschema:"enum=disable,enum=verify-full"`
}

type tableConfig struct {
	URL      string    `json:"url" secret:"true" jsonschema:"required"`
	Schema   string    `json:"schema,omitempty"`
	Port     int       `json:"port,omitempty" jsonschema:"minimum=1,maximum=65535"`
	SSLMode  string    `json:"sslmode,omitempty"`
	Password string    `json:"password,omitempty" secret:"true"`
	TLS      tlsConfig `json:"tls,omitzero"`
}

func specs() (sources, sinks []engine.Spec) {
	table := engine.Spec{
		Name: "table", Title: "Table", Config: &tableConfig{},
		Reads:  []engine.ReadMode{engine.ReadFull, engine.ReadIncremental, engine.ReadCDC},
		Writes: []engine.WriteMode{engine.WriteReplace, engine.WriteAppend, engine.WriteUpsert, engine.WriteMerge},
	}
	out := engine.Spec{Name: "out", Title: "Out", Config: &struct{}{}, Writes: []engine.WriteMode{engine.WriteReplace, engine.WriteAppend}}
	return []engine.Spec{table}, []engine.Spec{table, out}
}

const secret = "c0rrect-horse"

func env(name string) (string, bool) {
	v, ok := map[string]string{
		"SOURCE_URL":      "postgres://reader:" + secret + "@db.example/shop",
		"SINK_URL":        "host=db user=w password=" + secret,
		"PORT":            "5432",
		"SECRET_PASSWORD": secret,
		"SLOTS":           "3",
	}[name]
	return v, ok
}

func options(file string) pipeline.Options {
	sources, sinks := specs()
	return pipeline.Options{File: file, Env: env, Sources: sources, Sinks: sinks}
}

func TestGoodDocuments(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/good/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			t.Parallel()
			doc, err := pipeline.ReadFile(f, options(""))
			require.NoError(t, err)

			text, err := os.ReadFile(f)
			require.NoError(t, err)
			opt := options(f)
			opt.Env = nil
			written, err := pipeline.Parse(text, opt)
			require.NoError(t, err)
			assert.Equal(t, doc.Hash(), written.Hash(), "the hash is taken before references are replaced")
			out, err := pipeline.Marshal(written)
			require.NoError(t, err)
			golden(t, strings.TrimSuffix(f, ".yaml")+".golden", string(out))

			again, err := pipeline.Parse(out, opt)
			require.NoError(t, err)
			out2, err := pipeline.Marshal(again)
			require.NoError(t, err)
			assert.Equal(t, string(out), string(out2))
		})
	}
}

func TestBadDocuments(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/bad/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			t.Parallel()
			_, err := pipeline.ReadFile(f, options(""))
			require.Error(t, err)
			var e *pipeline.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, engine.Permanent, engine.ClassOf(err))
			assert.NotContains(t, err.Error(), secret)
			assert.NotContains(t, err.Error(), "hunter2")
			golden(t, strings.TrimSuffix(f, ".yaml")+".golden", err.Error()+"\n")
		})
	}
}

func TestReadFileThatIsNotThere(t *testing.T) {
	t.Parallel()
	_, err := pipeline.ReadFile(filepath.Join(t.TempDir(), "none.yaml"), options(""))
	require.ErrorContains(t, err, "there is no pipeline file")
	assert.Contains(t, engine.HintOf(err), "tranship init")
	_, err = pipeline.ReadFile(t.TempDir(), options(""))
	require.ErrorContains(t, err, "read the pipeline file")
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	doc, err := pipeline.Parse([]byte(`
version: 1
name: e
source: {connector: table, url: "${SOURCE_URL}", port: "${PORT}", schema: "a$${b}"}
sink: {connector: table, url: "${SINK_URL}", password: literal-pass}
resources: [{name: a, where: "x = '${PORT}'"}]
settings: {slots: "${SLOTS}"}
`), options(""))
	require.NoError(t, err)
	assert.JSONEq(t, `{"url":"postgres://reader:`+secret+`@db.example/shop","port":5432,"schema":"a${b}"}`, string(doc.Source.Resolved()))
	assert.JSONEq(t, `{"url":"${SOURCE_URL}","port":"${PORT}","schema":"a$${b}"}`, string(doc.Source.Config))
	assert.Equal(t, 3, doc.Settings.Slots)
	assert.Equal(t, "x = '5432'", doc.Resources[0].Where)
	assert.Contains(t, doc.Secrets(), secret)
	assert.Contains(t, doc.Secrets(), "literal-pass")

	_, err = pipeline.Marshal(doc)
	require.ErrorContains(t, err, "replaced from the environment", "invariant 10")
}

func TestHash(t *testing.T) {
	t.Parallel()
	hash := func(text string) string {
		doc, err := pipeline.Parse([]byte(text), options(""))
		require.NoError(t, err)
		return doc.Hash()
	}
	const base = "version: 1\nname: h\nsource: {connector: table, url: x}\nsink: {connector: out}\nresources: [{name: a}]\n"
	assert.Len(t, hash(base), 64)
	assert.Equal(t, hash(base), hash("# comment\n"+base), "comments mean nothing")
	assert.Equal(t, hash(base), hash("name: h\nversion: 1\nsource: {url: x, connector: table}\nsink: {connector: out}\nresources:\n- name: a\n"), "order and style mean nothing")
	assert.Equal(t, hash(base), hash(base+"settings: {slots: 7, memory: 1GiB, attempt_time: 5m, retry: {attempts: 9}}\n"), "speed means nothing")
	assert.NotEqual(t, hash(base), hash(base+"settings: {verify: digest}\n"))
	assert.NotEqual(t, hash(base), hash(strings.Replace(base, "name: a}", "name: b}", 1)))
}

func TestModes(t *testing.T) {
	t.Parallel()
	files := engine.Spec{Writes: []engine.WriteMode{engine.WriteReplace, engine.WriteAppend}}
	doc := &pipeline.Document{Defaults: pipeline.Defaults{Read: engine.ReadFull, Write: engine.WriteReplace}}
	for _, c := range []struct {
		doc   *pipeline.Document
		entry pipeline.Resource
		sink  *engine.Spec
		read  engine.ReadMode
		write engine.WriteMode
	}{
		{&pipeline.Document{}, pipeline.Resource{}, nil, engine.ReadFull, engine.WriteReplace},
		{&pipeline.Document{}, pipeline.Resource{Read: engine.ReadIncremental}, nil, engine.ReadIncremental, engine.WriteUpsert},
		{&pipeline.Document{}, pipeline.Resource{Read: engine.ReadIncremental}, &files, engine.ReadIncremental, engine.WriteAppend},
		{doc, pipeline.Resource{Read: engine.ReadIncremental}, nil, engine.ReadIncremental, engine.WriteUpsert},
		{doc, pipeline.Resource{Write: engine.WriteAppend}, nil, engine.ReadFull, engine.WriteAppend},
		{doc, pipeline.Resource{}, nil, engine.ReadFull, engine.WriteReplace},
	} {
		read, write := c.doc.Modes(c.entry, c.sink)
		assert.Equal(t, c.read, read)
		assert.Equal(t, c.write, write)
	}
}

func TestPoliciesOfAResource(t *testing.T) {
	t.Parallel()
	doc := &pipeline.Document{Defaults: pipeline.Defaults{Policies: &pipeline.Policies{Default: engine.PolicyNull}, SetAside: "file:a"}}
	p := doc.EnginePolicies(pipeline.Resource{})
	assert.Equal(t, engine.PolicyNull, p.For("x"))
	assert.Equal(t, "file:a", p.SetAside)
	p = doc.EnginePolicies(pipeline.Resource{SetAside: "table:x.y", Policies: &pipeline.Policies{Columns: map[string]engine.Policy{"x": engine.PolicyClamp}}})
	assert.Equal(t, engine.PolicyClamp, p.For("x"))
	assert.Equal(t, engine.PolicyFail, p.For("y"))
	assert.Equal(t, "table:x.y", p.SetAside)
}

// An alias bomb is refused before it takes memory or time.
func TestAliasesThatMultiply(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 12; i++ {
		prev := string(rune('a'+i-1)) + "0"
		if i == 1 {
			prev = "a0"
		}
		name := string(rune('a'+i)) + "0"
		b.WriteString(name + ": &" + name + " [" + strings.TrimSuffix(strings.Repeat("*"+prev+",", 9), ",") + "]\n")
	}
	_, err := pipeline.Parse([]byte(b.String()), options(""))
	require.ErrorContains(t, err, "too large")
}

func FuzzParse(f *testing.F) {
	for _, dir := range []string{"good", "bad"} {
		files, err := filepath.Glob("testdata/" + dir + "/*.yaml")
		require.NoError(f, err)
		for _, name := range files {
			text, err := os.ReadFile(name)
			require.NoError(f, err)
			f.Add(text)
		}
	}
	f.Add([]byte("a: &a\n  <<: *a\n"))
	f.Add([]byte("? [a, b]\n: c\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		opt := options("f")
		opt.Env = nil
		begin := time.Now()
		doc, err := pipeline.Parse(text, opt)
		if d := time.Since(begin); d > 5*time.Second {
			t.Fatalf("reading %d bytes took %s", len(text), d)
		}
		if err != nil {
			var e *pipeline.Error
			if !errors.As(err, &e) || len(e.Problems) == 0 {
				t.Fatalf("an error without problems: %v", err)
			}
			return
		}
		out, err := pipeline.Marshal(doc)
		if err != nil {
			t.Fatalf("cannot write what was read: %v", err)
		}
		if _, err := pipeline.Parse(out, opt); err != nil {
			t.Fatalf("cannot read what was written: %v\n%s", err, out)
		}
	})
}

// The policy null needs no quotes: YAML's null, read as nothing, would silently
// be the policy fail.
func TestThePolicyNullIsAWord(t *testing.T) {
	t.Parallel()
	text := func(policies string) []byte {
		return []byte("version: 1\nname: n\nsource: {connector: table, url: u}\nsink: {connector: table, url: u}\nresources: [{name: a, policies: " + policies + "}]\n")
	}
	for _, policies := range []string{"{default: null, columns: {c: null}}", `{default: "null", columns: {c: 'null'}}`, "{default: Null, columns: {c: NULL}}"} {
		doc, err := pipeline.Parse(text(policies), options(""))
		require.NoError(t, err, policies)
		p := doc.EnginePolicies(doc.Resources[0])
		assert.Equal(t, engine.PolicyNull, p.Default, policies)
		assert.Equal(t, engine.PolicyNull, p.For("c"), policies)
	}
	for _, policies := range []string{"{default: }", "{columns: {c: }}", "{columns: {c: ~}}"} {
		_, err := pipeline.Parse(text(policies), options(""))
		require.ErrorContains(t, err, "there is no value", policies)
		require.ErrorContains(t, err, "possible: fail, null", policies)
	}
}
