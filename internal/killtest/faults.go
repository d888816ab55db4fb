package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// fault is one disturbance other than killing the process.
type fault struct {
	name string
	run  func(context.Context, *harness) (string, error)
}

func faults(outage time.Duration) []fault {
	return []fault{
		{"severed-connections", severed},
		{"source-stopped", func(ctx context.Context, h *harness) (string, error) { return sourceStopped(ctx, h, outage) }},
		{"disk-full", diskFull},
	}
}

// severed terminates our sessions at both ends again and again; one process has
// to get through by itself.
func severed(ctx context.Context, h *harness) (string, error) {
	s := scenario{"severed", postgresPipeline("full", "replace", "", "digest", ", consistency: chunked"), changeAll, comparePostgres}
	p, err := h.place(ctx, s)
	if err != nil {
		return "", err
	}
	defer p.close(ctx)
	cmd, out, err := p.tranship("run")
	if err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() {
		done, err := wait(cmd, out)
		if err == nil && !done {
			err = errors.New("the process was killed by somebody else")
		}
		ended <- err
	}()
	cuts := 0
	for {
		select {
		case err := <-ended:
			if err != nil {
				return "", err
			}
			n, err := comparePostgres(ctx, p)
			return fmt.Sprintf("%d sessions cut, %d rows equal", cuts, n), err
		case <-time.After(150 * time.Millisecond):
		}
		if cuts >= 20 {
			continue
		}
		for _, c := range []*pgx.Conn{p.src, p.dst} {
			var n int
			if err := c.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'tranship%'`).Scan(&n); err != nil {
				return "", err
			}
			cuts += n
		}
	}
}

// sourceStopped shuts the source down in the middle of a run and brings it back.
func sourceStopped(ctx context.Context, h *harness, outage time.Duration) (string, error) {
	s := scenario{"stopped", postgresPipeline("incremental", "append", ", cursor: updated_at", "counts", ""), addRows, comparePostgres}
	p, err := h.place(ctx, s)
	if err != nil {
		return "", err
	}
	cmd, out, err := p.tranship("run")
	if err != nil {
		return "", err
	}
	time.Sleep(400 * time.Millisecond)
	if err := h.source.Kill(); err != nil {
		return "", err
	}
	time.Sleep(outage)
	if err := h.source.Restart(ctx); err != nil {
		return "", err
	}
	done, err := wait(cmd, out)
	if err != nil {
		// Giving up is allowed if the run can be resumed; then it has to go on.
		if !errors.Is(err, errExit) {
			return "", err
		}
		if _, err := p.complete(); err != nil {
			return "", err
		}
	} else if !done {
		return "", errors.New("the process was killed by somebody else")
	}
	_ = p.src.Close(ctx)
	if p.src, err = pgx.Connect(ctx, p.srcURL); err != nil {
		return "", err
	}
	defer p.close(ctx)
	n, err := comparePostgres(ctx, p)
	return fmt.Sprintf("source away for %s, %d rows equal", outage, n), err
}

// diskFull fills the destination's tablespace: the run fails with a message, the
// old rows stay visible, and after making room the run goes on.
func diskFull(ctx context.Context, h *harness) (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("tranship-small-%d", os.Getpid()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		return "SKIPPED: this machine lets us mount no small file system: " + err.Error(), nil
	}
	defer func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }()
	space := filepath.Join(dir, "space")
	if err := os.Mkdir(space, 0o700); err != nil {
		return "", err
	}
	if err := h.sink.Chown(space); err != nil {
		return "", err
	}
	s := scenario{"full", postgresPipeline("full", "replace", "", "counts", ", consistency: chunked"), changeAll, comparePostgres}
	p, err := h.place(ctx, s)
	if err != nil {
		return "", err
	}
	defer p.close(ctx)
	for _, q := range []string{"CREATE TABLESPACE small LOCATION '" + space + "'", "ALTER DATABASE " + pgx.Identifier{p.dst.Config().Database}.Sanitize() + " SET default_tablespace = 'small'"} {
		if _, err := p.dst.Exec(ctx, q); err != nil {
			return "", err
		}
	}
	defer func() {
		_, _ = p.dst.Exec(ctx, "DROP TABLE public.items")
		_, _ = p.dst.Exec(ctx, "DROP SCHEMA _tranship CASCADE")
		_, _ = p.dst.Exec(ctx, "DROP TABLESPACE small")
	}()
	// The first version of the table fits; the second beside it does not.
	if _, err := p.src.Exec(ctx, "DELETE FROM public.items WHERE id >= 20000"); err != nil {
		return "", err
	}
	if _, err := p.complete(); err != nil {
		return "", fmt.Errorf("first load: %w", err)
	}
	before, err := comparePostgres(ctx, p)
	if err != nil {
		return "", err
	}
	if err := p.insert(ctx, h.rows); err != nil {
		return "", err
	}
	cmd := exec.Command(h.binary, "run", "-f", p.file, "--state", filepath.Join(p.dir, "state.db"))
	cmd.Dir = p.dir
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		return "", errors.Join(fmt.Errorf("with a full disk the run did not end with exit code 1:\n%s", tail(string(out))), err)
	}
	if !strings.Contains(string(out), "No space left on device") || !strings.Contains(string(out), "public.items") {
		return "", fmt.Errorf("the message names neither the full disk nor the resource:\n%s", tail(string(out)))
	}
	var still int64
	if err := p.dst.QueryRow(ctx, "SELECT count(*) FROM public.items").Scan(&still); err != nil {
		return "", err
	}
	if still != before {
		return "", fmt.Errorf("the old rows are not whole: %d of %d", still, before)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=400m"); err != nil {
		return "", err
	}
	if _, err := p.complete(); err != nil {
		return "", fmt.Errorf("after making room: %w", err)
	}
	n, err := comparePostgres(ctx, p)
	return fmt.Sprintf("old %d rows stayed, then %d rows equal", before, n), err
}
