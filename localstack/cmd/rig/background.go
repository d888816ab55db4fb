package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stateDir holds what the background process writes, relative to the checkout.
const stateDir = ".localstack"

// stopTimeout is how long the background process may take to stop everything; each
// of its parts has a shorter limit of its own.
const stopTimeout = 60 * time.Second

var (
	pidFile = filepath.Join(stateDir, "rig.pid")
	logFile = filepath.Join(stateDir, "rig.log")
	coreEnv = filepath.Join(stateDir, "core.env")
	fullEnv = filepath.Join(stateDir, "env")
)

// background starts this program again as a session of its own and waits until it
// has written its environment file.
func background(ctx context.Context, envFile string, args ...string) error {
	if pid := runningPid(); pid != 0 {
		return fmt.Errorf("a rig runs already (process %d): make localstack-down stops it", pid)
	}
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return err
	}
	for _, file := range []string{coreEnv, fullEnv} {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	log, err := os.Create(logFile)
	if err != nil {
		return err
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := os.WriteFile(pidFile, []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		if _, err := os.Stat(envFile); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			output, _ := os.ReadFile(logFile)
			return fmt.Errorf("the rig did not start: %w\n%s", err, output)
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), cmd.Process.Signal(syscall.SIGTERM))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// down stops the background process: by SIGTERM, after a while by SIGKILL, upon
// which the core notices that its owner has gone.
func down(ctx context.Context) error {
	pid := runningPid()
	if pid == 0 {
		fmt.Println("no rig runs")
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return err
	}
	deadline := time.Now().Add(stopTimeout)
	for runningPid() == pid {
		if time.Now().After(deadline) {
			fmt.Println("it does not stop: killing it")
			return syscall.Kill(pid, syscall.SIGKILL)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return os.Remove(pidFile)
}

// runningPid is the process in the pid file if it lives and is a rig, else 0.
func runningPid() int {
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !strings.Contains(string(command), "\x00serve-") {
		return 0
	}
	return pid
}

// writeEnv writes a file for a shell's dot command, all at once.
func writeEnv(path string, env map[string]string) error {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(env)) {
		fmt.Fprintf(&b, "export %s='%s'\n", name, strings.ReplaceAll(env[name], "'", `'\''`))
	}
	if err := os.WriteFile(path+".new", []byte(b.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
