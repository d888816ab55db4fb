package ends_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/api/server"
	"github.com/tranship-io/tranship/control"
)

// call sends a request to the API and returns status, headers and body.
type call func(method, path, match, body string) (int, http.Header, string)

// serveAPI serves the operations of the world's services to its actor.
func serveAPI(t *testing.T, w *world) call {
	t.Helper()
	h, err := server.New(server.Config{
		Services:     server.Services{Connectors: w.catalog, Connections: w.drafts, Secrets: w.secrets, Pipelines: w.pipelines, Inspections: w.inspections},
		Authenticate: func(context.Context, string) (control.Actor, error) { return w.a, nil },
	})
	require.NoError(t, err)
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return func(method, path, match, body string) (int, http.Header, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, bytes.NewReader([]byte(body)))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer x")
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		if match != "" {
			req.Header.Set("If-Match", match)
		}
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		assert.NotContains(t, string(text), "hush-hush", "%s %s", method, path)
		return res.StatusCode, res.Header, string(text)
	}
}

func field(t *testing.T, body, key string) string {
	t.Helper()
	var m map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &m), body)
	s, ok := m[key].(string)
	require.True(t, ok, "%s in %s", key, body)
	return s
}

func TestAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	do := serveAPI(t, w)
	ok := func(want int, method, path, match, body string) (http.Header, string) {
		t.Helper()
		status, head, text := do(method, path, match, body)
		require.Equal(t, want, status, "%s %s: %s", method, path, text)
		return head, text
	}

	_, text := ok(200, "GET", "/v1/connectors", "", "")
	assert.Contains(t, text, `"sample"`)
	_, text = ok(200, "GET", "/v1/connectors/postgres", "", "")
	assert.Contains(t, text, `"ssh.password"`)
	assert.Contains(t, text, `"writeOnly":true`)
	ok(404, "GET", "/v1/connectors/nothing", "", "")

	// Secrets go in and never come out.
	head, _ := ok(200, "PUT", "/v1/secrets/shop", "", `{"value":"postgres://u:hush-hush@127.0.0.1:1/d"}`)
	assert.Equal(t, `"1"`, head.Get("ETag"))
	ok(428, "PUT", "/v1/secrets/shop", "", `{"value":"x"}`)
	ok(412, "PUT", "/v1/secrets/shop", `"7"`, `{"value":"x"}`)
	head, _ = ok(200, "PUT", "/v1/secrets/shop", `"1"`, `{"value":"postgres://u:hush-hush@127.0.0.1:1/d"}`)
	assert.Equal(t, `"2"`, head.Get("ETag"))
	_, text = ok(200, "GET", "/v1/secrets", "", "")
	assert.Contains(t, text, `"shop"`)

	// Connections, with every problem at its place.
	_, text = ok(422, "POST", "/v1/connections", "", `{"name":"src","connector":"postgres","role":"source","config":{"password":"hush-hush","prot":1},"secrets":{"url":{"provider":"local","reference":"shop"},"nope":{"provider":"aws","reference":"x"}}}`)
	for _, path := range []string{`"config.password"`, `"config.prot"`, `"secrets.nope"`} {
		assert.Contains(t, text, path)
	}
	_, text = ok(422, "POST", "/v1/connections", "", `{"name":"src","connector":"postgres","role":"source","secrets":{"url":{"provider":"local","reference":"missing"}}}`)
	assert.Contains(t, text, `"secrets.url"`)
	head, text = ok(201, "POST", "/v1/connections", "", `{"name":"src","connector":"postgres","role":"source","secrets":{"url":{"provider":"local","reference":"shop"}}}`)
	src := field(t, text, "id")
	assert.Equal(t, "/v1/connections/"+src, head.Get("Location"))
	ok(409, "POST", "/v1/connections", "", `{"name":"src","connector":"sample","role":"source"}`)
	_, text = ok(409, "DELETE", "/v1/secrets/shop", "", "")
	assert.Contains(t, text, "in_use")
	ok(201, "POST", "/v1/connections", "", `{"name":"gen","connector":"sample","role":"source","config":{"rows":10}}`)
	_, text = ok(201, "POST", "/v1/connections", "", `{"name":"out","connector":"files","role":"sink","config":{"path":"`+t.TempDir()+`"}}`)
	out := field(t, text, "id")
	ok(412, "PUT", "/v1/connections/"+src, `"9"`, `{"name":"src","connector":"postgres","role":"source"}`)
	ok(428, "PUT", "/v1/connections/"+src, "", `{"name":"src","connector":"postgres","role":"source"}`)
	head, _ = ok(200, "PUT", "/v1/connections/"+src, `"1"`, `{"name":"source","connector":"postgres","role":"source","secrets":{"url":{"provider":"local","reference":"shop"}}}`)
	assert.Equal(t, `"2"`, head.Get("ETag"))
	_, text = ok(200, "GET", "/v1/connections/"+src+"/versions", "", "")
	assert.Equal(t, 2, strings.Count(text, `"created_by"`))

	// Validation tells all, and stores nothing.
	_, text = ok(200, "POST", "/v1/validations", "", `{"name":"p","graph":{"nodes":[{"id":"a","role":"source","connection":"gen","overlay":{"rowz":1}},{"id":"b","role":"sink","connection":"nothing"},{"id":"c","role":"sink","connection":"out"}],
		"edges":[{"from":"a","to":"c","resource":"sample.orders","read":"incremental"},{"from":"a","to":"d","resource":"x"}]},"settings":{"memory":"1B"}}`)
	for _, path := range []string{`"graph.nodes[0].overlay.rowz"`, `"graph.nodes[1].connection"`, `"graph.edges[0].cursor"`, `"graph.edges[1].to"`, `"settings.memory"`, `"valid":false`} {
		assert.Contains(t, text, path)
	}
	_, text = ok(422, "POST", "/v1/pipelines", "", `{"name":"p","graph":{"nodes":[{"id":"a","role":"source","connection":"gen"},{"id":"c","role":"sink","connection":"out"}],"edges":[{"from":"a","to":"c","resource":"sample.orders","lookback":"soon"}]}}`)
	assert.Contains(t, text, `"graph.edges[0].lookback"`)

	good := `{"name":"p","graph":{"nodes":[{"id":"a","role":"source","connection":"gen"},{"id":"c","role":"sink","connection":"out","overlay":{"format":"csv"}}],
		"edges":[{"from":"a","to":"c","resource":"sample.orders"}],"defaults":{"policies":{"default":"null"}}},"settings":{"slots":1},"service":{"retries":{"attempts":5}}}`
	head, text = ok(201, "POST", "/v1/pipelines", "", good)
	p := field(t, text, "id")
	assert.Equal(t, `"1"`, head.Get("ETag"))
	for _, part := range []string{`"format":"csv"`, `"attempts":5`, `"slots":1`, `"default":"null"`, `"key":"a-\u003ec"`} {
		assert.Contains(t, text, part)
	}
	_, text = ok(409, "DELETE", "/v1/connections/"+out, "", "")
	assert.Contains(t, text, "in_use")
	head, text = ok(200, "PUT", "/v1/pipelines/"+p, `"1"`, strings.Replace(good, `"slots":1`, `"slots":2`, 1))
	assert.Equal(t, `"2"`, head.Get("ETag"))
	assert.Contains(t, text, `"current_version":2`)
	ok(412, "PUT", "/v1/pipelines/"+p, `"1"`, good)
	_, text = ok(200, "GET", "/v1/pipelines/"+p+"/versions", "", "")
	assert.Equal(t, 2, strings.Count(text, `"created_by"`))
	ok(200, "GET", "/v1/pipelines/"+p+"/versions/1", "", "")
	ok(404, "GET", "/v1/pipelines/"+p+"/versions/3", "", "")
	_, text = ok(200, "POST", "/v1/pipelines/"+p+"/pause", "", "")
	assert.Contains(t, text, `"paused":true`)
	_, text = ok(200, "POST", "/v1/pipelines/"+p+"/resume", "", "")
	assert.Contains(t, text, `"paused":false`)
	_, text = ok(200, "GET", "/v1/pipelines/"+p+"/export", "", "")
	assert.Contains(t, text, "connector: sample")
	assert.Contains(t, text, "format: csv")
	_, text = ok(422, "POST", "/v1/pipelines/"+p+"/reset", "", `{"resources":["sample.orders"]}`)
	assert.Contains(t, text, "resources[0]")
	ok(200, "GET", "/v1/pipelines?name=p", "", "")

	// A file, with its secrets beside it.
	file, err := json.Marshal(map[string]any{"document": "version: 1\nname: shop\nsource: {connector: postgres, url: \"${SHOP}\"}\nsink: {connector: stdout}\nresources: [{name: public.orders, write: append}]\n",
		"variables": map[string]string{"SHOP": "postgres://u:hush-hush@h/d"}})
	require.NoError(t, err)
	_, text = ok(200, "POST", "/v1/apply", "", string(file))
	assert.Contains(t, text, `"created"`)
	_, text = ok(200, "POST", "/v1/apply", "", string(file))
	assert.NotContains(t, text, `"created"`)
	_, text = ok(422, "POST", "/v1/apply", "", `{"document":"version: 1\nname: shop\nsurce: x\n"}`)
	assert.Contains(t, text, "did you mean")

	ok(204, "DELETE", "/v1/pipelines/"+p, "", "")
	ok(404, "GET", "/v1/pipelines/"+p, "", "")
	ok(204, "DELETE", "/v1/connections/"+out, "", "")
}
