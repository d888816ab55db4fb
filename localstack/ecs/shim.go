// Package ecs is the part of Amazon ECS that runs tasks, on this machine: RunTask,
// DescribeTasks, ListTasks and StopTask in AWS's JSON 1.1 protocol. A task is a
// process of one program, with the environment that its task definition would give
// it and its overrides. StopTask sends SIGTERM and, after the stop timeout, SIGKILL;
// a task that ends is STOPPED with its exit code, and each change of state is put to
// EventBridge as a task state change event.
//
// Faults make it misbehave as ECS does on bad days: throttling, no capacity, tasks
// that die at their start, events that come twice.
package ecs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Config says what a task is.
type Config struct {
	// Program is the binary of the one container.
	Program string
	// Container is the container's name, which overrides refer to; empty: worker.
	Container string
	// Environment is what the task definition sets, asked for at each start. Nil
	// means nothing.
	Environment func(ctx context.Context) (map[string]string, error)
	// Events takes the task state change events. Nil drops them.
	Events func(ctx context.Context, detail json.RawMessage) error
	// StopTimeout is the time between SIGTERM and SIGKILL; 0 means 30 s, as on AWS.
	StopTimeout time.Duration
	// LogDir takes one log file per task. Empty drops their output.
	LogDir string
	// Log takes what the shim itself has to say. Nil drops it.
	Log *slog.Logger
}

// Faults are what goes wrong. The zero value is a good day.
type Faults struct {
	// Throttle is how many of the next calls of RunTask are throttled.
	Throttle int `json:"throttle"`
	// NoCapacity is how many of the next calls of RunTask answer a failure for want
	// of capacity.
	NoCapacity int `json:"no_capacity"`
	// DieAtStart is how many of the next tasks stop before their program begins.
	DieAtStart int `json:"die_at_start"`
	// EventsTwice sends every event twice.
	EventsTwice bool `json:"events_twice"`
}

// Shim is the service.
type Shim struct {
	config Config

	mu      sync.Mutex
	faults  Faults
	tasks   map[string]*task // by ARN
	byToken map[string][]string
	running sync.WaitGroup
	closed  bool
}

// New makes a shim without tasks.
func New(config Config) *Shim {
	if config.Container == "" {
		config.Container = "worker"
	}
	if config.StopTimeout == 0 {
		config.StopTimeout = 30 * time.Second
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	return &Shim{config: config, tasks: map[string]*task{}, byToken: map[string][]string{}}
}

// SetFaults replaces the faults.
func (s *Shim) SetFaults(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Close stops all tasks, by SIGTERM and then SIGKILL, and waits for them.
func (s *Shim) Close() {
	s.mu.Lock()
	s.closed = true
	for _, t := range s.tasks {
		s.stopLocked(t, "UserInitiated", "the rig ends")
	}
	s.mu.Unlock()
	s.running.Wait()
}

// targetPrefix names the service in the header X-Amz-Target.
const targetPrefix = "AmazonEC2ContainerServiceV20141113."

// ServeHTTP answers AWS's calls, and PUT /_rig/faults with a Faults document.
func (s *Shim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/_rig/faults" && r.Method == http.MethodPut {
		var f Faults
		if err := json.NewDecoder(r.Body).Decode(&f); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.SetFaults(f)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	answer, err := s.call(strings.TrimPrefix(r.Header.Get("X-Amz-Target"), targetPrefix), json.NewDecoder(r.Body))
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	if err != nil {
		var e *apiError
		if !errors.As(err, &e) {
			e = &apiError{Code: "ClientException", Message: err.Error()}
		}
		w.WriteHeader(http.StatusBadRequest)
		answer = e
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		s.config.Log.Debug("answer not sent", "error", err)
	}
}

// apiError is an error in the protocol's form.
type apiError struct {
	Code    string `json:"__type"`
	Message string `json:"message"`
}

// Error makes it an error.
func (e *apiError) Error() string { return e.Code + ": " + e.Message }

func (s *Shim) call(action string, body *json.Decoder) (any, error) {
	switch action {
	case "RunTask":
		return serve(body, s.runTask)
	case "DescribeTasks":
		return serve(body, s.describeTasks)
	case "ListTasks":
		return serve(body, s.listTasks)
	case "StopTask":
		return serve(body, s.stopTask)
	}
	return nil, fmt.Errorf("action %q is not simulated", action)
}

func serve[In, Out any](body *json.Decoder, do func(In) (Out, error)) (any, error) {
	var in In
	if err := body.Decode(&in); err != nil {
		return nil, &apiError{Code: "SerializationException", Message: err.Error()}
	}
	return do(in)
}
