package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
)

// drive starts run after run of a pipeline until the time is over, and waits for
// the end of the last one.
func (c *chaos) drive(ctx, over context.Context, p *pipe) error {
	for over.Err() == nil || len(p.completed) == 0 {
		id, err := c.start(ctx, p)
		if err != nil {
			return err
		}
		if err := c.follow(ctx, p, id); err != nil {
			return err
		}
		p.completed = append(p.completed, id)
	}
	return nil
}

// patience is how long nothing may answer, or a run may take.
const patience = 3 * time.Minute

// any asks either process, until one gives an answer that is not about being away.
func (c *chaos) any(ctx context.Context, method, path, body, key string) (int, []byte, error) {
	deadline := time.Now().Add(patience)
	for {
		code, text, err := c.request(ctx, c.serves[c.random(2)].port, method, path, body, key)
		if err == nil && code != http.StatusServiceUnavailable && code != http.StatusTooManyRequests {
			return code, text, nil
		}
		if time.Now().After(deadline) {
			return code, text, fmt.Errorf("%s %s: no answer for %s: %d %w", method, path, patience, code, err)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		}
	}
}

func (c *chaos) random(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

func (c *chaos) start(ctx context.Context, p *pipe) (string, error) {
	// The same request, however often its answer is lost, makes one run.
	code, text, err := c.any(ctx, http.MethodPost, "/v1/runs", fmt.Sprintf(`{"pipeline":%q}`, p.name), uuid.NewString())
	if err != nil {
		return "", err
	}
	var list struct {
		Items []struct {
			ID string `json:"id"`
		} `json:"items"`
	}
	if code != http.StatusAccepted || json.Unmarshal(text, &list) != nil || len(list.Items) != 1 {
		return "", fmt.Errorf("start %s: %d %s", p.name, code, text)
	}
	return list.Items[0].ID, nil
}

func (c *chaos) follow(ctx context.Context, p *pipe, id string) error {
	deadline := time.Now().Add(patience)
	for {
		code, text, err := c.any(ctx, http.MethodGet, "/v1/runs/"+id, "", "")
		if err != nil {
			return err
		}
		var r struct {
			State string `json:"state"`
			Error string `json:"error"`
			// Resumable is true where a run that failed can go on.
			Resumable bool `json:"resumable"`
		}
		if code != http.StatusOK || json.Unmarshal(text, &r) != nil {
			return fmt.Errorf("look at run %s of %s: %d %s", id, p.name, code, text)
		}
		if r.State == "completed" {
			return nil
		}
		// Faults that came so fast that three attempts in a row were lost before a
		// checkpoint end a run (P24); then a person looks, and resumes it.
		if r.State == "failed" && r.Resumable && strings.Contains(r.Error, "lost without progress") {
			if code, text, err = c.any(ctx, http.MethodPost, "/v1/runs/"+id+"/resume", "", uuid.NewString()); err != nil {
				return err
			}
			if code >= http.StatusBadRequest {
				return fmt.Errorf("resume run %s of %s: %d %s", id, p.name, code, text)
			}
			c.mu.Lock()
			c.tally["run resumed after three lost attempts"]++
			c.mu.Unlock()
			deadline = time.Now().Add(patience)
			continue
		}
		switch r.State {
		case "failed", "canceled", "paused":
			return fmt.Errorf("run %s of %s is %s: %s", id, p.name, r.State, r.Error)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("run %s of %s is %s for more than %s", id, p.name, r.State, patience)
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
