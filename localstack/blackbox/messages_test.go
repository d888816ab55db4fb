package blackbox

import (
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPoison sends what nobody can read: a function puts it aside itself and
// acknowledges it, because a hundred receives would take a day.
func TestPoison(t *testing.T) {
	t.Parallel()
	for from, to := range map[string]string{"facts.fifo": "facts-dead.fifo", "deliveries": "deliveries-dead", "tasks": "tasks-dead"} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			poison := `{"poison": "` + rand.Text() + `"`
			group := ""
			if from == "facts.fifo" {
				group = "poison"
			}
			queueOf(t, from).send(poison, group)
			queueOf(t, to).waitFor(poison, 2*time.Minute)
		})
	}
	t.Run("attempts", func(t *testing.T) {
		t.Parallel()
		queueOf(t, "attempts").send("not JSON", "")
		// Its dead letters go to the sweep, which has nothing to offer again.
		require.Eventually(t, func() bool { return queueOf(t, "attempts-dead").depth() == "0+0" }, 2*time.Minute, time.Second)
		p := admin(t).pipe(100, settings{})
		p.complete(p.start(), 3*time.Minute)
	})
}

// hook receives webhooks and refuses as many as it is told.
type hook struct {
	*httptest.Server

	mu     sync.Mutex
	refuse int
	got    []http.Header
	bodies []string
}

func newHook(t *testing.T, refuse int) *hook {
	t.Helper()
	h := &hook{refuse: refuse}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.got, h.bodies = append(h.got, r.Header.Clone()), append(h.bodies, string(body))
		if h.refuse != 0 {
			h.refuse--
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) calls() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.got)
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	c := admin(t)
	p := c.pipe(100, settings{})
	h := newHook(t, 1)
	rule := c.must(http.MethodPost, "/v1/notification-rules", map[string]any{
		"name": name(t), "pipeline": p.name, "events": []string{"run.completed"}, "channel": "webhook", "url": h.URL,
	})
	p.complete(p.start(), 3*time.Minute)
	require.Eventually(t, func() bool { return h.calls() >= 2 }, 5*time.Minute, time.Second, "refused once, tried again")
	h.mu.Lock()
	for i, header := range h.got {
		require.NotEmpty(t, header.Get("Webhook-Signature"))
		require.Equal(t, h.got[0].Get("Webhook-Id"), header.Get("Webhook-Id"), "the receiver can tell a repetition")
		require.True(t, json.Valid([]byte(h.bodies[i])))
	}
	h.mu.Unlock()
	deliveries := func() []document {
		return c.must(http.MethodGet, "/v1/deliveries?limit=10&rule="+url.QueryEscape(rule.text("id")), nil).items()
	}
	require.Eventually(t, func() bool { d := deliveries(); return len(d) == 1 && d[0].text("state") == "sent" }, time.Minute, time.Second)
	before := h.calls()
	c.must(http.MethodPost, "/v1/deliveries/"+deliveries()[0].text("id")+"/replay", nil)
	require.Eventually(t, func() bool { return h.calls() > before }, 2*time.Minute, time.Second)
}
