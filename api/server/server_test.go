package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/api"
	"github.com/tranship-io/tranship/api/server"
	"github.com/tranship-io/tranship/control"
)

// serve returns a handler whose keys are the names of roles.
func serve(t *testing.T, change func(*server.Config)) http.Handler {
	t.Helper()
	config := server.Config{
		Version: "test",
		Authenticate: func(_ context.Context, bearer string) (control.Actor, error) {
			role := control.Role(bearer)
			if role != control.RoleViewer && role != control.RoleOperator && role != control.RoleAdmin {
				return control.Actor{}, &control.UnauthenticatedError{Reason: "the key is not valid"}
			}
			return control.Actor{Organization: uuid.Max, Kind: control.ActorServiceAccount, Key: uuid.New(), Role: role}, nil
		},
	}
	if change != nil {
		change(&config)
	}
	h, err := server.New(config)
	require.NoError(t, err)
	return h
}

type problem struct {
	Type      string `json:"type"`
	Code      string `json:"code"`
	Status    int    `json:"status"`
	RequestID string `json:"request_id"`
	Errors    []struct {
		Path string `json:"path"`
	} `json:"errors"`
}

// call sends a request as a role and returns the answer.
func call(t *testing.T, h http.Handler, role, method, path, body string, head ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	if role != "" {
		r.Header.Set("Authorization", "Bearer "+role)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(head); i += 2 {
		r.Header.Set(head[i], head[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func problemOf(t *testing.T, w *httptest.ResponseRecorder) problem {
	t.Helper()
	var p problem
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"), w.Body.String())
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p), w.Body.String())
	require.Equal(t, w.Code, p.Status)
	require.Equal(t, "urn:tranship:problem:"+p.Code, p.Type)
	require.Equal(t, w.Header().Get("X-Request-Id"), p.RequestID)
	return p
}

func TestDocumentAndHealthNeedNoKey(t *testing.T) {
	h := serve(t, nil)
	w := call(t, h, "", "GET", "/healthz", "")
	require.Equal(t, http.StatusOK, w.Code)
	require.JSONEq(t, `{"status": "ok", "version": "test"}`, w.Body.String())
	w = call(t, h, "", "GET", "/openapi.json", "")
	require.Equal(t, http.StatusOK, w.Code)
	var doc struct {
		Servers []struct {
			URL string `json:"url"`
		} `json:"servers"`
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &doc))
	require.Equal(t, "/", doc.Servers[0].URL)
	w = call(t, h, "", "GET", "/docs", "")
	require.Contains(t, w.Body.String(), "<title>Tranship API</title>")
	require.NotContains(t, w.Body.String(), "https://", "the page loads nothing from elsewhere")
}

func TestRefusals(t *testing.T) {
	h := serve(t, func(c *server.Config) { c.MaxBody = 4096 })
	id := "/v1/runs/" + uuid.NewString()
	connection := `{"name": "shop", "connector": "postgres", "role": "source"}`
	for _, c := range []struct {
		name, role, method, path, body string
		head                           []string
		status                         int
		code                           string
		paths                          []string
	}{
		{name: "no key", method: "GET", path: "/v1/runs", status: 401, code: "unauthenticated"},
		{name: "other key", role: "root", method: "GET", path: "/v1/runs", status: 401, code: "unauthenticated"},
		{name: "role", role: "viewer", method: "POST", path: "/v1/runs", body: `{"pipeline": "shop"}`, status: 403, code: "forbidden"},
		{name: "role before body", role: "viewer", method: "POST", path: "/v1/runs", body: `{`, status: 403, code: "forbidden"},
		{name: "no path", role: "admin", method: "GET", path: "/v1/nothing", status: 404, code: "no_route"},
		{name: "unclean path", role: "admin", method: "GET", path: "/v1//runs", status: 404, code: "no_route"},
		{name: "method", role: "admin", method: "DELETE", path: "/v1/runs", status: 405, code: "method_not_allowed"},
		{name: "unknown parameter", role: "admin", method: "GET", path: "/v1/runs?pipelin=a", status: 400, code: "bad_parameter", paths: []string{"query"}},
		{name: "parameter twice", role: "admin", method: "GET", path: "/v1/runs?limit=1&limit=2", status: 400, code: "bad_parameter", paths: []string{"query.limit"}},
		{name: "parameter's bounds", role: "admin", method: "GET", path: "/v1/runs?limit=0", status: 400, code: "bad_parameter", paths: []string{"query.limit"}},
		{name: "parameter's type", role: "admin", method: "GET", path: "/v1/runs?limit=x", status: 400, code: "bad_parameter", paths: []string{"query.limit"}},
		{name: "parameter's values", role: "admin", method: "GET", path: "/v1/runs?state=failed&state=broken", status: 400, code: "bad_parameter", paths: []string{"query.state[1]"}},
		{name: "NUL in a parameter", role: "admin", method: "GET", path: "/v1/runs?pipeline=%00", status: 400, code: "bad_parameter", paths: []string{"query.pipeline"}},
		{name: "no UTF-8 in a parameter", role: "admin", method: "GET", path: "/v1/runs?pipeline=%ff", status: 400, code: "bad_parameter", paths: []string{"query.pipeline"}},
		{name: "query", role: "admin", method: "GET", path: "/v1/runs?a;b", status: 400, code: "bad_parameter"},
		{name: "id", role: "admin", method: "GET", path: "/v1/runs/7", status: 400, code: "bad_parameter", paths: []string{"path.id"}},
		{name: "body where none is", role: "admin", method: "GET", path: id, body: "{}", status: 400, code: "bad_request"},
		{name: "no body", role: "admin", method: "POST", path: "/v1/connections", head: []string{"Content-Type", "application/json"}, status: 400, code: "bad_request"},
		{name: "media type", role: "admin", method: "POST", path: "/v1/connections", body: connection, head: []string{"Content-Type", "text/plain"}, status: 415, code: "media_type"},
		{name: "too large", role: "admin", method: "POST", path: "/v1/connections", body: `{"name": "` + strings.Repeat("a", 5000) + `"}`, status: 413, code: "too_large"},
		{name: "no JSON", role: "admin", method: "POST", path: "/v1/connections", body: "name: shop", status: 400, code: "bad_request"},
		{name: "half of it", role: "admin", method: "POST", path: "/v1/connections", body: connection[:20], status: 400, code: "bad_request"},
		{name: "more behind it", role: "admin", method: "POST", path: "/v1/connections", body: connection + "{}", status: 400, code: "bad_request"},
		{name: "field twice", role: "admin", method: "POST", path: "/v1/connections", body: `{"name": "a", "name": "b"}`, status: 400, code: "bad_request"},
		{name: "NUL in the body", role: "admin", method: "POST", path: "/v1/connections", body: `{"name": "a\u0000"}`, status: 400, code: "bad_request"},
		{name: "too deep", role: "admin", method: "POST", path: "/v1/connections", body: strings.Repeat("[", 100) + strings.Repeat("]", 100), status: 400, code: "bad_request"},
		{
			name: "every problem", role: "admin", method: "POST", path: "/v1/connections",
			body:   `{"Name": "shop", "connector": 5, "role": "middle", "secrets": {"url": {"provider": "env", "value": "planted"}}}`,
			status: 422, code: "invalid", paths: []string{"Name", "connector", "name", "role", "secrets.url.reference", "secrets.url.value"},
		},
		{name: "no If-Match", role: "admin", method: "PUT", path: "/v1/connections/" + uuid.NewString(), body: connection, status: 428, code: "precondition_required"},
		{name: "If-Match", role: "admin", method: "PUT", path: "/v1/connections/" + uuid.NewString(), body: connection, head: []string{"If-Match", "7"}, status: 400, code: "bad_parameter", paths: []string{"header.If-Match"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := call(t, h, c.role, c.method, c.path, c.body, c.head...)
			require.Equal(t, c.status, w.Code, w.Body.String())
			p := problemOf(t, w)
			require.Equal(t, c.code, p.Code)
			var paths []string
			for _, e := range p.Errors {
				paths = append(paths, e.Path)
			}
			if c.paths != nil {
				require.Equal(t, c.paths, paths)
			}
			require.NotContains(t, w.Body.String(), "planted")
		})
	}
}

func TestEveryAnswerCarriesHeaders(t *testing.T) {
	h := serve(t, nil)
	for _, path := range []string{"/healthz", "/v1/runs", "/nothing", "/docs"} {
		w := call(t, h, "", "GET", path, "", "X-Request-Id", "abc-1")
		require.Equal(t, "abc-1", w.Header().Get("X-Request-Id"), path)
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"), path)
		require.NotEmpty(t, w.Header().Get("Content-Security-Policy"), path)
	}
	w := call(t, h, "", "GET", "/healthz", "", "X-Request-Id", "a\tb")
	require.NoError(t, uuid.Validate(w.Header().Get("X-Request-Id")), "an id that could forge a log is replaced")
	w = call(t, h, "", "GET", "/v1/runs", "")
	require.NotEmpty(t, w.Header().Get("WWW-Authenticate"))
}

func TestNotReady(t *testing.T) {
	h := serve(t, func(c *server.Config) {
		c.Ready = func(context.Context) error { return context.DeadlineExceeded }
	})
	for _, path := range []string{"/healthz", "/v1/runs"} {
		w := call(t, h, "admin", "GET", path, "")
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.Equal(t, "starting", problemOf(t, w).Code)
		require.Equal(t, "1", w.Header().Get("Retry-After"))
	}
	require.Equal(t, http.StatusOK, call(t, h, "", "GET", "/openapi.json", "").Code)
}

func TestRateIsBoundedPerKey(t *testing.T) {
	keys := map[string]uuid.UUID{"one": uuid.New(), "two": uuid.New()}
	h := serve(t, func(c *server.Config) {
		c.Rate, c.Burst = 0.001, 3
		c.Authenticate = func(_ context.Context, bearer string) (control.Actor, error) {
			return control.Actor{Organization: uuid.Max, Key: keys[bearer], Role: control.RoleAdmin}, nil
		}
	})
	var last *httptest.ResponseRecorder
	for range 4 {
		last = call(t, h, "one", "GET", "/v1/runs?limit=0", "")
	}
	require.Equal(t, http.StatusTooManyRequests, last.Code)
	require.Equal(t, "too_many_requests", problemOf(t, last).Code)
	require.NotEmpty(t, last.Header().Get("Retry-After"))
	require.Equal(t, http.StatusBadRequest, call(t, h, "two", "GET", "/v1/runs?limit=0", "").Code)
}

// operations calls fn for each operation of the document, with a path.
func operations(t *testing.T, fn func(id, method, path string, public bool)) {
	t.Helper()
	text, err := api.Document()
	require.NoError(t, err)
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	require.NoError(t, json.Unmarshal(text, &doc))
	for path, item := range doc.Paths {
		for method, raw := range item {
			if method == "parameters" {
				continue
			}
			var op struct {
				ID        string                     `json:"operationId"`
				Security  *[]any                     `json:"security"`
				Responses map[string]json.RawMessage `json:"responses"`
			}
			require.NoError(t, json.Unmarshal(raw, &op))
			for _, code := range []string{"400", "429", "503", "default"} {
				require.Contains(t, op.Responses, code, op.ID)
			}
			at := strings.NewReplacer("{id}", uuid.NewString(), "{name}", "x", "{number}", "1").Replace(path)
			fn(op.ID, strings.ToUpper(method), at, op.Security != nil && len(*op.Security) == 0)
		}
	}
}

// TestEveryOperationIsPutOff answers 429 and 503 for each operation, with
// Retry-After.
func TestEveryOperationIsPutOff(t *testing.T) {
	busy := serve(t, func(c *server.Config) { c.Rate, c.Burst = 0.001, 1 })
	away := serve(t, func(c *server.Config) {
		c.Authenticate = func(context.Context, string) (control.Actor, error) {
			return control.Actor{}, &control.UnavailableError{RetryAfter: 2 * time.Second, Err: context.DeadlineExceeded}
		}
		c.Ready = func(context.Context) error { return nil }
	})
	starting := serve(t, func(c *server.Config) { c.Ready = func(context.Context) error { return context.DeadlineExceeded } })
	call(t, busy, "", "GET", "/healthz", "")
	operations(t, func(id, method, path string, public bool) {
		if !public {
			w := call(t, away, "admin", method, path, "")
			require.Equal(t, http.StatusServiceUnavailable, w.Code, id)
			require.Equal(t, "unavailable", problemOf(t, w).Code, id)
			require.Equal(t, "2", w.Header().Get("Retry-After"), id)
		}
		if path != "/openapi.json" {
			w := call(t, starting, "admin", method, path, "")
			require.Equal(t, http.StatusServiceUnavailable, w.Code, id)
			require.NotEmpty(t, w.Header().Get("Retry-After"), id)
		}
		if public {
			w := call(t, busy, "", method, path, "")
			require.Equal(t, http.StatusTooManyRequests, w.Code, id)
			require.NotEmpty(t, w.Header().Get("Retry-After"), id)
		}
	})
	key := uuid.New()
	busy = serve(t, func(c *server.Config) {
		c.Rate, c.Burst = 0.001, 1
		c.Authenticate = func(context.Context, string) (control.Actor, error) {
			return control.Actor{Organization: uuid.Max, Key: key, Role: control.RoleAdmin}, nil
		}
	})
	call(t, busy, "admin", "GET", "/v1/runs?limit=0", "")
	operations(t, func(id, method, path string, public bool) {
		if !public {
			w := call(t, busy, "admin", method, path, "")
			require.Equal(t, http.StatusTooManyRequests, w.Code, id)
			require.NotEmpty(t, w.Header().Get("Retry-After"), id)
		}
	})
}

func FuzzQuery(f *testing.F) {
	h, err := server.New(server.Config{Rate: -1, Authenticate: func(context.Context, string) (control.Actor, error) {
		return control.Actor{Organization: uuid.Max, Role: control.RoleAdmin}, nil
	}})
	require.NoError(f, err)
	f.Add("state=failed&pipeline=shop&created_from=2026-01-01T00:00:00Z&limit=5&after=x")
	f.Add("limit=%31&state=&created_before=2026-01-01t00:00:00z")
	f.Fuzz(func(t *testing.T, query string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/runs", http.NoBody)
		r.URL.RawQuery = query
		r.Header.Set("Authorization", "Bearer x")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.NotEqual(t, http.StatusInternalServerError, w.Code, w.Body.String())
	})
}

func FuzzBody(f *testing.F) {
	h, err := server.New(server.Config{Rate: -1, Authenticate: func(context.Context, string) (control.Actor, error) {
		return control.Actor{Organization: uuid.Max, Role: control.RoleAdmin}, nil
	}})
	require.NoError(f, err)
	f.Add([]byte(`{"name": "shop", "connector": "postgres", "role": "source", "config": {"a": [1, 2.5e3, null, true, "ü"]}}`))
	f.Add([]byte(`{"name": "a", "name": "b"}`))
	f.Add([]byte(`[[[[`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/connections", bytes.NewReader(text))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer x")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.NotEqual(t, http.StatusInternalServerError, w.Code, w.Body.String())
	})
}
