package blackbox

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"
)

// inspect starts an inspection and waits for its result.
func (c *client) inspect(what map[string]any) document {
	c.t.Helper()
	id := c.must(http.MethodPost, "/v1/inspections", what).text("id")
	var d document
	require.Eventually(c.t, func() bool {
		d = c.must(http.MethodGet, "/v1/inspections/"+id, nil)
		state := d.text("state")
		return state != "pending" && state != "running" && state != "requested"
	}, 2*time.Minute, 300*time.Millisecond)
	return d
}

func TestPostgresToPostgres(t *testing.T) {
	t.Parallel()
	c := admin(t)
	p := &pipe{client: c, name: name(t), source: table(t, 20_000), target: newDatabase(t), rows: 20_000}
	source, sink := c.postgres("source", p.source), c.postgres("sink", p.target)

	tested := c.inspect(map[string]any{"kind": "test", "connection": source.text("id")})
	require.Equal(t, "succeeded", tested.text("state"), tested)
	found := c.inspect(map[string]any{"kind": "discover", "connection": source.text("id")})
	require.Contains(t, mustJSON(t, found["result"]), "public.orders")

	p.create(source, sink, settings{})
	id := p.start()
	p.complete(id, 3*time.Minute)

	facts := c.facts(id)
	require.Equal(t, 1, count(facts, "run.started"))
	require.Equal(t, 1, count(facts, "run.completed"))
	receipt := c.must(http.MethodGet, "/v1/runs/"+id+"/receipt", nil)
	text := mustJSON(t, receipt)
	require.Contains(t, text, `"verified":"digest"`)
	resources, _ := receipt["resources"].([]any)
	require.Len(t, resources, 1)
	for range 2 { // a second run replaces and leaves the same
		p.complete(p.start(), 3*time.Minute)
	}
}

func TestPostgresToParquet(t *testing.T) {
	t.Parallel()
	c := admin(t)
	p := &pipe{client: c, name: name(t), source: table(t, 5_000), rows: 5_000}
	store := s3.NewFromConfig(rigWorld.aws(), func(o *s3.Options) { o.UsePathStyle = true })
	bucket := name(t)
	_, err := store.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket})
	require.NoError(t, err)
	p.create(c.postgres("source", p.source), c.connection("sink", "files", map[string]any{"path": "s3://" + bucket + "/lake", "path_style": true}, nil), settings{})
	id := p.start()
	p.wait(id, 3*time.Minute, "completed")
	objects, err := store.ListObjectsV2(context.WithoutCancel(t.Context()), &s3.ListObjectsV2Input{Bucket: &bucket})
	require.NoError(t, err)
	require.NotEmpty(t, objects.Contents)
	r := c.run(id)
	require.Equal(t, 5_000, r.number("rows_read"))
	require.Equal(t, 5_000, r.number("rows_written"))
}

func TestControlOfARun(t *testing.T) {
	t.Parallel()
	c := admin(t)
	// Small epochs, so that there is time to interfere.
	slow := settings{pipeline: map[string]any{"epoch_size": "64KiB", "split_size": "128KiB"}}
	p := c.pipe(200_000, slow)

	id := p.start()
	p.wait(id, time.Minute, "running", "completed")
	asked := time.Now()
	p.must(http.MethodPost, "/v1/runs/"+id+"/pause", nil)
	p.wait(id, time.Minute, "paused")
	t.Logf("paused after %s", time.Since(asked).Round(time.Millisecond))
	p.must(http.MethodPost, "/v1/runs/"+id+"/resume", nil)
	p.complete(id, 5*time.Minute)

	id = p.start()
	p.wait(id, time.Minute, "running")
	asked = time.Now()
	p.must(http.MethodPost, "/v1/runs/"+id+"/cancel", nil)
	p.wait(id, time.Minute, "canceled")
	took := time.Since(asked)
	t.Logf("canceled after %s", took.Round(time.Millisecond))
	require.Less(t, took, 10*time.Second, "cancel within 10 s")
	p.equal(1) // the old data stays (invariant 8)
	require.Equal(t, "canceled", c.run(id).text("state"))
	p.complete(p.start(), 5*time.Minute)
}

func TestRetryOfAFailedRun(t *testing.T) {
	t.Parallel()
	c := admin(t)
	p := c.pipe(1_000, settings{service: map[string]any{"retries": map[string]any{"attempts": 1}}})
	_, err := connect(t, p.source).Exec(t.Context(), "ALTER TABLE orders RENAME TO elsewhere")
	require.NoError(t, err)
	id := p.start()
	r := p.wait(id, 2*time.Minute, "failed")
	require.NotEmpty(t, r.text("error"))
	_, err = connect(t, p.source).Exec(t.Context(), "ALTER TABLE elsewhere RENAME TO orders")
	require.NoError(t, err)
	again := c.must(http.MethodPost, "/v1/runs/"+id+"/retry", nil)
	next := again.text("id")
	if items := again.items(); next == "" && len(items) == 1 {
		next = items[0].text("id")
	}
	p.complete(next, 2*time.Minute)
}
