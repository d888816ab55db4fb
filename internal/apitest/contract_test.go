package apitest

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryDocumentedError provokes the errors of every operation, and compares
// each answer with the document.
func TestEveryDocumentedError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.orgs[0]
	code := func(text []byte) string {
		var p struct {
			Code string `json:"code"`
		}
		require.NoError(t, json.Unmarshal(text, &p))
		return p.Code
	}
	for _, op := range w.ops {
		id := uuid.NewString()
		kind, named := op.kind()
		send := func(key, body string, want int, wantCode string, head ...string) {
			t.Helper()
			status, text := w.send(op, op.with(id)+op.query(), key, body, head...)
			if assert.Equal(t, want, status, "%s: %s", op.id, text) {
				assert.Equal(t, wantCode, code(text), op.id)
			}
		}
		valid := w.valid(op, o)
		if !op.public {
			send("", valid, 401, "unauthenticated")
			send("trk_AAAA", valid, 401, "unauthenticated")
			send("a.b.c", valid, 401, "unauthenticated")
		}
		status, text := w.send(op, op.with(id)+"?no_such_parameter=1", o.key, valid, "If-Match", "*")
		assert.Equal(t, 400, status, "%s: %s", op.id, text)
		if named && kind != "secrets" {
			status, text = w.send(op, op.with("%20"), o.key, valid, "If-Match", "*")
			require.Contains(t, []int{400, 404}, status, "%s: %s", op.id, text)
			send(o.key, valid, 404, "not_found", "If-Match", "*")
		}
		if op.method == http.MethodPut && op.id != "putSecret" {
			send(o.key, valid, 428, "precondition_required")
			send(o.key, valid, 400, "bad_parameter", "If-Match", "1")
		}
		if !op.body {
			if !op.public {
				send(o.key, `{"x": 1}`, 400, "bad_request", "If-Match", "*")
			}
			continue
		}
		send(o.key, `{"no_such_field": 1}`, 422, "invalid", "If-Match", "*")
		send(o.key, `{"a": 1, "a": 2}`, 400, "bad_request", "If-Match", "*")
		send(o.key, `{"a"`, 400, "bad_request", "If-Match", "*")
		send(o.key, `{} {}`, 400, "bad_request", "If-Match", "*")
		send(o.key, `"`+strings.Repeat("a", 3<<20)+`"`, 413, "too_large", "If-Match", "*")
		send(o.key, valid, 415, "media_type", "If-Match", "*", "Content-Type", "application/xml")
	}
}

// TestStaleVersions sends each change of a versioned object with an old version.
func TestStaleVersions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.orgs[0]
	for _, op := range w.ops {
		kind, named := op.kind()
		if op.method != http.MethodPut && op.method != http.MethodDelete || !named {
			continue
		}
		before, _, header := w.call("GET", op.with(o.objects[kind]), o.key, "")
		require.Equal(t, 200, before, op.id)
		require.Regexp(t, `^"[0-9]+"$`, header.Get("ETag"), op.id)
		status, text := w.send(op, op.with(o.objects[kind]), o.key, w.valid(op, o), "If-Match", `"999"`)
		assert.Equal(t, 412, status, "%s: %s", op.id, text)
	}
}

// TestRepeatedCreates sends each create twice with one idempotency key, and then
// another request with it.
func TestRepeatedCreates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.orgs[0]
	for _, op := range w.ops {
		if op.method != http.MethodPost || strings.Contains(op.path, "{") || op.id == "validatePipeline" || op.id == "applyDocument" {
			continue
		}
		body := w.valid(op, o)
		if op.id == "startRun" {
			w.finishRuns()
		}
		key := uuid.NewString()
		status, first := w.send(op, op.path, o.key, body, "Idempotency-Key", key)
		require.Less(t, status, 300, "%s: %s", op.id, first)
		status, again := w.send(op, op.path, o.key, body, "Idempotency-Key", key)
		if op.id == "createKey" {
			require.Equal(t, 409, status, "the text of a key is shown once: %s", again)
		} else {
			require.Less(t, status, 300, "%s: %s", op.id, again)
			require.Equal(t, idOf(t, first), idOf(t, again), op.id)
		}
		if !op.body {
			continue
		}
		other := strings.Replace(body, `"`, ` "`, 1)
		status, again = w.send(op, op.path, o.key, other, "Idempotency-Key", key)
		if op.id != "createKey" {
			require.Less(t, status, 300, "the same request in other words: %s", again)
		}
		var changed map[string]any
		require.NoError(t, json.Unmarshal([]byte(body), &changed))
		changed["name"] = "entirely-other"
		if op.id == "startInspection" {
			delete(changed, "name")
			changed["connection"] = o.objects["connections"]
		}
		if op.id == "startRun" {
			delete(changed, "name")
			changed["options"] = map[string]any{"only": []string{"sample.orders"}}
		}
		text, err := json.Marshal(changed)
		require.NoError(t, err)
		status, refused := w.send(op, op.path, o.key, string(text), "Idempotency-Key", key)
		require.Equal(t, 409, status, "%s: %s", op.id, refused)
		require.Contains(t, string(refused), "idempotency_key_reused", op.id)
	}
}

func idOf(t *testing.T, text []byte) string {
	t.Helper()
	var v struct {
		ID    string `json:"id"`
		Items []struct {
			ID string `json:"id"`
		} `json:"items"`
	}
	require.NoError(t, json.Unmarshal(text, &v))
	if v.ID == "" && len(v.Items) > 0 {
		return v.Items[0].ID
	}
	require.NotEmpty(t, v.ID, string(text))
	return v.ID
}

// finishRuns cancels the open runs of the first organization: nothing executes them.
func (w *world) finishRuns() {
	cancel := w.operation("cancelRun")
	status, text := w.send(cancel, cancel.with(w.orgs[0].objects["runs"]), w.orgs[0].key, "")
	require.Equal(w.t, 202, status, string(text))
}

// TestSecretsStayInside looks for planted secrets in all answers and in the log
// (invariant 10).
func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.orgs[0]
	var all []byte
	for _, op := range w.ops {
		kind, _ := op.kind()
		if op.method != http.MethodGet {
			continue
		}
		_, text := w.send(op, op.with(o.objects[kind])+op.query(), o.key, "")
		all = append(all, text...)
	}
	// A secret where it does not belong is refused without being repeated.
	for _, c := range []struct{ operation, body string }{
		{"createConnection", `{"name": "x", "connector": "postgres", "role": "sink", "config": {"url": "postgres://u:` + o.secret + `@h/d"}}`},
		{"createConnection", `{"name": "x", "connector": "postgres", "role": "sink", "secrets": {"url": {"provider": "` + o.secret + `"}}}`},
		{"createConnection", `{"name": "` + o.secret + `!", "connector": "postgres", "role": "sink"}`},
		{"applyDocument", `{"document": "version: 1\nname: x\nsource: {connector: postgres, url: 'postgres://u:` + o.secret + `@h/d', nope: 1}\n"}`},
	} {
		op := w.operation(c.operation)
		status, text := w.send(op, op.path, o.key, c.body)
		require.Contains(t, []int{400, 422}, status, string(text))
		all = append(all, text...)
	}
	require.NotContains(t, string(all), o.secret)
	require.NotContains(t, w.log.String(), o.secret)
	for _, key := range o.keys {
		require.NotContains(t, string(all), key)
		require.NotContains(t, w.log.String(), key)
	}
}
