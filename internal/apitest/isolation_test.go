package apitest

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/control"
)

// TestEveryOperationByEveryRole compares each operation's permission in the
// document with what the service decides.
func TestEveryOperationByEveryRole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.orgs[0]
	for _, op := range w.ops {
		if op.public {
			continue
		}
		for role, key := range o.keys {
			allowed := op.permission == "" || control.Authorize(control.Actor{Role: control.Role(role)}, control.Permission(op.permission)) == nil
			id := uuid.NewString()
			if kind, named := op.kind(); named && op.method == http.MethodGet && o.objects[kind] != "" {
				id = o.objects[kind]
			}
			status, text := w.send(op, op.with(id)+op.query(), key, w.valid(op, o), "If-Match", `"1"`)
			if allowed {
				assert.NotContains(t, []int{401, 403}, status, "%s by %s: %s", op.id, role, text)
			} else {
				assert.Equal(t, 403, status, "%s by %s: %s", op.id, role, text)
			}
		}
	}
}

// TestOtherOrganizations sends every operation with ids of another organization:
// the answer is that of an id which does not exist, and nothing of the other one
// changes or is told (invariant 9).
func TestOtherOrganizations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	theirs, mine := w.orgs[0], w.orgs[1]
	before := w.snapshot(theirs)
	for _, op := range w.ops {
		if op.public {
			continue
		}
		kind, named := op.kind()
		if !named {
			w.tellsNothing(op, theirs, mine)
			continue
		}
		foreign := theirs.objects[kind]
		if foreign == "" {
			continue // deliveries: none without a worker
		}
		unknown := uuid.NewString()
		if op.id == "putSecret" {
			continue // a name of one's own
		}
		status, text := w.send(op, op.with(foreign), mine.key, w.valid(op, mine), "If-Match", "*")
		assert.Equal(t, 404, status, "%s: %s", op.id, text)
		_, none := w.send(op, op.with(unknown), mine.key, w.valid(op, mine), "If-Match", "*")
		assert.Equal(t, plain(t, none, unknown), plain(t, text, foreign), op.id)
	}
	for _, c := range []struct{ operation, body string }{
		{"createPipeline", pipelineBody("stolen", theirs.objects["source"], theirs.objects["connections"])},
		{"createPipeline", pipelineBody("stolen", "first-from", "first-to")},
		{"createSchedule", `{"pipeline": "` + theirs.objects["pipelines"] + `", "interval": "24h"}`},
		{"createSchedule", `{"pipeline": "first-shop", "interval": "24h"}`},
		{"startRun", `{"pipeline": "` + theirs.objects["pipelines"] + `"}`},
		{"startRun", `{"pipeline": "first-shop"}`},
		{"startInspection", `{"kind": "test", "connection": "` + theirs.objects["connections"] + `"}`},
		{"startInspection", `{"kind": "validate", "pipeline": "` + theirs.objects["pipelines"] + `"}`},
		{"createRule", `{"name": "stolen", "pipeline": "` + theirs.objects["pipelines"] + `", "events": ["run.failed"], "channel": "email", "to": ["a@example.com"]}`},
		{"createKey", `{"service_account": "` + theirs.objects["service-accounts"] + `", "name": "stolen"}`},
		{"createConnection", `{"name": "stolen", "connector": "postgres", "role": "sink", "config": {}, "secrets": {"url": {"provider": "local", "reference": "first-url"}}}`},
	} {
		op := w.operation(c.operation)
		status, text := w.send(op, op.path, mine.key, c.body)
		assert.Contains(t, []int{404, 422}, status, "%s %s: %s", c.operation, c.body, text)
	}
	require.Equal(t, before, w.snapshot(theirs))
}

// tellsNothing asks for a list, also filtered by the other's ids.
func (w *world) tellsNothing(op operation, theirs, mine *organization) {
	w.t.Helper()
	if op.method != http.MethodGet {
		return
	}
	queries := []string{op.query()}
	queries = append(queries, map[string][]string{
		"listRuns":         {"?pipeline=" + theirs.objects["pipelines"], "?pipeline=first-shop"},
		"listInspections":  {"?connection=" + theirs.objects["connections"]},
		"listSchedules":    {"?pipeline=" + theirs.objects["pipelines"]},
		"listRules":        {"?pipeline=" + theirs.objects["pipelines"]},
		"listDeliveries":   {"?rule=" + theirs.objects["notification-rules"], "?run=" + theirs.objects["runs"]},
		"listKeys":         {"?service_account=" + theirs.objects["service-accounts"]},
		"listAudit":        {"?object=" + theirs.objects["pipelines"]},
		"listMetricSeries": {"?metric=runs&pipeline=" + theirs.objects["pipelines"]},
		"listPipelines":    {"?name=first-shop"},
		"listConnections":  {"?name=first-to"},
	}[op.id]...)
	for _, q := range queries {
		_, text := w.send(op, op.with("sample")+q, mine.key, "")
		for kind, id := range theirs.objects {
			if !strings.Contains(q, id) {
				require.NotContains(w.t, string(text), id, "%s%s tells of %s", op.id, q, kind)
			}
		}
		require.NotContains(w.t, string(text), theirs.id, op.id)
	}
}

// snapshot is all that an organization sees of its objects.
func (w *world) snapshot(o *organization) map[string]string {
	w.t.Helper()
	out := map[string]string{}
	for _, op := range w.ops {
		kind, named := op.kind()
		if op.method != http.MethodGet || !named || o.objects[kind] == "" || strings.HasSuffix(op.path, "/next") || op.id == "getPipelineHealth" {
			continue
		}
		_, text := w.send(op, op.with(o.objects[kind]), o.key, "")
		out[op.id] = plain(w.t, text, "")
	}
	return out
}

// plain is an answer without what differs from one request to the next.
func plain(t *testing.T, text []byte, id string) string {
	t.Helper()
	s := string(text)
	if id != "" {
		s = strings.ReplaceAll(s, id, "ID")
	}
	var v map[string]any
	if json.Unmarshal([]byte(s), &v) != nil {
		return s
	}
	delete(v, "request_id")
	out, err := json.Marshal(v)
	require.NoError(t, err)
	return string(out)
}

// TestKeysThatEnded sends every operation with a revoked key, and with one whose
// account has a lesser role meanwhile.
func TestKeysThatEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.orgs[0]
	op := w.operation("createKey")
	_, text := w.send(op, op.path, o.key, `{"service_account": "`+w.create(o, "createServiceAccount", `{"name": "ends", "role": "admin"}`)+`", "name": "k"}`)
	var made struct {
		Key  string `json:"key"`
		Item struct {
			ID      string `json:"id"`
			Account string `json:"service_account"`
		} `json:"item"`
	}
	require.NoError(t, json.Unmarshal(text, &made))
	lesser := func(status int) {
		t.Helper()
		for _, op := range w.ops {
			if op.public {
				continue
			}
			want := status
			if status == 403 && (op.permission == "" || control.Authorize(control.Actor{Role: control.RoleViewer}, control.Permission(op.permission)) == nil) {
				continue
			}
			got, text := w.send(op, op.with(uuid.NewString())+op.query(), made.Key, w.valid(op, o), "If-Match", "*")
			assert.Equal(t, want, got, "%s: %s", op.id, text)
		}
	}
	update := w.operation("updateServiceAccount")
	status, body := w.send(update, update.with(made.Item.Account), o.key, `{"name": "ends", "role": "viewer"}`, "If-Match", "*")
	require.Equal(t, 200, status, string(body))
	lesser(403)
	revoke := w.operation("revokeKey")
	status, body = w.send(revoke, revoke.with(made.Item.ID), o.key, "")
	require.Equal(t, 200, status, string(body))
	lesser(401)
}
