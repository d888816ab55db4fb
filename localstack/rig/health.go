package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"
)

// executorChosen is what the plug-in logs when LocalStack takes its executor. An
// executor that isn't found falls back to Docker, silently.
const executorChosen = "Lambda runtime executor: process"

// waitHealthy returns when every service answers and the log shows our executor.
func (c *Core) waitHealthy(ctx context.Context) error {
	last := errors.New("it does not answer")
	for {
		select {
		case <-c.done:
			return errors.New("it ended")
		case <-ctx.Done():
			return fmt.Errorf("it is not healthy: %w", last)
		case <-time.After(200 * time.Millisecond):
		}
		if last = c.healthy(ctx); last != nil {
			continue
		}
		log, err := os.ReadFile(c.LogPath())
		if err != nil {
			return err
		}
		if !bytes.Contains(log, []byte(executorChosen)) {
			return errors.New("it runs without the process executor of localstack/plugin")
		}
		return nil
	}
}

func (c *Core) healthy(ctx context.Context) error {
	var health struct {
		Services map[string]string `json:"services"`
	}
	if err := c.call(ctx, http.MethodGet, "/_localstack/health", &health); err != nil {
		return err
	}
	for name, state := range health.Services {
		if state == "error" {
			return fmt.Errorf("service %s is in error", name)
		}
	}
	return nil
}

// Environment is one execution environment of a function.
type Environment struct {
	ID       string `json:"id"`
	Function string `json:"function"`
	Pid      int    `json:"pid"`
	// State is starting, running, frozen (between invocations) or gone.
	State string `json:"state"`
	// Request is the id of the invocation that runs.
	Request string `json:"request"`
}

// Environments lists the execution environments that exist now.
func (c *Core) Environments(ctx context.Context) ([]Environment, error) {
	var answer struct {
		Environments []Environment `json:"environments"`
	}
	err := c.call(ctx, http.MethodGet, "/_tranship/environments", &answer)
	return answer.Environments, err
}

// Kill sends SIGKILL to an environment's process, whatever it does.
func (c *Core) Kill(ctx context.Context, id string) error {
	var answer Environment
	return c.call(ctx, http.MethodPost, "/_tranship/environments/"+id+"/kill", &answer)
}

func (c *Core) call(ctx context.Context, method, path string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, c.endpoint+path, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: status %s", method, path, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}
