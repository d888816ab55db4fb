package pipeline_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/pipeline"
)

func offered() []engine.Resource {
	r := func(name, kind string, path ...string) engine.Resource {
		return engine.Resource{Name: name, Kind: kind, Path: path}
	}
	return []engine.Resource{
		r("public.tmp_a", "table", "public", "tmp_a"),
		r("public.orders", "table", "public", "orders"),
		r("public.customers", "partitioned table", "public", "customers"),
		r("public.summary", "view", "public", "summary"),
		r("reports.only", "materialized view", "reports", "only"),
		r(`"s.t"."a.b"`, "table", "s.t", "a.b"),
	}
}

func TestExpand(t *testing.T) {
	t.Parallel()
	type res = pipeline.Resource
	for _, c := range []struct {
		name    string
		entries []res
		want    []string
		errs    []string
	}{
		{name: "pattern leaves views out", entries: []res{{Name: "public.*"}}, want: []string{"public.customers", "public.orders", "public.tmp_a"}},
		{name: "views by leave", entries: []res{{Name: "public.*", Views: true, Exclude: []string{"public.tmp_?", "public.o*"}}}, want: []string{"public.customers", "public.summary"}},
		{name: "a view by its name", entries: []res{{Name: "public.summary"}}, want: []string{"public.summary"}},
		{name: "explicit wins, order stays", entries: []res{{Name: "*"}, {Name: "public.orders", Write: engine.WriteAppend}}, want: []string{`"s.t"."a.b"`, "public.customers", "public.tmp_a", "public.orders"}},
		{name: "quoted parts", entries: []res{{Name: `"s.t"."a.b"`}}, want: []string{`"s.t"."a.b"`}},
		{name: "needless quotes", entries: []res{{Name: `"public".orders`}}, want: []string{"public.orders"}},
		{name: "dot is no wildcard", entries: []res{{Name: `"s.t".*`}}, want: []string{`"s.t"."a.b"`}},
		{name: "same by two spellings", entries: []res{{Name: "public.orders"}, {Name: `"public"."orders"`}}, errs: []string{"same resource as resources[0]"}},
		{name: "two patterns", entries: []res{{Name: "public.o*"}, {Name: "public.*"}}, errs: []string{`"public.orders" is matched by "public.o*" and by "public.*"`}},
		{name: "nothing", entries: []res{{Name: "nope.*"}, {Name: "public.order"}, {Name: "orders"}, {Name: "reports.*"}}, errs: []string{
			`"nope.*" matches nothing`, `no resource "public.order" (did you mean "public.orders"?)`,
			`no resource "orders" (did you mean "public.orders"?)`, "add views: true"}},
		{name: "everything excluded", entries: []res{{Name: "public.*", Exclude: []string{"public.*"}}}},
		{name: "a quoted star is literal", entries: []res{{Name: `public."*"`}}, errs: []string{"no resource"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := (&pipeline.Document{Resources: c.entries}).Expand(offered())
			if len(c.errs) > 0 {
				require.Error(t, err)
				assert.Equal(t, engine.Permanent, engine.ClassOf(err))
				for _, want := range c.errs {
					assert.ErrorContains(t, err, want)
				}
				return
			}
			require.NoError(t, err)
			var names []string
			for _, s := range got {
				assert.Equal(t, s.Resource.Name, s.Entry.Name)
				names = append(names, s.Resource.Name)
			}
			assert.Equal(t, c.want, names)
		})
	}
}

func TestUnits(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]pipeline.Size{"0": 0, "1": 1, "256MiB": 256 << 20, "1.5GB": 1_500_000_000, "2 kib": 2048, "10kB": 10_000, "1TiB": 1 << 40} {
		got, err := pipeline.ParseSize(in)
		require.NoError(t, err, in)
		assert.Equal(t, want, got, in)
		back, err := pipeline.ParseSize(got.String())
		require.NoError(t, err)
		assert.Equal(t, want, back)
	}
	for _, in := range []string{"", "MiB", "-1", "1 XB", "1e9", "99999999TiB"} {
		_, err := pipeline.ParseSize(in)
		assert.Error(t, err, in)
	}
	for in, want := range map[string]string{"5m": "5m", "90s": "1m30s", "2d": "48h", "1d12h": "36h", "250ms": "250ms", "0s": "0s", "1h": "1h", "1h0m5s": "1h0m5s"} {
		got, err := pipeline.ParseDuration(in)
		require.NoError(t, err, in)
		assert.Equal(t, want, got.String(), in)
	}
	for _, in := range []string{"", "5", "-5m", "d", "1w", "99999999d"} {
		_, err := pipeline.ParseDuration(in)
		assert.Error(t, err, in)
	}
}
