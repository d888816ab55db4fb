package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tranship-io/tranship/internal/pgtest"
)

type harness struct {
	binary       string
	dir          string
	rng          *rand.Rand
	rows         int
	source, sink *pgtest.Server
}

// place is one scenario's databases, folder and pipeline file.
type place struct {
	h              *harness
	dir            string
	srcURL, dstURL string
	file           string
	src, dst       *pgx.Conn
	next           int64
}

func (h *harness) place(ctx context.Context, s scenario) (*place, error) {
	name := strings.NewReplacer("-", "_", " ", "_").Replace(s.name)
	p := &place{h: h, dir: filepath.Join(h.dir, name)}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return nil, err
	}
	for _, end := range []struct {
		srv  *pgtest.Server
		url  *string
		conn **pgx.Conn
	}{{h.source, &p.srcURL, &p.src}, {h.sink, &p.dstURL, &p.dst}} {
		admin, err := pgx.Connect(ctx, end.srv.URL(""))
		if err != nil {
			return nil, err
		}
		_, err = admin.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
		_ = admin.Close(ctx)
		if err != nil {
			return nil, err
		}
		*end.url = end.srv.URL(name)
		if *end.conn, err = pgx.Connect(ctx, *end.url); err != nil {
			return nil, err
		}
	}
	if _, err := p.src.Exec(ctx, tableDDL); err != nil {
		return nil, err
	}
	if err := p.insert(ctx, h.rows); err != nil {
		return nil, err
	}
	p.file = filepath.Join(p.dir, "pipeline.yaml")
	return p, os.WriteFile(p.file, []byte(s.pipeline(p)), 0o644)
}

func (p *place) close(ctx context.Context) {
	_ = p.src.Close(ctx)
	_ = p.dst.Close(ctx)
}

const tableDDL = `CREATE TABLE public.items (
  id bigint PRIMARY KEY, grp int NOT NULL, name text NOT NULL, note text, amount numeric(14,3), free numeric,
  ratio double precision, flag boolean, tags text[], doc jsonb, at timestamptz, day date, raw bytea,
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp())`

const rowValues = `g, (g % 97)::int, 'item ' || g, CASE WHEN g % 5 = 0 THEN NULL ELSE repeat('ü' || g, (g % 7)::int) END,
  (g * 1.37)::numeric(14,3), 1 / (g + 1)::numeric, sqrt(g::float8), g % 3 = 0, ARRAY['a' || g, NULL, 'b,"c"'],
  jsonb_build_object('k', g, 'z', 'x' || g), timestamptz '2020-01-01' + g * interval '1.000001 s',
  date '1999-12-31' + (g % 5000)::int, decode(md5(g::text), 'hex')`

// insert adds n rows in several transactions, so that stamps differ.
func (p *place) insert(ctx context.Context, n int) error {
	for n > 0 {
		part := min(n, 5000)
		_, err := p.src.Exec(ctx, `INSERT INTO public.items SELECT `+rowValues+`, clock_timestamp() FROM generate_series($1::bigint, $2::bigint) g`,
			p.next, p.next+int64(part)-1)
		if err != nil {
			return fmt.Errorf("insert source rows: %w", err)
		}
		p.next += int64(part)
		n -= part
	}
	return nil
}

// tranship starts the binary; the returned function waits for its exit code.
func (p *place) tranship(args ...string) (*exec.Cmd, *bytes.Buffer, error) {
	cmd := exec.Command(p.h.binary, append(args, "-f", p.file, "--state", filepath.Join(p.dir, "state.db"))...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Dir = p.dir
	err := cmd.Start()
	return cmd, &out, err
}

var errExit = errors.New("the process failed")

// wait returns true if the process completed, false if it was killed.
func wait(cmd *exec.Cmd, out *bytes.Buffer) (bool, error) {
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &exit) && exit.ExitCode() == -1:
		return false, nil
	}
	return false, fmt.Errorf("%w: %w\n%s", errExit, err, tail(out.String()))
}

func tail(s string) string {
	const most = 6000
	if len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}

// complete runs without killing.
func (p *place) complete() (time.Duration, error) {
	began := time.Now()
	cmd, out, err := p.tranship("run")
	if err != nil {
		return 0, err
	}
	done, err := wait(cmd, out)
	if err == nil && !done {
		err = errors.New("the process was killed by somebody else")
	}
	return time.Since(began), err
}

// stats of one scenario.
type stats struct {
	killed, completed, compared int
	rows                        int64
	took                        time.Duration
}

// killed runs a scenario until the given number of processes were killed.
func (h *harness) killed(ctx context.Context, s scenario, want int) (stats, error) {
	began := time.Now()
	var st stats
	p, err := h.place(ctx, s)
	if err != nil {
		return st, err
	}
	defer p.close(ctx)
	typical, err := p.complete()
	if err != nil {
		return st, err
	}
	check := func() error {
		n, err := s.compare(ctx, p)
		if err != nil {
			return fmt.Errorf("after %d kills and %d completed runs: %w", st.killed, st.completed, err)
		}
		st.completed++
		st.compared++
		st.rows = n
		return nil
	}
	if err := check(); err != nil {
		return st, err
	}
	for st.killed < want {
		if err := s.mutate(ctx, p); err != nil {
			return st, err
		}
		// A run, killed a few times on its way.
		for done := false; !done; {
			if err := ctx.Err(); err != nil {
				return st, err
			}
			cmd, out, err := p.tranship("run")
			if err != nil {
				return st, err
			}
			var timer *time.Timer
			if h.rng.IntN(4) != 0 {
				after := time.Duration(h.rng.Int64N(int64(typical)*11/10 + int64(10*time.Millisecond)))
				timer = time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
			}
			done, err = wait(cmd, out)
			if timer != nil {
				timer.Stop()
			}
			if err != nil {
				return st, err
			}
			if !done {
				st.killed++
			}
		}
		if err := check(); err != nil {
			return st, err
		}
	}
	if err := noLeftovers(ctx, p); err != nil {
		return st, err
	}
	st.took = time.Since(began)
	return st, nil
}

// noLeftovers looks for tables beside the target and for sessions of ours.
func noLeftovers(ctx context.Context, p *place) error {
	var tables string
	err := p.dst.QueryRow(ctx, `SELECT coalesce(string_agg(n.nspname || '.' || c.relname, ', '), '') FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^(pg_|information_schema|_tranship)'
		AND c.relname <> 'items'`).Scan(&tables)
	if err != nil {
		return err
	}
	if tables != "" {
		return fmt.Errorf("tables were left behind: %s", tables)
	}
	for name, c := range map[string]*pgx.Conn{"source": p.src, "destination": p.dst} {
		var n int
		deadline := time.Now().Add(10 * time.Second)
		for {
			if err := c.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'tranship%'`).Scan(&n); err != nil {
				return err
			}
			if n == 0 || time.Now().After(deadline) {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n > 0 {
			return fmt.Errorf("%d sessions are still open at the %s", n, name)
		}
	}
	return nil
}
