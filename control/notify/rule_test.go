package notify

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
)

func TestRuleMatches(t *testing.T) {
	shop, other := uuid.New(), uuid.New()
	e := Event{Type: RunFailed, Pipeline: shop, Resources: []string{"public.orders", "files/a/b.csv"}}
	for name, c := range map[string]struct {
		rule Rule
		want bool
	}{
		"event":             {Rule{Events: []string{RunFailed}}, true},
		"other event":       {Rule{Events: []string{RunCompleted}}, false},
		"paused":            {Rule{Events: []string{RunFailed}, Paused: true}, false},
		"pipeline":          {Rule{Events: []string{RunFailed}, Pipeline: shop}, true},
		"other pipeline":    {Rule{Events: []string{RunFailed}, Pipeline: other}, false},
		"resource":          {Rule{Events: []string{RunFailed}, Resource: "public.orders"}, true},
		"pattern":           {Rule{Events: []string{RunFailed}, Resource: "public.*"}, true},
		"over slashes":      {Rule{Events: []string{RunFailed}, Resource: "files*.csv"}, true},
		"other resource":    {Rule{Events: []string{RunFailed}, Resource: "sales.*"}, false},
		"no class":          {Rule{Events: []string{RunFailed}, Resource: "[p]ublic.orders"}, false},
		"partial is failed": {Rule{Events: []string{RunFailed}}, true},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, c.rule.Matches(e)) })
	}
	e.Type = RunPartial
	require.True(t, Rule{Events: []string{RunFailed}}.Matches(e))
	require.True(t, Rule{Events: []string{RunPartial}}.Matches(e))
	e.Type, e.Resources = PipelineStale, nil
	require.False(t, Rule{Events: []string{PipelineStale}, Resource: "*"}.Matches(e), "it is about no resource")
}

// FuzzResourceFilter: a name matches itself, and * matches everything.
func FuzzResourceFilter(f *testing.F) {
	f.Add("public.orders", "public.*")
	f.Add(`a\b[c]`, `a\?[*]`)
	f.Fuzz(func(t *testing.T, name, pattern string) {
		if !utf8.ValidString(name) || !utf8.ValidString(pattern) || strings.ContainsRune(name, 1) {
			return
		}
		if !matchResource("*", name) {
			t.Fatalf("* does not match %q", name)
		}
		if !strings.ContainsAny(name, "*?") && !matchResource(name, name) {
			t.Fatalf("%q does not match itself", name)
		}
		if !strings.ContainsAny(pattern, "*?") && matchResource(pattern, name) != (pattern == name) {
			t.Fatalf("%q and %q", pattern, name)
		}
	})
}

func TestRefusedRules(t *testing.T) {
	good := Rule{Name: "r", Events: []string{RunFailed}, Channel: Webhook, URL: "https://example.org/x"}
	require.NoError(t, good.check(false))
	for name, c := range map[string]struct {
		change func(*Rule)
		path   string
	}{
		"no name":           {func(r *Rule) { r.Name = "" }, "name"},
		"no events":         {func(r *Rule) { r.Events = nil }, "events"},
		"unknown event":     {func(r *Rule) { r.Events = []string{"run.teleported"} }, "events[0]"},
		"an inner event":    {func(r *Rule) { r.Events = []string{AttemptStarted} }, "events[0]"},
		"stale, no time":    {func(r *Rule) { r.Events = []string{PipelineStale} }, "stale_after"},
		"time, not stale":   {func(r *Rule) { r.StaleAfter = time.Hour }, "stale_after"},
		"too short":         {func(r *Rule) { r.Events, r.NoProgressAfter = []string{RunNoProgress}, time.Second }, "no_progress_after"},
		"http":              {func(r *Rule) { r.URL = "http://example.org" }, "url"},
		"a password":        {func(r *Rule) { r.URL = "https://u:p@example.org" }, "url"},
		"a file":            {func(r *Rule) { r.URL = "file:///etc/passwd" }, "url"},
		"no host":           {func(r *Rule) { r.URL = "https:///x" }, "url"},
		"slack in the open": {func(r *Rule) { r.Channel = Slack }, "url"},
		"slack, no ref":     {func(r *Rule) { r.Channel, r.URL = Slack, "" }, "url_secret"},
		"slack, no form":    {func(r *Rule) { r.Channel, r.URL, r.URLSecret = Slack, "", "https://hooks" }, "url_secret"},
		"email to nobody":   {func(r *Rule) { r.Channel, r.URL = Email, "" }, "to"},
		"email to a name":   {func(r *Rule) { r.Channel, r.URL, r.To = Email, "", []string{"Bob <b@example.org>"} }, "to[0]"},
		"no channel":        {func(r *Rule) { r.Channel, r.URL = "pigeon", "" }, "channel"},
	} {
		t.Run(name, func(t *testing.T) {
			r := good
			c.change(&r)
			var invalid *control.InvalidError
			require.ErrorAs(t, r.check(false), &invalid)
			var paths []string
			for _, p := range invalid.Problems {
				paths = append(paths, p.Path)
			}
			require.Contains(t, paths, c.path)
		})
	}
}

func TestSettle(t *testing.T) {
	now := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	d := Delivery{ID: uuid.New(), State: Sending}
	sent := d.Settle(Result{Status: 200}, now)
	require.Equal(t, Sent, sent.State)
	require.Equal(t, now, sent.SentAt)
	require.Equal(t, Dead, d.Settle(Result{Error: "gone", Final: true}, now).State)
	at := now
	for n := 1; n < MaxAttempts; n++ {
		d = d.Settle(Result{Error: "no"}, at)
		require.Equal(t, Pending, d.State, n)
		wait := d.NextAt.Sub(at)
		require.GreaterOrEqual(t, wait, waits[n-1])
		require.LessOrEqual(t, wait, waits[n-1]*6/5)
		at = d.NextAt
	}
	d = d.Settle(Result{Error: "no"}, at)
	require.Equal(t, Dead, d.State)
	require.True(t, d.NextAt.IsZero())
	require.Equal(t, MaxAttempts, d.Attempts)
	later := Delivery{ID: uuid.New()}.Settle(Result{Error: "busy", RetryAfter: time.Hour}, now)
	require.Equal(t, now.Add(time.Hour), later.NextAt)
	never := Delivery{ID: uuid.New()}.Settle(Result{Error: "busy", RetryAfter: 1000 * time.Hour}, now)
	require.Equal(t, now.Add(10*time.Hour), never.NextAt)
}

func TestLook(t *testing.T) {
	now := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	fresh, stale := Watched{Pipeline: uuid.New(), Since: now.Add(-time.Minute)}, Watched{Pipeline: uuid.New(), PipelineName: "shop", Since: now.Add(-2 * time.Hour)}
	r := Rule{StaleAfter: time.Hour}
	events, next := Look(r, []Watched{fresh, stale}, now)
	require.Len(t, events, 1)
	require.Equal(t, PipelineStale, events[0].Type)
	require.Equal(t, stale.Pipeline, events[0].Pipeline)
	require.Equal(t, now.Add(59*time.Minute), next)
	again, _ := Look(r, []Watched{stale}, now.Add(time.Hour))
	require.Equal(t, events[0].Key, again[0].Key, "it is the same event until it succeeds")
	_, next = Look(r, []Watched{stale}, now)
	require.True(t, next.IsZero(), "only a success changes anything")

	still := Watched{Pipeline: uuid.New(), Run: uuid.New(), Since: now.Add(-time.Hour)}
	events, next = Look(Rule{NoProgressAfter: 10 * time.Minute}, []Watched{still}, now)
	require.Equal(t, RunNoProgress, events[0].Type)
	require.Equal(t, now.Add(10*time.Minute), next)
}
