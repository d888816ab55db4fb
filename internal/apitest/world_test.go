package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/connectors/catalog"
	"github.com/tranship-io/tranship/control/access"
	"github.com/tranship-io/tranship/control/secrets"
	"github.com/tranship-io/tranship/internal/compose/serve"
	"github.com/tranship-io/tranship/internal/pgtest"
	"github.com/tranship-io/tranship/store"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// operation is one of the document.
type operation struct {
	id, method, path, permission string
	public                       bool
	body                         bool
	responses                    map[string]any
}

// world is a serving process, its document and two organizations.
type world struct {
	t        *testing.T
	base     string
	database string
	log      *bytes.Buffer
	schemas  *jsonschema.Compiler
	ops      []operation
	orgs     [2]*organization
}

// organization is a tenant with a key for each role and one object of each kind.
type organization struct {
	key  string
	id   string
	keys map[string]string
	// objects are ids by the first part of the path behind /v1.
	objects map[string]string
	// secret is a text that no answer may hold.
	secret string
}

const place = "urn:tranship:openapi"

// newWorld starts a process that executes nothing, so that runs stay where they are.
func newWorld(t *testing.T) *world {
	t.Helper()
	folder := t.TempDir()
	w := &world{t: t, database: pgtest.NewDatabase(t, pgtest.Shared(t)), log: &bytes.Buffer{}}
	ready, ended := make(chan string, 1), make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	c := serve.Config{
		Listen: "127.0.0.1:0", DatabaseURL: w.database, Folder: folder, BootstrapKeyFile: filepath.Join(folder, "key"), Organization: "first",
		Workers: -1, Catalog: catalog.New(io.Discard), Version: "test", Lookup: os.LookupEnv,
		Log: slog.New(slog.NewTextHandler(w.log, nil)), Ready: func(a string) { ready <- a },
	}
	go func() { ended <- serve.Run(ctx, c) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		if t.Failed() {
			t.Log(w.log.String())
		}
	})
	select {
	case a := <-ready:
		w.base = "http://" + a
	case err := <-ended:
		ended <- err
		t.Fatal("serve ended:", err)
	case <-time.After(time.Minute):
		t.Fatal("serve is not ready")
	}
	w.readDocument()
	text, err := os.ReadFile(c.BootstrapKeyFile)
	require.NoError(t, err)
	w.orgs[0] = w.organization("first", strings.TrimSpace(string(text)))
	w.orgs[1] = w.organization("second", w.secondKey(folder))
	return w
}

// secondKey makes another organization, which the API does not do, and its key.
func (w *world) secondKey(folder string) string {
	ctx := w.t.Context()
	conn, err := pgx.Connect(ctx, w.database)
	require.NoError(w.t, err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, `INSERT INTO tranship.organizations (id, key, name) VALUES ($1, 'second', 'Second')`, uuid.Must(uuid.NewV7()))
	require.NoError(w.t, err)
	ring, err := secrets.ReadKeyFile(filepath.Join(folder, "master.key"))
	require.NoError(w.t, err)
	keys, err := ring.Derive(access.Purpose)
	require.NoError(w.t, err)
	signer, err := access.NewSigner(keys)
	require.NoError(w.t, err)
	db, err := store.Open(ctx, store.Config{URL: w.database})
	require.NoError(w.t, err)
	defer db.Close()
	s, err := access.New(access.Config{Store: db.Access(), Signer: signer})
	require.NoError(w.t, err)
	_, text, err := s.Emergency(ctx, "second", 0)
	require.NoError(w.t, err)
	return text
}

func (w *world) readDocument() {
	_, body, _ := w.call("GET", "/openapi.json", "", "")
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	require.NoError(w.t, err)
	allowNull(doc)
	w.schemas = jsonschema.NewCompiler()
	require.NoError(w.t, w.schemas.AddResource(place, doc))
	paths := doc.(map[string]any)["paths"].(map[string]any)
	for path, item := range paths {
		for method, raw := range item.(map[string]any) {
			o, ok := raw.(map[string]any)
			if !ok {
				continue
			}
			_, body := o["requestBody"]
			security, set := o["security"].([]any)
			permission, _ := o["x-permission"].(string)
			w.ops = append(w.ops, operation{
				id: o["operationId"].(string), method: strings.ToUpper(method), path: path, permission: permission,
				public: set && len(security) == 0, body: body, responses: o["responses"].(map[string]any),
			})
		}
	}
	slices.SortFunc(w.ops, func(a, b operation) int { return strings.Compare(a.id, b.id) })
}

// allowNull turns nullable, which OpenAPI 3.0 alone has, into a type.
func allowNull(v any) {
	switch x := v.(type) {
	case map[string]any:
		if name, ok := x["type"].(string); ok && x["nullable"] == true {
			x["type"] = []any{name, "null"}
		}
		for _, inner := range x {
			allowNull(inner)
		}
	case []any:
		for _, inner := range x {
			allowNull(inner)
		}
	}
}

// call sends a request; head is names and values.
func (w *world) call(method, path, key, body string, head ...string) (int, []byte, http.Header) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.base+path, strings.NewReader(body))
	require.NoError(w.t, err)
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(head); i += 2 {
		r.Header.Set(head[i], head[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(w.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	return resp.StatusCode, text, resp.Header
}

// send is call for an operation, whose answer must be as the document says.
func (w *world) send(o operation, path, key, body string, head ...string) (int, []byte) {
	w.t.Helper()
	status, text, header := w.call(o.method, path, key, body, head...)
	w.conforms(o, status, header, text)
	return status, text
}

// conforms fails unless an answer is one that the document lists for the operation.
func (w *world) conforms(o operation, status int, header http.Header, text []byte) {
	w.t.Helper()
	at := fmt.Sprintf("%s answered %d: %s", o.id, status, text)
	raw, listed := o.responses[fmt.Sprint(status)].(map[string]any)
	if !assert.Less(w.t, status, 500, at) || !assert.True(w.t, listed, "not in the document: "+at) {
		return
	}
	require.NotEmpty(w.t, header.Get("X-Request-Id"), at)
	where := place + "#/paths/" + pointer(o.path) + "/" + strings.ToLower(o.method) + "/responses/" + fmt.Sprint(status)
	if ref, ok := raw["$ref"].(string); ok {
		where = place + ref
		raw = w.at(ref)
	}
	content, _ := raw["content"].(map[string]any)
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	if len(content) == 0 {
		require.Empty(w.t, text, at)
		return
	}
	require.Contains(w.t, content, kind, at)
	if !strings.Contains(kind, "json") {
		return
	}
	schema, err := w.schemas.Compile(where + "/content/" + pointer(kind) + "/schema")
	require.NoError(w.t, err, at)
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(w.t, err, at)
	assert.NoError(w.t, schema.Validate(value), at)
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		require.NotEmpty(w.t, header.Get("Retry-After"), at)
	}
}

// at finds a part of the document by its reference.
func (w *world) at(ref string) map[string]any {
	_, body, _ := w.call("GET", "/openapi.json", "", "")
	var doc any
	require.NoError(w.t, json.Unmarshal(body, &doc))
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		doc = doc.(map[string]any)[part]
	}
	return doc.(map[string]any)
}

func pointer(key string) string {
	return url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(key))
}

// operation returns one by its id.
func (w *world) operation(id string) operation {
	i := slices.IndexFunc(w.ops, func(o operation) bool { return o.id == id })
	require.GreaterOrEqual(w.t, i, 0, id)
	return w.ops[i]
}

// create makes an object and returns its id.
func (w *world) create(o *organization, operation, body string) string {
	w.t.Helper()
	op := w.operation(operation)
	status, text := w.send(op, op.path, o.key, body)
	require.Less(w.t, status, 300, string(text))
	var made struct {
		ID    string `json:"id"`
		Items []struct {
			ID string `json:"id"`
		} `json:"items"`
		Item struct {
			ID string `json:"id"`
		} `json:"item"`
	}
	require.NoError(w.t, json.Unmarshal(text, &made))
	switch {
	case made.ID != "":
		return made.ID
	case made.Item.ID != "":
		return made.Item.ID
	}
	require.NotEmpty(w.t, made.Items, string(text))
	return made.Items[0].ID
}

// organization makes one object of each kind and a key for each role.
func (w *world) organization(name, key string) *organization {
	w.t.Helper()
	o := &organization{key: key, keys: map[string]string{"admin": key}, objects: map[string]string{}, secret: "planted-" + name}
	status, text, _ := w.call("GET", "/v1/whoami", key, "")
	require.Equal(w.t, 200, status, string(text))
	var who struct {
		Organization string `json:"organization"`
	}
	require.NoError(w.t, json.Unmarshal(text, &who))
	o.id = who.Organization
	for _, role := range []string{"viewer", "operator"} {
		account := w.create(o, "createServiceAccount", fmt.Sprintf(`{"name": "%s-%s", "role": "%s"}`, name, role, role))
		op := w.operation("createKey")
		status, text := w.send(op, op.path, key, fmt.Sprintf(`{"service_account": "%s", "name": "%s-key"}`, account, name))
		require.Equal(w.t, 201, status, string(text))
		var made struct {
			Key  string `json:"key"`
			Item struct {
				ID string `json:"id"`
			} `json:"item"`
		}
		require.NoError(w.t, json.Unmarshal(text, &made))
		o.keys[role] = made.Key
		o.objects["service-accounts"], o.objects["keys"] = account, made.Item.ID
	}
	put := w.operation("putSecret")
	status, body := w.send(put, "/v1/secrets/"+name+"-url", key, `{"value": "postgres://u:`+o.secret+`@127.0.0.1:1/none"}`)
	require.Equal(w.t, 200, status, string(body))
	o.objects["secrets"] = name + "-url"
	source := w.create(o, "createConnection", `{"name": "`+name+`-from", "connector": "sample", "role": "source", "config": {"rows": 10}}`)
	sink := w.create(o, "createConnection", `{"name": "`+name+`-to", "connector": "postgres", "role": "sink", "config": {}, "secrets": {"url": {"provider": "local", "reference": "`+name+`-url"}}}`)
	o.objects["connections"], o.objects["source"] = sink, source
	o.objects["pipelines"] = w.create(o, "createPipeline", pipelineBody(name+"-shop", source, sink))
	o.objects["schedules"] = w.create(o, "createSchedule", `{"name": "`+name+`-yearly", "pipeline": "`+name+`-shop", "cron": "0 0 1 1 *"}`)
	o.objects["runs"] = w.create(o, "startRun", `{"pipeline": "`+name+`-shop"}`)
	o.objects["notification-rules"] = w.create(o, "createRule", `{"name": "`+name+`-rule", "events": ["run.failed"], "channel": "webhook", "url": "https://hooks.example.com/x"}`)
	o.objects["inspections"] = w.create(o, "startInspection", `{"kind": "test", "connection": "`+source+`"}`)
	inspection := w.operation("getInspection")
	require.Eventually(w.t, func() bool {
		_, text := w.send(inspection, inspection.with(o.objects["inspections"]), key, "")
		return strings.Contains(string(text), `"state":"succeeded"`)
	}, time.Minute, 20*time.Millisecond, "snapshots need objects that nothing changes")
	o.objects["members"] = w.create(o, "createMember", `{"name": "Ada", "email": "ada-`+name+`@example.com", "role": "viewer"}`)
	return o
}

func pipelineBody(name, source, sink string) string {
	return fmt.Sprintf(`{"name": %q, "graph": {"nodes": [{"id": "a", "role": "source", "connection": %q}, {"id": "b", "role": "sink", "connection": %q}],
		"edges": [{"from": "a", "to": "b", "resource": "sample.orders", "write": "append"}]}}`, name, source, sink)
}

// path puts an object's id into an operation's path.
func (o operation) with(id string) string {
	path := strings.ReplaceAll(o.path, "{id}", id)
	path = strings.ReplaceAll(path, "{name}", id)
	return strings.ReplaceAll(path, "{number}", "1")
}

// kind is the first part of an operation's path behind /v1, if it names an object.
func (o operation) kind() (string, bool) {
	parts := strings.Split(o.path, "/")
	return parts[min(2, len(parts)-1)], strings.Contains(o.path, "{id}") || strings.Contains(o.path, "/secrets/{name}")
}

// valid is a body that an operation takes, with references to an organization's
// own objects.
func (w *world) valid(op operation, o *organization) string {
	if !op.body {
		return ""
	}
	bodies := map[string]string{
		"createConnection":     `{"name": "more", "connector": "sample", "role": "source"}`,
		"updateConnection":     `{"name": "more", "connector": "postgres", "role": "sink", "config": {}, "secrets": {"url": {"provider": "env", "reference": "TRANSHIP_SECRET_X"}}}`,
		"putSecret":            `{"value": "v"}`,
		"startInspection":      `{"kind": "test", "connection": "` + o.objects["source"] + `"}`,
		"createPipeline":       pipelineBody("more", o.objects["source"], o.objects["connections"]),
		"updatePipeline":       pipelineBody("more", o.objects["source"], o.objects["connections"]),
		"validatePipeline":     pipelineBody("more", o.objects["source"], o.objects["connections"]),
		"resetPipeline":        `{"resources": ["sample.orders"]}`,
		"backfillPipeline":     `{"resources": ["sample.orders"]}`,
		"applyDocument":        `{"document": "version: 1\nname: applied\nsource: {connector: sample}\nsink: {connector: stdout}\nresources: [{name: sample.orders, write: append}]\n"}`,
		"createSchedule":       `{"pipeline": "` + o.objects["pipelines"] + `", "interval": "24h"}`,
		"updateSchedule":       `{"pipeline": "` + o.objects["pipelines"] + `", "interval": "24h"}`,
		"startRun":             `{"pipeline": "` + o.objects["pipelines"] + `"}`,
		"createRule":           `{"name": "more", "events": ["run.failed"], "channel": "email", "to": ["ops@example.com"]}`,
		"updateRule":           `{"name": "more", "events": ["run.failed"], "channel": "email", "to": ["ops@example.com"]}`,
		"createMember":         `{"name": "Bob", "email": "bob@example.com", "role": "viewer"}`,
		"updateMember":         `{"name": "Bob", "role": "viewer"}`,
		"createServiceAccount": `{"name": "more", "role": "viewer"}`,
		"updateServiceAccount": `{"name": "more", "role": "viewer"}`,
		"createKey":            `{"service_account": "` + o.objects["service-accounts"] + `", "name": "more"}`,
		"rotateKey":            `{}`,
	}
	body, ok := bodies[op.id]
	require.True(w.t, ok, "the test knows no body for %s: add one", op.id)
	return body
}

// query are parameters that an operation needs.
func (o operation) query() string {
	switch o.id {
	case "listMetricSeries", "listMetricAggregates":
		return "?metric=runs"
	}
	return ""
}
