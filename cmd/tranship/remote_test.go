package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	runID = "0198d3a0-0000-7000-8000-000000000001"
	key   = "trk_planted-key-of-the-caller"
)

// fake is a server that answers by path.
type fake struct {
	t       *testing.T
	answers map[string]func(r *http.Request, body string) (int, any)
	seen    []string
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	assert.NoError(f.t, err)
	assert.Equal(f.t, "Bearer "+key, r.Header.Get("Authorization"))
	name := r.Method + " " + r.URL.Path
	f.seen = append(f.seen, name+"?"+r.URL.RawQuery+" "+string(body))
	do, ok := f.answers[name]
	if !ok {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"type": "urn:tranship:problem:not_found", "code": "not_found", "title": "No such thing", "status": 404, "detail": "there is no run", "hint": "look", "request_id": "r1"}`))
		return
	}
	status, answer := do(r, string(body))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	assert.NoError(f.t, json.NewEncoder(w).Encode(answer))
}

// withServer is a place whose current context is a fake server.
func withServer(t *testing.T, answers map[string]func(r *http.Request, body string) (int, any)) (*place, *fake) {
	t.Helper()
	f := &fake{t: t, answers: answers}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	p := newPlace(t)
	file := filepath.Join(p.dir, "key")
	require.NoError(t, os.WriteFile(file, []byte(key+"\n"), 0o600))
	require.Equal(t, exitOK, p.run("context", "add", "local", "--url", s.URL, "--key-file", file), p.err.String())
	return p, f
}

func always(status int, answer any) func(*http.Request, string) (int, any) {
	return func(*http.Request, string) (int, any) { return status, answer }
}

func aRun(state string) map[string]any {
	return map[string]any{
		"id": runID, "pipeline": "shop", "state": state, "resumable": false, "trigger": "api", "attempts": 1, "last_fact": 2,
		"created_at": "2026-11-30T10:00:00Z",
	}
}

func TestContexts(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	file := filepath.Join(p.dir, "key")
	require.NoError(t, os.WriteFile(file, []byte(key+"\n"), 0o600))
	require.Equal(t, exitUsage, p.run("pipelines"))
	require.Contains(t, p.err.String(), "tranship context add")
	for _, wrong := range [][]string{
		{"--url", "http://192.0.2.1:8080", "--key-file", file}, {"--url", "ftp://localhost", "--key-file", file},
		{"--url", "http://localhost", "--key-file", filepath.Join(p.dir, "none")}, {"--url", "http://localhost"},
	} {
		require.Equal(t, exitUsage, p.run(append([]string{"context", "add", "a"}, wrong...)...), wrong)
	}
	require.Equal(t, exitOK, p.run("context", "add", "a", "--url", "http://127.0.0.1:1", "--key-file", file), p.err.String())
	require.Equal(t, exitOK, p.run("context", "add", "b", "--url", "https://tranship.example.com/", "--key-file", file))
	require.Equal(t, exitOK, p.run("context", "list", "--json"))
	require.JSONEq(t, `{"items": [
		{"name": "a", "url": "http://127.0.0.1:1", "key_file": "`+file+`", "current": true},
		{"name": "b", "url": "https://tranship.example.com", "key_file": "`+file+`", "current": false}], "next": null}`, p.out.String())
	require.Equal(t, exitOK, p.run("context", "use", "b"))
	require.Equal(t, exitUsage, p.run("context", "use", "c"))
	require.Equal(t, exitOK, p.run("context", "remove", "b"))
	require.Equal(t, exitUsage, p.run("pipelines"), "no context is current any more")
	info, err := os.Stat(filepath.Join(p.dir, "config", "contexts.json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestRemoteList(t *testing.T) {
	t.Parallel()
	next := "more"
	p, f := withServer(t, map[string]func(*http.Request, string) (int, any){
		"GET /v1/runs": always(200, map[string]any{"items": []any{aRun("running")}, "next": next}),
	})
	require.Equal(t, exitOK, p.run("runs", "list", "--pipeline", "shop", "--status", "running,failed", "--json"), p.err.String())
	var list struct {
		Items []struct {
			Pipeline string `json:"pipeline"`
		} `json:"items"`
		Next *string `json:"next"`
	}
	require.NoError(t, json.Unmarshal([]byte(p.out.String()), &list))
	require.Equal(t, "shop", list.Items[0].Pipeline)
	require.Equal(t, next, *list.Next)
	require.Contains(t, f.seen[0], "pipeline=shop")
	require.Contains(t, f.seen[0], "state=running&state=failed&limit")
	require.Equal(t, exitOK, p.run("runs"))
	require.Contains(t, p.out.String(), "running")
	require.Contains(t, p.err.String(), "--after more")
	require.Equal(t, exitUsage, p.run("runs", "--local"), "there is no state file")
}

// API Gateway's own addresses have the stage as their path's first part.
func TestServerBelowAPath(t *testing.T) {
	t.Parallel()
	p, f := withServer(t, map[string]func(*http.Request, string) (int, any){
		"GET /stage/live/v1/runs": always(200, map[string]any{"items": []any{aRun("running")}, "next": nil}),
	})
	require.Equal(t, exitOK, p.run("context", "list", "--json"))
	var list struct {
		Items []struct {
			URL     string `json:"url"`
			KeyFile string `json:"key_file"`
		} `json:"items"`
	}
	require.NoError(t, json.Unmarshal([]byte(p.out.String()), &list))
	for _, slash := range []string{"", "/"} {
		f.seen = nil
		require.Equal(t, exitOK, p.run("context", "add", "local", "--url", list.Items[0].URL+"/stage/live"+slash, "--key-file", list.Items[0].KeyFile), p.err.String())
		require.Equal(t, exitOK, p.run("runs"), p.err.String())
		require.Len(t, f.seen, 1)
	}
}

func TestStartAndWait(t *testing.T) {
	t.Parallel()
	receipt := map[string]any{"receipt_version": 1, "run_id": runID, "pipeline": "shop", "state": "completed", "resources": []any{}}
	for state, code := range map[string]int{"completed": exitOK, "failed": exitFailed, "paused": exitPaused, "canceled": exitCanceled} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			p, f := withServer(t, map[string]func(*http.Request, string) (int, any){
				"POST /v1/runs": func(r *http.Request, _ string) (int, any) {
					require.NotEmpty(t, r.Header.Get("Idempotency-Key"))
					return 202, map[string]any{"items": []any{aRun("requested")}, "next": nil}
				},
				"GET /v1/runs/" + runID: func(*http.Request, string) (int, any) {
					if asked.Add(1) < 3 {
						return 200, aRun("running")
					}
					return 200, aRun(state)
				},
				"GET /v1/runs/" + runID + "/facts": func(r *http.Request, _ string) (int, any) {
					require.Equal(t, "20s", r.URL.Query().Get("wait"))
					return 200, map[string]any{"items": []any{map[string]any{"number": asked.Load(), "type": "run.started", "version": 1, "at": "2026-11-30T10:00:00Z", "data": map[string]any{}}}, "next": asked.Load()}
				},
				"GET /v1/runs/" + runID + "/receipt": always(200, receipt),
			})
			file := filepath.Join(p.dir, "receipt.json")
			require.Equal(t, code, p.run("runs", "start", "shop", "--wait", "--receipt", file, "--only", "public.a"), p.err.String())
			require.Contains(t, f.seen[0], `{"options":{"only":["public.a"]},"pipeline":"shop"}`)
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			require.JSONEq(t, mustJSON(t, receipt), string(text))
		})
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

func TestFollow(t *testing.T) {
	t.Parallel()
	fact := func(n int) map[string]any {
		return map[string]any{"number": n, "type": "run.started", "version": 1, "at": "2026-11-30T10:00:00Z", "data": map[string]any{"n": n}}
	}
	p, _ := withServer(t, map[string]func(*http.Request, string) (int, any){
		"GET /v1/runs/" + runID: always(200, aRun("running")),
		"GET /v1/runs/" + runID + "/facts": func(r *http.Request, _ string) (int, any) {
			switch r.URL.Query().Get("after") {
			case "0":
				return 200, map[string]any{"items": []any{fact(1), fact(2)}, "next": 2}
			case "2":
				return 200, map[string]any{"items": []any{fact(3)}, "next": nil}
			}
			return 500, nil
		},
	})
	require.Equal(t, exitOK, p.run("facts", runID, "--follow", "--json"), p.err.String())
	require.Equal(t, 3, strings.Count(p.out.String(), "\n"))
	require.Contains(t, p.out.String(), `"number":3`)
}

func TestApplySendsWhatTheFileRefersTo(t *testing.T) {
	t.Parallel()
	p, f := withServer(t, map[string]func(*http.Request, string) (int, any){
		"POST /v1/apply": always(200, map[string]any{"changes": []any{map[string]any{"kind": "pipeline", "name": "test", "action": "created"}}}),
	})
	p.env["ROWS"], p.env["OTHER"] = "7", "planted-other"
	p.pipeline(", rows: '${ROWS}'")
	require.Equal(t, exitOK, p.run("apply"), p.err.String())
	require.Contains(t, f.seen[0], `"variables":{"ROWS":"7"}`)
	require.NotContains(t, f.seen[0], "planted-other")
	require.Contains(t, p.out.String(), "created    pipeline test")
	delete(p.env, "ROWS")
	require.Equal(t, exitUsage, p.run("apply"))
	require.Len(t, f.seen, 1, "nothing was sent")
}

func TestProblemsAreTold(t *testing.T) {
	t.Parallel()
	p, _ := withServer(t, map[string]func(*http.Request, string) (int, any){
		"POST /v1/runs": always(422, map[string]any{
			"type": "urn:tranship:problem:invalid", "code": "invalid", "title": "Not valid", "status": 422, "request_id": "r1",
			"errors": []any{map[string]any{"path": "options.only[0]", "message": "there is no such resource", "hint": "look"}},
		}),
		"POST /v1/runs/" + runID + "/cancel": always(409, map[string]any{
			"type": "urn:tranship:problem:run_over", "code": "run_over", "title": "The state does not allow it", "status": 409,
			"detail": "the run is over", "state": "completed", "request_id": "r2",
		}),
		"GET /v1/runs/" + runID: always(200, aRun("completed")),
	})
	require.Equal(t, exitUsage, p.run("runs", "start", "shop"))
	require.Contains(t, p.err.String(), "options.only[0]: there is no such resource (look)")
	require.Equal(t, exitFailed, p.run("runs", "cancel", runID))
	require.Contains(t, p.err.String(), "the run is over (state completed)")
	require.Equal(t, exitUsage, p.run("runs", "pause", runID))
	require.Contains(t, p.err.String(), "there is no run")
	require.NotContains(t, p.err.String(), key)
}

func TestAServerThatIsAwayIsAskedAgain(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	var keys []string
	p, _ := withServer(t, map[string]func(*http.Request, string) (int, any){
		"POST /v1/runs": func(r *http.Request, _ string) (int, any) {
			keys = append(keys, r.Header.Get("Idempotency-Key"))
			if n.Add(1) < 3 {
				return 503, map[string]any{"title": "The database cannot be reached", "status": 503, "code": "unavailable"}
			}
			return 202, map[string]any{"items": []any{aRun("requested")}, "next": nil}
		},
	})
	require.Equal(t, exitOK, p.run("runs", "start", "shop"), p.err.String())
	require.Len(t, keys, 3)
	require.Equal(t, keys[0], keys[2], "repetitions are the same request")
}

func TestConnectionTest(t *testing.T) {
	t.Parallel()
	result := map[string]any{"ok": true, "findings": []any{}}
	connection := "0198d3a0-0000-7000-8000-000000000002"
	inspection := func(state string, result any) map[string]any {
		return map[string]any{"id": runID, "kind": "test", "state": state, "result": result, "created_at": "2026-11-30T10:00:00Z", "expires_at": "2026-12-01T10:00:00Z"}
	}
	p, _ := withServer(t, map[string]func(*http.Request, string) (int, any){
		"GET /v1/connections":          always(200, map[string]any{"items": []any{map[string]any{"id": connection, "name": "shop"}}, "next": nil}),
		"POST /v1/inspections":         always(202, inspection("requested", nil)),
		"GET /v1/inspections/" + runID: func(*http.Request, string) (int, any) { return 200, inspection("succeeded", result) },
	})
	require.Equal(t, exitOK, p.run("connections", "test", "shop"), p.err.String())
	require.Contains(t, p.out.String(), "the connection works")
	result = map[string]any{"ok": false, "findings": []any{map[string]any{"level": "error", "subject": "connection", "message": "nothing listens", "hint": "start it"}}}
	require.Equal(t, exitFailed, p.run("connections", "test", "shop"))
	require.Contains(t, p.out.String(), "connection: nothing listens (start it)")
}
