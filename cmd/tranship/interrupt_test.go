package main

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/events"
)

// begin starts a run in the background and waits until rows move.
func (p *place) begin(args ...string) <-chan int {
	p.t.Helper()
	p.out, p.err = &buffer{}, &buffer{}
	done := make(chan int, 1)
	a := p.app()
	go func() { done <- a.main(context.Background(), p.args(append([]string{"run", "--json"}, args...))) }()
	out := p.out
	require.Eventually(p.t, func() bool { return strings.Contains(out.String(), string(events.TypeSplitClaimed)) }, 20*time.Second, 20*time.Millisecond)
	return done
}

func waitFor(t *testing.T, done <-chan int) int {
	t.Helper()
	select {
	case code := <-done:
		return code
	case <-time.After(30 * time.Second):
		t.Fatal("the command does not end")
		return -1
	}
}

func TestInterruptPausesAndRunGoesOn(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.pipeline(", rows: 300, delay_ms: 50")
	done := p.begin()
	time.Sleep(300 * time.Millisecond)
	p.signals <- syscall.SIGTERM
	assert.Equal(t, exitPaused, waitFor(t, done), p.err)
	facts := p.facts()
	run := facts[0].RunID
	assert.Equal(t, events.TypeRunPaused, facts[len(facts)-1].Type, "the last fact says so")
	assert.Zero(t, p.rows(), "nothing is visible yet")

	p.pipeline(", rows: 300, delay_ms: 50", "# a comment changes nothing", "resources: [{name: main.numbers}]", "settings: {slots: 1}")
	require.Equal(t, exitOK, p.run("run", "--json"), p.err)
	again := p.facts()
	assert.Equal(t, run, again[0].RunID, "the same run goes on")
	assert.Equal(t, facts[len(facts)-1].Number+1, again[0].Number, "only new facts are written")
	assert.Equal(t, 300, p.rows())
}

func TestSecondInterruptEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.pipeline(", rows: 20, delay_ms: 60000")
	done := p.begin()
	p.signals <- syscall.SIGINT
	require.Eventually(t, func() bool { return strings.Contains(p.err.String(), "interrupt again") }, 10*time.Second, 10*time.Millisecond)
	begin := time.Now()
	p.signals <- syscall.SIGINT
	assert.Equal(t, exitPaused, waitFor(t, done), p.err)
	assert.Less(t, time.Since(begin), 20*time.Second)

	p.pipeline(", rows: 20")
	require.Equal(t, exitOK, p.run("run"), p.err)
	assert.Equal(t, 20, p.rows())
}

func TestInterruptBeforeARun(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.pipeline(", wait_ms: 60000")
	p.signals <- syscall.SIGINT
	assert.Equal(t, exitPaused, p.run("run"))
	assert.Contains(t, p.err.String(), "stopped before a run was begun")
}

func TestInterruptOfOtherCommands(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.pipeline(", wait_ms: 60000")
	for _, command := range []string{"plan", "discover"} {
		p.signals = make(chan os.Signal, 2)
		p.signals <- syscall.SIGINT
		assert.Equal(t, exitFailed, p.run(command))
		assert.Equal(t, "error: interrupted\n", p.err.String())
	}
}

func TestPauseCancelAndSecondProcess(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.pipeline(", rows: 3000, delay_ms: 50")
	done := p.begin()
	first, firstErr := p.out, p.err

	other := &place{t: t, dir: p.dir, env: p.env, signals: make(chan os.Signal), out: &buffer{}, err: &buffer{}}
	assert.Equal(t, exitUsage, other.run("run"), "a second process is refused")
	assert.Contains(t, other.err.String(), "another process works on this run")
	assert.Equal(t, exitUsage, other.run("reset", "main.numbers"))

	require.Equal(t, exitOK, other.run("pause", "latest"), other.err)
	assert.Equal(t, exitPaused, waitFor(t, done), firstErr)
	assert.Contains(t, first.String(), string(events.TypeRunPaused))

	done = p.begin()
	require.Equal(t, exitOK, other.run("cancel", "latest"), other.err)
	assert.Equal(t, exitCanceled, waitFor(t, done), p.err)
	require.Equal(t, exitOK, other.run("runs"))
	assert.Contains(t, other.out.String(), "canceled")
	assert.Equal(t, exitOK, other.run("cancel", "latest"), "asking twice changes nothing")
	assert.Equal(t, exitOK, other.run("reset", "main.numbers"), other.err)
	assert.Equal(t, exitUsage, other.run("reset", "main.others"))
	assert.Contains(t, other.err.String(), "does not replicate main.others")
}
