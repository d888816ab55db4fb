package ecs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// task is one task and its process.
type task struct {
	document document
	// stop is closed when the task shall end.
	stop chan struct{}
}

// document is a task as AWS shows it, in answers and in events.
type document struct {
	TaskArn           string      `json:"taskArn"`
	ClusterArn        string      `json:"clusterArn"`
	TaskDefinitionArn string      `json:"taskDefinitionArn"`
	LastStatus        string      `json:"lastStatus"`
	DesiredStatus     string      `json:"desiredStatus"`
	LaunchType        string      `json:"launchType"`
	StartedBy         string      `json:"startedBy,omitempty"`
	Group             string      `json:"group,omitempty"`
	Version           int         `json:"version"`
	CreatedAt         float64     `json:"createdAt"`
	StartedAt         float64     `json:"startedAt,omitempty"`
	StoppingAt        float64     `json:"stoppingAt,omitempty"`
	StoppedAt         float64     `json:"stoppedAt,omitempty"`
	StopCode          string      `json:"stopCode,omitempty"`
	StoppedReason     string      `json:"stoppedReason,omitempty"`
	Containers        []container `json:"containers"`
	Overrides         overrides   `json:"overrides"`
	Tags              []tag       `json:"tags,omitempty"`
}

type container struct {
	ContainerArn string `json:"containerArn"`
	TaskArn      string `json:"taskArn"`
	Name         string `json:"name"`
	LastStatus   string `json:"lastStatus"`
	ExitCode     *int   `json:"exitCode,omitempty"`
	Reason       string `json:"reason,omitempty"`
}

func now() float64 { return float64(time.Now().UnixMilli()) / 1000 }

// changeLocked moves a task on and tells EventBridge.
func (s *Shim) changeLocked(t *task, status string) {
	t.document.LastStatus = status
	t.document.Version++
	// A new slice: answers in flight hold the old one.
	t.document.Containers = slices.Clone(t.document.Containers)
	t.document.Containers[0].LastStatus = status
	if s.config.Events == nil {
		return
	}
	detail, err := json.Marshal(eventDetail(t.document))
	if err != nil {
		s.config.Log.Error("task event: " + err.Error())
		return
	}
	times := 1
	if s.faults.EventsTwice {
		times = 2
	}
	for range times {
		s.running.Go(func() {
			if err := s.config.Events(context.Background(), detail); err != nil {
				s.config.Log.Error("task event: " + err.Error())
			}
		})
	}
}

// eventDetail is the document with its times as text, as events have them.
func eventDetail(d document) map[string]any {
	detail := map[string]any{}
	text, _ := json.Marshal(d) //nolint:errchkjson // strings and numbers only
	_ = json.Unmarshal(text, &detail)
	for name, value := range detail {
		if at, ok := value.(float64); ok && name != "version" {
			detail[name] = time.UnixMilli(int64(at * 1000)).UTC().Format(time.RFC3339Nano)
		}
	}
	return detail
}

func (s *Shim) stopLocked(t *task, code, reason string) {
	if t.document.DesiredStatus == "STOPPED" {
		return
	}
	t.document.DesiredStatus = "STOPPED"
	t.document.StopCode = code
	t.document.StoppedReason = reason
	t.document.StoppingAt = now()
	close(t.stop)
}

// live is a task's life: its start, its process, its end.
func (s *Shim) live(t *task, o overrides, dies bool) {
	var err error
	exitCode := -1
	if dies {
		err = errors.New("CannotPullContainerError: pull image manifest has been retried 1 time(s)")
	} else {
		exitCode, err = s.process(t, o)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := slices.Clone(t.document.Containers)
	if err != nil {
		s.stopLocked(t, "TaskFailedToStart", err.Error())
		c[0].Reason = err.Error()
	} else {
		s.stopLocked(t, "EssentialContainerExited", "Essential container in task exited")
		c[0].ExitCode = &exitCode
	}
	t.document.Containers = c
	t.document.StoppedAt = now()
	s.changeLocked(t, "STOPPED")
}

// process runs the program and returns its exit code, 128 + n for signal n, or an
// error if it did not start.
func (s *Shim) process(t *task, o overrides) (int, error) {
	env := map[string]string{"PATH": os.Getenv("PATH")}
	if s.config.Environment != nil {
		definition, err := s.config.Environment(context.Background())
		if err != nil {
			return 0, fmt.Errorf("ResourceInitializationError: %w", err)
		}
		maps.Copy(env, definition)
	}
	var args []string
	for _, c := range o.ContainerOverrides {
		args = append(args, c.Command...)
		for _, v := range c.Environment {
			env[v.Name] = v.Value
		}
	}
	cmd := exec.Command(s.config.Program, args...)
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	output, err := s.output(t)
	if err != nil {
		return 0, err
	}
	defer output.Close()
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	select {
	case <-t.stop:
		return 0, errors.New("stopped before it started")
	default:
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("CannotStartContainerError: %w", err)
	}
	s.mu.Lock()
	t.document.StartedAt = now()
	s.changeLocked(t, "RUNNING")
	s.mu.Unlock()

	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the process state says all
		close(ended)
	}()
	select {
	case <-ended:
	case <-t.stop:
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(s.config.StopTimeout):
			_ = cmd.Process.Kill()
			<-ended
		}
	}
	return exitCode(cmd.ProcessState), nil
}

func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

func (s *Shim) output(t *task) (io.WriteCloser, error) {
	if s.config.LogDir == "" {
		return os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	return os.Create(filepath.Join(s.config.LogDir, "task-"+filepath.Base(t.document.TaskArn)+".log"))
}
