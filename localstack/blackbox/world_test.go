package blackbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/localstack/rig"
)

// world is the installation under test, as .localstack/env describes it.
type world struct {
	url, key, database string
	core               *rig.Core
	control, sqs       string
	s3, ecs            string
}

// rigWorld is set once by TestMain, before any test.
var rigWorld world

func TestMain(m *testing.M) {
	need := map[string]*string{
		"TRANSHIP_URL": &rigWorld.url, "DATABASE_URL": &rigWorld.database, "TRANSHIP_RIG_CONTROL": &rigWorld.control,
		"TRANSHIP_RIG_SQS": &rigWorld.sqs, "TRANSHIP_RIG_S3": &rigWorld.s3, "TRANSHIP_RIG_ECS": &rigWorld.ecs,
	}
	for name, to := range need {
		if *to = os.Getenv(name); *to == "" {
			fmt.Fprintf(os.Stderr, "blackbox: %s is not set: there is no installation to test; run make localstack-test\n", name)
			os.Exit(1)
		}
	}
	key, err := os.ReadFile(os.Getenv("TRANSHIP_KEY_FILE"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "blackbox: read the first key (TRANSHIP_KEY_FILE):", err)
		os.Exit(1)
	}
	rigWorld.key = strings.TrimSpace(string(key))
	rigWorld.core = rig.Attach(os.Getenv("AWS_ENDPOINT_URL"))
	os.Exit(m.Run())
}

func (w *world) aws() aws.Config { return w.core.AWS() }

// document is an answer of the API.
type document map[string]any

func (d document) text(name string) string {
	s, _ := d[name].(string)
	return s
}

func (d document) number(name string) int {
	n, _ := d[name].(float64)
	return int(n)
}

func (d document) items() []document {
	list, _ := d["items"].([]any)
	var out []document
	for _, x := range list {
		if m, ok := x.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// client calls the API with one key.
type client struct {
	t   *testing.T
	key string
}

func admin(t *testing.T) *client {
	t.Helper()
	return &client{t: t, key: rigWorld.key}
}

// call sends a request once and returns what came.
func (c *client) call(ctx context.Context, method, path string, body any, idempotency string) (int, document, error) {
	var in io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		in = bytes.NewReader(text)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, rigWorld.url+path, in)
	if err != nil {
		return 0, nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		r.Header.Set("Authorization", "Bearer "+c.key)
	}
	if idempotency != "" {
		r.Header.Set("Idempotency-Key", idempotency)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, nil, err
	}
	var d document
	if len(text) > 0 {
		if err := json.Unmarshal(text, &d); err != nil {
			d = document{"text": string(text)}
		}
	}
	return answer.StatusCode, d, nil
}

// status sends a request and returns its status.
func (c *client) status(method, path string, body any) int {
	c.t.Helper()
	code, _, err := c.call(c.t.Context(), method, path, body, "")
	require.NoError(c.t, err)
	return code
}

// must sends a request until it is answered by success. A request that changes
// something carries an idempotency key, so that a repetition does nothing more.
func (c *client) must(method, path string, body any) document {
	c.t.Helper()
	key := ""
	if method == http.MethodPost {
		key = rand.Text()
	}
	deadline := time.Now().Add(2 * time.Minute)
	for {
		code, d, err := c.call(c.t.Context(), method, path, body, key)
		if err == nil && code < 300 {
			return d
		}
		busy := err != nil || code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests || code == http.StatusBadGateway || code == http.StatusGatewayTimeout
		if !busy || time.Now().After(deadline) {
			require.NoError(c.t, err)
			require.Less(c.t, code, 300, "%s %s: %v", method, path, d)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// name is unique in the installation.
func name(t *testing.T) string {
	t.Helper()
	return rig.Name(t)
}

// newDatabase makes a database for the ends of a test's pipelines.
func newDatabase(t *testing.T) string {
	t.Helper()
	db := "bb_" + strings.ToLower(rand.Text()[:12])
	server := connect(t, rigWorld.database)
	_, err := server.Exec(t.Context(), "CREATE DATABASE "+db)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		conn, err := pgx.Connect(ctx, rigWorld.database)
		if err != nil {
			t.Logf("drop %s: %v", db, err)
			return
		}
		defer conn.Close(ctx)
		if _, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+db+" WITH (FORCE)"); err != nil {
			t.Logf("drop %s: %v", db, err)
		}
	})
	return inDatabase(t, db)
}

func inDatabase(t *testing.T, db string) string {
	t.Helper()
	u, err := url.Parse(rigWorld.database)
	require.NoError(t, err)
	u.Path = "/" + db
	return u.String()
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// one asks for a single value.
func one[T any](t *testing.T, url, sql string, args ...any) T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	var v T
	require.NoError(t, conn.QueryRow(t.Context(), sql, args...).Scan(&v), sql)
	return v
}

// control is the control plane's own database.
func controlDatabase(t *testing.T) string {
	t.Helper()
	return inDatabase(t, "tranship")
}

// faults sets what a proxy or the shim does wrong, until the test's end.
func faults(t *testing.T, address string, what map[string]any) {
	t.Helper()
	put := func(what map[string]any) error {
		text, err := json.Marshal(what)
		if err != nil {
			return err
		}
		r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPut, address+"/_rig/faults", bytes.NewReader(text))
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusNoContent {
			return fmt.Errorf("set faults: %s", answer.Status)
		}
		return nil
	}
	require.NoError(t, put(what))
	t.Cleanup(func() { require.NoError(t, put(map[string]any{})) })
}

// tell sends a command to the rig's own control.
func tell(t *testing.T, path string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, rigWorld.control+path, http.NoBody)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusNoContent, answer.StatusCode, string(text))
}
