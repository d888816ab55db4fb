package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// receiver takes webhooks, and remembers how often each came.
type receiver struct {
	server *http.Server
	url    string

	mu   sync.Mutex
	seen map[string]int
}

func listen(ctx context.Context) (*receiver, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{url: "http://" + l.Addr().String(), seen: map[string]int{}}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = r.server.Serve(l) }()
	return r, nil
}

// ServeHTTP implements [http.Handler].
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[q.Header.Get("Webhook-Id")]++
	w.WriteHeader(http.StatusNoContent)
}

// makeRule lets every run that completes be told.
func (c *chaos) makeRule(ctx context.Context) error {
	body := fmt.Sprintf(`{"name":"completed","events":["run.completed"],"channel":"webhook","url":%q}`, c.receiver.url)
	code, text, err := c.any(ctx, http.MethodPost, "/v1/notification-rules", body, uuid.NewString())
	if err != nil {
		return err
	}
	var made struct {
		ID string `json:"id"`
	}
	if code != http.StatusCreated || json.Unmarshal(text, &made) != nil {
		return fmt.Errorf("make a notification rule: %d %s", code, text)
	}
	return nil
}

// notified waits until nothing is left to send, and compares what came with the
// ledger: each delivery came at least once under its id, and nothing else did.
func (c *chaos) notified(ctx context.Context, control *pgx.Conn) error {
	deadline := time.Now().Add(patience)
	for {
		var left int
		if err := control.QueryRow(ctx, `SELECT count(*) FROM tranship.notification_deliveries WHERE state <> 'sent'`).Scan(&left); err != nil {
			return err
		}
		if left == 0 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d notifications are not sent after %s", left, patience)
		}
		time.Sleep(200 * time.Millisecond)
	}
	rows, err := control.Query(ctx, `SELECT id::text FROM tranship.notification_deliveries`)
	if err != nil {
		return err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	c.receiver.mu.Lock()
	defer c.receiver.mu.Unlock()
	again := 0
	for _, id := range ids {
		n := c.receiver.seen[id]
		if n == 0 {
			return fmt.Errorf("notification %s is in the ledger as sent and never came", id)
		}
		again += n - 1
	}
	if len(ids) != len(c.receiver.seen) {
		return fmt.Errorf("%d notifications came, the ledger has %d", len(c.receiver.seen), len(ids))
	}
	c.tally["notification sent"], c.tally["notification sent again under its id"] = len(ids), again
	return nil
}
