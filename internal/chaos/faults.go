package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/internal/pgtest"
)

// breakThings breaks something every other moment until the time is over, and
// leaves everything running.
func (c *chaos) breakThings(ctx context.Context) error {
	faults := []struct {
		name string
		do   func(context.Context) error
	}{
		{"SIGKILL of a process", c.kill},
		{"cut connections to the control database", func(ctx context.Context) error { return cut(ctx, c.control, "control") }},
		{"restart of the control database's server", func(ctx context.Context) error { return c.control.Restart(ctx) }},
		{"cut connections to source and target", func(ctx context.Context) error { return cut(ctx, c.data, "source", "target") }},
		{"SIGKILL of a process", c.kill},
		{"restart of the data server", func(ctx context.Context) error { return c.data.Restart(ctx) }},
		{"SIGTERM of a process", c.terminate},
		{"cut connections to the control database", func(ctx context.Context) error { return cut(ctx, c.control, "control") }},
	}
	background := context.WithoutCancel(ctx)
	next := 0
	for {
		pause := time.Duration(500+c.random(2500)) * time.Millisecond
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
		// Each kind once, then at random: a short run breaks everything too.
		f := faults[next%len(faults)]
		if next++; next > len(faults) {
			f = faults[c.random(len(faults))]
		}
		if err := f.do(background); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		c.mu.Lock()
		c.tally[f.name]++
		c.mu.Unlock()
	}
}

func (c *chaos) kill(ctx context.Context) error {
	i := c.random(len(c.serves))
	s := c.serves[i]
	runs := c.held(ctx, s.cmd.Process.Pid)
	s.mu.Lock()
	if err := s.cmd.Process.Kill(); err != nil {
		s.mu.Unlock()
		return err
	}
	<-s.done
	s.mu.Unlock()
	c.mu.Lock()
	c.killed = append(c.killed, death{at: time.Now(), runs: runs})
	c.mu.Unlock()
	time.Sleep(time.Duration(c.random(3000)) * time.Millisecond)
	return c.begin(ctx, i)
}

func (c *chaos) terminate(ctx context.Context) error {
	i := c.random(len(c.serves))
	s := c.serves[i]
	s.mu.Lock()
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		s.mu.Unlock()
		return err
	}
	select {
	case <-s.done:
	case <-time.After(40 * time.Second):
		s.mu.Unlock()
		return fmt.Errorf("serve %d does not stop", i)
	}
	s.mu.Unlock()
	return c.begin(ctx, i)
}

// held lists the runs whose lease a process has.
func (c *chaos) held(ctx context.Context, pid int) []string {
	conn, err := pgx.Connect(ctx, c.control.URL("control"))
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, `SELECT run::text FROM tranship.slots WHERE slot = 0 AND holder LIKE '%/' || $1::text || '/%'`, fmt.Sprint(pid))
	if err != nil {
		return nil
	}
	runs, _ := pgx.CollectRows(rows, pgx.RowTo[string])
	return runs
}

// cut ends about half of the sessions in the databases.
func cut(ctx context.Context, s *pgtest.Server, databases ...string) error {
	conn, err := pgx.Connect(ctx, s.URL(""))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = ANY ($1) AND random() < 0.5`, databases)
	return err
}
