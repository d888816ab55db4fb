//go:build unix

package embedpg

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// watchdogScript waits until its standard input closes, which happens when the
// process that holds the other end is gone. The pid is read at that moment, so
// it is right after any number of restarts.
const watchdogScript = `
trap '' HUP INT TERM
read -r word
[ "$word" = done ] && exit 0
pid=$(head -n 1 "$1/postmaster.pid" 2>/dev/null)
if [ -n "$pid" ]; then
	kill -CONT "$pid" 2>/dev/null
	kill -QUIT "$pid" 2>/dev/null
	n=0
	while kill -0 "$pid" 2>/dev/null && [ "$n" -lt 100 ]; do sleep 0.1; n=$((n+1)); done
	kill -KILL "$pid" 2>/dev/null
fi
[ "$2" = remove ] && rm -rf -- "$1"
exit 0
`

// watchdog ends the server when this process dies without doing so itself.
type watchdog struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
	once sync.Once
}

func newWatchdog(dir string, remove bool) (*watchdog, error) {
	mode := "keep"
	if remove {
		mode = "remove"
	}
	cmd := exec.Command("/bin/sh", "-c", watchdogScript, "tranship-pg-watchdog", dir, mode) // it must outlive any context
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start watchdog: %w", err)
	}
	return &watchdog{cmd: cmd, pipe: pipe}, nil
}

// dismiss ends the watchdog without its acting.
func (w *watchdog) dismiss() {
	w.once.Do(func() {
		_, _ = io.WriteString(w.pipe, "done\n")
		_ = w.pipe.Close()
		_ = w.cmd.Wait()
	})
}

// killTree stops a postmaster so that it makes no new child, then kills it and
// all its children, and waits until they are gone. Backends lead process groups
// of their own, so a signal to the postmaster's group would miss them.
func killTree(pid int, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop postmaster %d: %w", pid, err)
	}
	kids, err := children(pid)
	if err != nil {
		return err
	}
	for _, p := range append([]int{pid}, kids...) {
		if err := syscall.Kill(p, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill %d: %w", p, err)
		}
	}
	<-done
	deadline := time.Now().Add(10 * time.Second)
	for _, p := range kids {
		for alive(p) {
			if time.Now().After(deadline) {
				return fmt.Errorf("process %d survives SIGKILL", p)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// alive says whether a process still runs; a zombie does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	state, _, err := procStat(pid)
	return err != nil && !errors.Is(err, os.ErrNotExist) || err == nil && state != "Z" && state != "X"
}

// children lists the direct children of a process.
func children(pid int) ([]int, error) {
	entries, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return childrenByPgrep(pid)
	}
	var kids []int
	for _, e := range entries {
		kid, err := strconv.Atoi(filepath.Base(filepath.Dir(e)))
		if err != nil {
			continue
		}
		if _, parent, err := procStat(kid); err == nil && parent == pid {
			kids = append(kids, kid)
		}
	}
	return kids, nil
}

// procStat reads a process's state and parent from Linux's /proc.
func procStat(pid int) (state string, parent int, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, err
	}
	// The name in parentheses may itself hold spaces and parentheses.
	rest := string(data[strings.LastIndexByte(string(data), ')')+1:])
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return "", 0, fmt.Errorf("unexpected stat of process %d", pid)
	}
	parent, err = strconv.Atoi(fields[1])
	return fields[0], parent, err
}

// childrenByPgrep serves systems without /proc.
func childrenByPgrep(pid int) ([]int, error) {
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(pid)).Output() // it ends at once
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 1 {
			return nil, nil // none
		}
		return nil, err
	}
	var kids []int
	for f := range strings.FieldsSeq(string(out)) {
		kid, err := strconv.Atoi(f)
		if err != nil {
			return nil, err
		}
		kids = append(kids, kid)
	}
	return kids, nil
}
